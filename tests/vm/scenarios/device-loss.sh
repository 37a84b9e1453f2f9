#!/bin/bash
# Listeners follow RDMA devices that appear late, are removed, or change their address.
# vm: programs=cairn-target timeout=300
#
# The kernel's host deletes its controllers when their device is removed, so the scenario connects again. A second
# device must not be affected.

OTHER_ADDR=192.168.78.1

connect_to() { nvme connect -t rdma -a "$1" -s "$PORT" -n "$NQN" --reconnect-delay=2; }

listens_by() { grep -q "listening.*$FABRIC_ADDR.*$1" "$TARGET_LOG"; }

step "The target starts on a machine without an RDMA device, and takes the one that comes"
add_card
ip addr add "$FABRIC_ADDR/24" dev "$FABRIC_NETDEV"
# The kernel notifies the clients of a removed device in reverse loading order. ib_uverbs must be loaded before rdma_cm.
# Otherwise, the removal of rdma_rxe waits in ib_uverbs for the target, and rdma_cm does not notify the target.
modprobe ib_uverbs
write_config /tmp/later.toml "1 $(make_backing_file later 64M)"
start_target_unreachable /tmp/later.toml
grep -q "degraded.*$FABRIC_ADDR" "$TARGET_LOG" || fail "the listener is not missing"
load_rdma
add_rxe
wait_for 60 "the target to listen" listens_by verbs
await_target
connect_to "$FABRIC_ADDR"
wait_for 20 "namespace 1" namespace_device 1
verified_fio later "$(namespace_device 1)" --rw=randrw --bs=4k --iodepth=8 --size=4m
nvme_disconnect
wait_for 30 "the controllers to go" no_controllers
stop_target

step "A listener of any provider takes the device, too"
remove_rxe
ip addr del "$FABRIC_ADDR/24" dev "$FABRIC_NETDEV"
: > "$TARGET_LOG"
TARGET_PROVIDER=auto write_config /tmp/any.toml "1 $(make_backing_file any 64M)"
start_target_unreachable /tmp/any.toml
add_rxe
ip addr add "$FABRIC_ADDR/24" dev "$FABRIC_NETDEV"
wait_for 60 "the target to listen" listens_by verbs
stop_target

step "One target, two devices, a host on each"
ip link add dummy1 type dummy
ip link set dummy1 mtu "$FABRIC_MTU" up
ip addr add "$OTHER_ADDR/24" dev dummy1
rdma link add rxe1 type rxe netdev dummy1
export LISTEN_ADDRS="$FABRIC_ADDR $OTHER_ADDR"
write_config /tmp/cairn.toml "1 $(make_backing_file disk 128M)"
start_target_from /tmp/cairn.toml
mark_kernel_log
connect_to "$FABRIC_ADDR"
connect_to "$OTHER_ADDR"
wait_for 30 "two live controllers" live_controllers 2
other=$(grep -l "$OTHER_ADDR" /sys/class/nvme/nvme*/address | cut -d / -f 5)
start_verified_io "$(namespace_device 1)"

step "The first device goes"
sleep 2
remove_rxe
wait_for 30 "its controller to go" live_controllers 1
assert_eq "the one that is left" "$other" "$(controllers)"
assert_target_alive
sleep 3
assert_verified_io_runs
assert_eq "reconnects" 0 "$(count_in_kernel_news 'nvme.*[Rr]econnecting')"

step "It comes back, and the target listens on it again"
add_rxe
wait_for 60 "a connection over the new device" connect_to "$FABRIC_ADDR"
wait_for 30 "two live controllers" live_controllers 2
end_verified_io
nvme_disconnect
wait_for 30 "the controllers to go" no_controllers

step "The address goes and comes back"
connect_to "$FABRIC_ADDR"
wait_for 20 "namespace 1" namespace_device 1
ip addr del "$FABRIC_ADDR/24" dev "$FABRIC_NETDEV"
sleep 5
assert_target_alive
ip addr add "$FABRIC_ADDR/24" dev "$FABRIC_NETDEV"
wait_for 60 "the controller to be live" live_controllers 1
verified_fio after-address "$(namespace_device 1)" --rw=randrw --bs=4k --iodepth=8 --size=4m
nvme_disconnect
wait_for 30 "the controllers to go" no_controllers
connect_to "$FABRIC_ADDR"
wait_for 20 "namespace 1" namespace_device 1
say "ok: a new connection over the address"
nvme_disconnect
assert_target_alive
stop_target
