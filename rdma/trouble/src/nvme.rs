//! Explanations of the status (STS) in a target's REJ (NVMe RDMA transport, figure 8).

use super::{Next, Trouble};

pub(super) const UNKNOWN: Trouble = Trouble {
    code: u16::MAX,
    name: "unknown NVMe/RDMA status",
    what: "the target refuses the connection for a reason that is not in the specification",
    causes: &["the target is newer than this program, or broken"],
    next: Next::OtherLog,
};

pub(super) const FEWER_ENTRIES: Next = Next::Own {
    host: "connect with fewer entries a queue: --queue-size=32",
    target: "at the host: nvme connect ... --queue-size=32; or raise queue_depth here",
};
pub(super) const FEWER_QUEUES: Next = Next::Own {
    host: "connect with fewer I/O queues: --nr-io-queues=1",
    target: "at the host: nvme connect ... --nr-io-queues=1; or raise io_queues here",
};
const NOT_NVME: &[&str] = &[
    "the host is not an NVMe host: another program dials this port",
    "a bug in the host's NVMe driver",
];

/// Explanations of all statuses in the specification.
pub const NVME_REJECTS: [Trouble; 9] = [
    Trouble {
        code: 1,
        name: "Invalid Private Data Length",
        what: "the connection request has too little private data to be NVMe's",
        causes: NOT_NVME,
        next: Next::OtherLog,
    },
    Trouble {
        code: 2,
        name: "Invalid RECFMT",
        what: "the connection request's private data have a format other than 0",
        causes: NOT_NVME,
        next: Next::OtherLog,
    },
    Trouble {
        code: 3,
        name: "Invalid QID",
        what: "the connection request is for a queue that the target does not have",
        causes: &["the host asks for more I/O queues than the target gives (io_queues)"],
        next: FEWER_QUEUES,
    },
    Trouble {
        code: 4,
        name: "Invalid HSQSIZE",
        what: "the connection request's queue has no entries, or more than the target takes",
        causes: &["the host asks for more entries a queue than the target gives (queue_depth)"],
        next: FEWER_ENTRIES,
    },
    Trouble {
        code: 5,
        name: "Invalid HRQSIZE",
        what: "the host has fewer receives than commands: answers would find none",
        causes: &["a bug in the host's NVMe driver: HRQSIZE counts from 1, HSQSIZE from 0"],
        next: FEWER_ENTRIES,
    },
    Trouble {
        code: 6,
        name: "No Resources",
        what: "the target is out of queue pairs, devices or memory, is drained, or is shutting down",
        causes: &[
            "the target is shutting down or restarting: hosts can connect afterwards",
            "the target drains its listener: connect by another path, or wait",
            "too many queue pairs: many hosts with an I/O queue for each of their cores",
            "memory cannot be locked for one more RDMA device (memlock)",
        ],
        next: Next::Own {
            host: "read the target's log: journalctl -u TARGET; connect with fewer I/O \
                   queues: --nr-io-queues=1",
            target: "PROGRAM doctor",
        },
    },
    Trouble {
        code: 7,
        name: "Invalid IRD",
        what: "the host answers no RDMA READs, by which the target fetches what is written",
        causes: &[
            "the host's adapter is at its limit of READs",
            "the host is not an NVMe host: another program dials this port",
        ],
        next: Next::OtherLog,
    },
    Trouble {
        code: 8,
        name: "Invalid ORD",
        what: "the target cannot do with as many RDMA READs as the host asks for",
        causes: &["the ends' adapters have limits of READs that do not meet"],
        next: Next::OtherLog,
    },
    Trouble {
        code: 9,
        name: "Invalid CNTLID",
        what: "the connection request is for a controller that is not there",
        causes: &[
            "the target was restarted, or gave the host up: it must begin with its admin queue",
            "keep alive expired while the host was connecting: it is overloaded",
        ],
        next: Next::OtherLog,
    },
];
