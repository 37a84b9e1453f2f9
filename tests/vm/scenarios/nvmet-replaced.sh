#!/bin/bash
# Cairn's host never writes to a different disk that appears at the NSID of its namespace.
# vm: programs=cairn-initiator timeout=240

SAID=$OUT/bench

writes() { awk '{ print $5 }' "/sys/block/$1/stat"; }

# goes_on COUNT: Checks that the benchmark runs, and succeeds if the first disk has more than COUNT writes.
goes_on() {
    kill -0 "$BENCH" 2>/dev/null || fail "the benchmark has ended: $(tail -n 5 "$SAID.log")"
    [ "$(writes nullb0)" -gt "$1" ]
}

# add_namespace NSID DISK: Adds a namespace, with a new UUID.
add_namespace() {
    mkdir "$NVMET/subsystems/$NQN/namespaces/$1"
    echo "/dev/$2" > "$NVMET/subsystems/$NQN/namespaces/$1/device_path"
    echo 1 > "$NVMET/subsystems/$NQN/namespaces/$1/enable"
}

remove_namespace() {
    echo 0 > "$NVMET/subsystems/$NQN/namespaces/$1/enable"
    rmdir "$NVMET/subsystems/$NQN/namespaces/$1"
}

has_ended() { ! kill -0 "$BENCH" 2>/dev/null; }

step "The kernel's target with one of three disks, and our host writing there"
setup_rxe_and_cable
modprobe null_blk nr_devices=3 gb=1 memory_backed=1 bs=4096
start_nvmet "$HOST_ADDR"
in_soft_netns ping -c 1 -W 5 "$HOST_ADDR" > /dev/null
ip netns exec "$SOFT_NETNS" cairn-initiator bench --provider soft -a "$HOST_ADDR" -n "$NQN" -N 1 \
    --destroy-data --rw=randwrite --bs=4k --iodepth=8 --runtime=120 --time_based --eta=never \
    > "$SAID.txt" 2> "$SAID.log" &
BENCH=$!
wait_for 40 "writes to the first disk" goes_on 0

step "A namespace comes: that is a change, and the disk is the same"
add_namespace 2 nullb2
wait_for 20 "more writes" goes_on "$(writes nullb0)"

step "Another disk takes the place of the first"
remove_namespace 1
add_namespace 1 nullb1
wait_for 40 "the end of the benchmark" has_ended
if wait "$BENCH"; then
    fail "the benchmark reports a success"
fi
# While nvmet disables a namespace, it fails commands with Internal Path Error; the event follows later.
grep -Eq 'namespace|: Internal Path Error \(3/00h\)\)' "$SAID.txt" "$SAID.log" || fail "the benchmark's error names neither: $(cat "$SAID.txt")"
[ "$(writes nullb1)" = 0 ] || fail "the other disk has $(writes nullb1) writes"
say "ok: nothing was written to the other disk"
