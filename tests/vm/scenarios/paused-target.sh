#!/bin/bash
# A target stops for longer than KATO while another takes over the disk: data received before is not written later.
# vm: aarch64 programs=cairn-target disk=48M timeout=240
#
# Reactors submit writes to the first disk, a block device. Worker threads write the second disk, a file on NFS.

OTHER_ADDR=192.168.77.3
DISK=/dev/vdb
# Without a configured UUID, the disk would have no identity.
UUID='uuid="00000000-0000-4000-8000-00000000fa17"'
NFS_FOLDER=/srv/exported
NFS_MOUNT=/mnt/nfs
NFS_UUID='uuid="00000000-0000-4000-8000-00000000fa18"'
KATO_S=5
# Stop time in seconds, longer than KATO and than the failover of the kernel's host.
STOPPED_S=9

# start_path NAME: Starts a target with /tmp/NAME.toml, and stores its process ID in PID_OF.
declare -A PID_OF
start_path() {
    TARGET_LOG=$OUT/target-$1.log
    TARGET_STDOUT=$OUT/target-$1.stdout
    launch_target --config "/tmp/$1.toml"
    PID_OF[$1]=$TARGET_PID
}

connect_path() {
    nvme connect -t rdma -a "$1" -s "$PORT" -n "$NQN" --keep-alive-tmo="$KATO_S" \
        --reconnect-delay=1 --ctrl-loss-tmo=120
}

state_of() {
    local dir
    for dir in /sys/class/nvme/nvme*; do
        if grep -q "traddr=$1," "$dir/address" 2> /dev/null; then cat "$dir/state"; fi
    done
}
path_is() { [ "$(state_of "$1")" = "$2" ]; }
path_is_not() { ! path_is "$@"; }

