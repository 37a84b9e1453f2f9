#!/bin/bash
# The judge itself works: the kernel's own target over rxe is discovered, connected, read, written.
# vm: timeout=120
#
# No part of Cairn runs here. If this fails, look for the fault in the lab.

step "The kernel's own target, nvmet-rdma, on soft-RoCE"
setup_rxe
start_nvmet "$FABRIC_ADDR"

step "Discover and connect"
log=$(nvme_discover)
assert_contains "the discovery log names the subsystem" "$NQN" "$log"
mark_kernel_log
connect_and_wait 1
device=$(namespace_device 1)
ctrl=$(controllers)
assert_eq "controller state" live "$(cat "/sys/class/nvme/$ctrl/state")"

cd /tmp

step "What is written is what is read"
dd if=/dev/urandom of=pattern bs=1M count=8 status=none
dd if=pattern of="$device" bs=1M oflag=direct status=none
dd if="$device" of=readback bs=1M count=8 iflag=direct status=none
assert_eq "sha256 of 8 MiB" "$(sha256sum < pattern)" "$(sha256sum < readback)"
verified_fio selftest "$device" --rw=randrw --bs=4k --iodepth=16 --size=8m

step "Disconnect"
nvme_disconnect
assert_eq "controllers left" 0 "$(count_controllers)"
assert_no_nvme_warnings

step "A failure would be seen"
assert_fails "an assertion that does not hold ends its shell" bash -c \
    ". $LIB/scenario.sh; begin_scenario; assert_eq x 1 2; end_scenario"
assert_fails "a failing command ends its shell" bash -c \
    ". $LIB/scenario.sh; begin_scenario; false; end_scenario"

# passes_beside LINE: whether the kernel's log may have it beside namespaces that come and go at NSIDs 3 and 30.
passes_beside() {
    LINE=$1 bash -c ". $LIB/scenario.sh; begin_scenario; mark_kernel_log; FLEETING_NSIDS='3|30'
        echo \"<4>\$LINE\" > /dev/kmsg; assert_no_nvme_warnings; end_scenario"
}
passes_beside "nvme nvme0: identifiers changed for nsid 3"
passes_beside "nvme nvme0: Identify Descriptors failed (nsid=30, status=0x600b)"
for line in "identifiers changed for nsid 1" "identifiers changed for nsid 303" \
    "Identify Descriptors failed (nsid=30, status=0x6)" "Identify Descriptors failed (nsid=2, status=0x600b)"; do
    assert_fails "the host complains: $line" passes_beside "nvme nvme0: $line"
done
