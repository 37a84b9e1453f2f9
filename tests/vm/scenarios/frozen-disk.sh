#!/bin/bash
# A frozen file system and a suspended disk hold one host's I/O: no other host is affected, and no data is lost.
# vm: programs=cairn-target disk=384M timeout=400
#
# Both hosts are the kernel's, with different names and subsystems, served by the target's only reactor.

BYSTANDER_NQN=$NQN-bystander
# KATO of the bystander, and the longer time for which the disk is held, in seconds.
KATO_S=5
HELD_S=10
# Seconds after which the target logs and cancels a command that is still at the disk. Linux repeats a cancelled write
# five times. Six times this value must therefore exceed the time for which the disk is held on a slow machine.
DEADLINE_S=5
MOUNT=/mnt/frozen

write_both() {
    cat > /tmp/cairn.toml << END
[target]
provider = "soft"
reactors = 1
io_timeout_s = $DEADLINE_S

[[listener]]
address = "$FABRIC_ADDR"

[[subsystem]]
nqn = "$NQN"
allow_any_host = true

[[subsystem.namespace]]
nsid = 1
export = "$MOUNT/disk"
block_size = 4096

[[subsystem.namespace]]
nsid = 2
export = "/dev/mapper/held"
block_size = 4096

[[subsystem]]
nqn = "$BYSTANDER_NQN"
allow_any_host = true

[[subsystem.namespace]]
nsid = 1
export = "$bystander_file"
block_size = 4096
END
}

connect_as() {
    local name=$1 number=$2 nqn=$3
    shift 3
    NQN=$nqn nvme_connect --hostnqn "nqn.2026-11.io.cairn:host:$name" \
        --hostid "00000000-0000-4000-8000-00000000000$number" "$@"
}

ios_of() { awk '{ print $1 + $5 }' "/sys/block/${1##*/}/stat"; }
ios_reach() { [ "$(ios_of "$1")" -ge "$2" ]; }
writes_of() { awk '{ print $5 }' "/sys/block/${1##*/}/stat"; }
writes_move() { [ "$(writes_of "$1")" -gt "$2" ]; }

# in_flight DEVICE: Prints the number of outstanding writes and flushes.
in_flight() { awk '{ print $2 }' "/sys/block/${1##*/}/inflight"; }
# writes_wait DEVICE: Succeeds if writes are outstanding and none completes within a second.
writes_wait() {
    local ended
    ended=$(writes_of "$1")
    sleep 1
    [ "$(in_flight "$1")" -ge 1 ] && [ "$(writes_of "$1")" -eq "$ended" ]
}

# watch_bystander SECONDS: Checks that the bystander's I/O continues, and prints the longest time without I/O in
# milliseconds.
watch_bystander() {
    local end=$((SECONDS + $1)) seen done now last longest=0
    seen=$(ios_of "$bystander")
    last=$(date +%s%3N)
    while [ "$SECONDS" -lt "$end" ]; do
        sleep 0.1
        now=$(date +%s%3N)
        [ $((now - last)) -le "$longest" ] || longest=$((now - last))
        done=$(ios_of "$bystander")
        [ "$done" -eq "$seen" ] || last=$now
        seen=$done
    done
    echo "$longest"
}

# held_is_reported NSID: Succeeds if the target's log reports a late command of the namespace.
held_is_reported() { grep "has not answered a command in time" "$TARGET_LOG" | grep -q "nsid=$1 "; }

