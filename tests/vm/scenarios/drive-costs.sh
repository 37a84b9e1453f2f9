#!/bin/bash
# Instructions and system calls for I/Os of an NVMe drive, by passthrough and block layer, Cairn and fio.
# vm: examples=cairn-bench-disk nvme=512 timeout=1500 by-name counted
#
# The machine's clock counts instructions, so processor time does too. The result is the difference of a long and a
# short run, which excludes start-up. The result is meaningless at depth 1, where the clock jumps while the processor
# idles, and on a busy machine, where the drive is late: counts of I/Os are then small or negative, or the run fails.

SHORT_MS=${COSTS_SHORT_MS:-200}
LONG_MS=${COSTS_LONG_MS:-1000}
NS_PER_INSTRUCTION=2
ENTERED=/sys/kernel/tracing/events/raw_syscalls/sys_enter
COUNT=hist:keys=common_pid.execname,id.syscall:size=8192

# Option --poll-drives while both programs poll for completions of the drive.
POLLED=
# ours DEVICE RW DEPTH MS, theirs DEVICE RW DEPTH MS: Run Cairn's benchmark and fio on a device.
ours() { cairn-bench-disk ${POLLED:+"$POLLED"} --filename "$1" --rw "$2" --iodepth "$3" --runtime-ms "$4"; }
theirs() {
    local engine="--ioengine=io_uring --direct=1 --registerfiles"
    case $1 in /dev/ng*) engine="--ioengine=io_uring_cmd --cmd_type=nvme ${POLLED:+--hipri}" ;; esac
    # shellcheck disable=SC2086
    fio --name=drive $engine --fixedbufs --norandommap --thread --time_based --output-format=json --eta=never \
        --filename="$1" --rw="$2" --bs=4k --iodepth="$3" --runtime="$4ms"
}

# run WHO DEVICE RW DEPTH MS: Prints the number of I/Os, and the processor time in milliseconds.
run() {
    local times
    TIMEFORMAT='%3U %3S'
    times=$({ time "$@" > /tmp/report.json 2> /tmp/errors; } 2>&1) || { cat /tmp/errors >&2; return 1; }
    jq -r --arg times "$times" '.jobs[0] | "\(.read.total_ios + .write.total_ios) \($times)"' /tmp/report.json |
        awk '{ printf "%d %.3f\n", $1, $2 + $3 }'
}

# calls NAME: Prints the number of system calls of programs with this name.
calls() {
    awk -v name="$1" '/hitcount/ && index($0, name) { count += $NF } END { print count + 0 }' "$ENTERED/hist"
}

# count WHO NAME DEVICE RW DEPTH: Prints instructions and system calls for each I/O.
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
