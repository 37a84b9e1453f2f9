#!/bin/bash
# The kernel's nvme-rdma over rxe uses a target on the build machine, through a network card.
# vm: programs=cairn-target network=tap timeout=600
#
# tests/vm/beside/soft-target-tap.sh starts the target.

# lose_incoming PERCENT: Drops received packets, which pass through an IFB device, because netem affects only sent
# packets.
lose_incoming() {
    modprobe -a ifb sch_ingress cls_matchall act_mirred sch_netem
    ip link add detour type ifb
    ip link set detour mtu "$FABRIC_MTU" up
    tc qdisc add dev detour root netem loss "$1%"
    tc qdisc add dev eth0 ingress
    tc filter add dev eth0 ingress matchall action mirred egress redirect dev detour
}

packets_lost() { tc -s -j qdisc show dev detour | jq '.[0].drops'; }

step "A card whose other end is on the build machine, MTU $FABRIC_MTU"
load_rdma
join_build_machine "$HOST_ADDR" "$FABRIC_ADDR"
rdma link add rxe0 type rxe netdev eth0
let_rxe_explain
mark_kernel_log

step "Discover and connect, by the lines that the target printed"
paste_told discover > "$OUT/discover.txt"
assert_contains "the discovery log has the subsystem" "$NQN" "$(cat "$OUT/discover.txt")"
paste_told connect
for nsid in 1 2; do
    wait_for 20 "namespace $nsid" namespace_device "$nsid"
done
assert_eq "the controller's state" live "$(cat "/sys/class/nvme/$(controllers)/state")"
disk=$(namespace_device 1)
memory=$(namespace_device 2)

step "fio verifies what it wrote"
verified_fio file-4k-qd1 "$disk" --rw=randrw --bs=4k --iodepth=1 --size=4m
verified_fio memory-4k-qd128 "$memory" --rw=randrw --bs=4k --iodepth=128 --size=32m
verified_fio file-128k "$disk" --rw=write --bs=128k --iodepth=8 --size=64m
verified_fio memory-1m "$memory" --rw=write --bs=1m --iodepth=4 --size=64m
verified_fio file-mixed "$disk" --rw=randrw --bsrange=512-1m --bs_unaligned=0 --iodepth=16 --size=64m

step "A file system"
make_tree /tmp/tree
tree_checksums /tmp/tree > /tmp/expected
check_filesystem "ext4" "$disk" "mkfs.ext4 -F" "e2fsck -f -n"

step "Of what the target sends, 0.1 % is lost: time passes, data and connection stay"
lose_incoming 0.1
verified_fio lossy-4k "$memory" --rw=randrw --bs=4k --iodepth=32 --size=16m
verified_fio lossy-mixed "$disk" --rw=randrw --bsrange=512-1m --bs_unaligned=0 --iodepth=16 --size=64m
assert_ge "packets lost" "$(packets_lost)" 1
rdma statistic show link rxe0 > "$OUT/rxe.txt"

step "Nothing broke on the way"
assert_eq "reconnects" 0 "$(count_in_kernel_news 'nvme.*[Rr]econnect')"
nvme_disconnect
wait_for 20 "the controller to go" no_controllers
assert_no_nvme_warnings