# hold NSID DEVICE HOLD... -- RELEASE...: Holds the disk below the namespace during I/O, and releases it.
hold() {
    local nsid=$1 device=$2 hold=() gap before writer
    shift 2
    while [ "$1" != -- ]; do hold+=("$1"); shift; done
    shift
    verified_fio "held-$nsid" "$device" --rw=randwrite --bs=16k --iodepth=16 --size=8m --loops=2 \
        --fsync=64 --rate_iops=400 &
    writer=$!
    before=$(writes_of "$device")
    wait_for 20 "its I/O" writes_move "$device" $((before + 200))
    show "${hold[@]}"
    wait_for 20 "its writes to wait" writes_wait "$device"
    before=$(writes_of "$device")
    gap=$(watch_bystander "$HELD_S")
    assert_le "ms without I/O of the bystander" "$gap" $((HELD_S * 500))
    assert_le "writes that a held disk has ended meanwhile" $(($(writes_of "$device") - before)) 0
    held_is_reported "$nsid" || fail "the target does not say that a disk keeps a command"
    say "ok: $(grep -oE 'nsid=.*' "$TARGET_LOG" | grep "nsid=$nsid " | tail -n 1)"
    timeout 10 nvme discover -t rdma -a "$FABRIC_ADDR" -s "$PORT" > /dev/null || fail "no host can come"
    say "ok: a host that comes is served"
    show "$@"
    wait "$writer" || fail "the host's I/O has failed"
    assert_eq "reconnects of the bystander" 0 \
        "$(count_in_kernel_news "nvme $bystander_ctrl: (.*error recovery|Reconnect|.*failed|.*timeout)")"
    assert_eq "I/O errors" 0 "$(count_in_kernel_news 'I/O error|I/O Error')"
}

step "A file of a file system of its own, a dm device, and the bystander's file"
setup_rxe_and_cable
modprobe -a dm_mod ext4
dmsetup create below --noudevsync --uuid cairn-below --table "0 393216 linear /dev/vdb 0"
dmsetup create held --noudevsync --uuid cairn-held --table "0 393216 linear /dev/vdb 393216"
# Creates device nodes, because the guest has no udevd.
dmsetup mknodes
mkfs.ext4 -q -F /dev/mapper/below
mkdir -p "$MOUNT"
mount /dev/mapper/below "$MOUNT"
# The blocks of the file are allocated now, because the kernel passes writes to unallocated blocks to a worker.
dd if=/dev/zero of="$MOUNT/disk" bs=1M count=64 oflag=direct status=none
bystander_file=$(make_backing_file bystander 64M)
use_soft_target
write_both
start_target_from /tmp/cairn.toml
mark_kernel_log
connect_as held 1 "$NQN"
connect_as bystander 2 "$BYSTANDER_NQN" --keep-alive-tmo="$KATO_S"
wait_for 20 "namespace 1" namespace_device 1
wait_for 20 "namespace 2" namespace_device 2
on_file=$(namespace_device 1)
on_dm=$(namespace_device 2)
bystander=$(NQN=$BYSTANDER_NQN namespace_device 1)
bystander_ctrl=$(NQN=$BYSTANDER_NQN controllers)
# fio runs until killed, and verifies blocks soon after writing them. Depth 1, because rxe itself may otherwise end the
# connection on a busy machine: docs/vm-lab.md, traps.
fio --name=bystander --filename="$bystander" --ioengine=libaio --direct=1 --rw=randrw --bs=4k \
    --iodepth=1 --size=32m --rate_iops=100,100 --time_based --runtime=3600 --verify=crc32c --verify_fatal=1 \
    --verify_backlog=64 --eta=never --output="$OUT/fio-bystander.log" &
BYSTANDER=$!
before=$(ios_of "$bystander")
wait_for 30 "its I/O" ios_reach "$bystander" $((before + 200))

step "The file system is frozen for $HELD_S s"
hold 1 "$on_file" fsfreeze -f "$MOUNT" -- fsfreeze -u "$MOUNT"

step "The dm device is suspended for $HELD_S s"
hold 2 "$on_dm" dmsetup suspend --noudevsync --nolockfs held -- dmsetup resume --noudevsync held

step "Nothing broke on the way"
kill -0 "$BYSTANDER" || fail "the bystander's I/O has ended: $(tail -n 5 "$OUT/fio-bystander.log")"
kill -TERM "$BYSTANDER"
wait "$BYSTANDER" || true
grep -q 'err= 0' "$OUT/fio-bystander.log" || fail "the bystander's I/O has failed"
say "ok: the bystander's I/O: $(grep -oE '(read|write): IOPS=[^,]*' "$OUT/fio-bystander.log" | paste -sd ' ')"
NQN=$BYSTANDER_NQN nvme_disconnect
nvme_disconnect
wait_for 20 "the controllers to go" no_controllers
stop_target
