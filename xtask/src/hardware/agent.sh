# Runs messages until its input ends, or until no message arrives for PATIENCE seconds. Then it kills the processes that
# it started, and runs the lines of $STATE.undo, latest first. A message is a kind, a line break and a body, and ends with
# NUL; so does a reply, with a status in place of the kind.
PATH=$PATH:/usr/sbin:/sbin
# Children inherit ignored signals, but no handlers.
trap : HUP INT TERM PIPE

reply() { printf '%s\n%s\0' "$1" "$2" 2> /dev/null; }

revert() {
    local steps index
    mapfile -t steps < "$STATE.undo"
    for ((index = ${#steps[@]} - 1; index >= 0; index--)); do
        timeout -k 5 60 sh -c "${steps[index]}" > /dev/null 2>&1 < /dev/null 9>&-
    done
    rm -f "$STATE.undo"
}

handle() {
    local body=${1#*$'\n'} out status
    case ${1%%$'\n'*} in
    undo)
        printf '%s\n' "$body" >> "$STATE.undo"
        reply "$?" ""
        ;;
    run)
        status=0
        out=$(timeout -k 5 60 sh -ec "$body" 2> "$folder/stderr" < /dev/null 9>&-) || status=$?
        [ "$status" = 0 ] || out+=$(tail -c 4000 "$folder/stderr")
        reply "$status" "$out"
        ;;
    start)
        # The signal is not sent if this shell has died earlier.
        setpriv --pdeathsig KILL sh -c "[ \$PPID = $$ ] || exit 1; $body" > /dev/null 2>&1 < /dev/null 9>&- &
        reply 0 "$!"
        ;;
    wait)
        wait "$body"
        reply 0 "$?"
        ;;
    esac
}

# Ends the output of the login shell.
printf '\0'
for tool in flock setpriv timeout mktemp; do
    command -v "$tool" > /dev/null || { reply 1 "$tool is missing: apt-get install util-linux coreutils"; exit; }
done
exec 9> "$STATE.lock"
flock -n 9 || { reply 1 "another measurement runs there, or reverts its changes: wait for its end"; exit; }
leftover=
[ ! -e "$STATE.undo" ] || { leftover=yes && revert; }
folder=$(mktemp -d /tmp/cairn-hardware.XXXXXX) || { reply 1 "no folder in /tmp"; exit; }
printf 'rm -rf %s\n' "$folder" > "$STATE.undo"
reply 0 "$folder $leftover"
while IFS= read -r -d '' ${PATIENCE:+-t "$PATIENCE"} message; do
    [ -z "$message" ] || handle "$message"
done
kill -KILL $(jobs -p) 2> /dev/null
wait
revert
