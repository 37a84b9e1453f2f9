#!/bin/bash
# A port goes down and up, its device enters a bond, the bond fails over, and it leaves again, under verified I/O.
# vm: programs=cairn-target,cairn-initiator timeout=400
#
# The target uses rxe by libibverbs. Its host is in user space, in a namespace of its own at the far
# end of two cables: it lives through all of it by one verified benchmark. (The kernel's host deletes
# its controllers when its device goes; and an rxe whose own port is set down has no way for its
# packets, at which the kernel breaks its GSI queue pair for good. So the port loses its carrier.)
#
# What adapters do with a bond (RoCE LAG) is done by hand: the port's device goes, its netdev is
# enslaved, and the bond gets a device of its own. The failover is the kernel's: a bond whose MAC
# follows its active port makes rdma_cm report an address change to all that use it.

TARGET_ADDR=$HOST_ADDR
export LISTEN_ADDRS=$TARGET_ADDR
LOG=$OUT/bench.log

# heard TIMES TEXT: the target's log has it that often. told: the same of the host.
heard() { [ "$(grep -c -- "$2" "$TARGET_LOG")" -ge "$1" ]; }
told() { [ "$(grep -c -- "$2" "$LOG")" -ge "$1" ]; }
bench_runs() { kill -0 "$BENCH" 2> /dev/null || fail "the benchmark has ended: $(tail -n 3 "$LOG")"; }

# survived TIMES: the host has lost its connection and has it again, and its I/O goes on.
survived() {
    wait_for 90 "the host to connect again" told "$1" "connected again"
    bench_runs
    assert_target_alive
}

step "A target on a port, and verified I/O from far away"
setup_rxe_and_cable
modprobe bonding
# The far ends are one switch, with the host's address on it.
ip link add cable2 type veth peer name cable3 netns "$SOFT_NETNS"
ip link set cable2 mtu "$FABRIC_MTU"
in_soft_netns ip addr del "$FABRIC_ADDR/24" dev cable1
in_soft_netns ip link add switch type bridge
for port in cable1 cable3; do
    in_soft_netns ip link set "$port" mtu "$FABRIC_MTU" up master switch
done
in_soft_netns ip link set switch mtu "$FABRIC_MTU" up
in_soft_netns ip addr add "$FABRIC_ADDR/24" dev switch
write_config /tmp/cairn.toml "1 mem:64M"
start_target_from /tmp/cairn.toml
ip netns exec "$SOFT_NETNS" cairn-initiator bench --provider soft -a "$TARGET_ADDR" -n "$NQN" \
    --reconnect-delay=1 --rw=randrw --bsrange=4k-32k --iodepth=8 --size=32m \
    --time_based --runtime=3600 --verify=crc32c --destroy-data > "$OUT/bench.txt" 2> "$LOG" &
BENCH=$!
wait_for 30 "its queues" heard 2 " connected "
sleep 2

step "The port goes down, and up again"
in_soft_netns ip link set cable1 down
wait_for 30 "the target to hear of it" heard 1 "port 1 is down: check its cable"
wait_for 60 "the host to give up" told 1 "connection lost"
in_soft_netns ip link set cable1 up
wait_for 30 "the target to hear of it" heard 1 "port 1 is up"
survived 1
wait_for 60 "why the target's queues were lost" heard 1 "disconnected.*transport retry counter exceeded.*next: cairn-target doctor --peer $FABRIC_ADDR"

step "It enters a bond: the device goes, and another one has the address"
remove_rxe
wait_for 30 "the listener to say so" heard 1 "listener down"
ip addr del "$TARGET_ADDR/24" dev cable0
ip link add bond0 type bond mode active-backup fail_over_mac active miimon 100
for port in cable0 cable2; do
    ip link set "$port" down
    ip link set "$port" master bond0
done
ip link set bond0 mtu "$FABRIC_MTU" up
ip addr add "$TARGET_ADDR/24" dev bond0
rdma link add rxe1 type rxe netdev bond0
wait_for 60 "the listener to be back" heard 1 "listener up again"
survived 2

step "The bond fails over: rdma_cm reports an address change"
active=$(cat /sys/class/net/bond0/bonding/active_slave)
before=$(cat /sys/class/net/bond0/address)
other=cable0
if [ "$active" = cable0 ]; then other=cable2; fi
ip link set bond0 type bond active_slave "$other"
[ "$(cat /sys/class/net/bond0/address)" != "$before" ] || fail "the bond kept its MAC"
wait_for 60 "the listener to hear of it" heard 1 "listener down.*moved to another"
wait_for 60 "the queues to end by it" heard 1 "disconnected.*the local address moved"
wait_for 60 "the listener to be back" heard 2 "listener up again"
survived 3

step "It leaves the bond"
rdma link delete rxe1
wait_for 30 "the listener to say so" heard 3 "listener down"
ip link del bond0
ip link set cable0 up
ip addr add "$TARGET_ADDR/24" dev cable0
rdma link add rxe0 type rxe netdev cable0
wait_for 60 "the listener to be back" heard 3 "listener up again"
survived 4

step "All that was written was read back"
sleep 3
kill -TERM "$BENCH"
wait "$BENCH" || true
cat "$OUT/bench.txt"
assert_contains "the verdict" ", 0 bad" "$(grep verified "$OUT/bench.txt")"
stop_target
