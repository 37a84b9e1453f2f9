//! Limits of controllers and subsystems.

use crate::wire::fabrics::CNTLID_MAX;
use crate::wire::log::{AnaGroup, AnaLogHeader};

/// Unit of MDTS in bytes; CAP.MPSMIN is 0.
pub const PAGE_BYTES: u32 = 4096;

/// Maximum of MDTS: 2^11 pages of 4 KiB, 8 MiB.
///
/// 16 MiB exceeds the length field of a keyed SGL descriptor by one byte.
pub const MDTS_MAX: u8 = 11;

/// Size of an SQE in bytes.
pub const CAPSULE_HEADER_BYTES: u32 = 64;

/// Entries of an admin submission queue, at least 32 (Base, 5.16.1.23).
pub const ADMIN_QUEUE_ENTRIES: u16 = 128;

/// Maximum of [`Limits::io_queue_entries`].
pub const IO_QUEUE_ENTRIES_MAX: u16 = 1024;

/// Maximum of [`Limits::io_queues`].
pub const IO_QUEUES_MAX: u16 = 1024;

/// Maximum NSID of any subsystem. If MDTS is small, [`namespaces_within`] allows fewer.
pub const NAMESPACES_MAX: u32 = 10_240;

/// Minimum result of [`namespaces_within`].
pub const NAMESPACES_ALWAYS: u32 = 1024;

/// Maximum NSIDs in log page 04h (Base, 5.16.1.5).
pub const CHANGED_NAMESPACES_MAX: usize = 1024;

/// Maximum ANA group identifier (ANAGRPMAX, NANAGRPID).
pub const ANA_GROUPS_MAX: u32 = 128;

/// Returns NN for a controller with this maximum transfer.
///
/// Linux disables ANA if the log of NANAGRPID groups and MNAN namespaces exceeds MDTS.
#[must_use]
pub fn namespaces_within(transfer_bytes: u32) -> u32 {
    let rest = transfer_bytes.saturating_sub(ana_log_bytes(0) as u32);
    (rest / size_of::<u32>() as u32).clamp(NAMESPACES_ALWAYS, NAMESPACES_MAX)
}

/// Maximum length of the ANA log in bytes for MNAN `namespaces`, as computed by hosts (Base,
/// 5.16.1.13).
#[must_use]
pub const fn ana_log_bytes(namespaces: u32) -> u64 {
    let groups = size_of::<AnaLogHeader>() + ANA_GROUPS_MAX as usize * size_of::<AnaGroup>();
    groups as u64 + namespaces as u64 * size_of::<u32>() as u64
}

/// Maximum discovery log in bytes: header and 65,536 entries.
///
/// Reads beyond the log's end return zeroes up to this length: the log may shrink between a host's
/// reads.
pub const DISCOVERY_LOG_BYTES: u64 = 1024 * (1 + 65_536);

/// Maximum Asynchronous Event Requests in flight (AERL is 0-based).
pub const ASYNC_EVENT_REQUESTS: usize = 4;

/// Maximum Aborts in flight (ACL is 0-based).
pub const ABORTS: usize = 4;

/// Maximum Cross-Controller Resets in progress per controller (CCRL).
pub const CROSS_RESETS: usize = 4;

/// Maximum entries of the Cross-Controller Reset log (Base 2.3, 5.2.12.3.1).
pub const CROSS_RESET_LOG_ENTRIES: usize = 511;

/// Milliseconds after which Cross-Controller Reset completes even with the reset in progress. The
/// log then reports the end.
pub const CROSS_RESET_ANSWER_MS: u64 = 500;

/// Entries of the Error Information log (ELPE is 0-based).
pub const ERROR_LOG_ENTRIES: usize = 64;

/// KAS: keep alive timer granularity (unit: 100 ms).
pub const KAS: u16 = 1;

/// CQT: milliseconds in which disks finish commands after the keep alive timer expires.
///
/// After expiry, no command is submitted to a disk.
pub const COMMAND_QUIESCE_MS: u16 = 1000;

/// Idle time in milliseconds after which an association without a running keep alive timer ends.
///
/// Applies to discovery controllers without KATO (Base, 3.1.2.3.3.1: two minutes), and to
/// controllers that are not ready.
pub const IDLE_ASSOCIATION_MS: u32 = 120_000;

/// CAP.TO: maximum time from CC.EN to CSTS.RDY (unit: 500 ms).
///
/// CSTS.RDY changes at once, unless a reset must wait for I/O in progress.
pub const READY_TIMEOUT: u8 = 30;

/// Limits configured for a subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum transfer of 2^MDTS pages of [`PAGE_BYTES`].
    pub mdts: u8,
    /// Entries of an I/O submission queue (CAP.MQES, MAXCMD), not 0-based.
    pub io_queue_entries: u16,
    /// Maximum I/O queues of a controller.
    pub io_queues: u16,
    /// Maximum in-capsule data of an I/O command in bytes (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// NN: maximum NSID.
    pub namespaces: u32,
    /// Maximum controllers of a subsystem.
    pub controllers: u16,
    /// Maximum controllers of one host NQN in an address range ([`Peer`](crate::subsystem::Peer)).
    pub controllers_per_host: u16,
    /// Maximum controllers of an address range.
    pub controllers_per_address: u16,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            mdts: 8,
            io_queue_entries: 128,
            io_queues: 128,
            in_capsule_bytes: 4096,
            namespaces: NAMESPACES_MAX,
            controllers: 1024,
            controllers_per_host: 64,
            controllers_per_address: 512,
        }
    }
}

impl Limits {
    /// Maximum data length of a command in bytes.
    #[must_use]
    pub const fn transfer_bytes(&self) -> u32 {
        PAGE_BYTES << self.mdts
    }

    /// Maximum entries of submission queue `qid`.
    #[must_use]
    pub const fn queue_entries(&self, qid: u16) -> u16 {
        if qid == 0 {
            ADMIN_QUEUE_ENTRIES
        } else {
            self.io_queue_entries
        }
    }

    pub(crate) fn assert_sane(&self) {
        assert!((1..=MDTS_MAX).contains(&self.mdts), "MDTS of {}", self.mdts);
        assert!((2..=IO_QUEUE_ENTRIES_MAX).contains(&self.io_queue_entries));
        assert!((1..=IO_QUEUES_MAX).contains(&self.io_queues));
        assert!((1..=NAMESPACES_MAX).contains(&self.namespaces));
        assert!(self.in_capsule_bytes <= 16 * 1024 && self.in_capsule_bytes.is_multiple_of(16));
        assert!((1..=CNTLID_MAX).contains(&self.controllers) && self.controllers_per_host >= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Sgl;

    #[test]
    #[should_panic(expected = "MDTS of 12")]
    fn an_mdts_that_a_keyed_descriptor_cannot_name_is_not_announced() {
        let limits = Limits {
            mdts: 12,
            ..Limits::default()
        };
        limits.assert_sane();
    }

    #[test]
    fn the_largest_mdts_fits_a_keyed_descriptor() {
        let limits = Limits {
            mdts: MDTS_MAX,
            ..Limits::default()
        };
        limits.assert_sane();
        assert!(limits.transfer_bytes() <= Sgl::KEYED_LENGTH_MAX);
    }

    #[test]
    fn the_default_transfer_is_1_mib() {
        assert_eq!(Limits::default().transfer_bytes(), 1 << 20);
        Limits::default().assert_sane();
    }
}
