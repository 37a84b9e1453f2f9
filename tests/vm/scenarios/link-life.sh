#!/bin/bash
# Links go down and up, and interfaces join, fail over in and leave bonds: hosts recover without a target restart.
# vm: programs=cairn-target,cairn-initiator timeout=400
#
# First part: the target is in user space in another network namespace, connected by two cables; the kernel's host is
# here, its rxe on a bridge of both cables. Second part: the target uses rxe by libibverbs, and the host is in user
# space, because rxe exists only in the first namespace, and the kernel's host deletes its controllers when its device
# is removed.
#
# Adapters support bonds in hardware (RoCE LAG). For rxe, the script removes the port's device, adds the interface to
# the bond, and creates a device on the bond.

TARGET_ADDR=$HOST_ADDR
TARGET_ADDR6=fd77::2
SOFT_IP="ip -n $SOFT_NETNS"
BENCH_LOG=$OUT/bench.log

# lay_switch IP ADDRESS PORT PORT: Connects both ports of a side to a bridge with the address.
lay_switch() {
    local ip=$1 address=$2 port
    shift 2
    $ip link add switch type bridge
    for port in "$@"; do
        $ip link set "$port" mtu "$FABRIC_MTU" master switch up
    done
    $ip link set switch mtu "$FABRIC_MTU" up
    $ip addr add "$address/24" dev switch
}

# enter_bond IP ADDRESS PORT PORT [OPTION...]: Moves the address from the first port to a new bond of both ports.
enter_bond() {
    local ip=$1 address=$2 ports="$3 $4" port
    $ip addr del "$address/24" dev "$3"
    shift 4
    $ip link add bond0 type bond mode active-backup miimon 50 "$@"
    for port in $ports; do
        $ip link set "$port" down
        $ip link set "$port" master bond0
    done
    $ip link set bond0 mtu "$FABRIC_MTU" up
    $ip addr add "$address/24" dev bond0
}

# leave_bond IP ADDRESS PORT: Removes the bond and moves the address back to the port.
leave_bond() {
    $1 link del bond0
    $1 link set "$3" mtu "$FABRIC_MTU" up
    $1 addr add "$2/24" dev "$3"
}

active_port() { $1 -d link show bond0 | grep -o ' active_slave [^ ]*' | cut -d ' ' -f 3; }
active_is() { [ "$(active_port "$1")" = "$2" ]; }

# port_is_up IP PORT: Succeeds if the bond has detected the port's carrier, so that the port may become active.
port_is_up() {
    $1 -d link show "$2" | grep -q ' mii_status UP '
}

# switch_uses PORT: Succeeds if the bridge forwards through the port.
switch_uses() { bridge link show dev "$1" | grep -q "state forwarding"; }

# sectors_done: Prints the sectors read and written by the kernel's host.
# io_goes_on: Checks that the host's verified I/O continues.
sectors_done() { awk '{ print $3 + $7 }' "/sys/block/${DISK##*/}/stat"; }
sectors_reach() { [ "$(sectors_done)" -ge "$1" ]; }
io_goes_on() {
    wait_for 60 "I/O to go on" sectors_reach $(($(sectors_done) + 1000))
    assert_verified_io_runs
}
reconnects() { count_in_kernel_news 'nvme.*[Rr]econnecting'; }

# no_more_reconnects BEFORE: Checks the number of reconnects, and prints both logs if it changed.
no_more_reconnects() {
    if [ "$(reconnects)" != "$1" ]; then
        kernel_news | grep -E 'nvme|rxe|bond0|switch' | grep -v requeuing | tail -n 40
        tail -n 10 "$TARGET_LOG"
    fi
    assert_eq "reconnects" "$1" "$(reconnects)"
}

heard() { [ "$(grep -cE -- "$2" "$TARGET_LOG")" -ge "$1" ]; }

losses() { grep -c "connection lost" "$BENCH_LOG" || true; }
has_lost() { [ "$(losses)" -ge "$1" ]; }

# Succeeds if rxe receives 100 packets in half a second, more than retransmissions to a closed queue pair.
packets_flow() {
    local before
    before=$(rxe_packets "$DEVICE")
    sleep 0.5
    [ "$(rxe_packets "$DEVICE")" -ge $((before + 100)) ]
}

# Succeeds if the host has reconnected after each loss and has traffic. The host detects the end of a queue
# pair or device only after some seconds.
is_back() {
    mend_rxe
    [ "$(grep -c "connected again" "$BENCH_LOG" || true)" -eq "$(losses)" ] && packets_flow
}
LOST=0

