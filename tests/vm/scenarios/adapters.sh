#!/bin/bash
# With the quirks of each adapter a Linux host writes and verifies, also after connects, a killed target, a pulled cable.
# vm: timeout=600 programs=cairn-quirky-target mem=3G
#
# ADAPTERS lists profiles to test, separated by commas [default: all].

HOSTS=4
CYCLES=4
RSS_TOLERANCE_KIB=2048
QUEUES=,nr_io_queues=2
FABRIC_ADDR=192.168.80.2

declare -A PIDS CONTROLLERS DISKS WRITES
JOBS=()

# use PROFILE: Selects the profile's target, subsystem and port for the helpers.
use() {
    PROFILE=$1
    NQN=nqn.2026-11.io.cairn:$1
    PORT=$((4420 + $(echo "$PROFILES" | grep -nx "$1" | cut -d : -f 1)))
    TARGET_LOG=$OUT/target-$1.log
    TARGET_STDOUT=$OUT/target-$1.stdout
    TARGET_PID=${PIDS[$1]:-}
}

start_quirky() {
    : > "$TARGET_STDOUT"
    cairn-quirky-target "$PROFILE" "$1" > "$TARGET_STDOUT" 2>> "$TARGET_LOG" &
    TARGET_PID=$!
    PIDS[$PROFILE]=$TARGET_PID
}

# each COMMAND...: Runs the command for each profile in turn.
each() {
    local profile
    for profile in $PROFILES; do
        use "$profile"
        "$@"
    done
}

# A queue pair belongs to the thread that created it.
queue_pairs_are() {
    [ "$(rdma resource show qp | grep -cE " pid ($(ls "/proc/$TARGET_PID/task" | paste -sd '|')) ")" = "$1" ]
}
await_queue_pairs() { wait_for 60 "$PROFILE: $1 queue pairs of the target" queue_pairs_are "$1"; }

many() {
    local cycle rss
    step "$PROFILE: verified I/O of $HOSTS hosts, and $CYCLES more connects"
    write_config "/tmp/$PROFILE.toml" "1 $(make_backing_file "$PROFILE" 64M) block_size=512"
    start_quirky "/tmp/$PROFILE.toml"
    await_target
    connect_hosts "$HOSTS" "$QUEUES"
    await_queue_pairs $((HOSTS * 3))
    wait_for 20 "$PROFILE: the namespace" namespace_device 1
    use_all_paths
    verified_fio "$PROFILE" "$(namespace_device 1)" --rw=randrw --bsrange=512-64k --iodepth=64 --size=4m
    delete_controllers
    await_queue_pairs 0
    rss=$(target_rss_kib)
    for cycle in $(seq "$CYCLES"); do
        connect_host "$cycle" "$QUEUES" > /dev/null || fail "$PROFILE: connect $cycle"
        delete_controllers
    done
    await_queue_pairs 0
    say "ok: $PROFILE: no queue pair is left"
    assert_le "$PROFILE: growth of resident memory, KiB" $(($(target_rss_kib) - rss)) "$RSS_TOLERANCE_KIB"
}

connect_writer() {
    connect_host 1 "$QUEUES,reconnect_delay=2,ctrl_loss_tmo=300" > /dev/null
    wait_for 20 "$PROFILE: the namespace" namespace_device 1
    CONTROLLERS[$PROFILE]=$(controllers)
    DISKS[$PROFILE]=$(namespace_device 1)
    JOBS+=(--name="$PROFILE" --filename="${DISKS[$PROFILE]}")
}

writes_done() { awk '{ print $5 }' "/sys/block/${DISKS[$PROFILE]##*/}/stat"; }
count_writes() { WRITES[$PROFILE]=$(writes_done); }
has_written() { [ "$(writes_done)" -ge $((${WRITES[$PROFILE]} + 5)) ]; }
is_writing() { wait_for 30 "$PROFILE: writes" has_written; }

# start_writers NAME: Starts a fio with a job for each profile, which writes for some seconds and then verifies.
start_writers() {
    each count_writes
    fio --ioengine=libaio --direct=1 --thread --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randrepeat=0 \
        --eta=never --output="$OUT/fio-$1.json" --output-format=json --rw=randwrite --bsrange=4k-16k --iodepth=4 \
        --size=1m --rate_iops=6 "${JOBS[@]}" &
    WRITERS=$!
    each is_writing
}

# await_writers NAME: Checks that each profile's data was right.
await_writers() {
    local code=0
    wait "$WRITERS" || code=$?
    each wrote_and_read "$1"
    assert_eq "fio's exit code" 0 "$code"
}
wrote_and_read() {
    assert_json "$PROFILE: after $1 each block was right" "[.jobs[] | select(.jobname == \"$PROFILE\") |
        .error == 0 and .write.total_ios > 50 and .read.total_ios == .write.total_ios] | length == 1 and all" \
        "$(sed '/^{/,$!d' "$OUT/fio-$1.json")"
}

is_disturbed() {
    wait_for 60 "$PROFILE: the host to notice" controller_is "${CONTROLLERS[$PROFILE]}" connecting
    kill -0 "$WRITERS" || fail "$PROFILE: fio ended too early"
}
is_back() {
    wait_for 60 "$PROFILE: the host to reconnect" controller_is "${CONTROLLERS[$PROFILE]}" live
    assert_target_alive
}

modprobe nvme-rdma
lay_switched_cable
setup_own_cable 64 64 "$FABRIC_ADDR" 192.168.80.1
PROFILES=${ADAPTERS:-$(cairn-quirky-target)}
PROFILES=${PROFILES//,/$'\n'}
TARGET_SETTINGS=(reactors=1 receives=2048)
mark_kernel_log
SCANS_ARE_CUT=1
each many
assert_no_nvme_warnings

step "Each target is killed under verified I/O"
each connect_writer
start_writers kill
each kill_target
each is_disturbed
restart() { start_quirky "/tmp/$PROFILE.toml"; }
each restart
each await_target
each is_back
await_writers kill

step "The cable of all is pulled under verified I/O, and plugged in again"
start_writers pull
pull_cable
each is_disturbed
plug_cable_in
each is_back
await_writers pull

step "Nothing is left behind"
leave() {
    delete_controllers
    await_queue_pairs 0
    kill_target
}
each leave

step "A queue that does not fit into the receives is refused, and the log says what to raise"
use e810
TARGET_SETTINGS=(reactors=1 receives=64)
write_config /tmp/few.toml "1 mem:64M"
start_quirky /tmp/few.toml
await_target
assert_fails "an I/O queue of 128 entries" connect_host 1 "$QUEUES"
# shellcheck disable=SC2016
assert_contains "the refusal" 'raise `receives`' "$(cat "$TARGET_LOG")"
kill_target
