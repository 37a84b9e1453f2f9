#!/bin/bash
# A machine with a target is suspended for longer than KATO while another target takes over the disk: nothing stale lands when it wakes.
# vm: programs=cairn-target,cairn-initiator disk=16M network=tap timeout=420
#
# Target A is in this guest and serves /dev/vdb. tests/vm/beside/suspended-guest.sh has the host and
# target B, which serves the file behind /dev/vdb. The guest suspends itself to memory (S3), as with
# `virsh dompmsuspend`, and the script beside wakes it when all is rewritten, as `virsh dompmwakeup`
# does. Only CLOCK_BOOTTIME shows that time: the script asserts that CLOCK_MONOTONIC counts less than
# KATO.
#
# SIGSTOP, a moment before, is not what the target must notice: it leaves time for writes to come into
# its sockets, which otherwise takes luck in the moment between the target's and the card's end.
#
# It can fail: a target whose deadlines went by CLOCK_MONOTONIC (Clock::through_suspend) made stale
# writes right after it woke, and the assertion on them ended the scenario.

DISK=/dev/vdb
KATO_S=8
# The host wakes this machine when it has rewritten the disk; the RTC would, if that never came.
ASLEEP_S_MAX=240
SHARED=/cairn/out
SHARES=/sys/bus/virtio/drivers/9pnet_virtio

# The folders of the machine at hand do not survive a suspend: Linux's 9p has no code for that. The
# scripts move away from them, and the one for files in common is let go before and taken up after it.
if [ "$LIB" != /tmp/vm/lib ]; then
    mkdir -p /tmp/vm /tmp/out
    cp -a /cairn/tests/. /tmp/vm/
    LIB=/tmp/vm/lib OUT=/tmp/out exec bash /tmp/vm/lib/run.sh /tmp/vm/scenarios/suspended-guest.sh
fi

# share_of FOLDER: the virtio device that has it.
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

# suspend SECONDS: to memory.
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

# clock NAME: its milliseconds.
clock() { python3 -c "import time; print(time.clock_gettime_ns(time.CLOCK_$1) // 1000000)"; }

writes_at_disk() { awk '{ print $5 }' "/sys/block/${DISK##*/}/stat"; }
writes_reach() { [ "$(writes_at_disk)" -ge "$1" ]; }

# bytes_waiting: in the target's sockets.
bytes_waiting() { ss -Hnua "src $HOST_ADDR" | awk '{ bytes += $2 } END { print bytes + 0 }'; }
bytes_wait() { [ "$(bytes_waiting)" -ge 65536 ]; }
nothing_waits() { [ "$(bytes_waiting)" -eq 0 ]; }
queues_ended() { grep -c ' disconnected .* qid=' "$TARGET_LOG" || true; }
has_reacted() { [ "$(queues_ended)" -gt "$ended" ] || ! [ "$(writes_at_disk)" -eq "$before" ]; }

# keep_logs: where the machine at hand finds them.
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
# The host gave this target up while it was asleep, so its farewell may be in the sockets, too: a queue
# ends by the one or the other. Not each of them has a line: a peer's lines are limited.
wait_for 20 "the end of a queue, or a write" has_reacted
# After this nothing is under way any more.
stop_target
assert_eq "writes that it made since then" 0 $(($(writes_at_disk) - before))
assert_le "queues that had ended before" "$ended" $(($(queues_ended) - 1))
touch "$SHARED/one-has-gone-on"
wait_for 60 "the host to find its blocks by target B" test -e "$SHARED/all-is-right"
