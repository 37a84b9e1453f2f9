#!/bin/bash
# The kernel's nvme-rdma over rxe uses a target that has no RDMA device: RoCE in user space.
# vm: programs=cairn-target timeout=900

# exchange NAME: connects, checks data of all sizes, and disconnects.
exchange() {
    mark_kernel_log
    connect_and_wait 1 2
    disk=$(namespace_device 1)
    memory=$(namespace_device 2)
    verified_fio "$1-4k-qd1" "$disk" --rw=randrw --bs=4k --iodepth=1 --size=2m
    verified_fio "$1-4k-qd64" "$memory" --rw=randrw --bs=4k --iodepth=64 --size=16m
    verified_fio "$1-1m" "$memory" --rw=write --bs=1m --iodepth=4 --size=32m
    verified_fio "$1-mixed" "$disk" --rw=randrw --bsrange=512-1m --bs_unaligned=0 --iodepth=16 --size=32m
    assert_eq "reconnects" 0 "$(count_in_kernel_news 'nvme.*[Rr]econnect')"
    nvme_disconnect
    wait_for 20 "the controller to go" no_controllers
    assert_no_nvme_warnings
}

step "A target at the other end of a cable, MTU $FABRIC_MTU"
setup_rxe_and_cable
file=$(make_backing_file disk 256M)
start_soft_target --export "$file" --export mem:64M --pcap "$OUT/target.pcapng"

step "Discover and connect, by the lines that the target printed"
mark_kernel_log
eval "$(told_to discover)" > "$OUT/discover.txt"
assert_contains "the discovery log has the subsystem" "$NQN" "$(cat "$OUT/discover.txt")"
eval "$(told_to connect)"
wait_for 20 "namespace 1" namespace_device 1
assert_eq "the controller's state" live "$(cat "/sys/class/nvme/$(controllers)/state")"
nvme smart-log "/dev/$(controllers)" > "$OUT/smart-log.txt"
nvme_disconnect
wait_for 20 "the controller to go" no_controllers
stop_target

step "fio verifies what it wrote"
start_soft_target --export "$file" --export mem:64M
exchange jumbo

step "A file system"
connect_and_wait 1
disk=$(namespace_device 1)
make_tree /tmp/tree
tree_checksums /tmp/tree > /tmp/expected
mkfs.ext4 -F "$disk" > "$OUT/mkfs.log" 2>&1
mkdir -p /mnt/disk
mount "$disk" /mnt/disk
cp -a /tmp/tree /mnt/disk/
umount /mnt/disk
blockdev --flushbufs "$disk"
e2fsck -f -n "$disk" > "$OUT/fsck.log" 2>&1
mount "$disk" /mnt/disk
tree_checksums /mnt/disk/tree > /tmp/seen
cmp /tmp/expected /tmp/seen
say "ok: $(wc -l < /tmp/expected) files read back with the same checksums"
umount /mnt/disk
nvme_disconnect
wait_for 20 "the controller to go" no_controllers

step "Of what the target sends, 0.1 % is lost: time passes, data and connection stay"
in_soft_netns tc qdisc add dev cable1 root netem loss 0.1%
exchange lossy
in_soft_netns tc qdisc del dev cable1 root
stop_target

step "The same with the ordinary MTU of 1500"
rdma link delete rxe0
ip link set cable0 mtu 1500
in_soft_netns ip link set cable1 mtu 1500
rdma link add rxe0 type rxe netdev cable0
start_soft_target --export "$file" --export mem:64M
exchange ordinary
stop_target
