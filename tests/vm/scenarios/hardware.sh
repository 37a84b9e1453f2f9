#!/bin/bash
# `cargo xtask hardware` measures Cairn and nvmet over a cable, and restores the machine.
# vm: programs=cairn-target,xtask timeout=600

step "Two RDMA devices joined by a cable"
modprobe -a rdma_rxe rdma_ucm veth
ip link add near type veth peer name far
ip link set near mtu "$FABRIC_MTU" up
ip link set far mtu "$FABRIC_MTU" up
rdma link add rxe_near type rxe netdev near
rdma link add rxe_far type rxe netdev far
wait_for 10 "both links" both_links_active

state() {
    ip rule show
    ip -4 addr show
    ip -4 route show table all
    sysctl -a 2> /dev/null | grep -E '^net.ipv4.conf.(all|near|far)\.(rp_filter|accept_local|arp_ignore)'
}
state > "$OUT/before"

HARDWARE=(xtask hardware --ports near,far --programs /cairn/bin --seconds 1 --rounds 1 --reconnects 3
    --sizes 4k --depths 4)

step "Every row of the report has numbers"
"${HARDWARE[@]}" --out "$OUT/report"
report=$(cat "$OUT/report/report.json")
for target in cairn nvmet; do
    for way in read write; do
        assert_json "$way of $target" "[.rows[] | select(.group == \"$way 4k depth 4\" and .name == \"$target\")
            | .metrics[] | select(.samples | length == 1 and .[0] > 0) | .name]
            | contains([\"IOPS\", \"p50\", \"p99.9\", \"CPU of the machine\"])" "$report"
    done
done
assert_json "the reconnects" '[.notes[] | select(test("^3 connects"))] | length == 2' "$report"
assert_json "the killed target" '[.notes[] | select(test("killed under I/O"))] | length == 1' "$report"
grep -q 'read 4k depth 4 cairn' "$OUT/report/report.svg"
grep -qE '^\| nvmet \| [0-9]' "$OUT/report/report.md"

restored() {
    state > "$OUT/after"
    cmp "$OUT/before" "$OUT/after" && no_controllers
}
NQN=nqn.2026-11.io.cairn:hardware
step "The machine is as before, also after SIGKILL in the middle of a row"
restored || { diff "$OUT/before" "$OUT/after"; fail "the machine differs"; }
"${HARDWARE[@]}" --targets cairn --out "$OUT/killed" > "$OUT/killed.log" 2>&1 &
victim=$!
wait_for 60 "the connection" live_controllers 1
kill -KILL "$victim"
! restored || fail "nothing was left to restore"
wait_for 60 "the restoration" restored
[ ! -e "$OUT/killed/report.json" ] || fail "the command ended before it was killed"
say "ok: restored"
