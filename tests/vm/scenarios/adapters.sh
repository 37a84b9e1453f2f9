#!/bin/bash
# A Linux host writes, verifies and reconnects through a target whose adapter has quirks.
# vm: timeout=600 programs=cairn-quirky-target
#
# ADAPTERS is the list of tested profiles. The test has passed with "e810 bnxt bnxt-own-queues slow-firmware".

start_quirky() {
    : > "$TARGET_STDOUT"
    cairn-quirky-target "$1" "$2" > "$TARGET_STDOUT" 2>> "$TARGET_LOG" &
    TARGET_PID=$!
    await_target
}

connect_host() {
    nvme_connect --nr-io-queues=2 > /dev/null
    wait_for 20 "the namespace" namespace_device 1
}

# The remaining queue pair is rxe's GSI pair.
no_queue_pairs() { [ "$(count_queue_pairs)" = 1 ]; }

setup_rxe
disk=$(make_backing_file disk 64M)
TARGET_SETTINGS=(reactors=1 receives=512)
write_config /tmp/cairn.toml "1 $disk block_size=512"
TARGET_SETTINGS=(reactors=1 receives=64)
write_config /tmp/few.toml "1 $disk block_size=512"
mark_kernel_log
SCANS_ARE_CUT=1

for profile in ${ADAPTERS:-e810 bnxt}; do
    step "$profile: verified I/O, before and after 20 reconnects"
    start_quirky "$profile" /tmp/cairn.toml
    connect_host
    verified_fio "$profile" "$(namespace_device 1)" --rw=randrw --bsrange=512-64k --iodepth=64 --size=16m
    for _ in $(seq 20); do
        nvme_disconnect > /dev/null
        wait_for 20 "the controller to go" no_controllers
        connect_host
    done
    verified_fio "$profile-again" "$(namespace_device 1)" --rw=randrw --bsrange=512-8k --iodepth=64 --size=16m
    nvme_disconnect
    wait_for 20 "the controller to go" no_controllers
    wait_for 20 "the target's queue pairs to go" no_queue_pairs
    assert_target_alive
    kill_target
done
assert_no_nvme_warnings

step "A queue that does not fit into the receives is refused, and the log says what to raise"
start_quirky e810 /tmp/few.toml
assert_fails "an I/O queue of 128 entries" nvme_connect --nr-io-queues=2
# shellcheck disable=SC2016
assert_contains "the refusal" 'raise `receives`' "$(cat "$TARGET_LOG")"
kill_target
