#!/bin/bash
# A killed peer, an unplugged device and a device that comes back, without a restart.
# vm: timeout=120 programs=cairn-fabric-peer

log=$OUT/answer.log
heard() { [ "$(grep -cE "^$2" "$log")" -ge "$1" ]; }

setup_rxe
cairn-fabric-peer answer "$FABRIC_ADDR:4420" > "$log" 2>&1 &
answer=$!
wait_for 10 "the listener" heard 1 listening

step "A peer that is killed is noticed and let go"
cairn-fabric-peer ask "$FABRIC_ADDR:4420" --count 4 --hold > "$OUT/killed.log" 2>&1 &
peer=$!
wait_for 10 "its answers" grep -q "answered 4" "$OUT/killed.log"
kill -KILL "$peer"
wait_for 30 "the target to notice" heard 1 "disconnected"
wait_for 10 "the queue pair to go" heard 1 "closed"
show cairn-fabric-peer ask "$FABRIC_ADDR:4420"
wait_for 10 "the second connection to go" heard 2 "closed"

step "A panic on the listener's thread refuses one request, and the listener comes back"
frail_log=$OUT/frail.log
frail_said() { grep -qE "^$1" "$frail_log"; }
cairn-fabric-peer answer "$FABRIC_ADDR:4421" --panic-at 2 > "$frail_log" 2>&1 &
frail=$!
wait_for 10 "its listener" frail_said listening
cairn-fabric-peer ask "$FABRIC_ADDR:4421" --hold > "$OUT/held.log" 2>&1 &
held=$!
wait_for 10 "its answer" grep -q "answered 1" "$OUT/held.log"
assert_fails "the request over which it panics" cairn-fabric-peer ask "$FABRIC_ADDR:4421"
wait_for 10 "the listener to go" frail_said "listener down: the listener's thread panicked"
wait_for 10 "the listener to come back" frail_said "listener up"
show cairn-fabric-peer ask "$FABRIC_ADDR:4421" --count 4
wait_for 10 "its connection to go" frail_said closed
assert_eq "connections that have ended" 1 "$(grep -c "^disconnected" "$frail_log")"
kill -0 "$held" || fail "the connection from before the panic has ended: $(cat "$OUT/held.log")"
kill "$held" "$frail"
wait "$held" "$frail" || true

step "An unplugged device is let go, with a connection open"
cairn-fabric-peer ask "$FABRIC_ADDR:4420" --hold > "$OUT/unplugged.log" 2>&1 &
peer=$!
wait_for 10 "its answer" grep -q "answered 1" "$OUT/unplugged.log"
timeout 30 rdma link delete rxe0 &
unplug=$!
wait_for 15 "the listener to say so" heard 1 "listener down"
wait_for 15 "the endpoint to say so" heard 1 "device removed"
wait "$unplug" || fail "the device was not let go"
assert_fails "the device is gone" rdma link show rxe0/1
wait "$peer" || true

step "The device comes back: the same process serves again"
add_rxe
wait_for 20 "the listener to come back" heard 1 "listener up"
show cairn-fabric-peer ask "$FABRIC_ADDR:4420" --count 4
kill -0 "$answer" || fail "the target has ended: $(tail -n 3 "$log")"

step "Errors say what to do"
reason() { if "$@" 2>&1; then fail "'$*' should have failed"; fi; }
ip link add plain type dummy
ip addr add 192.168.90.1/24 dev plain
ip link set plain up
said=$(reason cairn-fabric-peer answer 192.168.90.1:4420)
assert_contains "an address without an RDMA device" "rdma link add" "$said"
said=$(reason cairn-fabric-peer answer 192.0.2.1:4420)
assert_contains "an address that is not here" "no network interface of this machine" "$said"
said=$(reason cairn-fabric-peer answer "$FABRIC_ADDR:4420")
assert_contains "a port that is taken" "$FABRIC_ADDR:4420 is already in use" "$said"
said=$(reason cairn-fabric-peer --pkey 0x8001 answer "$FABRIC_ADDR:4421")
assert_contains "a listener of a partition that the device is not in" \
    "P_Key 0x8001 is not in the table of RDMA device rxe0, which has 0xffff:" "$said"
said=$(reason cairn-fabric-peer --pkey 0x8001 ask "$FABRIC_ADDR:4420")
assert_contains "a host of such a partition" "P_Key 0x8001 is not in the table" "$said"
said=$(reason prlimit --memlock=4096:4096 setpriv --bounding-set=-ipc_lock \
    cairn-fabric-peer ask "$FABRIC_ADDR:4420")
assert_contains "too little memory to lock" "the memlock limit is 4 KiB" "$said"
say "$said"

step "Nothing is left behind"
kill "$answer"
wait "$answer" || true
cat "$log"
assert_eq "queue pairs" 1 "$(count_queue_pairs)"
