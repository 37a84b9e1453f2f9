#!/bin/bash
# Check of the lab itself, without Cairn: the kernel's target over rxe is discovered, connected, read and written.
# vm: timeout=120

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


step "Nothing is not a success"
# fails_in_shell WHAT COMMAND: Checks that COMMAND fails as a scenario.
fails_in_shell() { assert_fails "$1" bash -c ". $LIB/scenario.sh; begin_scenario; $2; end_scenario"; }
fails_in_shell "JSON of a program that prints nothing" 'assert_json x ". | true" "$(true)"'
fails_in_shell "JSON of a program that fails" 'assert_json x ". | true" "$(false)"'
fails_in_shell "two values instead of one" 'assert_json x ". | true" "{} {}"'
fails_in_shell "a condition that selects nothing" 'assert_json x ".[] | select(. > 3) | true" "[1, 2]"'
fails_in_shell "a condition that holds for the last element alone" 'assert_json x ".[] | . > 1" "[1, 2]"'
fails_in_shell "two values that are both missing" 'assert_eq x "$(true)" "$(true)"'
fails_in_shell "two fields that are both missing" 'assert_eq x "$(jq .a <<< "{}")" "$(jq .a <<< "{}")"'
fails_in_shell "checksums of nothing" 'assert_eq x "$(sha256sum < /dev/null)" "$(sha256sum < /dev/null)"'
fails_in_shell "an empty needle" 'assert_contains x "$(true)" text'
fails_in_shell "a number that is missing" 'assert_le x "$(true)" 3'
fails_in_shell "a number that is missing" 'assert_ge x "$(true)" 0'
fails_in_shell "a program that does not exist" 'assert_fails x no-such-program'
fails_in_shell "an empty list by a program that fails" 'assert_empty x false'
fails_in_shell "a line that the target did not print" 'TARGET_STDOUT=/dev/null; paste_told connect'
fails_in_shell "a log without its mark" 'mark_kernel_log; dmesg --clear; assert_no_nvme_warnings'
fails_in_shell "a log that was never marked" 'kernel_news'
assert_json "one value that holds" '.a == 1' '{"a": 1}'
assert_empty "lines of a program that prints none" true

step "Complaints of the kernel's host"
# passes_beside LINE [ASSIGNMENT]: Succeeds if assert_no_nvme_warnings ignores the line, with this setting of the
# library [default: namespaces 3 and 30 come and go].
passes_beside() {
    LINE=$1 bash -c ". $LIB/scenario.sh; begin_scenario; mark_kernel_log; ${2:-FLEETING_NSIDS='3|30'}
        echo \"<4>\$LINE\" > /dev/kmsg; assert_no_nvme_warnings; end_scenario"
}
passes_beside "nvme nvme0: identifiers changed for nsid 3"
passes_beside "nvme nvme0: Identify Descriptors failed (nsid=30, status=0x600b)"
read_error="Buffer I/O error on dev nvme0n2, logical block 3, async page read"
passes_beside "$read_error" SCANS_ARE_CUT=1
assert_fails "the host complains of a read error" passes_beside "$read_error"
for line in "identifiers changed for nsid 1" "identifiers changed for nsid 303" \
    "Identify Descriptors failed (nsid=30, status=0x6)" "Identify Descriptors failed (nsid=2, status=0x600b)"; do
    assert_fails "the host complains: $line" passes_beside "nvme nvme0: $line"
done
