#!/bin/bash
# The kernel's nvme-rdma over rxe uses a target without RDMA device: RoCE in user space.
# vm: programs=cairn-target timeout=900

use_soft_target

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
    # rxe's counters of retransmissions explain long times.
    rdma statistic show link rxe0 > "$OUT/rxe-$1.txt"
}

run_suite connect

step "Where rdma_rxe has the port, the target says so, and names both ways out"
code=0
said=$(timeout 20 cairn-target serve --listen "$HOST_ADDR:$PORT" --provider soft --export mem:16M 2>&1) || code=$?
assert_eq "the exit code" 1 "$code"
assert_contains "what is wrong" "UDP port 4791 of $HOST_ADDR is taken" "$said"
assert_contains "by whom" "rdma_rxe is loaded" "$said"
assert_contains "the kernel's RoCE instead" "--provider verbs" "$said"
assert_contains "or none" "modprobe -r rdma_rxe" "$said"

step "Of what the target sends, 0.1 % is lost: time passes, data and connection stay"
start_target --export "$(make_backing_file disk 256M)" --export mem:64M
in_soft_netns tc qdisc add dev cable1 root netem loss 0.1%
exchange lossy
in_soft_netns tc qdisc del dev cable1 root
stop_target

step "The same with the ordinary MTU of 1500"
set_cable_mtu 1500
start_target --export "$(make_backing_file disk 256M)" --export mem:64M
exchange ordinary
stop_target