# copy_disk DISK FILE: Copies all blocks, bypassing the page cache for devices.
copy_disk() {
    case $1 in
    /dev/*) dd if="$1" of="$2" bs=1M iflag=direct status=none ;;
    *) cp --sparse=never "$1" "$2" ;;
    esac
}

# blocks_that_differ FILE FILE: Prints the numbers of different blocks, and the first bytes in the second file, which
# identify late writes.
blocks_that_differ() {
    cmp -l "$1" "$2" | awk '{ print int(($1 - 1) / 4096) }' | uniq | while read -r block; do
        echo "$block ($(dd if="$2" bs=4k skip="$block" count=1 status=none | head -c 8 | tr -c '[:alnum:]' .))"
    done
}

# Prints the number of bytes in socket buffers of the target at FABRIC_ADDR.
bytes_waiting() {
    in_soft_netns ss -Hnua "src $FABRIC_ADDR" | awk '{ bytes += $2 } END { print bytes + 0 }'
}

# write_blocks DEVICE: Writes each of the first LATE_BLOCKS blocks in its own process; LATE has the process IDs.
LATE_BLOCKS=24
write_blocks() {
    local block
    LATE=()
    for ((block = 0; block < LATE_BLOCKS; block++)); do
        dd if=/tmp/late of="$1" bs=4k count=1 seek="$block" oflag=direct conv=notrunc status=none &
        LATE+=($!)
    done
}

# stop_and_take_over NAME DISK NSID MIB: Stops target one during writes, and rewrites the whole disk through the other
# target.
stop_and_take_over() {
    local name=$1 disk=$2 size=$4m device stale before started write
    device=$(namespace_device "$3")
    wait_for 60 "path one" path_is "$FABRIC_ADDR" live
    wait_for 20 "its ANA state" ana_is_optimized
    fio --name=stale --filename="$device" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k \
        --iodepth=64 --size="$size" --time_based --runtime=3600 --refill_buffers --eta=never \
        --output="$OUT/fio-stale-$name.log" &
    stale=$!
    before=$(writes_done "$device")
    wait_for 20 "its writes" writes_reach "$device" $((before + 500))
    WORKERS=$(workers_of "${PID_OF[one]}")
    kill -STOP "${PID_OF[one]}"
    started=$SECONDS
    say "target one is stopped"
    # A fast target may have received all writes of fio before it stopped, but cannot have received these.
    write_blocks "$device"
    wait_for 30 "the host to give it up" path_is_not "$FABRIC_ADDR" live
    before=$(writes_done "$device")
    wait_for 30 "its writes by the other path" writes_reach "$device" $((before + 500))
    kill -TERM "$stale"
    wait "$stale" || true
    for write in "${LATE[@]}"; do wait "$write" || fail "a write that began after the stop has failed"; done
    grep -q 'err= 0' "$OUT/fio-stale-$name.log" || fail "fio has failed: $(tail -n 5 "$OUT/fio-stale-$name.log")"
    verified_fio "rewrite-$name" "$device" --rw=write --bs=64k --iodepth=8 --size="$size" --end_fsync=1
    copy_disk "$disk" /tmp/before
    assert_ge "bytes that wait in the sockets of the stopped target" "$(bytes_waiting)" 65536
    while [ $((SECONDS - started)) -lt "$STOPPED_S" ]; do sleep 0.2; done
    kill -CONT "${PID_OF[one]}"
    say "target one goes on, after $((SECONDS - started)) s"
    wait_for 60 "path one to come back" path_is "$FABRIC_ADDR" live
    assert_eq "what waited in its sockets" 0 "$(bytes_waiting)"
    copy_disk "$disk" /tmp/after
    [ -s /tmp/before ] || fail "the copy of $disk is empty"
    assert_empty "blocks of $disk that differ" blocks_that_differ /tmp/before /tmp/after
}

writes_done() { awk '{ print $5 }' "/sys/block/${1##*/}/stat"; }
writes_reach() { [ "$(writes_done "$1")" -ge "$2" ]; }
# workers_of PID: Prints the number of worker threads; an idle worker ends after five seconds.
workers_of() { cat "/proc/$1/task"/*/comm | grep -cx worker || true; }
ana_is_optimized() {
    local dir
    for dir in /sys/block/nvme*c*n*; do
        if grep -q "traddr=$FABRIC_ADDR," "$dir/device/address"; then
            [ "$(cat "$dir/ana_state")" = optimized ] && return 0
        fi
    done
    return 1
}

step "Two targets, one disk, Linux with a path to each"
setup_rxe_and_cable
printf '%-4096s' late > /tmp/late
in_soft_netns ip addr add "$OTHER_ADDR/24" dev cable1
use_soft_target
mount_nfs "$NFS_FOLDER" "$NFS_MOUNT"
truncate -s 16M "$NFS_FOLDER/disk"
write_path_config /tmp/one.toml "$FABRIC_ADDR" 1 1-100 optimized "$DISK" "$UUID"
write_path_config /tmp/two.toml "$OTHER_ADDR" 2 101-200 non-optimized "$DISK" "$UUID"
for config in /tmp/one.toml /tmp/two.toml; do
    printf '\n[[subsystem.namespace]]\nnsid = 2\nexport = "%s"\nblock_size = 4096\nshared = true\n%s\n' \
        "$NFS_MOUNT/disk" "$NFS_UUID" >> "$config"
done
start_path one
start_path two
mark_kernel_log
connect_path "$FABRIC_ADDR"
connect_path "$OTHER_ADDR"
wait_for 20 "the device" namespace_device 1
wait_for 20 "the file on NFS" namespace_device 2
wait_for 20 "path two" path_is "$OTHER_ADDR" live

step "The target in use is stopped, its successor writes, it goes on"
stop_and_take_over device "$DISK" 1 48

step "The same with the file on NFS"
stop_and_take_over nfs "$NFS_FOLDER/disk" 2 16
assert_ge "threads of target one that were writing to it" "$WORKERS" 1
assert_ge "writes that they could hand over by io_submit" "$(cat /proc/sys/fs/aio-nr)" 1

step "By either path the host reads what it wrote"
assert_eq "I/O errors" 0 "$(count_in_kernel_news 'I/O error|I/O Error')"
# The logged reason is the keep alive timeout or the host's disconnect, whichever the target detects first.
grep "disconnected" "$OUT/target-one.log" | tail -n 2 | cut -c 1-200
nvme_disconnect
wait_for 30 "the controllers to go" no_controllers
for name in one two; do
    TARGET_PID=${PID_OF[$name]}
    TARGET_LOG=$OUT/target-$name.log
    stop_target
done
