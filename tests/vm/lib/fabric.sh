# Soft-RoCE on a dummy network card: both ends of the fabric in one machine.

FABRIC_NETDEV=${FABRIC_NETDEV:-dummy0}
FABRIC_ADDR=${FABRIC_ADDR:-192.168.77.1}
# 4200 bytes give RoCE its largest path MTU, 4096.
FABRIC_MTU=${FABRIC_MTU:-4200}

setup_rxe() {
    modprobe rdma_rxe
    modprobe nvme-rdma
    modprobe rdma_ucm
    # Left to itself the module makes a dummy0 of its own when it is loaded.
    modprobe dummy numdummies=0
    ip link add "$FABRIC_NETDEV" type dummy
    ip link set "$FABRIC_NETDEV" mtu "$FABRIC_MTU" up
    ip addr add "$FABRIC_ADDR/24" dev "$FABRIC_NETDEV"
    add_rxe
}

add_rxe() { rdma link add rxe0 type rxe netdev "$FABRIC_NETDEV"; }
remove_rxe() { rdma link delete rxe0; }

# Queue pairs that are open, all users together; the GSI pair of the device stays.
count_queue_pairs() { rdma -j resource show qp | jq 'length'; }

# Two namespaces of one machine, joined by a cable: the host's soft-RoCE in the first, a target
# without any RDMA device in the second. (rdma_rxe takes UDP port 4791 of the first for itself.)
SOFT_NETNS=soft
HOST_ADDR=192.168.77.2

setup_rxe_and_cable() {
    modprobe rdma_rxe
    modprobe nvme-rdma
    modprobe rdma_ucm
    modprobe veth
    ip netns add "$SOFT_NETNS"
    ip link add cable0 type veth peer name cable1 netns "$SOFT_NETNS"
    ip link set cable0 mtu "$FABRIC_MTU" up
    ip addr add "$HOST_ADDR/24" dev cable0
    in_soft_netns ip link set cable1 mtu "$FABRIC_MTU" up
    in_soft_netns ip link set lo up
    in_soft_netns ip addr add "$FABRIC_ADDR/24" dev cable1
    rdma link add rxe0 type rxe netdev cable0
    let_rxe_explain
}

# set_cable_mtu BYTES: of both ends; the RDMA device is made anew, for its path MTU's sake.
set_cable_mtu() {
    remove_rxe
    ip link set cable0 mtu "$1"
    in_soft_netns ip link set cable1 mtu "$1"
    rdma link add rxe0 type rxe netdev cable0
}

# let_rxe_explain: the kernel's log gets what rxe has to say when a queue pair of its own dies.
let_rxe_explain() { echo 'module rdma_rxe format "error" +p' > /sys/kernel/debug/dynamic_debug/control; }

in_soft_netns() { ip netns exec "$SOFT_NETNS" "$@"; }
