#!/bin/bash
# A guest's disk is a namespace, by vhost-user: no death of cairn-initiator or of the target loses a byte.
# vm: programs=cairn-target,cairn-initiator network=tap vhost-user timeout=600
#
# tests/vm/beside/vhost-user.sh runs the target and `cairn-initiator attach` on the build machine.

DISK=/dev/vdb
KILLS=3

ACTIONS=0

# beside ACTION: Has the other script do something, and waits for its end. Each action has new files, because 9p may
# remember one that was removed.
beside() {
    ACTIONS=$((ACTIONS + 1))
    echo "$1" > "$OUT/do-$ACTIONS"
    wait_for 60 "$1" test -e "$OUT/done-$ACTIONS"
}

step "A disk with the size, the queues and the serial number of the namespace"
assert_eq "size of $DISK" "$(blockdev --getsize64 "$DISK")" $((256 << 20))
assert_eq "queues" 2 "$(find /sys/block/vdb/mq -mindepth 1 -maxdepth 1 | wc -l)"
assert_eq "length of the serial number" 20 "$(tr -d '\n' < /sys/block/vdb/serial | wc -c)"
assert_eq "cache" "write back" "$(cat /sys/block/vdb/queue/write_cache)"
blkdiscard --zeroout --offset 1MiB --length 64MiB "$DISK"
blkdiscard "$DISK"
verified_fio first "$DISK" --rw=randrw --bsrange=4k-1m --iodepth=16 --size=64m

step "A file system"
make_tree /tmp/tree
tree_checksums /tmp/tree > /tmp/expected
check_filesystem "ext4" "$DISK" "mkfs.ext4 -F" "e2fsck -f -n"

step "kill -9 under verified I/O"
start_verified_io "$DISK" --rate_iops=200,200
for _ in $(seq $KILLS); do
    sleep 2
    beside kill
    assert_verified_io_runs
done

step "SIGTERM, and another process, under verified I/O"
beside replace
sleep 2
assert_verified_io_runs

step "The target is killed and started again under verified I/O"
beside kill_target
sleep 2
end_verified_io
verified_fio last "$DISK" --rw=randrw --bsrange=4k-64k --iodepth=16 --size=16m
