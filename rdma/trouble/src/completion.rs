//! Explanations of completion statuses, by the numbers of `ibv_wc_status`.

use super::{Next, Trouble};

pub(super) const UNKNOWN: Trouble = Trouble {
    code: u16::MAX,
    name: "unknown completion status",
    what: "work failed with a status that is not in the specification",
    causes: &["a driver newer than this program, which the kernel's log names"],
    next: Next::Report,
};

const NOT_FOR_RC: &[&str] = &["a bug in the adapter's driver: this kind of service is not used"];

/// Explanations of all statuses of libibverbs.
pub const COMPLETIONS: [Trouble; 24] = [
    Trouble {
        code: 0,
        name: "IBV_WC_SUCCESS",
        what: "the work is done",
        causes: &["nothing is wrong"],
        next: Next::Here,
    },
    Trouble {
        code: 1,
        name: "IBV_WC_LOC_LEN_ERR",
        what: "local length error: a message came that is longer than its receive, or work was \
               posted that is longer than a message may be",
        causes: &[
            "the other end sends more in a capsule than was agreed (IOCCSZ, ICDOFF)",
            "the ends mean different queues: one of them was restarted or replaced",
            "a bug in either end's NVMe driver",
        ],
        next: Next::OtherLog,
    },
    Trouble {
        code: 2,
        name: "IBV_WC_LOC_QP_OP_ERR",
        what: "local queue pair operation error: this end's adapter could not carry out a work \
               request",
        causes: &[
            "the adapter or its driver is in trouble, which the kernel's log says",
            "a limit of the adapter was passed (READs outstanding, gather elements)",
            "a bug in this program",
        ],
        next: Next::KernelLog,
    },
    Trouble {
        code: 3,
        name: "IBV_WC_LOC_EEC_OP_ERR",
        what: "local end-to-end context operation error, of the reliable datagram service",
        causes: NOT_FOR_RC,
        next: Next::Report,
    },
    Trouble {
        code: 4,
        name: "IBV_WC_LOC_PROT_ERR",
        what: "local protection error: a buffer of this end is outside its registered region, or \
               the region lacks the right",
        causes: &[
            "a bug in this program: it gave a buffer to the adapter that it had not registered",
            "the device was reset or entered a bond, and forgot its regions",
        ],
        next: Next::Report,
    },
    Trouble {
        code: 5,
        name: "IBV_WC_WR_FLUSH_ERR",
        what: "flushed: the queue pair had broken before this work's turn came",
        causes: &["an earlier error of the same queue pair, which has a separate line"],
        next: Next::OtherLog,
    },
    Trouble {
        code: 6,
        name: "IBV_WC_MW_BIND_ERR",
        what: "a memory window could not be bound",
        causes: &["a bug in the adapter's driver: memory windows are not used"],
        next: Next::Report,
    },
    Trouble {
        code: 7,
        name: "IBV_WC_BAD_RESP_ERR",
        what: "bad response: the other end's acknowledgement or READ response makes no sense",
        causes: &[
            "an adapter or switch on the way changes packets",
            "the other end's RoCE is broken: update its adapter's firmware or its kernel",
            "two machines have the same IP address",
        ],
        next: Next::Path,
    },
    Trouble {
        code: 8,
        name: "IBV_WC_LOC_ACCESS_ERR",
        what: "local access error: this end refused the other end's access to its memory",
        causes: &[
            "the other end uses a key, a range or a right that it was not given: a bug there",
            "the other end acts for a connection that is no more",
        ],
        next: Next::OtherLog,
    },
    Trouble {
        code: 9,
        name: "IBV_WC_REM_INV_REQ_ERR",
        what: "remote invalid request: the other end called our message invalid",
        causes: &[
            "the message is longer than the other end's receive (in-capsule data, IOCCSZ)",
            "the ends disagree about the path MTU: their adapters or bonds report different ones",
            "the other end does not do what was asked of it (READs, send with invalidate)",
        ],
        next: Next::Path,
    },
    Trouble {
        code: 10,
        name: "IBV_WC_REM_ACCESS_ERR",
        what: "remote access error: the other end's memory key, address range or right does not \
               match what we asked for",
        causes: &[
            "the host gave a wrong or stale key in its command's SGL: a bug there, not in the network",
            "the host aborted the command or timed it out, and took the memory back meanwhile",
            "the host's device was reset and forgot its keys",
        ],
        next: Next::OtherLog,
    },
    Trouble {
        code: 11,
        name: "IBV_WC_REM_OP_ERR",
        what: "remote operation error: the other end failed to carry the request out",
        causes: &[
            "the other end's receive is shorter than the message, or not in its memory",
            "the other end's adapter or driver is in trouble, which its kernel's log says",
        ],
        next: Next::OtherLog,
    },
    Trouble {
        code: 12,
        name: "IBV_WC_RETRY_EXC_ERR",
        what: "transport retry counter exceeded: the other end acknowledged nothing, however \
               often it was repeated",
        causes: &[
            "the peer is down, was reset, or lost its address",
            "a cable, port or switch on the way is down, or a filter drops UDP port 4791",
            "large packets do not get through: the MTU of the way is smaller than the adapters'",
            "packets are dropped under load: no flow control (PFC, ECN) for this ToS",
        ],
        next: Next::Path,
    },
    Trouble {
        code: 13,
        name: "IBV_WC_RNR_RETRY_EXC_ERR",
        what: "RNR retry counter exceeded: the other end had no receive posted, however long we \
               waited",
        causes: &[
            "the other end's program hangs or is stopped, so that it posts no receives",
            "the other end promised more receives than it posts (HRQSIZE, CRQSIZE): a bug there",
            "the other end's machine is overloaded",
        ],
        next: Next::OtherLog,
    },
    Trouble {
        code: 14,
        name: "IBV_WC_LOC_RDD_VIOL_ERR",
        what: "local reliable datagram domain violation",
        causes: NOT_FOR_RC,
        next: Next::Report,
    },
    Trouble {
        code: 15,
        name: "IBV_WC_REM_INV_RD_REQ_ERR",
        what: "remote invalid reliable datagram request",
        causes: NOT_FOR_RC,
        next: Next::Report,
    },
    Trouble {
        code: 16,
        name: "IBV_WC_REM_ABORT_ERR",
        what: "remote aborted: the other end gave the operation up",
        causes: &["the other end's adapter was reset while it worked on it"],
        next: Next::OtherLog,
    },
    Trouble {
        code: 17,
        name: "IBV_WC_INV_EECN_ERR",
        what: "invalid end-to-end context number",
        causes: NOT_FOR_RC,
        next: Next::Report,
    },
    Trouble {
        code: 18,
        name: "IBV_WC_INV_EEC_STATE_ERR",
        what: "invalid end-to-end context state",
        causes: NOT_FOR_RC,
        next: Next::Report,
    },
    Trouble {
        code: 19,
        name: "IBV_WC_FATAL_ERR",
        what: "fatal error: this end's adapter is out of order",
        causes: &[
            "the adapter's firmware has stopped, which the kernel's log says",
            "the adapter overheats or sits badly in its slot",
        ],
        next: Next::KernelLog,
    },
    Trouble {
        code: 20,
        name: "IBV_WC_RESP_TIMEOUT_ERR",
        what: "response timeout: the other end acknowledged a request, and never answered it",
        causes: &[
            "the other end hangs in the middle of an operation",
            "the answers are lost on the way back: one direction is filtered or congested",
        ],
        next: Next::Path,
    },
    Trouble {
        code: 21,
        name: "IBV_WC_GENERAL_ERR",
        what: "general error: this end's adapter gives no other reason",
        causes: &[
            "the adapter or its driver is in trouble, which the kernel's log says",
            "the device is going away",
        ],
        next: Next::KernelLog,
    },
    Trouble {
        code: 22,
        name: "IBV_WC_TM_ERR",
        what: "tag matching error",
        causes: &["a bug in the adapter's driver: tag matching is not used"],
        next: Next::Report,
    },
    Trouble {
        code: 23,
        name: "IBV_WC_TM_RNDV_INCOMPLETE",
        what: "tag matching: the rendezvous is incomplete",
        causes: &["a bug in the adapter's driver: rendezvous is not used"],
        next: Next::Report,
    },
];
