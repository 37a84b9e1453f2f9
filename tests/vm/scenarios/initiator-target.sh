#!/bin/bash
# cairn-initiator with cairn-target: both by libibverbs over rxe or by RoCE in user space.
# vm: programs=cairn-target,cairn-initiator timeout=300

# Command prefix for the host's network namespace, and the host's provider.
HOST_PREFIX=()
HOST_PROVIDER=verbs

initiator() {
    local command=$1 address=$2
    shift 2
    "${HOST_PREFIX[@]}" cairn-initiator "$command" --provider "$HOST_PROVIDER" -a "$address" "$@"
}

bench() {
    local name=$1 log=$OUT/bench-$1
    shift
    if ! initiator bench "$@" -n "$NQN" --verify=crc32c --destroy-data > "$log.txt" 2> "$log.log"; then
        tail -n 20 "$log.txt" "$log.log"
        fail "bench $name"
    fi
    assert_contains "bench $name" ", 0 bad" "$(grep verified "$log.txt")"
}

# exchange NAME ADDR: Tests discovery, identification, and data of all sizes.
exchange() {
    initiator discover "$2" > "$OUT/$1-discover.txt"
    assert_contains "discovery by $1" "$NQN" "$(cat "$OUT/$1-discover.txt")"
    initiator id-ctrl "$2" -n "$NQN" -o json | jq -e '.maxcmd > 0' > /dev/null ||
        fail "id-ctrl by $1"
    bench "$1-4k" "$2" --rw=randrw --bs=4k --iodepth=32 --size=8m
    bench "$1-1m" "$2" --rw=write --bs=1m --iodepth=4 --size=32m
    bench "$1-mixed" "$2" --rw=randrw --bsrange=4k-256k --iodepth=8 --size=16m
}

serve() {
    launch_target --listen "$1:$PORT" --nqn "$NQN" --provider "$TARGET_PROVIDER" --export mem:64M
}

setup_rxe_and_cable

step "A target on rxe, a host on the same"
serve "$HOST_ADDR"
exchange verbs-verbs "$HOST_ADDR"

step "A target on rxe, a host in user space"
HOST_PREFIX=(ip netns exec "$SOFT_NETNS")
HOST_PROVIDER=soft
exchange soft-verbs "$HOST_ADDR"
stop_target

step "A target in user space, a host on rxe"
use_soft_target
HOST_PREFIX=()
HOST_PROVIDER=verbs
serve "$FABRIC_ADDR"
exchange verbs-soft "$FABRIC_ADDR"

step "The target's MAC changes under I/O: the host says so, and connects again"
log=$OUT/bench-moved.log
cairn-initiator bench --provider verbs -a "$FABRIC_ADDR" -n "$NQN" --reconnect-delay=1 --rw=randrw --bs=4k \
    --iodepth=8 --size=8m --rate_iops=200 --verify=crc32c --time_based --runtime=3600 --destroy-data --eta=never \
    > "$OUT/bench-moved.txt" 2> "$log" &
BENCH=$!
packets_are() { [ "$(rxe_packets)" -ge "$1" ]; }
# The host does not repeat a failed first connection, so I/O must run before the MAC changes.
wait_for 30 "its I/O" packets_are $(($(rxe_packets) + 1000))
ip -n "$SOFT_NETNS" link set cable1 address 02:00:00:00:77:01
# Linux does not announce a changed MAC address by default (arp_notify).
ip neigh replace "$FABRIC_ADDR" lladdr 02:00:00:00:77:01 dev cable0 nud reachable
has_said() { grep -q "$1" "$log"; }
wait_for 30 "the host to lose its connection" has_said "connection lost"
assert_contains "why" "the other end's address has another MAC" "$(grep "connection lost" "$log")"
wait_for 30 "the host to connect again" has_said "connected again"
kill -TERM "$BENCH"
wait "$BENCH" || true # ended by the signal
assert_contains "the verdict" ", 0 bad" "$(grep verified "$OUT/bench-moved.txt")"
stop_target
