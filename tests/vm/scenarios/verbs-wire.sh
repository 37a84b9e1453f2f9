#!/bin/bash
# Traffic class, hop limit and SEND with invalidate are on the wire as requested.
# vm: timeout=180 programs=cairn-fabric-peer

NEAR=192.168.80.1
FAR=192.168.80.2

step "Two RDMA devices joined by a cable"
setup_own_cable 33 7 "$FAR" "$NEAR"

step "A host with traffic class 0x68 and hop limit 33 asks a target with 0x20 and 7"
tcpdump -q -U -i near -w "$OUT/wire.pcap" udp port 4791 2> /dev/null &
capture=$!
cairn-fabric-peer --traffic-class $((0x20)) --hop-limit 7 answer "$FAR:4420" > "$OUT/answer.log" 2>&1 &
answer=$!
wait_for 10 "the listener" grep -q listening "$OUT/answer.log"
show cairn-fabric-peer --traffic-class $((0x68)) --hop-limit 33 ask "$FAR:4420" --from "$NEAR" --count 8 ||
    fail "no answer: $(cat "$OUT/answer.log")"
kill "$answer"

step "A target that mirrors its host's traffic class and invalidates a key"
cairn-fabric-peer answer "$FAR:4421" --invalidate $((0x1234)) > "$OUT/invalidate.log" 2>&1 &
answer=$!
wait_for 10 "the listener" grep -q listening "$OUT/invalidate.log"
# No region has this key, so the host rejects the SEND with invalidate.
assert_fails "the host has no such key" \
    cairn-fabric-peer --traffic-class $((0x44)) ask "$FAR:4421" --from "$NEAR"

step "Linux takes the hop limit from the route, and who asks for another is told"
news=$(cairn-fabric-peer --hop-limit 99 ask "$FAR:4421" --from "$NEAR" || true)
assert_contains "the notice" "hop limit 33, not 99" "$news"
sleep 1
kill "$answer" "$capture"

packets() { tcpdump -r "$OUT/wire.pcap" "$1" 2> /dev/null | wc -l; }
from_host="src $NEAR and not udp[8] = 0x64"
from_target="src $FAR and not udp[8] = 0x64"

step "What was on the wire"
tcpdump -v -n -r "$OUT/wire.pcap" 2> /dev/null | grep -oE "tos 0x[0-9a-f]+, ttl [0-9]+" | sort | uniq -c
[ "$(packets "$from_host and ip[1] = 0x68 and ip[8] = 33")" -ge 8 ] || fail "the host's packets differ"
[ "$(packets "$from_target and ip[1] = 0x20 and ip[8] = 7")" -ge 8 ] || fail "the target's packets differ"
assert_eq "other packets of these connections" 0 \
    "$(packets "not udp[8] = 0x64 and port 4791 and (ip[1] = 0x68 and not src $NEAR or ip[1] = 0x20 and not src $FAR)")"
[ "$(packets "udp[8] = 0x64 and ip[1] = 0x68")" -ge 1 ] || fail "the host's REQ lacks its traffic class"
[ "$(packets "$from_target and ip[1] = 0x44 and udp[8] = 0x17")" -ge 1 ] ||
    fail "no SEND with invalidate (opcode 0x17) in the mirrored class"
# The invalidated key follows the transport header of 12 bytes.
[ "$(packets "udp[8] = 0x17 and udp[20:4] = 0x1234")" -ge 1 ] || fail "the key is not in the packet"
say "ok: traffic class, hop limit and SEND with invalidate are on the wire"
