use super::{Next, Trouble};

/// No answer to a connection request.
pub const NO_ANSWER: Trouble = Trouble {
    code: 1,
    name: "no answer",
    what: "connection management got no answer from the other end",
    causes: &[
        "the other end is down, or has another address",
        "nothing speaks RoCE there: the target is not running, or its address is on no RDMA device",
        "a filter drops UDP port 4791, in either direction",
        "the ends use different RoCE versions: a client of v2 cannot reach a server of v1",
        "rdma_rxe at either end has broken the queue pair of all such messages, after a port was down",
    ],
    next: Next::Path,
};

/// Failure of a connection without a failed work request.
pub const TRANSPORT_GAVE_UP: Trouble = Trouble {
    code: 2,
    name: "transport",
    what: "the transport gave up, without a work request that says why",
    causes: &[
        "the other end refused one of our packets, or broke its queue pair",
        "the peer or the way to it is down",
    ],
    next: Next::Path,
};

/// Disconnection by the peer.
pub const PEER_LEFT: Trouble = Trouble {
    code: 3,
    name: "peer",
    what: "the other end ended the connection",
    causes: &[
        "the other end was shut down or restarted",
        "the keep alive timer of the other end expired: it received nothing from this end in time",
        "the other end no longer accepts this end (allowed hosts, a removed subsystem)",
    ],
    next: Next::OtherLog,
};

/// Move of the local address to another device.
pub const ADDRESS_CHANGED: Trouble = Trouble {
    code: 4,
    name: "address change",
    what: "the local address moved to another RDMA device",
    causes: &[
        "a bond failed over to its other port",
        "the address was taken from one netdev and given to another",
    ],
    next: Next::Own {
        host: "nothing if it connects again by itself; PROGRAM fabric shows which device \
               has the address now",
        target: "nothing: hosts connect again; PROGRAM fabric shows which device has the \
                 address now",
    },
};

/// Move of the peer's address to another adapter.
pub const PEER_MOVED: Trouble = Trouble {
    code: 6,
    name: "peer moved",
    what: "the other end's address has another MAC",
    causes: &[
        "the other end's bond failed over to a port with a different MAC (fail_over_mac)",
        "the address was taken from one adapter and given to another",
        "two ports of the other end are in one subnet and both answer ARP: sysctl -w \
         net.ipv4.conf.all.arp_ignore=1 there",
        "two machines have the address",
    ],
    next: Next::Own {
        host: "nothing if it connects again by itself; ip neighbor shows the MAC",
        target: "nothing: the host connects again; ip neighbor shows the MAC",
    },
};

/// Removal of the RDMA device.
pub const DEVICE_REMOVED: Trouble = Trouble {
    code: 5,
    name: "device removed",
    what: "the RDMA device was removed",
    causes: &[
        "the driver was unloaded, or the adapter was reset",
        "the device entered or left a bond (RoCE LAG), and became another device",
        "rdma link delete, for rdma_rxe",
    ],
    next: Next::Own {
        host: "rdma link, and dmesg | tail -50",
        target: "rdma link, and dmesg | tail -50: the listener waits for it, and hosts connect again",
    },
};

/// Work request refused by the local RDMA device, or failed queue of the device.
pub const DEVICE_FAULT: Trouble = Trouble {
    code: 7,
    name: "device fault",
    what: "the local RDMA device refused a work request, or one of its queues failed",
    causes: &[
        "the driver or its firmware has an error",
        "the driver takes less work than it promised when the queue was created",
    ],
    next: Next::Own {
        host: "dmesg | tail -50, and the adapter's firmware",
        target: "dmesg | tail -50, and the adapter's firmware; hosts connect again",
    },
};

/// Explanations of all causes of ended or failed connections.
pub const ENDINGS: [Trouble; 7] = [
    NO_ANSWER,
    TRANSPORT_GAVE_UP,
    PEER_LEFT,
    ADDRESS_CHANGED,
    DEVICE_REMOVED,
    PEER_MOVED,
    DEVICE_FAULT,
];
