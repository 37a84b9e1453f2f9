#!/bin/bash
# A disk exported by cairn-target, used by a stock Linux host over RDMA; watch it happen.
# vm: programs=cairn-target live timeout=180

cat <<'TEXT'
This is a Linux machine with an unmodified kernel, made for you in QEMU. It plays both parts:

    cairn-target  exports a 256 MiB file over NVMe/RDMA           (user space)
    nvme-rdma     the kernel's own NVMe host, driven by nvme-cli  (kernel)

The RDMA network between them is soft-RoCE (rdma_rxe) on a dummy network card. The processor is
emulated, so take no figure below for a measure of speed.
TEXT

setup_rxe
show truncate -s 256M /var/tmp/disk.img

step "Export the file"
say "# cairn-target serve --listen $FABRIC_ADDR --export /var/tmp/disk.img --nqn $NQN &"
start_target --export /var/tmp/disk.img
sed 's/^/    /' "$TARGET_STDOUT"

step "Find it"
mark_kernel_log
discover=$(told_to discover)
say "# $discover"
eval "$discover"

step "Connect: an ordinary disk appears"
connect=$(told_to connect)
say "# $connect"
eval "$connect"
wait_for 20 "the disk" namespace_device 1
disk=$(namespace_device 1)
show nvme list
show lsblk -o NAME,SIZE,TYPE,TRAN,MODEL "$disk"

step "Put a file system on it, and files on that"
show mkfs.ext4 -q -F "$disk"
mkdir -p /mnt/cairn
show mount "$disk" /mnt/cairn
make_tree /tmp/tree
tree_checksums /tmp/tree > /tmp/expected
show cp -a /tmp/tree /mnt/cairn/
show umount /mnt/cairn
show e2fsck -f -n "$disk"
show mount "$disk" /mnt/cairn
tree_checksums /mnt/cairn/tree | cmp /tmp/expected -
say "ok: $(wc -l < /tmp/expected) files read back with the same checksums"
show df -h /mnt/cairn

step "Run fio on it: every block is verified by its checksum"
show fio --name=demo --directory=/mnt/cairn --size=32m --rw=randrw --bs=4k --iodepth=32 \
    --ioengine=libaio --direct=1 --verify=crc32c --verify_fatal=1 --group_reporting --eta=never
show umount /mnt/cairn

step "Disconnect, and stop the target"
show nvme disconnect -n "$NQN"
assert_no_nvme_warnings
stop_target

say
say "That was an NVMe/RDMA disk from discovery to farewell. Next: docs/vm-lab.md says how to get a"
say "shell in this machine and try your own commands."
