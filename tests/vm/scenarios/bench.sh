#!/bin/bash
# Benchmark of the kernel's target and Cairn with fio on the kernel's host; perftest measures the ceiling.
# vm: programs=cairn-target timeout=3600 live by-name mem=4G

# All targets share one boot, fabric and host. Each has its own memory-backed null_blk:
#   nvmet        nvmet-rdma of the kernel, on rxe0
#   cairn-verbs  cairn-target with provider verbs, on the same rxe0
#   cairn-soft   cairn-target with provider soft, in another network namespace; the host uses rxe1
#   spdk         SPDK's nvmf_tgt, on the same rxe0 (--spdk DIR); it polls, so it is stopped while others are measured
# Each round measures all targets, so that other load on the machine affects all alike. Ratios refer to the first target
# of the same round.
#
# Variables (cargo xtask vm bench --set NAME=VALUE):
#   BENCH_ROUNDS, BENCH_SECONDS  number of rounds, and seconds of each run of fio
#   BENCH_ROWS     only rows with one of these words: 4k,write
#   BENCH_TARGETS  only these, in this order; a Cairn target may recur with settings of [target]:
#                  nvmet,cairn-verbs,cairn-verbs+poll_idle_us=0
ROUNDS=${BENCH_ROUNDS:-9}
SECONDS_EACH=${BENCH_SECONDS:-4}
DEFAULT_TARGETS=nvmet,cairn-verbs,cairn-soft
[ ! -e /cairn/bin/spdk/nvmf_tgt ] || DEFAULT_TARGETS+=,spdk
IFS=, read -ra TARGETS <<< "${BENCH_TARGETS:-$DEFAULT_TARGETS}"
# Rows of the table: NAME RW BS IODEPTH.
ALL_ROWS=(
    "randread-4k-qd1 randread 4k 1"
    "randwrite-4k-qd1 randwrite 4k 1"
    "randread-4k-qd32 randread 4k 32"
    "randwrite-4k-qd32 randwrite 4k 32"
    "read-128k-qd8 read 128k 8"
    "write-128k-qd8 write 128k 8"
)
WORDS=${BENCH_ROWS:-4k,128k}
ROWS=()
for row in "${ALL_ROWS[@]}"; do
    for word in ${WORDS//,/ }; do
        if [[ ${row%% *} == *$word* ]]; then
            ROWS+=("$row")
            break
        fi
    done
done
declare -A DEVICE PROCESS
SPDK_PID=

# start_spdk DISK: Starts SPDK's target with DISK at FABRIC_ADDR.
start_spdk() {
    jq -n --arg disk "$1" --arg nqn "$NQN" --arg address "$FABRIC_ADDR" --arg port "$PORT" '
        def call($method; $params): { method: $method, params: $params };
        { subsystems: [
            { subsystem: "bdev", config: [
                call("bdev_aio_create"; { name: "Disk", filename: $disk, block_size: 4096 })] },
            { subsystem: "nvmf", config: [
                call("nvmf_create_transport"; { trtype: "RDMA" }),
                call("nvmf_create_subsystem"; { nqn: $nqn, allow_any_host: true }),
                call("nvmf_subsystem_add_ns"; { nqn: $nqn, namespace: { bdev_name: "Disk" } }),
                call("nvmf_subsystem_add_listener"; { nqn: $nqn, listen_address: {
                    trtype: "RDMA", adrfam: "IPv4", traddr: $address, trsvcid: $port } })] }] }' \
        > "$OUT/spdk.json"
    # OPENSSL_CONF=/dev/null, because the guest has no OpenSSL configuration.
    OPENSSL_CONF=/dev/null LD_LIBRARY_PATH=/cairn/bin/spdk /cairn/bin/spdk/nvmf_tgt --no-huge -s 1024 -m 0x2 \
        --json "$OUT/spdk.json" > "$OUT/spdk.log" 2>&1 &
    SPDK_PID=$!
    # SPDK may be stopped for longer than any KATO, so keep alive is off.
    wait_for 60 "SPDK's target to accept the host (see spdk.log)" nvme_connect --keep-alive-tmo=0
}

spdk_goes_on() { [ "$1" != spdk ] || kill -CONT "$SPDK_PID"; }
spdk_stops() { [ "$1" != spdk ] || kill -STOP "$SPDK_PID"; }

# serve TARGET INDEX: Starts a target of this kind with its settings, and connects the host.
serve() {
    local kind=${1%%+*} settings=() config=$OUT/$1.toml
    # Variables of start_nvmet, write_config and launch_target.
    NQN=nqn.2026-11.io.cairn:bench$2 FABRIC_ADDR=192.168.77.1 PORT=$((4420 + $2))
    TARGET_PROVIDER=verbs TARGET_PREFIX=()
    case $kind in
    nvmet) start_nvmet "$FABRIC_ADDR" "/dev/nullb$2" ;;
    spdk) start_spdk "/dev/nullb$2" ;;
    cairn-soft)
        # A process occupies the RoCE port of its address, so each target has its own address.
        FABRIC_ADDR=192.168.78.$((100 + $2))
        in_soft_netns ip addr add "$FABRIC_ADDR/24" dev cable1
        use_soft_target
        ;&
    cairn-verbs)
        IFS=+ read -ra settings <<< "$1"
        TARGET_SETTINGS=("${settings[@]:1}")
        write_config "$config" "1 /dev/nullb$2"
        start_target_from "$config"
        PROCESS[$1]=$TARGET_PID
        ;;
    *) fail "no such target: $kind" ;;
    esac
    [ "$kind" = spdk ] || nvme_connect
    wait_for 20 "namespace 1 of $1" namespace_device 1
    DEVICE[$1]=$(namespace_device 1)
    spdk_stops "$1"
}

