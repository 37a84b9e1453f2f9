#!/bin/bash
# Instructions and system calls a read and a write on an NVMe drive: past the block layer and through it, ours and fio's.
# vm: examples=cairn-bench-disk nvme=512 timeout=1500 by-name counted
#
# The machine's time goes by instructions, so processor time, user's and kernel's, counts them. A run of each
# length is made, and the difference counts: what a program does to start is in both. At depth 1 the
# processor is idle between reads, and that clock says nothing: it jumps then. It does on a machine that is
# busy with other programs, too: the drive is late. Then the counts of I/Os are small, or below 0, or
# Linux gives commands up after 30 s of that time, and the run fails.

SHORT_MS=${COSTS_SHORT_MS:-200}
LONG_MS=${COSTS_LONG_MS:-1000}
NS_PER_INSTRUCTION=2
ENTERED=/sys/kernel/tracing/events/raw_syscalls/sys_enter
COUNT=hist:keys=common_pid.execname,id.syscall:size=8192

# Not empty where both look for the ends of a drive's commands.
POLLED=
# ours DEVICE RW DEPTH MS, and fio's engine on the same device.
ours() { cairn-bench-disk ${POLLED:+"$POLLED"} --filename "$1" --rw "$2" --iodepth "$3" --runtime-ms "$4"; }
theirs() {
    local engine="--ioengine=io_uring --direct=1 --registerfiles"
    case $1 in /dev/ng*) engine="--ioengine=io_uring_cmd --cmd_type=nvme ${POLLED:+--hipri}" ;; esac
    # shellcheck disable=SC2086
    fio --name=drive $engine --fixedbufs --norandommap --thread --time_based --output-format=json --eta=never \
        --filename="$1" --rw="$2" --bs=4k --iodepth="$3" --runtime="$4ms"
}

# run WHO DEVICE RW DEPTH MS: its I/Os, and the milliseconds of processor time.
run() {
    local times
    TIMEFORMAT='%3U %3S'
    times=$({ time "$@" > /tmp/report.json 2> /tmp/errors; } 2>&1) || { cat /tmp/errors >&2; return 1; }
    jq -r --arg times "$times" '.jobs[0] | "\(.read.total_ios + .write.total_ios) \($times)"' /tmp/report.json |
        awk '{ printf "%d %.3f\n", $1, $2 + $3 }'
}

# calls NAME: system calls counted of programs of this name.
calls() {
    awk -v name="$1" '/hitcount/ && index($0, name) { count += $NF } END { print count + 0 }' "$ENTERED/hist"
}

# count WHO NAME DEVICE RW DEPTH
count() {
    local who=$1 name=$2 short long few many
    shift 2
    echo "$COUNT" > "$ENTERED/trigger"
    short=$(run "$who" "$@" "$SHORT_MS")
    few=$(calls "$name")
    long=$(run "$who" "$@" "$LONG_MS")
    many=$(calls "$name")
    cp "$ENTERED/hist" "$OUT/hist-$who-${1##*/}-$2-$3.txt"
    echo "!$COUNT" > "$ENTERED/trigger"
    echo "$short $long $few $many" | awk -v what="$who ${1##*/} $2 $3${POLLED:+ polled}" -v ns="$NS_PER_INSTRUCTION" '{
        ios = $3 - $1
        printf "%-42s %7d I/Os %8.0f instructions %7.3f system calls\n",
            what, ios, ($4 - $2) * 1e9 / ns / ios, ($6 - $5 - $5) / ios
    }' | tee -a "$OUT/costs.txt"
}

drive_there() { [ -e /dev/ng0n1 ]; } 2>/dev/null

step "A drive"
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
modprobe nvme poll_queues=1
wait_for 20 "its device" drive_there
say "poll queues: $(cat /sys/module/nvme/parameters/poll_queues)"

for rw in randread randwrite; do
    step "4 KiB, $rw, depth 32"
    for device in /dev/ng0n1 /dev/nvme0n1; do
        count ours cairn-bench "$device" "$rw" 32
        count theirs fio "$device" "$rw" 32
    done
done
POLLED=--poll-drives
for rw in randread randwrite; do
    step "4 KiB, $rw, depth 32, polled"
    count ours cairn-bench /dev/ng0n1 "$rw" 32
    count theirs fio /dev/ng0n1 "$rw" 32
done
