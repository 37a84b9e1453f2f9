#!/bin/bash
# cairn-initiator uses the kernel's target: by libibverbs over rxe, and by RoCE in user space.
# vm: programs=cairn-initiator examples=responder timeout=600

# initiator COMMAND [OPTION...]: Runs cairn-initiator with the selected provider, in its network namespace.
initiator() {
    local command=$1
    shift
    if [ "$PROVIDER" = soft ]; then
        in_soft_netns cairn-initiator "$command" --provider soft -a "$HOST_ADDR" "$@"
    else
        cairn-initiator "$command" --provider verbs -a "$HOST_ADDR" "$@"
    fi
}

bench() {
    local name=$1 log=$OUT/bench-$PROVIDER-$1
    shift
    if ! initiator bench -n "$NQN" --verify=crc32c --destroy-data "$@" \
        > "$log.txt" 2> "$log.log"; then
        tail -n 20 "$log.txt" "$log.log"
        fail "bench $name by $PROVIDER"
    fi
    assert_contains "bench $name by $PROVIDER" ", 0 bad" "$(grep verified "$log.txt")"
    say "ok: $(grep -oE '(read|write): IOPS=[^,]*, BW=[^ ]*' "$log.txt" | paste -sd ' ')"
}

# keys FILE: Prints the keys of a JSON document, one path a line; for lists, those of the first element.
keys() {
    jq -r '[paths | map(if type == "number" then "0" else . end) | join("/")] | unique | .[]' "$1"
}

same() {
    diff <($2 "$3") <($2 "$4") || fail "$1 differs as shown above"
    say "ok: $1"
}

values() { jq -S 'del(.cntlid)' "$1"; }

# bits FILE: Prints each part of a field that -H explains, with its value, except temperatures, for which nvme-cli
# prints only words.
bits() {
    awk '/^[a-z0-9]+ *:/ { field = $1 }
        /^ *\[[0-9]+:[0-9]+\] *:/ && $3 ~ /^(0|0x[0-9a-f]+)$/ { print field $1, $3 }' "$1" | sort
}

# same_bits WHAT FILE FILE COUNT: Checks that both programs print at least COUNT common parts, with equal values; they
# may split a field differently.
same_bits() {
    local both
    both=$(join <(bits "$2") <(bits "$3"))
    assert_empty "$1: parts that differ" awk '$2 != $3' <<< "$both"
    assert_ge "$1: parts that both show" "$(wc -l <<< "$both")" "$4"
}

lba_formats() { grep '^LBA Format' "$1"; }

step "The kernel's target on rxe, and a cable to where there is no RDMA device"
setup_rxe_and_cable
start_nvmet "$HOST_ADDR"

step "What nvme-cli says of it, for comparison"
nvme discover -t rdma -a "$HOST_ADDR" -s "$PORT" -o json > /tmp/discover.nvme
FABRIC_ADDR=$HOST_ADDR connect_and_wait 1
ctrl=/dev/$(controllers)
nvme id-ctrl -o json "$ctrl" > /tmp/id-ctrl.nvme
nvme id-ns -o json "$(namespace_device 1)" > /tmp/id-ns.nvme
nvme id-ctrl -H "$ctrl" > /tmp/id-ctrl-bits.nvme
nvme id-ns -H "$(namespace_device 1)" > /tmp/id-ns-bits.nvme
nvme smart-log -o json "$ctrl" > /tmp/smart.nvme
nvme error-log -o json "$ctrl" > /tmp/error.nvme
nvme_disconnect
wait_for 20 "the kernel's controller to go" no_controllers

for PROVIDER in verbs soft; do
    step "$PROVIDER: the same, in the same words"
    initiator discover -o json > /tmp/discover.ours
    initiator id-ctrl -n "$NQN" -o json > /tmp/id-ctrl.ours
    initiator id-ns -n "$NQN" -o json > /tmp/id-ns.ours
    initiator get-log -n "$NQN" --log-id smart -o json > /tmp/smart.ours
    initiator get-log -n "$NQN" --log-id error -o json > /tmp/error.ours
    for what in discover id-ctrl id-ns smart error; do
        same "the keys of $what" keys "/tmp/$what.nvme" "/tmp/$what.ours"
    done
    # CNTLID is excluded, because it differs between connections.
    same "Identify Namespace" values /tmp/id-ns.nvme /tmp/id-ns.ours
    same "Identify Controller" values /tmp/id-ctrl.nvme /tmp/id-ctrl.ours
    initiator id-ctrl -n "$NQN" -H > /tmp/id-ctrl-bits.ours
    initiator id-ns -n "$NQN" -H > /tmp/id-ns-bits.ours
    same_bits "Identify Controller" /tmp/id-ctrl-bits.nvme /tmp/id-ctrl-bits.ours 60
    same_bits "Identify Namespace" /tmp/id-ns-bits.nvme /tmp/id-ns-bits.ours 25
    same "the LBA formats" lba_formats /tmp/id-ns-bits.nvme /tmp/id-ns-bits.ours
    initiator connect-check -n "$NQN" --nr-io-queues 2 | tee "$OUT/connect-check-$PROVIDER.txt"

    step "$PROVIDER: what is written is what is read"
    bench 4k --rw=randrw --bs=4k --iodepth=16 --size=8m --eta=never
    bench 1m --rw=rw --bs=1m --iodepth=4 --size=16m --eta=never
    bench mixed --rw=randrw --bsrange=512-64k --iodepth=8 --size=4m --loops=2 --eta=never

    step "$PROVIDER: the controller is reset under I/O"
    bench reset --rw=randrw --bs=4k --iodepth=8 --size=4m --runtime=4 --time_based \
        --reset-interval 1 --reconnect-delay 1
    assert_contains "resets by $PROVIDER" "connected again" "$(cat "$OUT/bench-$PROVIDER-reset.log")"

    step "$PROVIDER: the target is restarted under I/O"
    bench restart --rw=randrw --bs=4k --iodepth=8 --size=4m --runtime=12 --time_based \
        --reconnect-delay 1 &
    running=$!
    wait_for 60 "I/O" grep -q IOPS "$OUT/bench-$PROVIDER-restart.log"
    close_nvmet
    wait_for 60 "the host to notice" grep -q "connection lost" "$OUT/bench-$PROVIDER-restart.log"
    open_nvmet
    wait "$running" || fail "the benchmark did not survive"
    assert_contains "the restart by $PROVIDER" "connected again" \
        "$(cat "$OUT/bench-$PROVIDER-restart.log")"
done

step "Wire or disk: with a responder at the other end of the cable, the bare link is measured, too"
in_soft_netns responder "$FABRIC_ADDR" > "$OUT/responder.log" 2>&1 &
responder=$!
wait_for 20 "the responder" grep -q 18515 "$OUT/responder.log"
PROVIDER=verbs
initiator ping -n "$NQN" --time 200 --responder "$FABRIC_ADDR" | tee "$OUT/ping.txt"
assert_contains "ping" "bare RDMA READ" "$(cat "$OUT/ping.txt")"
assert_contains "ping" "verdict: " "$(cat "$OUT/ping.txt")"
kill "$responder"
wait "$responder" || true
