# What every scenario stands on: narration, assertions, bounded waits, clean-up.
#
# Sourced, never run. A scenario is a list of commands, with `step` and `say` between them, that must
# succeed (set -e) and of assertions that say what was expected. The first failure ends it.

LIB=${LIB:-/cairn/tests/lib}
OUT=${OUT:-/cairn/out}

# shellcheck source=fabric.sh
. "$LIB/fabric.sh"
# shellcheck source=target.sh
. "$LIB/target.sh"
# shellcheck source=host.sh
. "$LIB/host.sh"
# shellcheck source=disk.sh
. "$LIB/disk.sh"
# shellcheck source=nvmet.sh
. "$LIB/nvmet.sh"
# shellcheck source=nfs.sh
. "$LIB/nfs.sh"
# shellcheck source=spdk.sh
. "$LIB/spdk.sh"

begin_scenario() {
    set -Eeuo pipefail
    trap 'report_failure "$LINENO" "$BASH_COMMAND" "$?"' ERR
    trap leave_scenario EXIT
}

# run_suite NAME: the steps of suites/NAME.sh, on the fabric and the target that were chosen.
# shellcheck source=/dev/null
run_suite() { . "$LIB/../suites/$1.sh"; }

end_scenario() {
    trap - ERR
    SCENARIO_COMPLETE=1
}

# Whatever happened: end what we started, so that its logs are whole.
leave_scenario() {
    local code=$?
    trap - ERR EXIT
    set +e
    # A script that ends by `exit 0` halfway has not shown what it promises.
    if [ "$code" -eq 0 ] && [ -z "${SCENARIO_COMPLETE:-}" ]; then
        echo "FAILED: the script left before its end"
        code=1
    fi
    abandon_target
    # A scenario whose logs are elsewhere has this function.
    if declare -F keep_logs > /dev/null; then keep_logs; fi
    exit "$code"
}

report_failure() {
    # Subshells inherit the trap; the outermost shell reports, with the innermost line of the story.
    [ "$BASH_SUBSHELL" -eq 0 ] || return 0
    local where="line $1" command=$2 code=$3 depth
    for ((depth = ${#BASH_SOURCE[@]} - 1; depth > 0; depth--)); do
        case ${BASH_SOURCE[depth]} in
        */scenarios/* | */suites/*)
            where="${BASH_SOURCE[depth]##*/} line ${BASH_LINENO[depth - 1]}"
            ;;
        esac
    done
    echo "FAILED: exit code $code from: $command ($where)"
}

# reboot_guest: at the end of this boot's part, the machine starts again, and the script with it. It takes
# systemd (`# vm: systemd`); BOOT counts.
reboot_guest() { touch "$OUT/reboot"; }

# --- narration ---------------------------------------------------------------------------------

step() { printf '\n--- %s (%s s)\n' "$*" "$SECONDS"; }
say() { printf '%s\n' "$*"; }

# Shows a command as a person would type it, then runs it.
show() {
    printf '\n# %s\n' "$*"
    "$@"
}

# Ends the scenario with a reason. From within $(...) it ends only that: assign the output first,
# so that set -e sees the failure.
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# --- assertions --------------------------------------------------------------------------------

# Each assertion fails on empty input: a program that prints nothing has shown nothing. What is expected
# to be empty is asserted by assert_empty.

SHA256_OF_NOTHING=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855

# assert_eq WHAT EXPECTED ACTUAL
assert_eq() {
    case $2 in
    '' | null) fail "$1: nothing is expected ('$2'); use assert_empty for that" ;;
    "$SHA256_OF_NOTHING"*) fail "$1: the checksum of no bytes is expected" ;;
    esac
    [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
    say "ok: $1: $3"
}

# assert_empty WHAT COMMAND...: the command succeeds and prints nothing.
assert_empty() {
    local what=$1 output
    shift
    output=$("$@") || fail "$what: exit code $? from: $*"
    [ -z "$output" ] || fail "$what: none were expected, got '$output'"
    say "ok: $what: none"
}

# assert_le WHAT ACTUAL LIMIT (integers)
assert_le() {
    [ "$2" -le "$3" ] || fail "$1: $2 is more than $3"
    say "ok: $1: $2 (limit $3)"
}

# assert_ge WHAT ACTUAL MINIMUM (integers)
assert_ge() {
    [ "$2" -ge "$3" ] || fail "$1: $2 is less than $3"
    say "ok: $1: $2 (at least $3)"
}

# assert_contains WHAT NEEDLE TEXT
assert_contains() {
    [ -n "$2" ] || fail "$1: an empty text is part of every text"
    case $3 in
    *"$2"*) say "ok: $1: $2" ;;
    *) printf '%s\n' "$3"; fail "$1: '$2' is missing above" ;;
    esac
}

# assert_json WHAT JQ_CONDITION JSON: the text is one JSON value, and the condition yields at least one
# result and nothing but `true`. (jq 1.6 alone succeeds on empty input.)
assert_json() {
    if ! jq --exit-status --slurp "length == 1 and (.[0] | [$2] | length > 0 and all(. == true))" \
        > /dev/null <<< "$3"; then
        printf '%s\n' "$3"
        fail "$1: $2 does not hold above"
    fi
    say "ok: $1"
}

