//! Explanations of the parameter in the status Connect Invalid Parameters (Base 2.0, 6.3).

use super::nvme::{FEWER_ENTRIES, FEWER_QUEUES};
use super::status::{KATO, NAMES};
use super::{Next, Trouble};

/// Bit of a code that marks an offset in the Connect data instead of the SQE.
pub(super) const IN_DATA: u16 = 1 << 15;

const IDENTITY: Next = Next::Own {
    host: "cat /etc/nvme/hostnqn /etc/nvme/hostid",
    target: "cat /etc/nvme/hostnqn /etc/nvme/hostid at the host",
};

/// Explanations of parameters that targets refuse, by byte offset. Bit 15 marks an offset in the
/// Connect data.
pub const CONNECT_PARAMETERS: [Trouble; 7] = [
    Trouble::new(
        42,
        "QID",
        "the target does not have the queue of this Connect",
        &["the host asks for more I/O queues than the target gives (io_queues)"],
        FEWER_QUEUES,
    ),
    Trouble::new(
        44,
        "SQSIZE",
        "the target does not accept a queue of this size",
        &["the host asks for more entries a queue than the target gives (queue_depth)"],
        FEWER_ENTRIES,
    ),
    Trouble::new(
        48,
        "KATO",
        "the target does not accept this keep alive timeout",
        &["keep_alive_tmo is too short or too long"],
        KATO,
    ),
    Trouble::new(
        IN_DATA,
        "HOSTID",
        "the host identifier is not valid",
        &["it is 0, or differs from that of the admin queue"],
        IDENTITY,
    ),
    Trouble::new(
        IN_DATA | 16,
        "CNTLID",
        "the controller is gone, or another host's",
        &["the target was restarted, or gave the host up: connect again"],
        Next::OtherLog,
    ),
    Trouble::new(
        IN_DATA | 256,
        "SUBNQN",
        "there is no such subsystem",
        &["it is misspelt, or the listener does not lead to it"],
        NAMES,
    ),
    Trouble::new(
        IN_DATA | 512,
        "HOSTNQN",
        "the host's NQN is not valid",
        &["it has a slip, or differs from that of the admin queue"],
        IDENTITY,
    ),
];
