#!/bin/bash
# 802.1Q tags and their priority, written by the kernel for a VLAN interface or by the endpoint itself.
# vm: programs=cairn-target,cairn-initiator timeout=300
#
# Neither end has an RDMA device, because rdma_rxe supports neither RoCE v1 nor VLAN interfaces.

VID=5
# Addresses outside the cable's own network.
VLAN_TARGET=192.168.78.1
VLAN_HOST=192.168.78.2
VLAN_TARGET_V6=fd78::1
VLAN_HOST_V6=fd78::2
# Copies each socket's priority to the tag.
MAP="egress-qos-map 0:0 1:1 2:2 3:3 4:4 5:5 6:6 7:7"

modprobe 8021q
lay_cable
# shellcheck disable=SC2086 # the map is many words
ip link add link cable0 name cable0.$VID type vlan id $VID $MAP
ip link set cable0.$VID up
ip addr add "$VLAN_HOST/24" dev cable0.$VID
ip addr add "$VLAN_HOST_V6/64" dev cable0.$VID nodad
# shellcheck disable=SC2086
in_soft_netns ip link add link cable1 name cable1.$VID type vlan id $VID $MAP
in_soft_netns ip link set cable1.$VID up
in_soft_netns ip addr add "$VLAN_TARGET/24" dev cable1.$VID
in_soft_netns ip addr add "$VLAN_TARGET_V6/64" dev cable1.$VID nodad

# exchange NAME TOS LISTEN FROM [OPTION...]: Runs a verified job, and checks that every RoCE frame in both directions is
# tagged, with the upper three bits of TOS as priority. The target mirrors the host's class.
exchange() {
    local name=$1 tos=$2 listen=$3 from=$4 frames tagged="vlan $VID and $ROCE"
    shift 4
    tcpdump -q -U -s 64 -i cable0 -w "$OUT/$name.pcap" 2> "$OUT/$name.tcpdump" &
    local sniffer=$!
    wait_for 20 "tcpdump to listen" grep -q "listening on" "$OUT/$name.tcpdump"
    launch_target_beside --listen "$listen" "$@"
    cairn-initiator bench -a "$listen" -w "$from" -n "$NQN" --provider soft "$@" --tos "$tos" \
        --rw=randwrite --bs=16k --iodepth=8 --size=8m --verify=crc32c --destroy-data \
        > "$OUT/$name.txt" 2> "$OUT/$name.log" || {
        tail -n 20 "$OUT/$name.txt" "$OUT/$name.log"
        fail "bench over $name"
    }
    assert_contains "bench over $name" ", 0 bad" "$(grep verified "$OUT/$name.txt")"
    cairn-initiator connect-check -a "$listen" -w "$from" -n "$NQN" --provider soft "$@" --tos "$tos" \
        > "$OUT/$name.check"
    grep -E "^pcp +: $((tos >> 5))\$" "$OUT/$name.check" || fail "the host does not say so"
    grep -E "connected.*qid=1.*tos=$tos.* pcp=$((tos >> 5)) " "$TARGET_LOG" | tail -n 1 |
        grep . || fail "the target does not say so"
    stop_target
    kill -INT "$sniffer"
    wait "$sniffer" || true
    frames=$(count_frames "$name" "$tagged")
    assert_ge "tagged frames" "$frames" 500
    assert_eq "frames without the tag" 0 "$(count_frames "$name" "$ROCE")"
    # The priority is the tag's first three bits (IEEE 802.1Q, 9.6).
    assert_eq "those of priority $((tos >> 5)), from ToS $tos" "$frames" \
        "$(count_frames "$name" "ether[14] & 0xe0 = $((tos & 0xe0)) and $tagged")"
}

launch_target_beside() {
    TARGET_PREFIX=(ip netns exec "$SOFT_NETNS")
    launch_target --nqn "$NQN" --provider soft --export mem:64M "$@"
}

count_frames() { tcpdump -r "$OUT/$1.pcap" "$2" 2> /dev/null | wc -l; }

# Linux's default rule for sockets would derive priority 2 from ToS 104, and 4 from 184.
step "RoCE v2 on an address of a VLAN interface: the kernel tags"
ROCE="udp port 4791"
exchange v2-kernel 104 "$VLAN_TARGET" "$VLAN_HOST"
exchange v2-kernel-184 184 "$VLAN_TARGET" "$VLAN_HOST"
ROCE="ip6 and udp port 4791"
exchange v2-kernel-ipv6 104 "$VLAN_TARGET_V6" "$VLAN_HOST_V6"

step "RoCE v1 on an address of a VLAN interface: the kernel tags"
ROCE="ether proto 0x8915"
exchange v1-kernel 104 "$VLAN_TARGET" "$VLAN_HOST" --roce v1

step "RoCE v1 on the cable itself: the endpoint tags"
exchange v1-own 104 "$FABRIC_ADDR" "$HOST_ADDR" --roce v1 --vlan "$VID"