# effort TARGET: Prints as JSON the processor time of the target's process, and its voluntary and involuntary context
# switches. For nvmet, only the idle time of all processors is known.
effort() {
    local pid=${PROCESS[$1]:-} files=(/proc/stat)
    [ -z "$pid" ] || files+=("/proc/$pid/stat" "/proc/$pid"/task/*/status)
    cat "${files[@]}" | awk -v hz="$(getconf CLK_TCK)" '
        /^cpu / { idle = ($5 + $6) / hz }
        /^[0-9]+ \(/ { user = $14 / hz; kernel = $15 / hz }
        /^voluntary/ { sleeps += $2 }
        /^nonvoluntary/ { preempted += $2 }
        END {
            printf "{ \"machine_idle_s\": %.2f, \"user_s\": %.2f, \"kernel_s\": %.2f,", idle, user, kernel
            printf " \"sleeps\": %d, \"preempted\": %d }\n", sleeps, preempted
        }'
}

# measure ROUND TARGET NAME RW BS IODEPTH: Runs fio once, and prints the results as a line of JSON.
measure() {
    local report=$OUT/fio-$2-$3-$1.json before
    spdk_goes_on "$2"
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
            p99_9_us: (.clat_ns.percentile["99.900000"] / 1000), max_us: (.clat_ns.max / 1000),
            effort: ($after | with_entries(.value -= ($before[.key] // 0))) }' "$report" >> "$OUT/runs.jsonl"
    spdk_stops "$2"
}

# ceiling TEST: Runs perftest between two processes over rxe0 with 128 KiB messages, and prints MiB/s.
ceiling() {
    local server
    "$1" -d rxe0 -x "$GID_INDEX" -F -s 131072 -n 400 > "$OUT/$1-server.log" 2>&1 &
    server=$!
    sleep 1
    "$1" -d rxe0 -x "$GID_INDEX" -F -s 131072 -n 400 192.168.77.1 > "$OUT/$1.log" 2>&1
    wait "$server"
    awk '$1 == 131072 { print $4 }' "$OUT/$1.log"
}

# Runs perftest once for each direction of the 128 KiB rows.
measure_ceilings() {
    local way
    for way in read write; do
        [[ ${ROWS[*]} == *"$way-128k"* ]] || continue
        CEILINGS=$(jq -c --arg way "$way" --argjson bw "$(ceiling "ib_${way}_bw")" \
            '.[$way] += [$bw]' <<< "$CEILINGS")
    done
    say "perftest, MiB/s: $CEILINGS"
}

# gid_index DEVICE ADDRESS: Prints the index of the RoCE v2 GID with this IPv4 address.
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

# idle_share PID: Prints the processor time over five seconds without I/O, in percent of a core.
idle_share() {
    local before after
    before=$(awk '{ print $14 + $15 }' "/proc/$1/stat")
    sleep 5
    after=$(awk '{ print $14 + $15 }' "/proc/$1/stat")
    awk -v ticks=$((after - before)) -v hz="$(getconf CLK_TCK)" 'BEGIN { print ticks * 100 / hz / 5 }'
}

# Prints the medians of all rounds as a table, and writes them as JSON.
report() {
    jq -s --argjson idle "$IDLE" --argjson ceilings "$CEILINGS" --arg first "${TARGETS[0]}" '
        def median: sort | .[length / 2 | floor];
        . as $runs | { ceilings_mib_per_s: $ceilings, idle: $idle,
          rows: (group_by(.row) | map({ row: .[0].row, targets: (group_by(.target) | map({
            key: .[0].target, value: {
              iops: (map(.iops) | median), iops_min: (map(.iops) | min), iops_max: (map(.iops) | max),
              ratios: map(. as $run | $run.iops / ($runs[] | select(.target == $first
                and .row == $run.row and .round == $run.round) | .iops)),
              mib_per_s: (map(.mib_per_s) | median),
              p50_us: (map(.p50_us) | median), p99_us: (map(.p99_us) | median),
              p99_9_us: (map(.p99_9_us) | median), max_us: (map(.max_us) | max) } })
            | from_entries | map_values(.ratio = (.ratios | median))) })), runs: $runs }' \
        "$OUT/runs.jsonl" > "$OUT/bench.json"
    {
        local target
        printf '| job |'
        for target in "${TARGETS[@]}"; do printf ' %s | ratio |' "$target"; done
        printf '\n|---|'
        for target in "${TARGETS[@]}"; do printf -- '---|---|'; done
        echo
        jq -r '.rows[] | .row as $row | .targets as $t | [$ARGS.positional[] | $t[.]
            | (if ($row | test("128k")) then "\(.mib_per_s | round) MiB/s"
                else "\(.iops | round)" end),
              "\(.ratio * 100 | round / 100) (\(.ratios | min * 100 | round / 100) - \(
                .ratios | max * 100 | round / 100))"]
            | "| \($row) | \(join(" | ")) |"' "$OUT/bench.json" --args "${TARGETS[@]}"
        printf '\np50, p99, p99.9 (medians of the rounds) and the greatest of all, us:\n\n| job |'
        printf ' %s |' "${TARGETS[@]}"
        printf '\n|---|'
        printf -- '---|%.0s' "${TARGETS[@]}"
        echo
        jq -r '.rows[] | .row as $row | .targets as $t | [$ARGS.positional[] | $t[.]
            | [.p50_us, .p99_us, .p99_9_us, .max_us] | map(round | tostring) | join(", ")]
            | "| \($row) | \(join(" | ")) |"' "$OUT/bench.json" --args "${TARGETS[@]}"
        echo
        jq -r 'def median: sort | .[length / 2 | floor];
            . as {ceilings_mib_per_s: $ceilings, $runs} | ($ceilings | to_entries[]
                | .key as $way | .value as $bw | "ib_\($way)_bw over the same rxe, 128 KiB: \(
                $bw | median) MiB/s; of it, round by round: \([$runs[] | select(.row == "\($way)-128k-qd8")
                | $bw[.round - 1] as $most | select($most > 0)
                | { target, share: (.mib_per_s / $most) }] | group_by(.target)
                | map("\(.[0].target) \(map(.share) | median * 100 | round / 100)") | join(", "))"),
            (.idle | to_entries[] | "\(.key) idle: \(.value.cpu_percent) % of a core, \(
            .value.rss_kib) KiB resident")' "$OUT/bench.json"
    } > "$OUT/bench.md"
}

step "One fabric: rxe0 for verbs, a cable to a namespace for RoCE in user space"
FABRIC_ADDR=192.168.77.1 setup_rxe
GID_INDEX=$(gid_index rxe0 192.168.77.1)
FABRIC_ADDR=192.168.78.1 HOST_ADDR=192.168.78.2 lay_cable
rdma link add rxe1 type rxe netdev cable0
CEILINGS='{}'

step "Targets, one host"
modprobe null_blk "nr_devices=${#TARGETS[@]}" gb=1 memory_backed=1 bs=4096
for index in "${!TARGETS[@]}"; do serve "${TARGETS[index]}" "$index"; done

step "What is read has been written"
for target in "${TARGETS[@]}"; do
    spdk_goes_on "$target"
    fio --name=fill --filename="${DEVICE[$target]}" --ioengine=libaio --direct=1 --rw=write --bs=128k \
        --iodepth=8 --size=64m --output="$OUT/fill-$target.log" --eta=never
    spdk_stops "$target"
done
IDLE='{}'
for target in "${!PROCESS[@]}"; do
    IDLE=$(jq --arg target "$target" --argjson cpu "$(idle_share "${PROCESS[$target]}")" \
        --argjson rss "$(awk '/^VmRSS:/ { print $2 }' "/proc/${PROCESS[$target]}/status")" \
        '. + { ($target): { cpu_percent: $cpu, rss_kib: $rss } }' <<< "$IDLE")
done

for ((round = 1; round <= ROUNDS; round++)); do
    step "Round $round of $ROUNDS"
    measure_ceilings
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
for index in "${!TARGETS[@]}"; do
    spdk_goes_on "${TARGETS[index]}"
    nvme disconnect -n "nqn.2026-11.io.cairn:bench$index"
done
[ -z "$SPDK_PID" ] || kill "$SPDK_PID"
for target in "${!PROCESS[@]}"; do
    TARGET_PID=${PROCESS[$target]}
    stop_target
done
