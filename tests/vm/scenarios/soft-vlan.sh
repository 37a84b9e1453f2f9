#!/bin/bash
# 802.1Q tags: the kernel's, for an address of a VLAN interface, and the endpoint's own. No RDMA
# device at either end, for rdma_rxe speaks neither RoCE v1 nor from a VLAN interface.
# vm: programs=cairn-target,cairn-initiator timeout=300

VID=5
# Beside the cable's own network.
VLAN_TARGET=192.168.78.1
VLAN_HOST=192.168.78.2

modprobe 8021q
lay_cable
ip link add link cable0 name cable0.$VID type vlan id $VID
ip link set cable0.$VID up
ip addr add "$VLAN_HOST/24" dev cable0.$VID
in_soft_netns ip link add link cable1 name cable1.$VID type vlan id $VID
in_soft_netns ip link set cable1.$VID up
in_soft_netns ip addr add "$VLAN_TARGET/24" dev cable1.$VID

# exchange NAME LISTEN FROM [OPTION...]: of both ends; a verified job, and every RoCE frame on the cable
# carries the tag.
exchange() {
    local name=$1 listen=$2 from=$3 frames
    shift 3
    tcpdump -q -U -s 64 -i cable0 -w "$OUT/$name.pcap" 2> "$OUT/$name.tcpdump" &
    local sniffer=$!
    wait_for 20 "tcpdump to listen" grep -q "listening on" "$OUT/$name.tcpdump"
    launch_target_beside --listen "$listen:$PORT" "$@"
    cairn-initiator bench -a "$listen" -w "$from" -n "$NQN" --provider soft "$@" \
        --rw=randwrite --bs=16k --iodepth=8 --size=8m --verify=crc32c --destroy-data \
        > "$OUT/$name.txt" 2> "$OUT/$name.log" || {
        tail -n 20 "$OUT/$name.txt" "$OUT/$name.log"
        fail "bench over $name"
    }
    assert_contains "bench over $name" ", 0 bad" "$(grep verified "$OUT/$name.txt")"
    stop_target
    kill -INT "$sniffer"
    wait "$sniffer" || true
    frames=$(count_frames "$name" "vlan $VID and $ROCE")
    assert_ge "tagged frames" "$frames" 500
    assert_eq "frames without the tag" 0 "$(count_frames "$name" "$ROCE")"
}

launch_target_beside() {
    TARGET_PREFIX=(ip netns exec "$SOFT_NETNS")
    launch_target --nqn "$NQN" --provider soft --export mem:64M "$@"
}

# count_frames NAME FILTER
count_frames() { tcpdump -r "$OUT/$1.pcap" "$2" 2> /dev/null | wc -l; }

step "RoCE v2 on an address of a VLAN interface: the kernel tags"
ROCE="udp port 4791"
exchange v2-kernel "$VLAN_TARGET" "$VLAN_HOST"

step "RoCE v1 on an address of a VLAN interface: the kernel tags"
ROCE="ether proto 0x8915"
exchange v1-kernel "$VLAN_TARGET" "$VLAN_HOST" --roce v1

step "RoCE v1 on the cable itself: the endpoint tags"
exchange v1-own "$FABRIC_ADDR" "$HOST_ADDR" --roce v1 --vlan "$VID"
