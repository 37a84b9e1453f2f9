#!/bin/bash
# Drives with protection information: the drive inserts and checks it, and a block that fails the check is unreadable.
# vm: programs=cairn-target tests=cairn-disk nvme=512-pi1,512-pi2,4096-pi3 timeout=600 by-name
#
# QEMU emulates the drive, on the host's machine. NSIDs are types of protection information.

NSIDS=(1 2 3)
METRICS=127.0.0.1:9464

# name_of NSID: Prints 0n1 for /dev/ng0n1 and /dev/nvme0n1. The kernel numbers namespaces in order of detection.
name_of() {
    local dir
    for dir in /sys/block/nvme0n*; do
        if [ "$(cat "$dir/nsid" 2>/dev/null)" = "$1" ] && [ -e "/dev/ng${dir##*/nvme}" ]; then
            echo "${dir##*/nvme}"
            return 0
        fi
    done
    return 1
}
all_named() {
    local nsid
    for nsid in "${NSIDS[@]}"; do name_of "$nsid" || return 1; done
} > /dev/null

uuid_of() { printf '%d1111111-1111-4111-8111-111111111111' "$1"; }
block_of() { if [ "$1" = 3 ]; then echo 4096; else echo 512; fi; }

# start_with PREFIX: Exports all namespaces as PREFIX and their name, with metrics.
start_with() {
    local nsid exports=()
    for nsid in "${NSIDS[@]}"; do exports+=("$nsid $1$(name_of "$nsid") uuid=\"$(uuid_of "$nsid")\""); done
    write_config /tmp/cairn.toml "${exports[@]}"
    printf '\n[metrics]\nlisten = "%s"\n' "$METRICS" >> /tmp/cairn.toml
    start_target_from /tmp/cairn.toml
}

# mismatches NSID: Prints the value of the namespace's metric.
mismatches() {
    exec 3<> "/dev/tcp/${METRICS/:/\/}"
    printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
    grep "^cairn_namespace_protection_errors_total{.*nsid=\"$1\"" <&3 | awk '{ print $NF }'
    exec 3>&-
}

# corrupt NSID BLOCK TUPLE: Writes a block of zeroes with these 8 bytes of protection information, unchecked.
corrupt() {
    printf '%b' "$3" > /tmp/tuple
    nvme write "/dev/ng$(name_of "$1")" -s "$2" -c 0 -z "$(block_of "$1")" -d /dev/zero -y 8 -M /tmp/tuple -p 0
}

