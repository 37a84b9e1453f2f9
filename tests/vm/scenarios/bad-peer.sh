#!/bin/bash
# Peers break one rule at a time; a host that follows the rules is not affected.
# vm: programs=cairn-target,cairn-bad-peer timeout=900

# Number of random capsules. It is lower than outside the guest, because each batch may end a connection.
RANDOM_CAPSULES=1000

warnings() { count_in_target_log 'WARN|ERROR'; }

step "A target, and a well-behaved host with verified I/O"
setup_rxe
# Each process below has its own namespace, because a bystander verifies its data.
start_target --export "$(make_backing_file disk 128M)" --export mem:64M --export mem:64M
mark_kernel_log
connect_and_wait 1 2 3
# The rate leaves most of the emulated processor to the peers.
start_verified_io "$(namespace_device 1)" --rate_iops=200,200

# bad_peers NAME NSID CASE...: Runs the cases in one process, because each start takes two seconds in the guest. Results
# are in bad-peer-NAME.log.
bad_peers() {
    local name=$1 nsid=$2
    shift 2
    cairn-bad-peer --addr "$FABRIC_ADDR" --port "$PORT" --nqn "$NQN" --nsid "$nsid" \
        --random-capsules "$RANDOM_CAPSULES" "$@" > "$OUT/bad-peer-$name.log" 2>&1
}

connections_of() { sed -n 's/ bad connections$//p' "$OUT/bad-peer-$1.log"; }

step "Bad peers"
mapfile -t cases < <(cairn-bad-peer --list | awk '{ print $1 }')
assert_ge "cases" "${#cases[@]}" 8
before=$(warnings)
# Both cases mostly wait for the target's timeouts, so they run in parallel with the others.
slow=(stops_reading half_open)
bad_peers slow 3 "${slow[@]}" &
slow_peers=$!
quick=()
for case in "${cases[@]}"; do
    case " ${slow[*]} " in *" $case "*) ;; *) quick+=("$case") ;; esac
done
assert_eq "cases beside each other" "${#cases[@]}" $((${#quick[@]} + ${#slow[@]}))
failed=
bad_peers quick 2 "${quick[@]}" || failed=quick
wait "$slow_peers" || failed=slow
show cat "$OUT/bad-peer-quick.log" "$OUT/bad-peer-slow.log"
[ -z "$failed" ] || fail "a case among the $failed ones did not end as it should"
assert_target_alive > /dev/null
# With more than one line for each bad connection, peers could fill a disk.
lines=$(($(warnings) - before))
bad_connections=$(($(connections_of quick) + $(connections_of slow)))
[ "$lines" -le "$bad_connections" ] \
    || fail "$lines lines in the target's log about $bad_connections connections"
assert_ge "lines about them in the target's log" "$lines" 1
say "ok: $bad_connections bad connections, $lines lines"

step "The good host noticed nothing"
assert_verified_io_runs
end_verified_io
assert_eq "reconnects" 0 "$(count_in_kernel_news 'nvme.*[Rr]econnect')"
assert_no_nvme_warnings
verified_fio afterwards "$(namespace_device 1)" --rw=randrw --bs=4k --iodepth=32 --size=8m
nvme_disconnect
stop_target