# bench_survives MORE: Checks that the host loses its connection at least MORE times, reconnects, and continues.
bench_survives() {
    wait_for 60 "the host to lose its connection" has_lost $((LOST + $1))
    wait_for 60 "the host to connect again" is_back
    kill -0 "$BENCH" 2> /dev/null || fail "the benchmark has ended: $(tail -n 3 "$BENCH_LOG")"
    assert_target_alive
    LOST=$(losses)
    say "ok: the benchmark goes on; connections lost so far: $LOST, devices made anew: $FIXED"
}

# discover ADDRESS [OPTION...]: Runs discovery from the user-space host.
discover() {
    local address=$1
    shift
    timeout "${PATIENCE_S:-20}" ip netns exec "$SOFT_NETNS" cairn-initiator discover \
        --provider soft -a "$address" "$@" > /dev/null
}

# Succeeds if rxe's GSI queue pair, which all connections need, has failed. It fails permanently if the
# kernel rejects one of its packets, for example without a route.
gsi_broke() { rdma resource show qp | grep -q ' type GSI state ERR '; }

# Checks that the doctor reports the failed GSI queue pair first, with the command that fixes it.
doctor_names_gsi() {
    local code=0
    cairn-target doctor -o json --interval 0 > "$OUT/doctor.json" || code=$?
    assert_eq "the doctor's exit code" 2 "$code"
    assert_eq "what the doctor says first" "gsi: $DEVICE port 1" \
        "$(jq -r '.findings[0] | "\(.rule): \(.subject)"' "$OUT/doctor.json")"
    assert_eq "what fixes it" "rdma link delete $DEVICE && rdma link add $DEVICE type rxe netdev $NETDEV" \
        "$(jq -r '.findings[0].fix[0].command' "$OUT/doctor.json")"
    cairn-target fabric | grep "queue pairs: .*GSI ERR" || fail "fabric does not show it"
}

# rxe_on NETDEV DEVICE: Creates an rxe device.
# mend_rxe: Creates the device again if its GSI queue pair has failed; the target uses the new one.
rxe_on() {
    NETDEV=$1 DEVICE=$2
    rdma link add "$DEVICE" type rxe netdev "$NETDEV"
}
mend_rxe() {
    gsi_broke || return 0
    rdma link delete "$DEVICE"
    rxe_on "$NETDEV" "$DEVICE"
    FIXED=$((FIXED + 1))
}
FIXED=0

step "A target in user space on a port, the kernel's host on a bridge"
setup_rxe_and_cable
# By default the module creates its own bond0 when loaded.
modprobe bonding max_bonds=0
remove_rxe
ip link add cable2 type veth peer name cable3 netns "$SOFT_NETNS"
in_soft_netns ip link set cable3 mtu "$FABRIC_MTU" up
# With arp_ignore, a port does not answer ARP requests for addresses of other interfaces. The kernel's rdma_cm ends
# connections to an address whose MAC changes (event UNREACHABLE; nvme-rdma logs "WR flushed").
sysctl -qw net.ipv4.conf.all.arp_ignore=1
in_soft_netns sysctl -qw net.ipv4.conf.all.arp_ignore=1
ip addr flush dev cable0
lay_switch ip "$HOST_ADDR" cable0 cable2
rxe_on switch rxe0
use_soft_target
start_target --export mem:64M
mark_kernel_log
nvme_connect --reconnect-delay=1
wait_for 20 "namespace 1" namespace_device 1
DISK=$(namespace_device 1)
# Depth 1 avoids a fault of rxe (6.12): on a retransmission, it repeats a memory registration, finds the region in use,
# and ends its queue pair.
start_verified_io "$DISK" --iodepth=1
io_goes_on

step "It enters a bond: the address moves from the port to the bond"
enter_bond "$SOFT_IP" "$FABRIC_ADDR" cable1 cable3
io_goes_on
say "reconnects: $(reconnects)"

step "The cable in use breaks: the bond fails over, and nobody reconnects"
before=$(reconnects)
assert_eq "the active port" cable1 "$(active_port "$SOFT_IP")"
ip link set cable0 down
wait_for 20 "the failover" active_is "$SOFT_IP" cable3
io_goes_on
no_more_reconnects "$before"
ip link set cable0 up
wait_for 20 "the bond to see its port" port_is_up "$SOFT_IP" cable1
wait_for 20 "the bridge to see its port" switch_uses cable0

step "The port in use leaves the bond: the other one takes over"
$SOFT_IP link set cable3 nomaster
wait_for 20 "the failover" active_is "$SOFT_IP" cable1
io_goes_on
no_more_reconnects "$before"

step "It leaves the bond: the address moves back to the port"
leave_bond "$SOFT_IP" "$FABRIC_ADDR" cable1
io_goes_on
end_verified_io
say "reconnects: $(reconnects)"
nvme_disconnect
wait_for 30 "the controller to go" no_controllers
stop_target