# read_block DEVICE BLOCK: Prints the status of a read of one block.
read_block() {
    nvme_status read "$1" -s "$2" -c 0 -z "$(cat "/sys/block/${1##*/}/queue/logical_block_size")" -d /tmp/read
}

# Guard, application tag, reference tag. The guard of zeroes is 0.
WRONG_GUARD='\x12\x34\x00\x00\x00\x00\x00\x09'
WRONG_TAG='\x00\x00\x00\x00\x00\x00\x12\x34'
OTHER_APPLICATION='\x00\x00\x12\x34\x00\x00\x00\x09'

# unreadable DEVICE BLOCK: Checks that the block fails with Unrecovered Read Error, and blocks beside it do not.
unreadable() {
    local block
    block=$(cat "/sys/block/${1##*/}/queue/logical_block_size")
    assert_eq "a read of block $2" 0x281 "$(read_block "$1" "$2")"
    assert_eq "of the block before" 0 "$(read_block "$1" $(($2 - 1)))"
    assert_eq "of the block after" 0 "$(read_block "$1" $(($2 + 1)))"
    assert_eq "of all three" 0x281 "$(nvme_status read "$1" -s $(($2 - 1)) -c 2 -z $((3 * block)) -d /tmp/read)"
    assert_eq "verify" 0x281 "$(nvme_status verify "$1" -s "$2" -c 0)"
    head -c "$block" /dev/zero > /tmp/zeroes
    assert_eq "compare" 0x281 "$(nvme_status compare "$1" -s "$2" -c 0 -z "$block" -d /tmp/zeroes)"
    assert_fails "a read through the block layer" dd if="$1" bs="$block" skip="$2" count=1 iflag=direct of=/dev/null
}

# exercise NSID DEVICE: Verified I/O, and each command that has protection information.
exercise() {
    local block
    block=$(block_of "$1")
    assert_eq "bytes of a block" "$block" "$(cat "/sys/block/${2##*/}/queue/logical_block_size")"
    assert_eq "bytes of metadata, and protection" "0 0" \
        "$(nvme id-ns "$2" -o json | jq -r '"\(.lbafs[0].ms) \(.dps)"')"
    verified_fio "blocks-$1" "$2" --rw=randrw --bs="$block" --iodepth=16 --size=512k
    verified_fio "pages-$1" "$2" --rw=randrw --bs=4k --iodepth=32 --size=2m
    verified_fio "long-$1" "$2" --rw=randrw --bs=128k --iodepth=4 --size=2m
    dd if=/dev/urandom of="$2" bs=512k count=1 oflag=direct status=none
    assert_eq "verify of 512 KiB" 0 "$(nvme_status verify "$2" -s 0 -c $((524288 / block - 1)))"
    blkdiscard -f -z -o 65536 -l 262144 "$2"
    assert_eq "zeroes" "$(head -c 262144 /dev/zero | sha256sum)" \
        "$(dd if="$2" bs=65536 skip=1 count=4 iflag=direct status=none | sha256sum)"
    assert_eq "write zeroes with deallocate" 0 "$(nvme_status write-zeroes "$2" -s 0 -c 63 --deac)"
    assert_eq "a read of them" 0 "$(read_block "$2" 63)"
    blkdiscard -f -o 65536 -l 262144 "$2"
    assert_eq "a read of a deallocated block" 0 "$(read_block "$2" $((65536 / block)))"
    dd if=/dev/urandom of="$2" bs=512k count=1 oflag=direct status=none
    head -c "$block" /dev/urandom > /tmp/pattern
    assert_eq "a write" 0 "$(nvme_status write "$2" -s 9 -c 0 -z "$block" -d /tmp/pattern)"
    assert_eq "compare" 0 "$(nvme_status compare "$2" -s 9 -c 0 -z "$block" -d /tmp/pattern)"
    head -c "$block" /dev/zero > /tmp/zeroes
    assert_eq "compare with other data" 0x285 "$(nvme_status compare "$2" -s 9 -c 0 -z "$block" -d /tmp/zeroes)"
    nvme copy "$2" --sdlba=100 --slbs=9 --blocks=0
    assert_eq "compare of a copy" 0 "$(nvme_status compare "$2" -s 100 -c 0 -z "$block" -d /tmp/pattern)"
}

# damage NSID DEVICE: Checks that the host sees damage, and that a write repairs it.
damage() {
    local seen
    seen=$(mismatches "$1")
    dd if=/dev/zero of="$2" bs=64k count=1 oflag=direct status=none
    corrupt "$1" 9 "$WRONG_GUARD"
    unreadable "$2" 9
    corrupt "$1" 9 "$WRONG_TAG"
    if [ "$1" = 3 ]; then
        assert_eq "another reference tag of type 3" 0 "$(read_block "$2" 9)"
    else
        unreadable "$2" 9
    fi
    corrupt "$1" 9 "$OTHER_APPLICATION"
    assert_eq "another application tag" 0 "$(read_block "$2" 9)"
    corrupt "$1" 9 "$WRONG_GUARD"
    assert_eq "a read" 0x281 "$(read_block "$2" 9)"
    assert_eq "write zeroes" 0 "$(nvme_status write-zeroes "$2" -s 9 -c 0)"
    assert_eq "a read of the repaired block" 0 "$(read_block "$2" 9)"
    assert_ge "mismatches counted" "$(mismatches "$1")" $((seen + 5))
}

step "A drive of three namespaces"
modprobe nvme
wait_for 20 "its devices" all_named
for nsid in "${NSIDS[@]}"; do
    say "$nsid: $(nvme id-ns "/dev/ng$(name_of "$nsid")" -o json | jq -c '{dps, flbas}')"
    # QEMU takes a block that was never written for one with tags of 0, if one beside it was written.
    dd if=/dev/urandom of="/dev/nvme$(name_of "$nsid")" bs=1M count=8 oflag=direct status=none
done

step "The conformance suite of backends"
show env CAIRN_TEST_PROTECTED=1 \
    CAIRN_TEST_DRIVES="/dev/ng$(name_of 1),/dev/ng$(name_of 2),/dev/ng$(name_of 3)" \
    cairn-disk-tests --ignored --exact backend::conformance::drives::drives_past_the_block_layer

setup_rxe
for prefix in /dev/ng /dev/nvme; do
    step "Exported as $prefix"
    start_with "$prefix"
    connect_and_wait "${NSIDS[@]}"
    for nsid in "${NSIDS[@]}"; do
        step "$prefix, namespace $nsid"
        exercise "$nsid" "$(namespace_device "$nsid")"
        damage "$nsid" "$(namespace_device "$nsid")"
    done
    nvme_disconnect
    stop_target
done
for error in "End-to-end Guard Check Error (2/82h)" "End-to-end Reference Tag Check Error (2/84h)" "(os error 84)"; do
    assert_ge "log lines with $error" \
        "$(count_in_target_log "${error//[()]/.}: a block does not match its protection information")" 1
done
