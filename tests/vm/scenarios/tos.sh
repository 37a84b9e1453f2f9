#!/bin/bash
# Each host gets the traffic class and hop limit of the rules on every packet, over rxe and in user space.
# vm: programs=cairn-target timeout=300

CONFIG=/tmp/tos.toml
ONE_NQN=nqn.2026-11.io.cairn:one
OTHER_NQN=nqn.2026-11.io.cairn:other
# NQN of the host that a rule names.
NAMED=nqn.2026-11.io.cairn:host-named

# configure ADDRESS RULE...: Writes a configuration with a subsystem and a disk for each of two hosts.
configure() {
    local address=$1 rules='' rule
    shift
    for rule in "$@"; do rules+="\"$rule\", "; done
    cat > "$CONFIG" <<END
[target]
provider = "$TARGET_PROVIDER"

[marking]
rules = [$rules]

[[listener]]
address = "$address"
port = $PORT

[[subsystem]]
nqn = "$ONE_NQN"
allow_any_host = true

[[subsystem.namespace]]
nsid = 1
export = "mem:16M"

[[subsystem]]
nqn = "$OTHER_NQN"
allow_any_host = true

[[subsystem.namespace]]
nsid = 1
export = "mem:16M"
END
}

# reload_config ARGUMENT...: Calls configure, reloads the target, and waits until the reload is complete.
reload_config() {
    local before
    before=$(count_in_target_log "configuration reloaded")
    configure "$@"
    reload_target
    reloaded() { [ "$(count_in_target_log "configuration reloaded")" -gt "$before" ]; }
    wait_for 20 "the reload" reloaded
}

# join TARGET FROM, join_named TARGET FROM: Connect from an address, join_named with the NQN of a rule.
join() { NQN=$ONE_NQN FABRIC_ADDR=$1 nvme_connect -w "$2" --tos 96 -i 1; }
join_named() {
    NQN=$OTHER_NQN FABRIC_ADDR=$1 nvme_connect -w "$2" -i 1 -q "$NAMED" \
        -I 11111111-2222-3333-4444-555555555555
}
leave() { nvme disconnect -n "$1" > /dev/null; }

exchange() {
    local disk
    NQN=$1 wait_for 20 "the disk of $1" namespace_device 1
    disk=$(NQN=$1 namespace_device 1)
    dd if=/dev/urandom of="$disk" bs=64k count=4 oflag=direct status=none
    dd if="$disk" of=/dev/null bs=64k count=8 iflag=direct status=none
}

CAPTURE=
# begin_capture NAME PROGRAM...: Starts tcpdump through a program that enters the network namespace. A shell function is
# not used, because its shell would receive the signal instead of tcpdump.
begin_capture() {
    CAPTURE=$OUT/$1
    shift
    "$@" tcpdump -q -U --immediate-mode -s 96 -w "$CAPTURE.pcap" udp port 4791 -i "$WIRE" 2> "$CAPTURE.tcpdump" &
    SNIFFER=$!
    wait_for 20 "tcpdump to listen" grep -q "listening on" "$CAPTURE.tcpdump"
}
end_capture() {
    # tcpdump may write late on a slow machine; keep alives continue, so no packet marks the end.
    sleep 3
    kill "$SNIFFER"
    wait "$SNIFFER" || true
}

# marks FROM TO [KIND]: Prints each combination of DSCP and hop limit once. KIND is "cm" for connection management, "rc"
# for other queue pairs, or "qp" for other queue pairs with their destination number added to the output.
marks() {
    tcpdump -n -x -r "$CAPTURE.pcap" "src $1 and dst $2" 2> /dev/null | awk -v kind="${3:-}" '
        function digit(c) { return index("0123456789abcdef", c) - 1 }
        function byte(at) { return 16 * digit(substr(hex, 2 * at + 1, 1)) + digit(substr(hex, 2 * at + 2, 1)) }
        function packet() {
            if (hex == "") return
            is_cm = byte(28) == 100
            if (kind == "cm" && !is_cm || kind != "cm" && kind != "" && is_cm) { hex = ""; return }
            print int(byte(1) / 4), byte(8) (kind == "qp" ? " " substr(hex, 67, 6) : "")
            hex = ""
        }
        /^\t0x/ { for (i = 2; i <= NF; i++) hex = hex $i; next }
        { packet() }
        END { packet() }' | sort -u
}

assert_marked() { assert_eq "$1 (DSCP, hop limit)" "$2" "$(marks "${@:3}")"; }

# assert_enough FROM TO: Checks that the capture has at least 40 packets.
assert_enough() {
    local count
    count=$(tcpdump -r "$CAPTURE.pcap" "src $1 and dst $2" 2> /dev/null | wc -l)
    assert_ge "packets from $1 to $2" "$count" 40
}

