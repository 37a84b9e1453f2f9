# Host: the kernel's nvme-rdma, controlled by nvme-cli.

NQN=${NQN:-nqn.2026-11.io.cairn:vm}
PORT=${PORT:-4420}

nvme_discover() { nvme discover -t rdma -a "$FABRIC_ADDR" -s "$PORT" -o json "$@"; }

# nvme_connect [OPTION...]: Connects a controller with an administrator's command.
nvme_connect() { nvme connect -t rdma -a "$FABRIC_ADDR" -s "$PORT" -n "$NQN" "$@"; }

# connect_host HOST [,OPTION=VALUE...]: Connects host 1 to 9 through /dev/nvme-fabrics, because nvme-cli fails with
# "already connected" if it finds a controller that another process is creating.
connect_host() {
    local kernel answer host="hostnqn=nqn.2026-11.io.cairn:host$1,hostid=00000000-0000-4000-8000-00000000000$1"
    exec {kernel}<>/dev/nvme-fabrics
    printf 'transport=rdma,traddr=%s,trsvcid=%s,nqn=%s,%s' "$FABRIC_ADDR" "$PORT" "$NQN" "$host${2:-}" >&"$kernel" &&
        read -r answer <&"$kernel" && say "host $1: $answer"
    local code=$?
    exec {kernel}>&-
    return "$code"
}

# connect_hosts COUNT [,OPTION=VALUE...]: Connects hosts 1 to COUNT at the same time.
connect_hosts() {
    local host connects=()
    for host in $(seq "$1"); do
        connect_host "$host" "${2:-}" > "$OUT/connect-$host" 2>&1 &
        connects+=($!)
    done
    for host in $(seq "$1"); do
        wait "${connects[host - 1]}" || fail "host $host did not connect: $(< "$OUT/connect-$host")"
    done
    wait_for 60 "$1 live controllers" live_controllers "$1"
}

# Deletes the subsystem's controllers without nvme-cli.
delete_controllers() {
    local ctrl
    for ctrl in $(controllers); do
        echo 1 > "/sys/class/nvme/$ctrl/delete_controller"
    done
    wait_for 20 "the controllers to go" no_controllers
}

# Linux distributes I/O over all paths, if it detects them as paths to one disk.
use_all_paths() {
    local policy
    for policy in /sys/class/nvme-subsystem/nvme-subsys*/iopolicy; do
        [ ! -e "$policy" ] || echo round-robin > "$policy"
    done
}

nvme_disconnect() { nvme disconnect -n "$NQN"; }

# Prints the names of the subsystem's controllers: nvme0, nvme1, ... Starts no process, because
# scenarios call it in loops.
controllers() {
    local dir name
    for dir in /sys/class/nvme/nvme*; do
        if { read -r name < "$dir/subsysnqn"; } 2>/dev/null && [ "$name" = "$NQN" ]; then
            echo "${dir##*/}"
        fi
    done
}

count_controllers() { controllers | wc -l; }

controller_is() {
    local state
    { read -r state < "/sys/class/nvme/$1/state"; } 2>/dev/null && [ "$state" = "$2" ]
}

# namespace_device NSID: Prints the device /dev/nvmeXnY of a namespace. Y may differ from the NSID.
namespace_device() {
    local dir
    for dir in /sys/block/nvme*n*; do
        # Names such as nvme0c1n1 are single paths to nvme0n1.
        case ${dir##*/} in *c*n*) continue ;; esac
        if [ "$(cat "$dir/nsid" 2>/dev/null)" = "$1" ] &&
            [ "$(cat "$dir/device/subsysnqn" 2>/dev/null)" = "$NQN" ]; then
            echo "/dev/${dir##*/}"
            return 0
        fi
    done
    return 1
}

no_namespace_device() { ! namespace_device "$@"; }

# live_controllers COUNT: Succeeds if there are COUNT controllers, all live.
live_controllers() {
    local ctrl
    [ "$(count_controllers)" -eq "$1" ] || return 1
    for ctrl in $(controllers); do
        controller_is "$ctrl" live || return 1
    done
}

no_controllers() { [ "$(count_controllers)" -eq 0 ]; }

connect_and_wait() {
    local nsid
    nvme_connect
    for nsid in "$@"; do
        wait_for 20 "namespace $nsid" namespace_device "$nsid"
    done
}

count_in_kernel_news() { kernel_news | grep -cE "$1" || true; }
