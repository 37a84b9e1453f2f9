#!/bin/bash
# cairn-initiator makes an export a block device without any RDMA in the kernel; its death and the target's lose nothing.
# vm: programs=cairn-target,cairn-initiator,cairn-demo disk=256M timeout=900

FABRIC_ADDR=127.0.0.1
TARGET_PROVIDER=soft
KILLS=3

# attach DRIVER [OPTION...]: Runs `attach` in the background, and sets DEVICE when the block device is usable.
attach() {
    local driver=$1
    shift
    : > "$OUT/attach.stdout"
    cairn-initiator attach -a "$FABRIC_ADDR" -n "$NQN" -N 1 --provider soft --as "$driver" --reconnect-delay 1 "$@" \
        > "$OUT/attach.stdout" 2>> "$OUT/attach.log" &
    ATTACHED=$!
    wait_for 60 "the block device" attached_or_gone
    DEVICE=$(grep -oE '^/dev/[a-z0-9]+' "$OUT/attach.stdout") || fail "attach ended: $(tail -n 3 "$OUT/attach.log")"
}

attached_or_gone() { grep -q '^/dev/' "$OUT/attach.stdout" || ! kill -0 "$ATTACHED" 2>/dev/null; }
number_of() { grep -oE '[0-9]+$' <<< "$1"; }

# end_attach: Sends SIGTERM, on which `attach` must exit successfully.
end_attach() {
    kill -TERM "$ATTACHED"
    wait "$ATTACHED" || fail "attach ended with code $?: $(tail -n 3 "$OUT/attach.log")"
}

kill_attach() {
    kill -KILL "$ATTACHED"
    wait "$ATTACHED" 2> /dev/null || true
}

loaded_rdma() { lsmod | grep -E '^(ib_|rdma|nvme_rdma)' || true; }
has_no_size() { [ "$(blockdev --getsize64 "$1" 2> /dev/null || echo 0)" = 0 ]; }

step "A target, and a kernel without RDMA"
assert_empty "RDMA modules" loaded_rdma
start_target --export /dev/vdb --export mem:64MiB

for driver in ublk nbd; do
    step "$driver: a block device with the size and the limits of the namespace"
    modprobe "$([ $driver = ublk ] && echo ublk_drv || echo nbd)"
    attach $driver
    assert_eq "size of $DEVICE" "$(blockdev --getsize64 "$DEVICE")" "$(blockdev --getsize64 /dev/vdb)"
    blkdiscard -f --zeroout --offset 1MiB --length 64MiB "$DEVICE"
    blkdiscard -f "$DEVICE"
    verified_fio "$driver-first" "$DEVICE" --rw=randrw --bsrange=4k-1m --iodepth=16 --size=64m

    step "$driver: a file system"
    mkfs.ext4 -q "$DEVICE"
    mkdir -p /mnt/attached
    mount "$DEVICE" /mnt/attached
    make_tree /mnt/attached/tree
    tree_checksums /mnt/attached/tree > /tmp/tree.before

    step "$driver: the device of a mounted file system outlives SIGTERM"
    end_attach
    assert_contains "attach's last words" "is in use: it stays" "$(tail -n 1 "$OUT/attach.log")"
    assert_fails "detach of a mounted device" \
        cairn-initiator detach --device "$(number_of "$DEVICE")" --as $driver
    attach $driver --device "$(number_of "$DEVICE")"
    umount /mnt/attached
    fsck.ext4 -fn "$DEVICE" > "$OUT/fsck-$driver.log" 2>&1 || fail "fsck: $(tail -n 3 "$OUT/fsck-$driver.log")"
    mount "$DEVICE" /mnt/attached
    tree_checksums /mnt/attached/tree > /tmp/tree.after
    cmp /tmp/tree.before /tmp/tree.after || fail "the tree differs"
    umount /mnt/attached

    step "$driver: kill -9 under verified I/O"
    start_verified_io "$DEVICE" --rate_iops=200,200
    for _ in $(seq $KILLS); do
        sleep 2
        kill_attach
        attach $driver --device "$(number_of "$DEVICE")"
        assert_verified_io_runs
    done

    step "$driver: the target is killed and started again under verified I/O"
    kill_target
    start_target --export /dev/vdb --export mem:64MiB
    end_verified_io

    step "$driver: the device of another namespace is not taken over"
    kill_attach
    assert_fails "attach of another namespace" \
        cairn-initiator attach -a "$FABRIC_ADDR" -n "$NQN" --provider soft -N 2 --as $driver \
        --device "$(number_of "$DEVICE")"

    step "$driver: a device that no process serves is removed"
    cairn-initiator detach --device "$(number_of "$DEVICE")" --as $driver
    wait_for 10 "the device to go" has_no_size "$DEVICE"
    attach $driver
    end_attach
    wait_for 10 "the device to go" has_no_size "$DEVICE"
done

step "The demonstration: a file system, and ten deaths under verified load"
cairn-demo disk --mib 64 --address 127.0.0.2 | tee "$OUT/demo.txt"
assert_contains "the demonstration" "nothing was lost" "$(cat "$OUT/demo.txt")"
