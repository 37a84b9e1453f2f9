//! Explanations of the connection manager's reject reasons (IBTA 12.6.7.2, table 109).

use super::{Next, Trouble};

pub(super) const UNKNOWN: Trouble = Trouble {
    code: u16::MAX,
    name: "unknown CM reject reason",
    what: "the connection was refused for a reason that is not in the specification",
    causes: &["the other end is newer than this program, or broken"],
    next: Next::OtherLog,
};

const ALTERNATE: &[&str] = &["a middlebox or a bug: RoCE has no alternate paths"];
const INFINIBAND: &[&str] =
    &["one of the ends speaks InfiniBand: RoCE's requests have no such field"];

const fn bug(code: u16, name: &'static str, what: &'static str) -> Trouble {
    Trouble::new(
        code,
        name,
        what,
        &["a bug in either end's connection manager"],
        Next::Report,
    )
}

const fn alternate(code: u16, name: &'static str, what: &'static str) -> Trouble {
    Trouble::new(code, name, what, ALTERNATE, Next::Report)
}

const fn path(
    code: u16,
    name: &'static str,
    what: &'static str,
    causes: &'static [&'static str],
) -> Trouble {
    Trouble::new(code, name, what, causes, Next::Path)
}

/// Explanations of all specified reject reasons.
pub const CM_REJECTS: [Trouble; 34] = [
    Trouble {
        code: 1,
        name: "CM reject 1, No QP available",
        what: "the other end's machine has no queue pair left",
        causes: &[
            "the other end has too many connections for its adapter or its limits",
            "queue pairs of hosts that vanished are not given up yet",
        ],
        next: Next::OtherLog,
    },
    bug(
        2,
        "CM reject 2, No EEC available",
        "the other end has no end-to-end context left",
    ),
    Trouble {
        code: 3,
        name: "CM reject 3, No resources available",
        what: "the other end's machine has no room for the connection",
        causes: &[
            "the listener's backlog is full: many hosts connect at once, and will succeed later",
            "the other end has too many connections",
            "the other end is short of memory, or of memory that it may lock",
        ],
        next: Next::OtherLog,
    },
    path(
        4,
        "CM reject 4, Timeout",
        "the other end waited for our answer for too long",
        &[
            "packets of connection management are lost on the way: congestion, a filter",
            "this machine is overloaded, so that it answered late",
        ],
    ),
    Trouble {
        code: 5,
        name: "CM reject 5, Unsupported request",
        what: "the other end does not take this request",
        causes: &[
            "the target's listener is of another partition than our P_Key, or both are limited \
             members: its log says so",
            "a middlebox translates addresses, which RoCE does not survive",
            "a bug in either end's connection manager",
        ],
        next: Next::OtherLog,
    },
    bug(
        6,
        "CM reject 6, Invalid communication ID",
        "the other end does not know the connection",
    ),
    bug(
        7,
        "CM reject 7, Invalid communication instance",
        "the other end knows another connection by that name",
    ),
    Trouble {
        code: 8,
        name: "CM reject 8, Invalid service ID",
        what: "nothing listens there",
        causes: &[
            "the target is not running, or still starting",
            "the port or address is another one than the target's listener has",
            "the target listens by TCP, or by another of the machine's RDMA devices",
        ],
        next: Next::Own {
            host: "on the target: systemctl status TARGET, and TARGET listener list",
            target: "systemctl status TARGET, and TARGET listener list",
        },
    },
    bug(
        9,
        "CM reject 9, Invalid transport service type",
        "the other end does not do reliable connections",
    ),
    path(
        10,
        "CM reject 10, Stale connection",
        "the other end still has an old connection of the same numbers",
        &[
            "one end was restarted, and the other has not noticed yet: the next try succeeds",
            "packets of the old connection's end were lost",
            "two machines have the same IP address or GUID",
        ],
    ),
    bug(
        11,
        "CM reject 11, RDC does not exist",
        "the reliable datagram channel does not exist",
    ),
    path(
        12,
        "CM reject 12, Primary remote port GID rejected",
        "the other end does not have the GID that we asked for",
        &[
            "the address moved to another machine or device, and our neighbour table is old",
            "the ends use different RoCE versions",
            "the other end's GID table is full, so that its address has no GID",
        ],
    ),
    path(
        13,
        "CM reject 13, Primary remote port LID rejected",
        "the other end refuses the LID",
        INFINIBAND,
    ),
    path(
        14,
        "CM reject 14, Invalid primary SL",
        "the other end refuses the service level",
        &["the other end's adapter does not take this ToS: SL is its upper three bits"],
    ),
    path(
        15,
        "CM reject 15, Invalid primary traffic class",
        "the other end refuses the traffic class",
        &["the other end's adapter does not take this ToS"],
    ),
    path(
        16,
        "CM reject 16, Invalid primary hop limit",
        "the other end refuses the hop limit",
        &["the hop limit is 0 or 1, and the peer is behind a router"],
    ),
    path(
        17,
        "CM reject 17, Invalid primary packet rate",
        "the other end refuses the packet rate",
        &["the ends' adapters have rates that they cannot agree on: update their firmware"],
    ),
    alternate(
        18,
        "CM reject 18, Alternate remote port GID rejected",
        "the alternate path's GID is refused",
    ),
    alternate(
        19,
        "CM reject 19, Alternate remote port LID rejected",
        "the alternate path's LID is refused",
    ),
    alternate(
        20,
        "CM reject 20, Invalid alternate SL",
        "the alternate path's service level is refused",
    ),
    alternate(
        21,
        "CM reject 21, Invalid alternate traffic class",
        "the alternate path's traffic class is refused",
    ),
    alternate(
        22,
        "CM reject 22, Invalid alternate hop limit",
        "the alternate path's hop limit is refused",
    ),
    alternate(
        23,
        "CM reject 23, Invalid alternate packet rate",
        "the alternate path's packet rate is refused",
    ),
    path(
        24,
        "CM reject 24, Port and CM redirection",
        "the other end sends us to another port",
        INFINIBAND,
    ),
    path(
        25,
        "CM reject 25, Port redirection",
        "the other end redirects this end to another of its ports",
        INFINIBAND,
    ),
    path(
        26,
        "CM reject 26, Invalid path MTU",
        "the other end cannot take packets as large as we asked for",
        &[
            "the ends' netdevs have different MTUs",
            "the other end's RDMA port did not follow its netdev's MTU",
        ],
    ),
    Trouble {
        code: 27,
        name: "CM reject 27, Insufficient responder resources",
        what: "the other end answers fewer RDMA READs than we asked for",
        causes: &[
            "the other end's adapter supports fewer than ours, and its software does not \
                   lower the number",
        ],
        next: Next::OtherLog,
    },
    Trouble {
        code: 28,
        name: "CM reject 28, Consumer reject",
        what: "the program at the other end refuses the connection",
        causes: &[
            "the target's listener does not admit the host's address (allowed_addresses)",
            "the other end is shutting down",
            "the other end is not an NVMe target: another service has this port",
        ],
        next: Next::Own {
            host: "at the target: allowed_addresses of the listener, and journalctl -u TARGET",
            target: "add the host's address to allowed_addresses of the listener, if it may connect",
        },
    },
    Trouble {
        code: 29,
        name: "CM reject 29, RNR retry count reject",
        what: "the other end does not accept the RNR retry count",
        causes: &["the other end insists on flow control: it is not an NVMe target"],
        next: Next::OtherLog,
    },
    path(
        30,
        "CM reject 30, Duplicate local communication ID",
        "the other end has a request of the same number from this machine already",
        &[
            "one end was restarted at the same time: the next try succeeds",
            "two machines have the same IP address or GUID",
        ],
    ),
    bug(
        31,
        "CM reject 31, Invalid class version",
        "the other end speaks another version of connection management",
    ),
    path(
        32,
        "CM reject 32, Invalid primary flow label",
        "the other end refuses the flow label",
        &["an adapter or router that does not take RoCE's flow labels"],
    ),
    alternate(
        33,
        "CM reject 33, Invalid alternate flow label",
        "the alternate path's flow label is refused",
    ),
    Trouble {
        code: 35,
        name: "CM reject 35, Vendor option not supported",
        what: "the other end lacks a vendor's option",
        causes: &["an adapter of another make, and a driver that insists on its own's options"],
        next: Next::OtherLog,
    },
];
