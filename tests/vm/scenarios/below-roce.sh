#!/bin/bash
# RoCE below IPsec, MACsec and a filter: each carries a verified job and blocks all other peers.
# vm: programs=cairn-target,cairn-initiator timeout=400

# Keys for this test only; docs/operations/below-roce.md describes how to create keys.
KEY_TO_TARGET=0x$(printf '0123456789abcdef%.0s' 1 2)aabbccdd
KEY_TO_HOST=0x$(printf 'fedcba9876543210%.0s' 1 2)ddccbbaa
SECURE_TARGET=192.168.79.1
SECURE_HOST=192.168.79.2
STRANGER=192.168.77.3

modprobe -a xfrm_user esp4 gcm ghash_generic macsec sch_ingress cls_flower act_gact || true
lay_cable

launch_target_beside() {
    TARGET_PREFIX=(ip netns exec "$SOFT_NETNS")
    launch_target --nqn "$NQN" --provider soft --export mem:64M "$@"
}

count_frames() { tcpdump -r "$OUT/$1.pcap" "$2" 2> /dev/null | wc -l; }

# exchange NAME LISTEN FROM: Runs a verified job, and captures frames sent at the host's end of the cable.
exchange() {
    local name=$1 listen=$2 from=$3
    tcpdump -q -U -s 64 -Q out -i cable0 -w "$OUT/$name.pcap" 2> "$OUT/$name.tcpdump" &
    local sniffer=$!
    wait_for 20 "tcpdump to listen" grep -q "listening on" "$OUT/$name.tcpdump"
    cairn-initiator bench -a "$listen" -w "$from" -n "$NQN" --provider soft \
        --rw=randwrite --bs=16k --iodepth=8 --size=4m --verify=crc32c --destroy-data \
        > "$OUT/$name.txt" 2> "$OUT/$name.log" || {
        tail -n 20 "$OUT/$name.txt" "$OUT/$name.log"
        fail "bench over $name"
    }
    assert_contains "bench over $name" ", 0 bad" "$(grep verified "$OUT/$name.txt")"
    kill -INT "$sniffer"
    wait "$sniffer" || true
}

cannot_connect() {
    if timeout 20 cairn-initiator connect-check -a "$FABRIC_ADDR" -w "$2" -n "$NQN" --provider soft \
        > "$OUT/refused.txt" 2>&1; then
        fail "$1 is connected"
    fi
    say "ok: $1 cannot connect"
}

# protect TO_TARGET TO_HOST [PREFIX...]: Configures IPsec at one end for UDP port 4791, so that unprotected packets are
# dropped. TO_TARGET and TO_HOST are "in" or "out". The guest has no /etc/protocols, so UDP is 17.
protect_host() { protect out in; }
protect_target() { protect in out in_soft_netns; }
protect() {
    local to_target=$1 to_host=$2 ends_to="src $HOST_ADDR dst $FABRIC_ADDR" ends_from="src $FABRIC_ADDR dst $HOST_ADDR"
    shift 2
    # shellcheck disable=SC2086 # the ends are several words
    {
        "$@" ip xfrm state add $ends_to proto esp spi 0x1001 reqid 1 mode transport replay-window 128 \
            aead "rfc4106(gcm(aes))" "$KEY_TO_TARGET" 128
        "$@" ip xfrm state add $ends_from proto esp spi 0x1002 reqid 2 mode transport replay-window 128 \
            aead "rfc4106(gcm(aes))" "$KEY_TO_HOST" 128
        "$@" ip xfrm policy add $ends_to proto 17 dport 4791 dir "$to_target" \
            tmpl $ends_to proto esp reqid 1 mode transport
        "$@" ip xfrm policy add $ends_from proto 17 dport 4791 dir "$to_host" \
            tmpl $ends_from proto esp reqid 2 mode transport
    }
}

step "IPsec: RoCE v2 in ESP, and a host without it gets no answer"
protect_target
launch_target_beside --listen "$FABRIC_ADDR"
cannot_connect "a host without IPsec" "$HOST_ADDR"
protect_host
exchange ipsec "$FABRIC_ADDR" "$HOST_ADDR"
assert_ge "ESP packets" "$(count_frames ipsec "ip proto 50")" 100
assert_eq "packets that show RoCE" 0 "$(count_frames ipsec "udp port 4791")"
stop_target
for end in "" in_soft_netns; do
    $end ip xfrm policy flush
    $end ip xfrm state flush
done

step "A filter: the port of RoCE for one address alone"
ip addr add "$STRANGER/24" dev cable0
in_soft_netns tc qdisc add dev cable1 ingress
in_soft_netns tc filter add dev cable1 ingress protocol ip prio 1 flower \
    src_ip "$HOST_ADDR" ip_proto udp dst_port 4791 action pass
in_soft_netns tc filter add dev cable1 ingress protocol ip prio 2 flower \
    ip_proto udp dst_port 4791 action drop
launch_target_beside --listen "$FABRIC_ADDR"
cannot_connect "a host of another address" "$STRANGER"
exchange filter "$FABRIC_ADDR" "$HOST_ADDR"
stop_target

step "MACsec: all frames of the link"
mac_of() { cat /sys/class/net/cable0/address; }
mac_of_target() { in_soft_netns ip -j link show cable1 | jq -r '.[0].address'; }
key_of() { printf '%032d' "$1"; }
# secure CARD PEER OWN_KEY PEER_KEY [PREFIX...]: Configures MACsec at one end.
secure() {
    local card=$1 peer=$2 own=$3 other=$4
    shift 4
    "$@" ip link add link "$card" macsec0 type macsec encrypt on replay on window 128
    "$@" ip macsec add macsec0 tx sa 0 pn 1 on key 01 "$(key_of "$own")"
    "$@" ip macsec add macsec0 rx port 1 address "$peer"
    "$@" ip macsec add macsec0 rx port 1 address "$peer" sa 0 pn 1 on key 02 "$(key_of "$other")"
    "$@" ip link set macsec0 up
}
target_mac=$(mac_of_target)
host_mac=$(mac_of)
secure cable0 "$target_mac" 11 22
secure cable1 "$host_mac" 22 11 in_soft_netns
ip addr add "$SECURE_HOST/24" dev macsec0
in_soft_netns ip addr add "$SECURE_TARGET/24" dev macsec0
launch_target_beside --listen "$SECURE_TARGET"
exchange macsec "$SECURE_TARGET" "$SECURE_HOST"
assert_ge "frames of MACsec" "$(count_frames macsec "ether proto 0x88e5")" 100
assert_eq "frames that show RoCE" 0 "$(count_frames macsec "udp port 4791")"
stop_target