step "A target by libibverbs on a port, the host in user space on a bridge"
remove_rxe
ip link del switch
ip link set cable2 down
ip link set cable0 up
ip addr add "$TARGET_ADDR/24" dev cable0
ip addr add "$TARGET_ADDR6/64" dev cable0 nodad
in_soft_netns ip addr flush dev cable1
lay_switch "$SOFT_IP" "$FABRIC_ADDR" cable1 cable3
$SOFT_IP addr add fd77::1/64 dev switch nodad
rxe_on cable0 rxe0
# shellcheck disable=SC2034 # target.sh reads them.
TARGET_PROVIDER=verbs
# shellcheck disable=SC2034
TARGET_PREFIX=()
export LISTEN_ADDRS="$TARGET_ADDR $TARGET_ADDR6"
write_config /tmp/cairn.toml "1 mem:64M"
: > "$TARGET_LOG"
start_target_from /tmp/cairn.toml
discover "$TARGET_ADDR"
discover "$TARGET_ADDR6"

step "The port goes down and up while no host is connected; its IPv6 address goes with it"
ip link set cable0 down
sleep 0.5
ip link set cable0 up
discover "$TARGET_ADDR"
ip addr add "$TARGET_ADDR6/64" dev cable0 nodad
discover "$TARGET_ADDR6"
say "ok: the target is found at both addresses again"

step "The cable is pulled and plugged in again: the host gives up, and comes back"
ip netns exec "$SOFT_NETNS" cairn-initiator bench --provider soft -a "$TARGET_ADDR" -n "$NQN" \
    --reconnect-delay=1 --rw=randrw --bsrange=4k-32k --iodepth=8 --size=32m --rate_iops=200 --verify=crc32c \
    --time_based --runtime=3600 --destroy-data --eta=never > "$OUT/bench.txt" 2> "$BENCH_LOG" &
BENCH=$!
wait_for 60 "its queues" heard 2 " connected .*subsystem=\"$NQN\""
# The host exits with an error if its first connection is lost before Connect completes.
wait_for 60 "its reads and writes" packets_flow
downs=$(count_in_target_log "port 1 is down")
in_soft_netns ip link set cable1 down
wait_for 30 "the target to hear of it" heard $((downs + 1)) "port 1 is down: check its cable"
wait_for 60 "the host to give up" has_lost 1
in_soft_netns ip link set cable1 up
bench_survives 1

step "The port is set down under I/O, and up again"
PORT=4421 start_nvmet "$TARGET_ADDR"
# The witness has its own address, because the benchmark occupies the UDP port of the host's other address.
in_soft_netns ip addr add 192.168.77.3/24 dev switch
witness=(discover "$TARGET_ADDR" -s 4421 --host-traddr 192.168.77.3)
"${witness[@]}"
ip link set cable0 down
wait_for 60 "the host to give up" has_lost $((LOST + 1))
ip link set cable0 up
if gsi_broke; then
    doctor_names_gsi
    PATIENCE_S=6 assert_fails "nor does anybody reach the kernel's own target" "${witness[@]}"
fi
close_nvmet
bench_survives 1

step "It enters a bond: the device goes, and another one has the address"
remove_rxe
enter_bond ip "$TARGET_ADDR" cable0 cable2
rxe_on bond0 rxe1
bench_survives 1

step "The bond fails over"
assert_eq "the active port" cable0 "$(active_port ip)"
ip link set bond0 type bond active_slave cable2
assert_eq "the active port" cable2 "$(active_port ip)"
sleep 2
# The host does not notice the failover, unless the bond drops a packet of rxe, which ends the queue pair.
bench_survives 0

step "It leaves the bond, and enters one whose MAC is that of the port in use"
rdma link delete rxe1
leave_bond ip "$TARGET_ADDR" cable0
rxe_on cable0 rxe0
bench_survives 1
remove_rxe
enter_bond ip "$TARGET_ADDR" cable0 cable2 fail_over_mac active
rxe_on bond0 rxe1
bench_survives 1

step "This one fails over: rdma_cm reports an address change"
before=$(cat /sys/class/net/bond0/address)
ip link set bond0 type bond active_slave cable2
[ "$(cat /sys/class/net/bond0/address)" != "$before" ] || fail "the bond kept its MAC"
wait_for 20 "the listener to hear of it" heard 1 "listener down.*the address has moved to another RDMA device"
# Queue pairs receive an error, unless a dropped packet has ended them.
bench_survives 1
grep -oE 'qid=. reason="the (local address moved|transport gave up)' "$TARGET_LOG" | tail -n 2 || true

step "All that was written was read back"
kill -TERM "$BENCH"
wait "$BENCH" || true
cat "$OUT/bench.txt"
assert_contains "the verdict" ", 0 bad" "$(grep verified "$OUT/bench.txt")"
stop_target
