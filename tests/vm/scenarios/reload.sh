#!/bin/bash
# SIGHUP adds, removes and replaces namespaces of a connected host; SIGTERM completes outstanding I/O.
# vm: programs=cairn-target timeout=240

CONFIG=/tmp/cairn.toml

step "One namespace"
setup_rxe
first=$(make_backing_file first 128M)
second=$(make_backing_file second 32M)
write_config "$CONFIG" "1 $first"
start_target_from "$CONFIG"
mark_kernel_log
nvme_connect --reconnect-delay=2
wait_for 20 "namespace 1" namespace_device 1
ctrl=$(controllers)
disk=$(namespace_device 1)
wwid=$(cat "/sys/block/${disk##*/}/wwid")

step "check names what another process has, the port at the RDMA device too"
checked() { cairn-target check "$1" > /tmp/checked.log 2>&1 || true; }
checked "$CONFIG"
cat /tmp/checked.log
grep -q "1 control socket, 1 listener, 1 disk" /tmp/checked.log || fail "check does not name the target of the file"
cp "$CONFIG" /tmp/copy.toml
checked /tmp/copy.toml
cat /tmp/checked.log
grep -q "the port is in use at an RDMA device" /tmp/checked.log || fail "check does not see the target's port"

step "A second one appears"
write_config "$CONFIG" "1 $first" "2 $second block_size=512"
reload_target
wait_for 20 "the host to see namespace 2" namespace_device 2
added=$(namespace_device 2)
assert_eq "its size in 512-byte units" 65536 "$(blockdev --getsz "$added")"
verified_fio added "$added" --rw=randrw --bs=4k --iodepth=8 --size=4m

step "It goes again, and the first one stays what it was"
write_config "$CONFIG" "1 $first"
reload_target
wait_for 20 "namespace 2 to go" no_namespace_device 2
assert_eq "namespace 1 is who it was" "$wwid" "$(cat "/sys/block/${disk##*/}/wwid")"
verified_fio stayed "$disk" --rw=randrw --bs=4k --iodepth=8 --size=4m

step "One reload puts another disk behind an NSID, and the host makes another block device of it"
third=$(make_backing_file third 64M)
write_config "$CONFIG" "1 $first" "3 $third"
reload_target
wait_for 20 "the host to see namespace 3" namespace_device 3
replaced=$(cat "/sys/block/$(basename "$(namespace_device 3)")/wwid")
write_config "$CONFIG" "1 $first" "3 $second block_size=512"
reload_target
is_replaced() {
    local device
    device=$(namespace_device 3) || return 1
    [ "$(cat "/sys/block/${device##*/}/wwid")" != "$replaced" ]
}
wait_for 20 "another disk at namespace 3" is_replaced
device=$(namespace_device 3)
assert_eq "its size in 512-byte units" 65536 "$(blockdev --getsz "$device")"
verified_fio replaced "$device" --rw=randrw --bs=4k --iodepth=8 --size=4m
write_config "$CONFIG" "1 $first"
reload_target
wait_for 20 "namespace 3 to go" no_namespace_device 3
assert_eq "namespace 1 is who it was" "$wwid" "$(cat "/sys/block/${disk##*/}/wwid")"

step "A config that makes no sense changes nothing"
printf '[[subsystem]]\nnqn = 7\n' > "$CONFIG"
lines=$(wc -l < "$TARGET_LOG")
reload_target
has_said_something() { [ "$(wc -l < "$TARGET_LOG")" -gt "$lines" ]; }
wait_for 20 "a line about it in the log" has_said_something
tail -n +$((lines + 1)) "$TARGET_LOG"
assert_target_alive
dd if="$disk" of=/dev/null bs=64k count=4 iflag=direct status=none
assert_eq "the controller's state" live "$(cat "/sys/class/nvme/$ctrl/state")"
assert_no_nvme_warnings

step "SIGTERM under load: drained, and the host goes on with the next target"
write_config "$CONFIG" "1 $first"
verified_fio drained "$disk" --rw=randwrite --bs=16k --iodepth=16 --size=32m --rate_iops=250 &
fio=$!
sleep 3
stop_target
kill -0 "$fio" || fail "fio has ended: $(tail -n 5 "$OUT/fio-drained.log")"
start_target_from "$CONFIG"
wait_for 60 "the host to reconnect" controller_is "$ctrl" live
wait "$fio"
nvme_disconnect
stop_target

step "check finds the port free once the target has ended"
checked "$CONFIG"
! grep "at an RDMA device" /tmp/checked.log || fail "check sees a port that nobody has"
