#!/bin/bash
# `fabric` and `doctor` report and change the state of a real rdma_rxe correctly.
# vm: programs=cairn-target timeout=240

# doctor_json [OPTION...]: Runs `doctor`, stores the report, and prints the exit code.
doctor_json() {
    local code=0
    cairn-target doctor -o json --interval 0 "$@" > "$OUT/doctor.json" || code=$?
    echo "$code"
}

found() {
    jq -e --arg rule "$1" --arg pattern "$2" \
        '[.findings[] | select(.rule == $rule and (.what | test($pattern)))] | length > 0' \
        "$OUT/doctor.json" > /dev/null || fail "no finding of $1 like $2: $(cat "$OUT/doctor.json")"
    say "ok: $1: $2"
}

fix_of() { jq -r --arg rule "$1" '[.findings[] | select(.rule == $rule)][0].fix[0].command' "$OUT/doctor.json"; }

rping_listens() { rdma resource show cm_id | grep -qi listen; }

assert_shown() {
    grep -qE "$1" "$OUT/fabric.txt" || fail "fabric does not show $1: $(cat "$OUT/fabric.txt")"
    say "ok: fabric shows $1"
}

step "Soft RoCE on a dummy card"
setup_rxe
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config

step "fabric shows it"
cairn-target fabric --record "$OUT/rxe.recording" | tee "$OUT/fabric.txt"
assert_shown 'rxe0: soft RoCE \(rdma_rxe\), software, /dev/infiniband/uverbs0'
assert_shown 'port 1: ACTIVE \(LinkUp\), Ethernet, .*MTU 4096 \(of 4096\)'
assert_shown 'default for connections: RoCE v2, ToS 0'
assert_shown 'queue pairs: 1 GSI RTS of port 1'
assert_shown "::ffff:$FABRIC_ADDR +$FABRIC_ADDR +v2 +$FABRIC_NETDEV +yes"
assert_shown "^$FABRIC_NETDEV .* $FABRIC_MTU +4096 "
assert_shown 'UDP port 4791: the kernel \(rdma_rxe\)'
cairn-target fabric -o json > "$OUT/fabric.json"
assert_eq "devices in JSON" rxe0 "$(jq -r '.devices[].name' "$OUT/fabric.json")"
assert_eq "the recording's device" rxe0 \
    "$(cairn-target fabric -o json --root "$OUT/rxe.recording" | jq -r '.devices[].name')"
[ ! -e /sys/kernel/config/rdma_cm/rxe0 ] || fail "fabric left a directory in configfs"

step "doctor finds nothing bad, and names soft RoCE"
assert_eq "exit code" 0 "$(doctor_json --peer "$FABRIC_ADDR")"
found rxe 'soft RoCE'
found peer 'rxe0 port 1, GID'

step "A small MTU is found, and its command fixes it"
ip link set "$FABRIC_NETDEV" mtu 1500
assert_eq "exit code" 1 "$(doctor_json)"
found mtu '1024 bytes; 4200 would'
bash -c "$(fix_of mtu)"
assert_eq "exit code afterwards" 0 "$(doctor_json)"

step "An address that is gone is found"
assert_eq "exit code" 2 "$(doctor_json --address 192.168.77.99)"
found gid 'no netdev has this address'

step "A partition that the device is not in is found, and the target says so"
cat > "$OUT/partition.toml" <<END
[[listener]]
address = "$FABRIC_ADDR"
provider = "verbs"
pkey = 0x8001

[[subsystem]]
nqn = "nqn.2024-01.com.example:disk"
allow_any_host = true
END
assert_eq "exit code" 2 "$(doctor_json --config "$OUT/partition.toml")"
found partition 'P_Key 0x8001 is not in its table'
code=0
# With a configuration file, the target would wait for the partition.
cairn-target serve --listen "$FABRIC_ADDR" --provider verbs --pkey 0x8001 --export mem:1MiB \
    2> "$OUT/refused.txt" || code=$?
assert_eq "exit code of the target" 1 "$code"
grep -q 'P_Key 0x8001 is not in the table of RDMA device rxe0, which has 0xffff' "$OUT/refused.txt" \
    || fail "$(cat "$OUT/refused.txt")"

step "ToS and mode are set, and stay set without a directory in configfs"
cairn-target fabric set-tos rxe0 96 | tee "$OUT/set.txt"
grep -q 'rxe0 port 1: default_roce_tos is "96" (ToS 96 (DSCP 24, SL 3)), was "0"' "$OUT/set.txt" \
    || fail "set-tos does not say what was before"
grep -q '^ExecStart=.*cairn-target fabric set-tos rxe0 96$' "$OUT/set.txt" || fail "no unit"
[ ! -e /sys/kernel/config/rdma_cm/rxe0 ] || fail "set-tos left a directory in configfs"
cairn-target fabric > "$OUT/fabric.txt"
assert_shown 'default for connections: RoCE v2, ToS 96 \(DSCP 24, SL 3\)'
mkdir /sys/kernel/config/rdma_cm/rxe0
assert_eq "the kernel's own word" 96 "$(cat /sys/kernel/config/rdma_cm/rxe0/ports/1/default_roce_tos)"
cairn-target fabric set-mode rxe0 v2 > /dev/null
[ -e /sys/kernel/config/rdma_cm/rxe0 ] || fail "set-mode took away a directory that somebody else made"
rmdir /sys/kernel/config/rdma_cm/rxe0
code=0
cairn-target fabric set-mode rxe0 v1 2> "$OUT/refused.txt" || code=$?
assert_eq "exit code of a mode that rxe cannot do" 1 "$code"
grep -q 'the port cannot do that' "$OUT/refused.txt" || fail "$(cat "$OUT/refused.txt")"

step "watch has rates while somebody uses the device"
rping -s -a "$FABRIC_ADDR" -C 1000000 > "$OUT/rping.log" 2>&1 &
server=$!
wait_for 10 "rping's server" rping_listens
rping -c -a "$FABRIC_ADDR" -C 1000000 >> "$OUT/rping.log" 2>&1 &
client=$!
sleep 1
cairn-target fabric watch --interval 2 --count 1 -o json > "$OUT/watch.json"
kill "$client" "$server" 2>/dev/null || true
wait 2>/dev/null || true
jq -e '.device == "rxe0" and .per_second.sent_pkts > 0' "$OUT/watch.json" > /dev/null \
    || fail "no rate of packets: $(cat "$OUT/watch.json")"
say "ok: $(jq -r '.per_second.sent_pkts | floor' "$OUT/watch.json") packets a second"

step "Without the device, its module is in the way of RoCE in user space"
remove_rxe
assert_eq "exit code" 2 "$(doctor_json)"
found port-4791 'taken by the module rdma_rxe'
bash -c "$(fix_of port-4791)"

step "Without both it says what works"
assert_eq "exit code" 0 "$(doctor_json)"
found modules 'no RDMA device'