# ------------------------------------------------------------------------ RoCE in user space
step "A target without RDMA, two hosts at two addresses of one rxe"
use_soft_target
setup_fabric
SECOND=192.168.77.3
ip addr add "$SECOND/24" dev cable0
WIRE=cable1
mine() { printf 'tclass=%s,dst_ip=%s,hop_limit=9' "$1" "$HOST_ADDR"; }
named="tclass=184,host_nqn=$NAMED"
configure "$FABRIC_ADDR" "$(mine 32)" "$named"
start_target_from "$CONFIG"
mark_kernel_log

begin_capture soft-rules ip netns exec "$SOFT_NETNS"
join "$FABRIC_ADDR" "$HOST_ADDR"
join_named "$FABRIC_ADDR" "$SECOND"
exchange "$ONE_NQN"
exchange "$OTHER_NQN"
leave "$OTHER_NQN"
end_capture
assert_enough "$FABRIC_ADDR" "$HOST_ADDR"
assert_marked "all packets to the host with a rule" "8 9" "$FABRIC_ADDR" "$HOST_ADDR"
# The target does not know the host's name before Connect, so its admin queue first mirrors ToS 0.
assert_marked "packets to the host with a name" $'0 64\n46 64' "$FABRIC_ADDR" "$SECOND"
assert_eq "queue pairs with packets in the class mirrored" 1 \
    "$(marks "$FABRIC_ADDR" "$SECOND" qp | grep -c '^0 64')"
assert_eq "queue pairs with packets in the class of the name" 2 \
    "$(marks "$FABRIC_ADDR" "$SECOND" qp | grep -c '^46 64')"
assert_marked "the host's own packets" "24 64" "$HOST_ADDR" "$FABRIC_ADDR" rc

step "The log says what connections carry"
grep -E 'connected.*qid=1.*tos=32 dscp=8 sl=1 hop_limit=9' "$TARGET_LOG"
grep -E 'connected.*host-named.*qid=1.*tos=184 dscp=46 sl=5 hop_limit=64' "$TARGET_LOG"

step "A reload changes new connections alone"
begin_capture soft-reload ip netns exec "$SOFT_NETNS"
reload_config "$FABRIC_ADDR" "$(mine 40)" "$named"
exchange "$ONE_NQN"
leave "$ONE_NQN"
end_capture
assert_marked "all packets of the connection that was there" "8 9" "$FABRIC_ADDR" "$HOST_ADDR"
begin_capture soft-after ip netns exec "$SOFT_NETNS"
join "$FABRIC_ADDR" "$HOST_ADDR"
exchange "$ONE_NQN"
leave "$ONE_NQN"
end_capture
assert_enough "$FABRIC_ADDR" "$HOST_ADDR"
assert_marked "all packets of the next" "10 9" "$FABRIC_ADDR" "$HOST_ADDR"
stop_target
remove_rxe

# ------------------------------------------------------------------------------ an RDMA device
step "A target on rxe, and two hosts"
TARGET_PROVIDER=verbs
TARGET_PREFIX=()
TARGET=192.168.80.2
FIRST=192.168.80.1
SECOND=192.168.80.3
setup_own_cable 64 7 "$TARGET" "$FIRST" "$SECOND"
WIRE=far
mine() { printf 'tclass=%s,dst_ip=%s,hop_limit=7' "$1" "$FIRST"; }
configure "$TARGET" "$(mine 32)" "$named"
start_target_from "$CONFIG"

begin_capture verbs-rules
join "$TARGET" "$FIRST"
join_named "$TARGET" "$SECOND"
exchange "$ONE_NQN"
exchange "$OTHER_NQN"
leave "$OTHER_NQN"
end_capture
assert_enough "$TARGET" "$FIRST"
assert_marked "data and acknowledgements to the host with a rule" "8 7" "$TARGET" "$FIRST" rc
# Linux sends connection management packets in the class requested by the host.
assert_eq "DSCP of the connection manager's" 24 "$(marks "$TARGET" "$FIRST" cm | cut -d ' ' -f 1 | sort -u)"
# The class applies to the I/O queue from its start, and never to the admin queue.
assert_eq "queue pairs in the class mirrored" 1 "$(marks "$TARGET" "$SECOND" qp | grep -c '^0 7')"
assert_eq "queue pairs in the class of the name" 1 "$(marks "$TARGET" "$SECOND" qp | grep -c '^46 7')"
assert_eq "queue pairs" 2 "$(marks "$TARGET" "$SECOND" qp | wc -l)"

step "A reload changes new connections alone"
begin_capture verbs-reload
reload_config "$TARGET" "$(mine 40)" "$named"
exchange "$ONE_NQN"
end_capture
assert_marked "data and acknowledgements of the connection that was there" "8 7" "$TARGET" "$FIRST" rc
leave "$ONE_NQN"
begin_capture verbs-after
join "$TARGET" "$FIRST"
exchange "$ONE_NQN"
leave "$ONE_NQN"
end_capture
assert_enough "$TARGET" "$FIRST"
assert_marked "data and acknowledgements of the next" "10 7" "$TARGET" "$FIRST" rc
grep -E 'connected.*qid=1.*tos=40 dscp=10 sl=1 hop_limit=7' "$TARGET_LOG"
stop_target
