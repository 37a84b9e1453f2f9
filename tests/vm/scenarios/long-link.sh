#!/bin/bash
# Link with 100 ms of delay and packet loss: user-space RoCE compared with NVMe over TCP of the kernel.
# vm: programs=cairn-target,cairn-initiator timeout=900 by-name

# Each job runs over both transports alternately, so that other load on the machine affects both alike.
# cargo xtask vm long-link --set NAME=VALUE:
#   LINK_DELAY, LINK_LOSS  delay and loss in each direction, in the syntax of netem
#   LINK_SECONDS           seconds of a run
DELAY=${LINK_DELAY:-50ms}
LOSS=${LINK_LOSS:-0.1%}
SECONDS_EACH=${LINK_SECONDS:-15}
# Jobs: NAME RW BS IODEPTH.
JOBS=(
    "randread-4k-qd32 randread 4k 32"
    "randwrite-4k-qd32 randwrite 4k 32"
    "read-128k-qd8 read 128k 8"
    "read-128k-qd32 read 128k 32"
    "write-128k-qd8 write 128k 8"
    "write-128k-qd32 write 128k 32"
)

# impair NETWORK_CARD IFB [PREFIX...]: Delays and drops received packets, which pass through an IFB device, because
# netem affects only sent packets. Offloads are off, because an interface would deliver several packets as one.
impair() {
    local card=$1 detour=$2
    shift 2
    "$@" ethtool -K "$card" tso off gso off gro off tx-udp-segmentation off > /dev/null
    "$@" ip link add "$detour" type ifb
    "$@" ip link set "$detour" mtu "$FABRIC_MTU" up
    "$@" tc qdisc add dev "$detour" root netem delay "$DELAY" loss "$LOSS" limit 200000
    "$@" tc qdisc add dev "$card" ingress
    "$@" tc filter add dev "$card" ingress matchall action mirred egress redirect dev "$detour"
}

# Starts the kernel's TCP target in the namespace at the far end of the cable.
start_nvmet_tcp() {
    mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
    mkdir "$NVMET/subsystems/$NQN" "$NVMET/subsystems/$NQN/namespaces/1"
    echo 1 > "$NVMET/subsystems/$NQN/attr_allow_any_host"
    echo /dev/nullb0 > "$NVMET/subsystems/$NQN/namespaces/1/device_path"
    echo 1 > "$NVMET/subsystems/$NQN/namespaces/1/enable"
    mkdir "$NVMET/ports/1"
    echo tcp > "$NVMET/ports/1/addr_trtype"
    echo ipv4 > "$NVMET/ports/1/addr_adrfam"
    echo "$FABRIC_ADDR" > "$NVMET/ports/1/addr_traddr"
    echo 4421 > "$NVMET/ports/1/addr_trsvcid"
    # The listening socket belongs to the network namespace of the process that opens the port. configfs is not mounted
    # there.
    nsenter --net="/run/netns/$SOFT_NETNS" ln -s "$NVMET/subsystems/$NQN" "$NVMET/ports/1/subsystems/$NQN"
}

# by_tcp NAME RW BS IODEPTH, by_roce NAME RW BS IODEPTH: Print MiB/s.
by_tcp() {
    local report=$OUT/tcp-$1.json
    fio --name="$1" --filename="$DISK" --ioengine=libaio --direct=1 --rw="$2" --bs="$3" \
        --iodepth="$4" --size=64m --time_based --runtime="$SECONDS_EACH" --ramp_time=2 \
        --randrepeat=0 --output-format=json --output="$report" --eta=never
    jq '.jobs[0] | (.read.bw_bytes + .write.bw_bytes) / 1048576' "$report"
}

by_roce() {
    local report=$OUT/roce-$1.json
    cairn-initiator bench --provider soft -a "$FABRIC_ADDR" -w "$HOST_ADDR" -n "$NQN" --destroy-data \
        --rw="$2" --bs="$3" --iodepth="$4" --size=64m --time_based=1 --runtime="$SECONDS_EACH" \
        --ramp_time=2 --output-format=json --eta=never > "$report" 2> "$OUT/roce-$1.log"
    jq '.jobs[0] | (.read.bw_bytes + .write.bw_bytes) / 1048576' "$report"
}

step "A cable of $DELAY each way, which loses $LOSS of what comes"
modprobe -a nvme-tcp nvmet-tcp ifb sch_ingress cls_matchall act_mirred sch_netem veth
modprobe null_blk nr_devices=1 gb=1 memory_backed=1 bs=4096
lay_cable
impair cable0 detour0
in_soft_netns modprobe -q ifb || true
impair cable1 detour1 in_soft_netns

step "Both targets at its far end"
start_nvmet_tcp
use_soft_target
start_target --export mem:1G
nvme connect -t tcp -a "$FABRIC_ADDR" -s 4421 -n "$NQN" --nr-io-queues=1
wait_for 30 "the namespace" namespace_device 1
DISK=$(namespace_device 1)

step "In turns, $SECONDS_EACH s each"
printf '| job | NVMe/TCP MiB/s | Cairn MiB/s | ratio |\n|---|---:|---:|---:|\n' > "$OUT/long-link.md"
for job in "${JOBS[@]}"; do
    read -r name rw bs depth <<< "$job"
    tcp=$(by_tcp "$name" "$rw" "$bs" "$depth")
    roce=$(by_roce "$name" "$rw" "$bs" "$depth")
    ratio=$(jq -n "$roce / $tcp")
    printf '| %s | %.2f | %.2f | %.2f |\n' "$name" "$tcp" "$roce" "$ratio" | tee -a "$OUT/long-link.md"
    jq -en "$ratio >= 0.5" > /dev/null || SLOW+=("$name")
done
in_soft_netns tc -s qdisc show dev detour1 > "$OUT/netem.txt"
tc -s qdisc show dev detour0 >> "$OUT/netem.txt"
assert_empty "jobs that move less than half of the bytes that TCP moves" echo -n "${SLOW[*]}"
