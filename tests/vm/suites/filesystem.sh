# ext4 and xfs on exported disks keep a file tree intact, on a file and on a block device.
# Sourced by scenarios: run_suite filesystem

step "A file and a loop device, exported together"
setup_fabric
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
