#!/bin/bash
# `cargo xtask hardware` measures Cairn and nvmet over a cable, and restores the machine.
# vm: programs=cairn-target,xtask timeout=600

step "Two RDMA devices joined by a cable"
modprobe -a rdma_rxe rdma_ucm
lay_switched_cable
ip link set near up
ip link set far up
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

step "An error of the doctor ends the command"
modprobe dummy numdummies=0
ip link add idle type dummy
rdma link add rxe_idle type rxe netdev idle
! "${HARDWARE[@]}" --out "$OUT/refused" 2> "$OUT/refused.log" || fail "it went on"
assert_contains "the reason" "the doctor found errors" "$(cat "$OUT/refused.log")"
assert_contains "the error" "the port is DOWN" "$(cat "$OUT/refused/doctor.txt")"
[ ! -e "$OUT/refused/report.json" ] || fail "it measured"

# Pulls the cable when the command asks for it.
obey() {
    wait_for 300 "the request to pull the cable" grep -q "pull the cable" "$OUT/report.log"
    pull_cable
    wait_for 60 "the request to plug it in" grep -q "plug the cable in" "$OUT/report.log"
    plug_cable_in
}

mv "$(command -v ib_send_lat)" /tmp
step "Every row of the report has numbers"
obey &
hand=$!
"${HARDWARE[@]}" --force --pull --out "$OUT/report" > "$OUT/report.log" || { cat "$OUT/report.log"; fail "it failed"; }
wait "$hand"
cat "$OUT/report.log"
rdma link delete rxe_idle
report=$(cat "$OUT/report/report.json")
for target in cairn nvmet; do
    for way in read write; do
        assert_json "$way of $target" "[.rows[] | select(.group == \"$way 4k depth 4\" and .name == \"$target\")
            | .metrics[] | select(.samples | length == 1 and .[0] > 0) | .name]
            | contains([\"IOPS\", \"p50\", \"p99.9\", \"CPU of the machine\"])" "$report"
    done
done
assert_json "the reconnects" '[.notes[] | select(test("^3 connects"))] | length == 2' "$report"
for event in "cairn-target was killed" "fio was killed" "The cable was pulled"; do
    assert_json "$event" "[.notes[] | select(startswith(\"$event under I/O\"))] | length == 1" "$report"
done
# limit NAME METRICS: Checks a row. A busy machine may keep perftest from measuring the clock rate.
limit() {
    [[ "$report" != *"${1%%,*} failed: it cannot measure the clock rate"* ]] || { say "note: no clock rate for $1"; return; }
    assert_json "$1" "[.rows[] | select(.group == \"limits by perftest\" and .name == \"$1\")
        | [.metrics[] | select(.samples[0] > 0) | .name]] == [$2]" "$report"
}
limit "ib_write_bw, 131072 bytes" '["rate"]'
limit "ib_read_lat, 4096 bytes" '["p50", "p99.9"]'
limit "ib_send_lat is missing: apt-get install perftest" '[]'
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
