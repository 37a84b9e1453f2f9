#!/bin/bash
# ext4 and xfs on exported disks keep a file tree intact, on a file and on a block device.
# vm: programs=cairn-target timeout=420

# check_filesystem NAME DEVICE MKFS FSCK
check_filesystem() {
    local name=$1 device=$2 mkfs=$3 fsck=$4
    step "$name"
    $mkfs "$device" > "$OUT/mkfs-${name// /-}.log" 2>&1
    mkdir -p /mnt/disk
    mount "$device" /mnt/disk
    cp -a /tmp/tree /mnt/disk/
    umount /mnt/disk
    # Nothing of it may come from the host's own cache.
    blockdev --flushbufs "$device"
    $fsck "$device" > "$OUT/fsck-${name// /-}.log" 2>&1
    say "ok: $fsck finds no fault"
    mount "$device" /mnt/disk
    tree_checksums /mnt/disk/tree > /tmp/seen
    cmp /tmp/expected /tmp/seen
    say "ok: $(wc -l < /tmp/expected) files read back with the same checksums"
    rm -rf /mnt/disk/tree
    fstrim /mnt/disk
    umount /mnt/disk
    $fsck "$device" >> "$OUT/fsck-${name// /-}.log" 2>&1
    say "ok: nor after removal of the tree and fstrim"
}

step "A file and a loop device, exported together"
setup_rxe
modprobe loop
file=$(make_backing_file disk 512M)
loop=$(losetup --find --show --direct-io=on "$(make_backing_file looped 512M)")
start_target --export "$file" --export "$loop"
mark_kernel_log
connect_and_wait 1 2
make_tree /tmp/tree
tree_checksums /tmp/tree > /tmp/expected
say "$(wc -l < /tmp/expected) files, $(du -sm /tmp/tree | cut -f 1) MiB"

for nsid in 1 2; do
    kind=$([ "$nsid" = 1 ] && echo file || echo block)
    check_filesystem "ext4 on $kind" "$(namespace_device "$nsid")" "mkfs.ext4 -F" "e2fsck -f -n"
    check_filesystem "xfs on $kind" "$(namespace_device "$nsid")" "mkfs.xfs -f" "xfs_repair -n"
done

step "Disconnect"
nvme_disconnect
assert_no_nvme_warnings
stop_target
