# Backing stores, file trees, and fio.

# make_backing_file NAME SIZE: Creates a file on the guest's root disk and prints its path.
make_backing_file() {
    mkdir -p /var/tmp/backing
    truncate -s "$2" "/var/tmp/backing/$1"
    echo "/var/tmp/backing/$1"
}

# verified_fio NAME DEVICE OPTION...: Runs fio, which verifies every block it reads, and keeps the report.
verified_fio() {
    local name=$1 device=$2
    shift 2
    if ! fio --name="$name" --filename="$device" --ioengine=libaio --direct=1 \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 --group_reporting \
        --randrepeat=0 --eta=never --output="$OUT/fio-$name.log" "$@"; then
        tail -n 20 "$OUT/fio-$name.log"
        fail "fio $name"
    fi
    grep -q 'err= 0' "$OUT/fio-$name.log" || fail "fio $name reported an error"
    grep -qE 'IO depths' "$OUT/fio-$name.log" && ! grep -qE 'total=0,0,0,' "$OUT/fio-$name.log" ||
        fail "fio $name did no I/O"
    say "ok: fio $name: $(grep -oE '(read|write): IOPS=[^,]*, BW=[^ ]*' "$OUT/fio-$name.log" |
        paste -sd ' ')"
}

# start_verified_io DEVICE [OPTION...]: Runs fio repeatedly in the background until end_verified_io. The runs are short,
# because fio verifies only a part of its data when it is stopped. --rate_iops=READS,WRITES leaves processor time to
# other programs on an emulated machine.
start_verified_io() {
    local device=$1
    shift
    rm -f /tmp/end-verified-io
    (
        while [ ! -e /tmp/end-verified-io ]; do
            verified_fio background "$device" --rw=randrw --bsrange=4k-32k --iodepth=8 --size=8m "$@" \
                > /dev/null
        done
    ) &
    VERIFIED_IO=$!
}

assert_verified_io_runs() {
    kill -0 "$VERIFIED_IO" 2>/dev/null || fail "the I/O in the background has failed"
    say "ok: the I/O in the background goes on"
}

end_verified_io() {
    touch /tmp/end-verified-io
    wait "$VERIFIED_IO" || fail "the I/O in the background has failed"
    say "ok: the I/O in the background was right to the last block"
}

# make_tree DIR: Creates a tree of small system files, and some files of several MiB.
make_tree() {
    local n
    mkdir -p "$1"
    cp -a /etc /usr/share/zoneinfo /usr/lib/python3 "$1/" 2>/dev/null || cp -a /etc "$1/"
    for n in 1 2 3; do
        head -c $((n * 3 * 1024 * 1024 + n * 137)) /dev/urandom > "$1/blob$n"
    done
}

tree_checksums() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum); }

# check_filesystem NAME DEVICE MKFS FSCK: Checks that a file system keeps /tmp/tree, with checksums in /tmp/expected.
check_filesystem() {
    local name=$1 device=$2 mkfs=$3 fsck=$4
    step "$name"
    $mkfs "$device" > "$OUT/mkfs-${name// /-}.log" 2>&1
    mkdir -p /mnt/disk
    mount "$device" /mnt/disk
    cp -a /tmp/tree /mnt/disk/
    umount /mnt/disk
    # Flushing empties the host's page cache, so that the host reads all data from the target.
    blockdev --flushbufs "$device"
    $fsck "$device" > "$OUT/fsck-${name// /-}.log" 2>&1
    say "ok: $fsck finds no fault"
    mount "$device" /mnt/disk
    [ -s /tmp/expected ] || fail "/tmp/expected has no checksums"
    tree_checksums /mnt/disk/tree > /tmp/seen
    cmp /tmp/expected /tmp/seen
    say "ok: $(wc -l < /tmp/expected) files read back with the same checksums"
    rm -rf /mnt/disk/tree
    fstrim /mnt/disk
    umount /mnt/disk
    $fsck "$device" >> "$OUT/fsck-${name// /-}.log" 2>&1
    say "ok: nor after removal of the tree and fstrim"
}

# nvme_status COMMAND...: Prints the status field of the completion, 0 for success.
nvme_status() {
    local said
    if said=$(nvme "$@" 2>&1); then
        echo 0
    else
        # "NVMe status: ...(0x6080)": bits 0 to 10 are the status, higher bits are retry hints.
        said=$(grep -oE '\(0x[0-9a-f]+\)' <<< "$said" | tail -n 1 | tr -d '()')
        printf '0x%x\n' $((${said:-0xffff} & 0x7ff))
    fi
}
