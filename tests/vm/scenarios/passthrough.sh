#!/bin/bash
# NVMe drives by passthrough: every command, verified I/O, the drive's own errors, and removal of the drive.
# vm: programs=cairn-target tests=cairn-disk examples=cairn-bench-disk nvme=512,4096,metadata,zoned,read-only timeout=300
#
# QEMU emulates the drive, with a namespace of each kind. Exported namespaces get other UUIDs, because target and host
# are one machine, on which Linux rejects a second namespace with the same identifiers.

UUID_OF_1=11111111-1111-4111-8111-111111111111
UUID_OF_2=22222222-2222-4222-8222-222222222222
UUID_OF_5=55555555-5555-4555-8555-555555555555

# refused PATH WORDS: Checks that the target rejects the path with this reason.
refused() {
    write_config /tmp/refused.toml "1 $1"
    cairn-target check /tmp/refused.toml > /tmp/refused.log 2>&1 || true
    assert_contains "why $1 is refused" "$2" "$(cat /tmp/refused.log)"
}

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
all_named() { name_of 1 && name_of 2 && name_of 3 && name_of 4 && name_of 5; } > /dev/null
drive_gone() { ! name_of 1; }

# Removes the drive while a host writes to it.
pull_out() {
    local pci writer
    pci=$(readlink -f /sys/class/nvme/nvme0/device)
    timeout 60 fio --name=pulled --filename="$small" --ioengine=libaio --direct=1 --rw=randwrite --bs=4k \
        --iodepth=4 --size=8m --time_based --runtime=30 --eta=never --output="$OUT/fio-pulled.log" &
    writer=$!
    sleep 2
    echo 1 > "$pci/remove"
    wait_for 20 "the drive to go" drive_gone
    assert_target_alive
    nvme_disconnect
    wait "$writer" && fail "no write has failed"
    say "ok: writes have failed: $(count_in_target_log 'the disk failed a command') lines in the log"
    stop_target
}

drive_interrupts() {
    awk '/nvme[0-9]+q[1-9]/ { for (i = 2; i <= NF && $i ~ /^[0-9]+$/; i++) sum += $i } END { print sum + 0 }' /proc/interrupts
}

step "A drive of five namespaces"
modprobe nvme
wait_for 20 "its devices" all_named
show nvme list
one=$(name_of 1)
two=$(name_of 2)
five=$(name_of 5)

step "The conformance suite of backends"
show env CAIRN_TEST_DRIVES="/dev/ng$one,/dev/ng$two" cairn-disk-tests --ignored --exact \
    backend::conformance::drives::drives_past_the_block_layer

step "What cannot be exported, or is in use, is refused with a reason"
refused "/dev/ng$(name_of 3)" "8 bytes of metadata"
refused "/dev/ng$(name_of 4)" "zoned"
refused /dev/nvme0 "no file or block device"
mkfs.ext4 -q -F "/dev/nvme$two"
mkdir -p /mnt/mounted
mount "/dev/nvme$two" /mnt/mounted
refused "/dev/ng$two" "is in use"
umount /mnt/mounted
modprobe dm_mod
dmsetup create holder --noudevsync --table "0 8192 linear /dev/nvme$two 0"
refused "/dev/ng$two" "is part of dm-"
dmsetup remove --noudevsync holder

step "Exported: the drive's limits and promises are the namespace's"
setup_rxe
write_config /tmp/cairn.toml "1 /dev/ng$one uuid=\"$UUID_OF_1\"" "2 /dev/ng$two uuid=\"$UUID_OF_2\"" \
    "5 /dev/ng$five uuid=\"$UUID_OF_5\""
