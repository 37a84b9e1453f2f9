#!/bin/bash
# Peers that break the rules, one rule at a time; a host that keeps them notices nothing.
# vm: main programs=cairn-target,cairn-bad-peer timeout=900

# Fewer random capsules than on the machine at hand: each batch may cost a connection here.
RANDOM_CAPSULES=1000

warnings() { count_in_target_log 'WARN|ERROR'; }

step "A target, and a well-behaved host with verified I/O"
setup_rxe
start_target --export "$(make_backing_file disk 128M)" --export mem:64M
mark_kernel_log
connect_and_wait 1 2
# At a rate, so that most of the emulated processor is left for the peers.
start_verified_io "$(namespace_device 1)" --rate_iops=200,200

step "Bad peers"
mapfile -t cases < <(cairn-bad-peer --list | awk '{ print $1 }')
assert_ge "cases" "${#cases[@]}" 8
for case in "${cases[@]}"; do
    before=$(warnings)
    cairn-bad-peer --addr "$FABRIC_ADDR" --port "$PORT" --nqn "$NQN" --nsid 2 \
        --random-capsules "$RANDOM_CAPSULES" "$case" > "$OUT/bad-peer-$case.log" 2>&1 || {
        cat "$OUT/bad-peer-$case.log"
        fail "case $case did not end as it should"
    }
    assert_target_alive > /dev/null
    lines=$(($(warnings) - before))
    # More than a line for each bad connection would be a way to fill disks.
    bad_connections=$(sed -n 's/ bad connections$//p' "$OUT/bad-peer-$case.log")
    [ "$lines" -le "$bad_connections" ] \
        || fail "case $case: $lines lines in the target's log about $bad_connections connections"
    said=
    [ "$lines" -eq 0 ] || said=$(grep -E 'WARN|ERROR' "$TARGET_LOG" | tail -n 1)
    say "ok: $case: $bad_connections bad connections, $lines lines${said:+, as: $said}"
done
assert_ge "lines about them in the target's log" "$(warnings)" 1

step "The good host noticed nothing"
assert_verified_io_runs
end_verified_io
assert_eq "reconnects" 0 "$(count_in_kernel_news 'nvme.*[Rr]econnect')"
assert_no_nvme_warnings
verified_fio afterwards "$(namespace_device 1)" --rw=randrw --bs=4k --iodepth=32 --size=8m
nvme_disconnect
stop_target
