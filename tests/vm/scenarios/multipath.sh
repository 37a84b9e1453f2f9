#!/bin/bash
# Two targets export one disk: Linux uses two paths, and the loss of one causes no I/O error.
# vm: programs=cairn-target timeout=300

OTHER_ADDR=192.168.77.3

one_config() { write_path_config /tmp/one.toml "$FABRIC_ADDR" 1 1-100 "$1" "$disk"; }
two_config() { write_path_config /tmp/two.toml "$OTHER_ADDR" 2 101-200 "$1" "$disk"; }

# start_path NAME: Starts a target with /tmp/NAME.toml, and writes its process ID to /tmp/NAME.pid.
start_path() {
    TARGET_LOG=$OUT/target-$1.log
    TARGET_STDOUT=$OUT/target-$1.stdout
    : > "$TARGET_STDOUT"
    ip netns exec "$SOFT_NETNS" cairn-target serve --config "/tmp/$1.toml" \
        > "$TARGET_STDOUT" 2>> "$TARGET_LOG" &
    TARGET_PID=$!
    echo "$TARGET_PID" > "/tmp/$1.pid"
    await_target
}

pid_of() { cat "/tmp/$1.pid"; }

connect_path() {
    nvme connect -t rdma -a "$1" -s "$PORT" -n "$NQN" --reconnect-delay=2 --ctrl-loss-tmo=120
}

# path_to ADDRESS: Prints the block device of a path, such as nvme0c1n1.
path_to() {
    local dir
    for dir in /sys/block/nvme*c*n*; do
        if grep -q "traddr=$1," "$dir/device/address" 2>/dev/null; then
            echo "${dir##*/}"
            return 0
        fi
    done
    return 1
}

state_is() {
    local path
    path=$(path_to "$1") && [ "$(cat "/sys/block/$path/ana_state")" = "$2" ]
}

# writes_by ADDRESS: Prints the number of writes over a path. Path devices count them only with iostats enabled.
writes_by() { awk '{ print $5 }' "/sys/block/$(path_to "$1")/stat"; }

# io_goes_by HERE THERE: Succeeds if I/O uses only the path to HERE.
io_goes_by() {
    local here there
    here=$(writes_by "$1")
    there=$(writes_by "$2")
    sleep 1
    [ "$(writes_by "$1")" -gt "$here" ] && [ "$(writes_by "$2")" -eq "$there" ]
}

live_path() {
    local path
    path=$(path_to "$1") && [ "$(cat "/sys/block/$path/device/state")" = live ]
}

step "Two targets, one file, two addresses"
setup_rxe_and_cable
in_soft_netns ip addr add "$OTHER_ADDR/24" dev cable1
disk=$(make_backing_file disk 128M)
one_config optimized
two_config non-optimized
start_path one
start_path two

step "Linux merges the paths into one disk"
assert_eq "native multipath" Y "$(cat /sys/module/nvme_core/parameters/multipath)"
mark_kernel_log
connect_path "$FABRIC_ADDR"
connect_path "$OTHER_ADDR"
wait_for 20 "the disk" namespace_device 1
wait_for 20 "path one" state_is "$FABRIC_ADDR" optimized
wait_for 20 "path two" state_is "$OTHER_ADDR" non-optimized
device=$(namespace_device 1)
show nvme list-subsys "$device" | tee "$OUT/list-subsys.txt"
assert_contains "path one" "$FABRIC_ADDR,trsvcid=$PORT" "$(cat "$OUT/list-subsys.txt")"
assert_contains "path two" "$OTHER_ADDR,trsvcid=$PORT" "$(cat "$OUT/list-subsys.txt")"
assert_contains "the state of two" "non-optimized" "$(cat "$OUT/list-subsys.txt")"
assert_eq "disks" 1 "$(ls -d /sys/block/nvme*n* | grep -cv 'c[0-9]*n')"
for path in "$(path_to "$FABRIC_ADDR")" "$(path_to "$OTHER_ADDR")"; do
    echo 1 > "/sys/block/$path/queue/iostats"
done
assert_no_nvme_warnings

step "I/O takes the optimized path, and moves when a reload says so"
start_verified_io "$device" --rate_iops=100,100
wait_for 20 "I/O by path one" io_goes_by "$FABRIC_ADDR" "$OTHER_ADDR"
one_config inaccessible
kill -HUP "$(pid_of one)"
wait_for 20 "the new state" state_is "$FABRIC_ADDR" inaccessible
wait_for 20 "I/O by path two" io_goes_by "$OTHER_ADDR" "$FABRIC_ADDR"
one_config optimized
kill -HUP "$(pid_of one)"
wait_for 20 "the old state" state_is "$FABRIC_ADDR" optimized
wait_for 20 "I/O by path one" io_goes_by "$FABRIC_ADDR" "$OTHER_ADDR"
assert_verified_io_runs

step "SIGKILL to the target that does the work"
TARGET_PID=$(pid_of one)
kill_target
wait_for 30 "I/O by path two" io_goes_by "$OTHER_ADDR" "$FABRIC_ADDR"
assert_verified_io_runs
start_path one
wait_for 60 "path one to come back" live_path "$FABRIC_ADDR"
wait_for 20 "its state" state_is "$FABRIC_ADDR" optimized
wait_for 20 "I/O by path one" io_goes_by "$FABRIC_ADDR" "$OTHER_ADDR"

step "Both die, one returns: I/O waits and goes on"
TARGET_PID=$(pid_of two)
kill_target
TARGET_PID=$(pid_of one)
kill_target
sleep 2
assert_verified_io_runs
start_path two
wait_for 60 "path two to come back" live_path "$OTHER_ADDR"
wait_for 30 "I/O by path two" io_goes_by "$OTHER_ADDR" "$FABRIC_ADDR"
end_verified_io
assert_eq "I/O errors" 0 "$(count_in_kernel_news 'I/O error|Buffer I/O')"

nvme_disconnect
wait_for 20 "the controllers to go" no_controllers
stop_target
