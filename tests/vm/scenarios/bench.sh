#!/bin/bash
# The kernel's target and Cairn side by side, by fio over the kernel's host; perftest as the ceiling.
# vm: programs=cairn-target timeout=1500 live by-name mem=4G

# One boot, one fabric, one host. Each target has a memory-backed null_blk of its own:
#   nvmet        the kernel's nvmet-rdma, on rxe0
#   cairn-verbs  cairn-target, provider verbs, on the same rxe0
#   cairn-soft   cairn-target, provider soft, in a network namespace at the end of a cable; the host
#                reaches it by rxe1
# Rounds go through all of them in turn, so that whatever else the machine does meets each alike.
ROUNDS=${BENCH_ROUNDS:-3}
SECONDS_EACH=${BENCH_SECONDS:-4}
SOFT_ADDR=192.168.78.1
TARGETS=(nvmet cairn-verbs cairn-soft)
# NAME RW BS IODEPTH, the rows of the table.
ROWS=(
    "randread-4k-qd1 randread 4k 1"
    "randwrite-4k-qd1 randwrite 4k 1"
    "randread-4k-qd32 randread 4k 32"
    "randwrite-4k-qd32 randwrite 4k 32"
    "read-128k-qd8 read 128k 8"
    "write-128k-qd8 write 128k 8"
)
declare -A DEVICE PROCESS

# serve_cairn NAME ADDRESS PORT DISK: a cairn-target of that name, connected to.
serve_cairn() {
    local name=$1 address=$2 port=$3 disk=$4
    NQN=nqn.2026-11.io.cairn:$name FABRIC_ADDR=$address PORT=$port
    start_target --export "$disk"
    PROCESS[$name]=$TARGET_PID
    connect_and_wait 1
    DEVICE[$name]=$(namespace_device 1)
}

