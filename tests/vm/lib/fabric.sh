# Soft-RoCE on a dummy network interface: target and host on one machine.

FABRIC_NETDEV=${FABRIC_NETDEV:-dummy0}
FABRIC_ADDR=${FABRIC_ADDR:-192.168.77.1}
# 4200 bytes permit RoCE's largest path MTU, 4096.
FABRIC_MTU=${FABRIC_MTU:-4200}

setup_rxe() {
    load_rdma
    add_card
    ip addr add "$FABRIC_ADDR/24" dev "$FABRIC_NETDEV"
    add_rxe
}

load_rdma() {
    modprobe rdma_rxe
    modprobe nvme-rdma
    modprobe rdma_ucm
}

# join_build_machine ADDRESS PEER: Gives ADDRESS to the network card connected to the build machine, and waits until
# PEER responds.
join_build_machine() {
    modprobe virtio_net
    wait_for 10 "the card" test -e /sys/class/net/eth0
    ip link set eth0 mtu "$FABRIC_MTU" up
    ip addr add "$1/24" dev eth0
    wait_for 20 "the build machine to answer" ping -c 1 -W 1 "$2"
}

add_card() {
    # By default the module creates its own dummy0 when loaded.
    modprobe dummy numdummies=0
    ip link add "$FABRIC_NETDEV" type dummy
    ip link set "$FABRIC_NETDEV" mtu "$FABRIC_MTU" up
}

add_rxe() { rdma link add rxe0 type rxe netdev "$FABRIC_NETDEV"; }
remove_rxe() { rdma link delete rxe0; }

rxe_packets() { cat "/sys/class/infiniband/${1:-rxe0}/ports/1/hw_counters/rcvd_pkts"; }

# Prints the number of queue pairs of all processes, including the device's GSI pair.
count_queue_pairs() { rdma resource show qp | wc -l; }

# Two network namespaces joined by a veth pair, the "cable". The first one has the host with its soft-RoCE. The second
# one has a target without RDMA device, because rdma_rxe occupies UDP port 4791 of the first.
SOFT_NETNS=soft
HOST_ADDR=192.168.77.2

setup_rxe_and_cable() {
    modprobe rdma_rxe
    modprobe nvme-rdma
    modprobe rdma_ucm
    lay_cable
    rdma link add rxe0 type rxe netdev cable0
    let_rxe_explain
}

# Creates the cable: cable0 with HOST_ADDR here, cable1 with FABRIC_ADDR in the other namespace.
lay_cable() {
    modprobe veth
    ip netns add "$SOFT_NETNS"
    ip link add cable0 type veth peer name cable1 netns "$SOFT_NETNS"
    ip link set cable0 mtu "$FABRIC_MTU" up
    ip addr add "$HOST_ADDR/24" dev cable0
    in_soft_netns ip link set cable1 mtu "$FABRIC_MTU" up
    in_soft_netns ip link set lo up
    in_soft_netns ip addr add "$FABRIC_ADDR/24" dev cable1
}

# set_cable_mtu BYTES: Sets the MTU of both ends. Also creates the RDMA device again, because its path MTU is fixed at
# creation.
set_cable_mtu() {
    remove_rxe
    ip link set cable0 mtu "$1"
    in_soft_netns ip link set cable1 mtu "$1"
    rdma link add rxe0 type rxe netdev cable0
}

# Makes the kernel log why a queue pair of rxe fails.
let_rxe_explain() {
    local lines
    for lines in 'format "error"' 'format "not free"' 'format "not reachable"' 'file *rxe_req.c'; do
        echo "module rdma_rxe $lines +p" > /sys/kernel/debug/dynamic_debug/control
    done
}

in_soft_netns() { ip netns exec "$SOFT_NETNS" "$@"; }

# lay_switched_cable: Creates near and far for setup_own_cable, joined by a bridge in another namespace.
# pull_cable, plug_cable_in: Change the carrier of both, as a cable does.
lay_switched_cable() {
    local end
    modprobe -a veth bridge
    ip netns add switch
    ip -n switch link add bridge0 type bridge
    for end in near far; do
        ip link add "$end" mtu "$FABRIC_MTU" type veth peer name "$end" mtu "$FABRIC_MTU" netns switch
        ip -n switch link set "$end" master bridge0
    done
    ip -n switch link set bridge0 up
    plug_cable_in
}
pull_cable() { set_cable down; }
plug_cable_in() { set_cable up; }
set_cable() {
    ip -n switch link set near "$1"
    ip -n switch link set far "$1"
}

# setup_own_cable HOPS FAR_HOPS FAR NEAR...: Creates two RDMA devices in this namespace: rxe_near with addresses NEAR,
# and rxe_far with address FAR, whose packets have hop limits HOPS and FAR_HOPS. Packets to a local address normally
# bypass all network interfaces, so routing rules send them over the cable.
setup_own_cable() {
    local hops=$1 far_hops=$2 far=$3 end host
    shift 3
    modprobe -a rdma_rxe rdma_ucm veth
    [ -e /sys/class/net/near ] || ip link add near type veth peer name far
    sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
    for end in near far; do
        sysctl -qw "net.ipv4.conf.$end.accept_local=1" "net.ipv4.conf.$end.rp_filter=0" \
            "net.ipv4.conf.$end.arp_ignore=1"
        ip link set "$end" up
    done
    ip addr add "$far/32" dev far
    for host in "$@"; do ip addr add "$host/32" dev near; done
    # For sent packets, tables 10 and 11 lead over the cable. Received packets are still local. The connection manager
    # accepts a request only if it arrived on the interface of the route back.
    ip route add "$far" dev near src "$1" table 10 hoplimit "$hops"
    ip rule add pref 10 iif lo to "$far" lookup 10
    ip rule add pref 12 oif near to "$far" lookup 10
    for host in "$@"; do
        ip route add "$host" dev far src "$far" table 11 hoplimit "$far_hops"
        ip rule add pref 11 iif lo to "$host" lookup 11
        ip rule add pref 13 oif far to "$host" lookup 11
    done
    ip rule add pref 100 lookup local
    ip rule del pref 0
    rdma link add rxe_near type rxe netdev near
    rdma link add rxe_far type rxe netdev far
    ping -c 1 -W 2 -I "$1" "$far" > /dev/null
    wait_for 10 "both links" both_links_active
}

both_links_active() { [ "$(rdma link | grep -c 'state ACTIVE')" = 2 ]; }
