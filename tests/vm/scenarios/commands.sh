#!/bin/bash
# Every I/O command as sent by nvme-cli, with the status required by the standard.
# vm: programs=cairn-target disk=128M disk-physical=4096 timeout=240

assert_status() {
    local expected=$1 what=$2
    shift 2
    assert_eq "$what" "$expected" "$(nvme_status "$@")"
}

# sha_of DEVICE FIRST_BLOCK BLOCKS: Prints the checksum of blocks of 4096 bytes.
sha_of() { dd if="$1" bs=4096 skip="$2" count="$3" iflag=direct status=none | sha256sum; }

step "A writable namespace and a read-only one"
setup_rxe
file=$(make_backing_file disk 64M)
frozen=$(make_backing_file frozen 16M)
write_config /tmp/cairn.toml "1 $file block_size=4096" "2 $frozen block_size=4096 read_only=true"
start_target_from /tmp/cairn.toml
connect_and_wait 1 2
disk=$(namespace_device 1)
head -c 16384 /dev/urandom > pattern
head -c 16384 /dev/zero > zeroes

step "Write, read, flush"
assert_status 0 "write of 4 blocks" write "$disk" -s 8 -c 3 -z 16384 -d pattern
assert_status 0 "read of 4 blocks" read "$disk" -s 8 -c 3 -z 16384 -d readback
assert_eq "what was read" "$(sha256sum < pattern)" "$(sha256sum < readback)"
assert_status 0 "write with force unit access" write "$disk" -s 8 -c 3 -z 16384 -d pattern --force-unit-access
assert_status 0 "flush" flush "$disk"
assert_eq "what the file holds" "$(sha256sum < pattern)" "$(sha_of "$file" 8 4)"

step "Compare and verify"
assert_status 0 "compare with the same data" compare "$disk" -s 8 -c 3 -z 16384 -d pattern
assert_status 0x285 "compare with other data fails" compare "$disk" -s 8 -c 3 -z 16384 -d zeroes
assert_status 0 "verify" verify "$disk" -s 8 -c 3

step "Write zeroes and deallocate"
assert_status 0 "write-zeroes" write-zeroes "$disk" -s 8 -c 1
assert_eq "two blocks are zero now" "$(head -c 8192 zeroes | sha256sum)" "$(sha_of "$disk" 8 2)"
assert_eq "the other two are not" "$(tail -c 8192 pattern | sha256sum)" "$(sha_of "$disk" 10 2)"
assert_status 0 "dsm, deallocate" dsm "$disk" -d -s 10 -b 2
blkdiscard -o $((32 * 4096)) -l $((64 * 4096)) "$disk"
blkdiscard -z -o $((32 * 4096)) -l $((64 * 4096)) "$disk"
say "ok: blkdiscard, also with -z"

step "Outside the namespace"
last=$((64 * 1024 * 1024 / 4096 - 1))
assert_status 0 "the last block" read "$disk" -s "$last" -c 0 -z 4096 -d readback
assert_status 0x80 "one past the last block" read "$disk" -s $((last + 1)) -c 0 -z 4096 -d readback
assert_status 0x80 "a range across the end" write "$disk" -s "$last" -c 1 -z 8192 -d pattern
assert_status 0x80 "a block number near 2^64" read "$disk" -s 0xfffffffffffffffe -c 3 -z 16384 -d readback
assert_status 0x80 "write-zeroes across the end" write-zeroes "$disk" -s "$last" -c 1

step "What is read-only stays as it is"
frozen_disk=$(namespace_device 2)
assert_eq "the kernel knows" 1 "$(cat "/sys/block/${frozen_disk##*/}/ro")"
assert_status 0x20 "a write is refused" write "$frozen_disk" -s 0 -c 3 -z 16384 -d pattern
assert_status 0x20 "so are zeroes" write-zeroes "$frozen_disk" -s 0 -c 0
assert_status 0 "a read is not" read "$frozen_disk" -s 0 -c 3 -z 16384 -d readback
assert_eq "it reads as it was" "$(sha256sum < zeroes)" "$(sha256sum < readback)"

nvme_disconnect
stop_target

step "A disk of 512-byte blocks that writes 4096 as one: the host sees and keeps to it"
modprobe dm_mod
# The target rejects a disk that is part of other devices. Therefore all three namespaces are devices on the disk. The
# second one is shifted by one block, like a partition that starts at sector 63.
dmsetup create plain --noudevsync --table "0 65536 linear /dev/vdb 0"
dmsetup create shifted --noudevsync --table "0 65536 linear /dev/vdb 65537"
dmsetup create straight --noudevsync --table "0 65536 linear /dev/vdb 131072"
dmsetup mknodes
write_config /tmp/cairn.toml "1 /dev/mapper/plain" "2 /dev/mapper/shifted" \
    "3 /dev/mapper/straight block_size=4096"
start_target_from /tmp/cairn.toml
connect_and_wait 1 2 3
# promises NSID: Prints NSFEAT bit 1, NAWUN, NAWUPF, NACWU, NABSN, NABO and NABSPF, in blocks minus one except NABO.
promises() {
    nvme id-ns "$(namespace_device "$1")" -o json |
        jq -c '[(.nsfeat / 2 | floor) % 2, .nawun, .nawupf, .nacwu, .nabsn, .nabo, .nabspf]'
}
# limit_of NSID NAME: Prints a limit of the host's block device from sysfs.
limit_of() {
    local device
    device=$(namespace_device "$1")
    cat "/sys/block/${device##*/}/queue/$2"
}
assert_eq "the target's disk" 512/4096 \
    "$(cat /sys/block/vdb/queue/logical_block_size)/$(cat /sys/block/vdb/queue/physical_block_size)"
assert_eq "the promises of the disk" "[1,7,7,0,7,0,7]" "$(promises 1)"
assert_eq "the host's block" 512 "$(limit_of 1 logical_block_size)"
assert_eq "the host's physical block" 4096 "$(limit_of 1 physical_block_size)"
assert_eq "the promises of the shifted one" "[1,7,7,0,7,7,7]" "$(promises 2)"
assert_eq "those of blocks of 4096 bytes" "[0,0,0,0,0,0,0]" "$(promises 3)"
assert_eq "AWUN and AWUPF, for all namespaces" "0 0" \
    "$(nvme id-ctrl "$(namespace_device 1)" -o json | jq -r '"\(.awun) \(.awupf)"')"

step "The host is still content"
assert_eq "state" live "$(cat "/sys/class/nvme/$(controllers)/state")"
nvme_disconnect
stop_target
dmsetup remove --noudevsync plain
dmsetup remove --noudevsync shifted
dmsetup remove --noudevsync straight