# effort TARGET: what its process has cost so far, as JSON; nothing for the kernel's own.
effort() {
    local pid=${PROCESS[$1]:-}
    [ -n "$pid" ] || { echo '{}'; return; }
    cat "/proc/$pid/stat" "/proc/$pid"/task/*/status | awk -v hz="$(getconf CLK_TCK)" '
        NR == 1 { user = $14 / hz; kernel = $15 / hz }
        /^voluntary/ { sleeps += $2 }
        END { printf "{ \"user_s\": %.2f, \"kernel_s\": %.2f, \"sleeps\": %d }\n", user, kernel, sleeps }'
}

# measure ROUND TARGET NAME RW BS IODEPTH: one run of fio; its figures as a line of JSON.
measure() {
    local report=$OUT/fio-$2-$3-$1.json before
    before=$(effort "$2")
    fio --name="$3" --filename="${DEVICE[$2]}" --ioengine=libaio --direct=1 --rw="$4" --bs="$5" \
        --iodepth="$6" --size=64m --time_based --runtime="$SECONDS_EACH" --ramp_time=1 \
        --randrepeat=0 --output-format=json --output="$report" --eta=never
    jq -c --arg target "$2" --argjson round "$1" --argjson before "$before" \
        --argjson after "$(effort "$2")" '.jobs[0] as $job
        | (if $job.read.total_ios > 0 then $job.read else $job.write end)
        | { row: $job.jobname, target: $target, round: $round, iops: .iops,
            mib_per_s: (.bw_bytes / 1048576), p50_us: (.clat_ns.percentile["50.000000"] / 1000),
            p99_us: (.clat_ns.percentile["99.000000"] / 1000),
            effort: ($after | with_entries(.value -= ($before[.key] // 0))) }' "$report" >> "$OUT/runs.jsonl"
}

# ceiling TEST: perftest between two processes over rxe0, 128 KiB messages, MiB/s.
ceiling() {
    local server
    "$1" -d rxe0 -x "$GID_INDEX" -F -s 131072 -n 400 > "$OUT/$1-server.log" 2>&1 &
    server=$!
    sleep 1
    "$1" -d rxe0 -x "$GID_INDEX" -F -s 131072 -n 400 192.168.77.1 > "$OUT/$1.log" 2>&1
    wait "$server"
    awk '$1 == 131072 { print $4 }' "$OUT/$1.log"
}

# gid_index DEVICE ADDRESS: of the RoCE v2 GID that has this IPv4 address.
gid_index() {
    local dir=/sys/class/infiniband/$1/ports/1 gid index
    gid=$(printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${2//./ })
    for index in 0 1 2 3 4 5 6 7; do
        if [ "$(cat "$dir/gids/$index")" = "$gid" ] &&
            [ "$(cat "$dir/gid_attrs/types/$index")" = 'RoCE v2' ]; then
            echo "$index"
            return
        fi
    done
    fail "no GID for $2"
}

# idle_share PID: per cent of a core over five seconds without I/O.
idle_share() {
    local before after
    before=$(awk '{ print $14 + $15 }' "/proc/$1/stat")
    sleep 5
    after=$(awk '{ print $14 + $15 }' "/proc/$1/stat")
    awk -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" 'BEGIN { print ticks * 100 / hz / 5 }'
}

# The medians of all rounds, as JSON, and as a table for people.
report() {
    jq -s --argjson idle "$IDLE" --argjson ceilings "$CEILINGS" '
        def median: sort | .[length / 2 | floor];
        { ceilings_mib_per_s: $ceilings, idle: $idle,
          rows: (group_by(.row) | map({ row: .[0].row, targets: (group_by(.target) | map({
            key: .[0].target, value: {
              iops: (map(.iops) | median), iops_min: (map(.iops) | min), iops_max: (map(.iops) | max),
              mib_per_s: (map(.mib_per_s) | median),
              p50_us: (map(.p50_us) | median), p99_us: (map(.p99_us) | median) } })
            | from_entries) })), runs: . }' "$OUT/runs.jsonl" > "$OUT/bench.json"
    {
        echo '| job | nvmet-rdma | cairn verbs | ratio | cairn soft | ratio |'
        echo '|---|---|---|---|---|---|'
        jq -r '.rows[] | .row as $row | .targets
            | def shown: if ($row | test("128k")) then "\(.mib_per_s | round) MiB/s"
                else "\(.iops | round) (p50 \(.p50_us | round) us)" end;
              def ratio($to): (.iops / $to.iops * 100 | round / 100 | tostring);
              . as $t | "| \($row) | \($t.nvmet | shown) | \($t["cairn-verbs"] | shown) | \(
              $t["cairn-verbs"] | ratio($t.nvmet)) | \($t["cairn-soft"] | shown) | \(
              $t["cairn-soft"] | ratio($t.nvmet)) |"' "$OUT/bench.json"
        echo
        jq -r '"perftest over the same rxe, 128 KiB, MiB/s: read \(.ceilings_mib_per_s.read), write \(
            .ceilings_mib_per_s.write), send \(.ceilings_mib_per_s.send)",
            (.idle | to_entries[] | "\(.key) idle: \(.value.cpu_percent) % of a core, \(
            .value.rss_kib) KiB resident")' "$OUT/bench.json"
    } > "$OUT/bench.md"
}

step "One fabric: rxe0 for verbs, a cable to a namespace for RoCE in user space"
FABRIC_ADDR=192.168.77.1 setup_rxe
GID_INDEX=$(gid_index rxe0 192.168.77.1)
FABRIC_ADDR=$SOFT_ADDR HOST_ADDR=192.168.78.2 lay_cable
rdma link add rxe1 type rxe netdev cable0

step "The ceiling: perftest"
CEILINGS=$(jq -n --arg read "$(ceiling ib_read_bw)" --arg write "$(ceiling ib_write_bw)" \
    --arg send "$(ceiling ib_send_bw)" \
    '{ read: ($read | tonumber), write: ($write | tonumber), send: ($send | tonumber) }')
say "$CEILINGS"

step "Three targets, one host"
modprobe null_blk nr_devices=3 gb=1 memory_backed=1 bs=4096
NQN=nqn.2026-11.io.cairn:nvmet FABRIC_ADDR=192.168.77.1 PORT=4420
start_nvmet 192.168.77.1
connect_and_wait 1
DEVICE[nvmet]=$(namespace_device 1)
serve_cairn cairn-verbs 192.168.77.1 4421 /dev/nullb1
use_soft_target
serve_cairn cairn-soft "$SOFT_ADDR" 4420 /dev/nullb2

step "What is read has been written"
for target in "${TARGETS[@]}"; do
    fio --name=fill --filename="${DEVICE[$target]}" --ioengine=libaio --direct=1 --rw=write --bs=128k \
        --iodepth=8 --size=64m --output="$OUT/fill-$target.log" --eta=never
done
IDLE='{}'
for target in cairn-verbs cairn-soft; do
    IDLE=$(jq --arg target "$target" --argjson cpu "$(idle_share "${PROCESS[$target]}")" \
        --argjson rss "$(awk '/^VmRSS:/ { print $2 }' "/proc/${PROCESS[$target]}/status")" \
        '. + { ($target): { cpu_percent: $cpu, rss_kib: $rss } }' <<< "$IDLE")
done

for ((round = 1; round <= ROUNDS; round++)); do
    step "Round $round of $ROUNDS"
    for row in "${ROWS[@]}"; do
        for target in "${TARGETS[@]}"; do
            # shellcheck disable=SC2086
            measure "$round" "$target" $row
        done
        say "${row%% *}"
    done
done

report
cat "$OUT/bench.md"
for target in "${TARGETS[@]}"; do nvme disconnect -n "nqn.2026-11.io.cairn:$target"; done
stop_target
kill -TERM "${PROCESS[cairn-verbs]}"
wait "${PROCESS[cairn-verbs]}"
