#!/bin/bash
# A machine with a target is suspended for longer than KATO while another target takes over: no stale write follows.
# vm: programs=cairn-target,cairn-initiator disk=16M network=tap timeout=420
#
# Target A is in this guest and exports /dev/vdb. tests/vm/beside/suspended-guest.sh has the host and target B, which
# exports the file behind /dev/vdb. The guest suspends to memory (S3), as with `virsh dompmsuspend`, and the other
# script wakes it after the disk is rewritten, as with `virsh dompmwakeup`. Only CLOCK_BOOTTIME includes the suspension:
# the script asserts that CLOCK_MONOTONIC counts less than KATO.
#
# The target is stopped by SIGSTOP shortly before the suspension, so that writes collect in its sockets.

DISK=/dev/vdb
KATO_S=8
# Seconds after which the RTC wakes this machine, if the host does not.
ASLEEP_S_MAX=240
SHARED=/cairn/out
SHARES=/sys/bus/virtio/drivers/9pnet_virtio

# Linux's 9p does not support suspend: the scripts run from a copy, and the shared output folder is unmounted during
# suspend.
if [ "$LIB" != /tmp/vm/lib ]; then
    mkdir -p /tmp/vm /tmp/out
    cp -a /cairn/tests/. /tmp/vm/
    LIB=/tmp/vm/lib OUT=/tmp/out exec bash /tmp/vm/lib/run.sh /tmp/vm/scenarios/suspended-guest.sh
fi

# share_of FOLDER: Prints the virtio device of a shared folder.
share_of() {
    local share
    for share in "$SHARES"/virtio*; do
        if [ "$(tr -d '\0' < "$share/mount_tag")" = "$1" ]; then
            echo "${share##*/}"
            return 0
        fi
    done
    return 1
}

suspend() {
    local share
    share=$(share_of out)
    wait_for 10 "the folder in common to be let go" umount "$SHARED"
    echo "$share" > "$SHARES/unbind"
    echo 0 > /sys/class/rtc/rtc0/wakealarm
    echo "+$1" > /sys/class/rtc/rtc0/wakealarm
    echo mem > /sys/power/state
    echo "$share" > "$SHARES/bind"
    mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 out "$SHARED"
}

# clock NAME: Prints a clock in milliseconds.
clock() { python3 -c "import time; print(time.clock_gettime_ns(time.CLOCK_$1) // 1000000)"; }

writes_at_disk() { awk '{ print $5 }' "/sys/block/${DISK##*/}/stat"; }
writes_reach() { [ "$(writes_at_disk)" -ge "$1" ]; }

bytes_waiting() { ss -Hnua "src $HOST_ADDR" | awk '{ bytes += $2 } END { print bytes + 0 }'; }
bytes_wait() { [ "$(bytes_waiting)" -ge 65536 ]; }
nothing_waits() { [ "$(bytes_waiting)" -eq 0 ]; }
queues_ended() { grep -c ' disconnected .* qid=' "$TARGET_LOG" || true; }
has_reacted() { [ "$(queues_ended)" -gt "$ended" ] || ! [ "$(writes_at_disk)" -eq "$before" ]; }

keep_logs() { cp -a "$OUT/." "$SHARED/"; }

step "Target A in this guest, target B and a host on the machine at hand"
join_build_machine "$HOST_ADDR" "$FABRIC_ADDR"
write_path_config /tmp/one.toml "$HOST_ADDR" 1 1-100 optimized "$DISK" \
    'uuid="00000000-0000-4000-8000-00000000fa17"'
start_target_from /tmp/one.toml

step "The guest suspends itself with writes in the target's sockets"
touch "$SHARED/one-is-ready"
wait_for 60 "the host's writes" writes_reach 500
kill -STOP "$TARGET_PID"
wait_for 4 "writes in the target's sockets" bytes_wait
boottime=$(clock BOOTTIME)
monotonic=$(clock MONOTONIC)
suspend "$ASLEEP_S_MAX"
[ -e "$SHARED/rewritten" ] || fail "the host has not rewritten the disk by target B"
assert_ge "bytes that wait in the target's sockets" "$(bytes_waiting)" 65536
assert_ge "ms that CLOCK_BOOTTIME counts" $(($(clock BOOTTIME) - boottime)) $((2 * KATO_S * 1000))
assert_le "ms that CLOCK_MONOTONIC counts" $(($(clock MONOTONIC) - monotonic)) $((KATO_S * 1000))

step "It wakes: the target executes nothing of that, and ends its queues"
before=$(writes_at_disk)
ended=$(queues_ended)
kill -CONT "$TARGET_PID"
wait_for 20 "the target to read its sockets" nothing_waits
# The host disconnected during the suspension, so its disconnect may be in the socket buffers too: a queue ends by the
# disconnect or by the timeout. Log lines about a peer are limited, so not every queue has one.
wait_for 20 "the end of a queue, or a write" has_reacted
# No commands remain after the target has stopped.
stop_target
assert_eq "writes that it made since then" 0 $(($(writes_at_disk) - before))
assert_le "queues that had ended before" "$ended" $(($(queues_ended) - 1))
touch "$SHARED/one-has-gone-on"
wait_for 60 "the host to find its blocks by target B" test -e "$SHARED/all-is-right"
