# Target under test: cairn-target, its start and end, and its logs.

TARGET_LOG=$OUT/target.log
TARGET_STDOUT=$OUT/target.stdout
TARGET_PID=
# Target's provider, and command prefix for its network namespace.
TARGET_PROVIDER=verbs
TARGET_PREFIX=()
# Settings of the configuration's [target] section, as KEY=VALUE.
TARGET_SETTINGS=()

# Selects a target without RDMA device, at the far end of the cable.
use_soft_target() {
    TARGET_PROVIDER=soft
    TARGET_PREFIX=(ip netns exec "$SOFT_NETNS")
}

setup_fabric() {
    case $TARGET_PROVIDER in
    verbs) setup_rxe ;;
    soft) setup_rxe_and_cable ;;
    esac
}

# start_target [OPTION...]: Starts a target of NQN at the fabric's address, and waits until it is ready.
start_target() {
    launch_target --listen "$FABRIC_ADDR:$PORT" --nqn "$NQN" --provider "$TARGET_PROVIDER" "$@"
}

start_target_from() { launch_target --config "$1"; }

# start_target_unreachable CONFIG: Starts a target whose addresses are all missing, and waits until the target reports
# this. `await_target` waits for the first address.
start_target_unreachable() {
    spawn_target --config "$1"
    wait_for 20 "the target to say that it is not ready" target_says "not ready: no listener has its address yet"
}

launch_target() {
    spawn_target "$@"
    await_target
}

spawn_target() {
    : > "$TARGET_STDOUT"
    "${TARGET_PREFIX[@]}" cairn-target serve "$@" > "$TARGET_STDOUT" 2>> "$TARGET_LOG" &
    TARGET_PID=$!
}

# write_config FILE 'NSID PATH [KEY=VALUE]...'...: Writes a configuration of subsystem NQN with TARGET_SETTINGS.
write_config() {
    local file=$1 nsid path settings setting address
    shift
    {
        printf '[target]\nprovider = "%s"\n' "$TARGET_PROVIDER"
        for setting in "${TARGET_SETTINGS[@]}"; do
            printf '%s = %s\n' "${setting%%=*}" "${setting#*=}"
        done
        echo
        for address in ${LISTEN_ADDRS:-$FABRIC_ADDR}; do
            printf '[[listener]]\naddress = "%s"\nport = %s\n\n' "$address" "$PORT"
        done
        printf '[[subsystem]]\nnqn = "%s"\nallow_any_host = true\n' "$NQN"
        while [ $# -gt 0 ]; do
            read -r nsid path settings <<< "$1"
            printf '\n[[subsystem.namespace]]\nnsid = %s\nexport = "%s"\n' "$nsid" "$path"
            for setting in $settings; do
                printf '%s = %s\n' "${setting%%=*}" "${setting#*=}"
            done
            shift
        done
    } > "$file"
}

# write_path_config FILE ADDRESS PORT_ID CONTROLLER_IDS ANA DISK [KEY=VALUE]...: Writes the configuration of one of two
# targets that export a disk as one subsystem; the settings are for the namespace.
write_path_config() {
    local file=$1 address=$2 port_id=$3 controller_ids=$4 ana=$5 disk=$6 setting
    shift 6
    {
        printf '[target]\nprovider = "soft"\nreactors = 1\n\n'
        printf '[[listener]]\naddress = "%s"\nport_id = %s\nana = "%s"\n\n' "$address" "$port_id" "$ana"
        printf '[[subsystem]]\nnqn = "%s"\nallow_any_host = true\ncontroller_ids = "%s"\n\n' \
            "$NQN" "$controller_ids"
        printf '[[subsystem.namespace]]\nnsid = 1\nexport = "%s"\nblock_size = 4096\nshared = true\n' "$disk"
        for setting in "$@"; do
            printf '%s = %s\n' "${setting%%=*}" "${setting#*=}"
        done
    } > "$file"
}

await_target() {
    wait_for 20 "the target to say that it is ready" target_ready_or_gone
    target_ready || fail "the target did not start: $(tail -n 5 "$TARGET_LOG")"
}

target_alive() { [ -n "$TARGET_PID" ] && kill -0 "$TARGET_PID" 2>/dev/null; }
target_says() { grep -qx "$1" "$TARGET_STDOUT"; }
target_ready() { target_alive && target_says ready; }
target_ready_or_gone() { target_ready || ! target_alive; }

assert_target_alive() {
    target_alive || fail "the target is gone: $(tail -n 5 "$TARGET_LOG")"
    say "ok: the target is alive"
}

# Sends SIGTERM. The target must drain and exit successfully in time.
stop_target() {
    local code=0
    kill -TERM "$TARGET_PID"
    wait_for 60 "the target to drain and stop" target_gone
    wait "$TARGET_PID" || code=$?
    TARGET_PID=
    [ "$code" = 0 ] || fail "the target ended with code $code after SIGTERM: $(tail -n 5 "$TARGET_LOG")"
    say "ok: the target's exit code after SIGTERM: 0"
}

# A zombie counts as ended, because it remains until bash calls `wait`.
target_gone() {
    local state
    state=$(ps -o state= -p "$TARGET_PID") || return 0
    [ "${state// /}" = Z ]
}

# Sends SIGKILL, so the target neither drains nor disconnects its hosts.
kill_target() {
    kill -KILL "$TARGET_PID"
    wait "$TARGET_PID" 2>/dev/null || true
    TARGET_PID=
}

# told_to NVME_COMMAND: Prints the nvme command line that the target suggested.
told_to() {
    grep -m 1 -oE "nvme $1 .*" "$TARGET_STDOUT" || fail "the target printed no line for: nvme $1"
}

# paste_told NVME_COMMAND: Runs the nvme command line that the target suggested.
paste_told() {
    local line
    line=$(told_to "$1")
    say "$line"
    eval "$line"
}

reload_target() { kill -HUP "$TARGET_PID"; }

abandon_target() {
    if target_alive; then
        kill -TERM "$TARGET_PID"
        sleep 1
        kill -KILL "$TARGET_PID" 2>/dev/null
    fi
}

target_rss_kib() { awk '/^VmRSS:/ { print $2 }' "/proc/$TARGET_PID/status"; }

count_in_target_log() { grep -cE "$1" "$TARGET_LOG" || true; }