# assert_fails WHAT COMMAND...: the command runs and fails. A command that cannot be run at all (126, 127)
# has shown nothing.
assert_fails() {
    local what=$1 code=0
    shift
    "$@" > /dev/null 2>&1 || code=$?
    case $code in
    0) fail "$what: '$*' should have failed" ;;
    126 | 127) fail "$what: '$*' could not be run (exit code $code)" ;;
    esac
    say "ok: $what"
}

# --- waiting -----------------------------------------------------------------------------------

# An emulated machine beside builds is this much slower than alone. What comes in time does not wait
# any longer for it.
PATIENCE=3

# wait_for SECONDS WHAT COMMAND...: until the command succeeds, no longer than so many seconds of a
# machine at rest.
wait_for() {
    local deadline=$((SECONDS + $1 * PATIENCE)) what=$2
    shift 2
    until "$@" > /dev/null 2>&1; do
        [ "$SECONDS" -lt "$deadline" ] || fail "gave up waiting for $what"
        sleep 0.2
    done
}

# --- the kernel's log --------------------------------------------------------------------------

# The lines that the kernel logs after mark_kernel_log are printed by kernel_news. The mark is a line of its
# own in the kernel's log, so a log that has lost it, or that cannot be read, is an error and not silence.
mark_kernel_log() {
    KERNEL_LOG_MARK="cairn: mark $((${KERNEL_LOG_MARKS:-0} + 1)) of $$"
    KERNEL_LOG_MARKS=$((${KERNEL_LOG_MARKS:-0} + 1))
    # The kernel drops lines of programs that write more than ten in five seconds, unless told otherwise.
    echo on > /proc/sys/kernel/printk_devkmsg
    echo "<6>$KERNEL_LOG_MARK" > /dev/kmsg
}
kernel_news() {
    local log
    log=$(dmesg) || fail "dmesg: exit code $?"
    case $log in
    *"${KERNEL_LOG_MARK:-mark_kernel_log was not called}"*) ;;
    *) fail "the kernel's log has lost its mark '${KERNEL_LOG_MARK:-}'" ;;
    esac
    printf '%s\n' "${log#*"$KERNEL_LOG_MARK"}" | tail -n +2
}

# A keep alive that took more than a quarter of KATO (5 s), and less than KATO. A second in which the
# target's process or a processor of the guest stands still is enough: see the traps in vm-lab.md.
SLOW_KEEP_ALIVE='long keepalive RTT \(([0-9]{1,3}|[1-4][0-9]{3}) ms\)'

# The NSIDs, separated by `|`, whose namespaces the scenario adds and removes while a host is connected.
FLEETING_NSIDS=

# Linux reads the list of NSIDs first and each NSID's identifiers afterwards. In between a namespace may go
# (status 600Bh: Invalid Namespace or Format, with DNR and More), or another may take its NSID.
without_fleeting_namespaces() {
    local nsid="(${FLEETING_NSIDS:-none})"
    grep -vE "nvme[0-9]+: (Identify Descriptors failed \(nsid=$nsid, status=0x600b\)|identifiers changed for nsid $nsid)\$" ||
        true
}

# Lines about NVMe that may say something of the target. A slow keep alive on an emulated machine does
# not. Nor does one that Linux 6.12 makes in the moment in which it quiesces the admin queue to
# disconnect: it is never sent, ends as cancelled (error 4), and its round trip, from a start that never
# was, is the age of the machine in disguise (4294798688 ms after two minutes).
about_nvme() {
    { grep -i nvme || true; } | { grep -vE "$SLOW_KEEP_ALIVE" || true; } | without_fleeting_namespaces | awk '
        { controller = match($0, /nvme[0-9]+:/) ? substr($0, RSTART, RLENGTH) : "" }
        /nvme_keep_alive_end_io error=4$/ { delete held[controller]; next }
        controller in held { print held[controller]; delete held[controller] }
        /long keepalive RTT/ { held[controller] = $0; next }
        { print }
        END { for (controller in held) print held[controller] }'
}

# Slow keep alives pass, but not in silence: what rxe sent again goes along.
mention_slow_keep_alives() {
    local slow
    slow=$(kernel_news | grep -oE "$SLOW_KEEP_ALIVE") || return 0
    say "note: $(paste -sd ',' <<< "$slow"); $(rdma statistic show 2>&1 |
        grep -oE '(duplicate_request|out_of_seq_request|completer_retry_err) [0-9]+' | paste -sd ',')"
}

# Warnings and errors of NVMe since the mark: none are expected of a healthy target.
assert_no_nvme_warnings() {
    local all news warnings
    all=$(kernel_news) || fail "the kernel's log could not be read"
    news=$(dmesg --level=emerg,alert,crit,err,warn | about_nvme)
    # Some of the driver's complaints come at level info.
    warnings=$(about_nvme <<< "$all" |
        grep -iE 'warn|error|fail|timeout|invalid|bogus|duplicate|unsupported|not (equal|supported|ready)|reconnect|resett' || true)
    [ -z "$warnings" ] || { printf '%s\n' "$warnings"; fail "the kernel's nvme driver complained"; }
    if [ -n "$news" ] && [ -n "$(comm -12 <(sort <<< "$all") <(sort <<< "$news"))" ]; then
        printf '%s\n' "$news"
        fail "the kernel's nvme driver warned"
    fi
    mention_slow_keep_alives
    say "ok: no warning from nvme in the kernel's log"
}