start_target_from /tmp/cairn.toml
mark_kernel_log
connect_and_wait 1 2 5
small=$(namespace_device 1)
large=$(namespace_device 2)
broken=$(namespace_device 5)
assert_eq "bytes of a block" 512 "$(cat "/sys/block/${small##*/}/queue/logical_block_size")"
assert_eq "bytes of a block" 4096 "$(cat "/sys/block/${large##*/}/queue/logical_block_size")"
for field in nsze npwg npdg nows; do
    assert_eq "$field" "$(nvme id-ns /dev/nvme0 -n 2 -o json | jq ".$field")" \
        "$(nvme id-ns "$large" -o json | jq ".$field")"
done
assert_fails "a mount of an exported drive" mount "/dev/nvme$two" /mnt/mounted

step "Verified I/O, also of more than the drive moves in a command"
before=$(drive_interrupts)
verified_fio small-4k "$small" --rw=randrw --bs=4k --iodepth=32 --size=8m
unpolled=$(($(drive_interrupts) - before))
verified_fio small-mixed "$small" --rw=randrw --bsrange=512-512k --bs_unaligned=0 --iodepth=8 --size=8m
verified_fio large-4k "$large" --rw=randrw --bs=4k --iodepth=64 --size=8m --fsync=32
blkdiscard -f -z -o 65536 -l 1048576 "$large"
assert_eq "what was zeroed" "$(head -c 1048576 /dev/zero | sha256sum)" \
    "$(dd if="$large" bs=65536 skip=1 count=16 iflag=direct status=none | sha256sum)"
blkdiscard -f -o 65536 -l 1048576 "$large"
say "ok: blkdiscard"
head -c 4096 /dev/urandom > /tmp/pattern
assert_eq "verify" 0 "$(nvme_status verify "$large" -s 0 -c 255)"
assert_eq "write with force unit access" 0 \
    "$(nvme_status write "$large" -s 0 -c 0 -z 4096 -d /tmp/pattern --force-unit-access)"
mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
echo 'opcode == 9' >/sys/kernel/tracing/events/nvme/nvme_setup_cmd/filter
echo 1 >/sys/kernel/tracing/events/nvme/nvme_setup_cmd/enable
assert_eq "advice of two ranges" 0 "$(nvme_status dsm "$large" --idr --idw --slbs=0,64 --blocks=8,8 --ctx-attrs=0,1)"
echo 0 >/sys/kernel/tracing/events/nvme/nvme_setup_cmd/enable
assert_contains "commands of the drive" "cmd=(nvme_cmd_dsm nr=1, attributes=3)" \
    "$(grep 'nvme0: ' /sys/kernel/tracing/trace)"
assert_eq "compare" 0 "$(nvme_status compare "$large" -s 0 -c 0 -z 4096 -d /tmp/pattern)"
head -c 4096 /dev/zero > /tmp/zeroes
assert_eq "compare with other data" 0x285 "$(nvme_status compare "$large" -s 0 -c 0 -z 4096 -d /tmp/zeroes)"
assert_eq "failures of the drive, of which that is none" 0 "$(count_in_target_log 'the disk failed a command')"

step "A namespace whose writes fail: the host gets the drive's status"
assert_eq "a read" 0 "$(nvme_status read "$broken" -s 0 -c 0 -z 4096 -d /tmp/read)"
# The drive fails the write with Write Fault, which the target logs as the drive's status.
assert_eq "a write" 0x280 "$(nvme_status write "$broken" -s 0 -c 0 -z 4096 -d /tmp/pattern)"
assert_contains "the target's log" "the drive's status" "$(cat "$TARGET_LOG")"

step "The drive is pulled out: its I/O fails, and the target lives on"
pull_out

step "It is back, and keeps its names where none are configured"
echo 1 > /sys/bus/pci/rescan
wait_for 20 "the drive" all_named
write_config /tmp/cairn.toml "1 /dev/ng$(name_of 1)"
start_target_from /tmp/cairn.toml
assert_contains "the drive's UUID" 00000000-0000-4000-8000-000000000001 "$(grep 'namespace exported' "$TARGET_LOG" | tail -n 1)"
stop_target

step "Polled, where the driver has queues for that: the same commands, and no interrupts"
TARGET_SETTINGS+=(poll_drives=true)
write_config /tmp/cairn.toml "1 /dev/ng$(name_of 1)"
start_target_from /tmp/cairn.toml
assert_contains "the target's log" "boot with nvme.poll_queues=N" "$(cat "$TARGET_LOG")"
stop_target
modprobe -r nvme
modprobe nvme poll_queues=2
wait_for 20 "the drive" all_named
show env CAIRN_TEST_POLLED=1 CAIRN_TEST_DRIVES="/dev/ng$(name_of 1),/dev/ng$(name_of 2)" cairn-disk-tests \
    --ignored --exact backend::conformance::drives::drives_past_the_block_layer

step "A process that is stopped while its drive is polled, for longer than a command may take: nothing is reset"
# Timeout of new commands in seconds, after which Linux polls for their completion.
echo 4 > /sys/module/nvme_core/parameters/io_timeout
mark_kernel_log
cairn-bench-disk --poll-drives --filename "/dev/ng$(name_of 1)" --rw randwrite --iodepth 128 --runtime-ms 8000 > "$OUT/stopped.json" &
writer=$!
sleep 4
kill -STOP "$writer"
sleep 9
kill -CONT "$writer"
wait "$writer" || fail "its writes have failed"
assert_ge "milliseconds that the slowest of its writes took" \
    "$(jq '.jobs[0].write.clat_ns.max / 1000000 | floor' "$OUT/stopped.json")" 8000
assert_eq "resets of the drive, and commands that were aborted" 0 "$(count_in_kernel_news 'nvme0: .*(reset|abort)')"
echo 30 > /sys/module/nvme_core/parameters/io_timeout

step "Polled by a target"
write_config /tmp/cairn.toml "1 /dev/ng$(name_of 1) uuid=\"$UUID_OF_1\""
start_target_from /tmp/cairn.toml
assert_eq "drives that the log says cannot be polled, before and now" 1 "$(count_in_target_log poll_queues)"
connect_and_wait 1
small=$(namespace_device 1)
before=$(drive_interrupts)
verified_fio polled "$small" --rw=randrw --bs=4k --iodepth=32 --size=8m --fsync=32
polled=$(($(drive_interrupts) - before))
say "interrupts of the drive: $unpolled, and $polled polled"
assert_ge "a tenth of those without polling" $((unpolled / 10)) $((polled + 1))

step "A polled drive is pulled out"
pull_out
