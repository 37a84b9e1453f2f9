#!/bin/bash
# System calls of a verbs target for each I/O, by name.
# vm: programs=cairn-target timeout=300 by-name

SECONDS_EACH=${CALLS_SECONDS:-5}
ENTERED=/sys/kernel/tracing/events/raw_syscalls/sys_enter
COUNT=hist:keys=common_pid,id.syscall:size=4096

# calls_of PROCESS IOS: Prints the number of system calls of the process's threads for each I/O.
calls_of() {
    awk -v ios="$2" -v threads="$(cd "/proc/$1/task" && echo *)" '
        BEGIN { split(threads, list, " "); for (each in list) ours[list[each]] = 1 }
        /hitcount/ {
            gsub(/[{}:,]/, " ")
            for (field = 1; field <= NF; field++) {
                if ($field == "common_pid") thread = $(field + 1)
                if ($field == "id") name = $(field + 1)
                if ($field == "hitcount") count = $(field + 1)
            }
            if (thread in ours) calls[name] += count
        }
        END { for (name in calls) if (calls[name] / ios >= 0.001) printf "%s %.3f ", name, calls[name] / ios }
    ' "$ENTERED/hist"
}

# count DEVICE NAME RW IODEPTH: Runs fio once, and prints the target's system calls.
count() {
    local ios report=$OUT/fio-$2-$3-$4.json
    echo "$COUNT" > "$ENTERED/trigger"
    fio --name="$2" --filename="$1" --ioengine=libaio --direct=1 --rw="$3" --bs=4k --iodepth="$4" \
        --size=64m --time_based --runtime="$SECONDS_EACH" --randrepeat=0 --output-format=json \
        --output="$report" --eta=never
    ios=$(jq '.jobs[0] | .read.total_ios + .write.total_ios' "$report")
    say "$2 $3 4k, depth $4, $ios I/Os: $(calls_of "$TARGET_PID" "$ios")" | tee -a "$OUT/calls.txt"
    cp "$ENTERED/hist" "$OUT/hist-$2-$3-$4.txt"
    echo "!$COUNT" > "$ENTERED/trigger"
}

step "A disk of blocks, and memory"
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
setup_fabric
modprobe null_blk nr_devices=1 gb=1 memory_backed=1 bs=4096
write_config /tmp/cairn.toml "1 /dev/nullb0" "2 mem:256M"
start_target_from /tmp/cairn.toml
connect_and_wait 1 2
disk=$(namespace_device 1)
memory=$(namespace_device 2)

step "Calls of the target"
for depth in 1 32; do
    for workload in randread randwrite; do
        count "$memory" memory "$workload" "$depth"
        count "$disk" disk "$workload" "$depth"
    done
done
assert_target_alive
nvme_disconnect
stop_target
