//! Limits of controllers and subsystems.
//!
//! CAP, Identify Controller or a feature reports each limit. A host that exceeds one receives the
//! status code for that limit.

use crate::wire::fabrics::CNTLID_MAX;
use crate::wire::log::{AnaGroup, AnaLogHeader};

/// Unit of MDTS in bytes (CAP.MPSMIN is 0).
pub const PAGE_BYTES: u32 = 4096;

/// Largest MDTS (8 MiB).
///
/// The single keyed SGL descriptor of a command describes at most 16 MiB minus one byte.
pub const MDTS_MAX: u8 = 11;

/// Bytes of an SQE.
pub const CAPSULE_HEADER_BYTES: u32 = 64;

/// Maximum entries of an admin submission queue.
///
/// ASQSZ is at least 32 (Base, 5.16.1.23), and hosts send few admin commands at a time.
pub const ADMIN_QUEUE_ENTRIES: u16 = 128;

/// Upper bound of [`Limits::io_queue_entries`].
pub const IO_QUEUE_ENTRIES_MAX: u16 = 1024;

/// Upper bound of [`Limits::io_queues`].
pub const IO_QUEUES_MAX: u16 = 1024;

/// Largest NSID if transfers hold the ANA log ([`namespaces_within`]).
pub const NAMESPACES_MAX: u32 = 10_240;

/// Largest NSID available with every transfer size.
pub const NAMESPACES_ALWAYS: u32 = 1024;

/// Maximum NSIDs in log page 04h (Base, 5.16.1.5).
pub const CHANGED_NAMESPACES_MAX: usize = 1024;

/// Largest ANA group identifier (ANAGRPMAX, NANAGRPID).
pub const ANA_GROUPS_MAX: u32 = 128;

/// NN of a controller with this transfer size.
///
/// Linux reads the ANA log with one command, and disables ANA if a log of NANAGRPID groups and MNAN
/// namespaces exceeds MDTS.
#[must_use]
pub fn namespaces_within(transfer_bytes: u32) -> u32 {
    let rest = transfer_bytes.saturating_sub(ana_log_bytes(0) as u32);
    (rest / size_of::<u32>() as u32).clamp(NAMESPACES_ALWAYS, NAMESPACES_MAX)
}

/// Longest ANA log for MNAN `namespaces`, in bytes.
///
/// Computed as by hosts, from NANAGRPID and MNAN (Base, 5.16.1.13).
#[must_use]
pub const fn ana_log_bytes(namespaces: u32) -> u64 {
    let groups = size_of::<AnaLogHeader>() + ANA_GROUPS_MAX as usize * size_of::<AnaGroup>();
    groups as u64 + namespaces as u64 * size_of::<u32>() as u64
}

/// Bytes of a discovery log with 65,536 records.
///
/// A host that reads a shrinking log in parts reads zeroes up to this offset, and notices the
/// change by GENCTR.
pub const DISCOVERY_LOG_BYTES: u64 = 1024 * (1 + 65_536);

/// Maximum of outstanding Asynchronous Event Requests (AERL is one less).
pub const ASYNC_EVENT_REQUESTS: usize = 4;

/// Maximum of outstanding Aborts (ACL is one less).
pub const ABORTS: usize = 4;

/// Entries of a controller's Error Information log (ELPE is one less).
pub const ERROR_LOG_ENTRIES: usize = 64;

/// Keep alive granularity in units of 100 ms.
pub const KAS: u16 = 1;

/// CQT in milliseconds: time for disks to finish commands after keep alive expiry.
///
/// No command is submitted to a disk after expiry.
pub const COMMAND_QUIESCE_MS: u16 = 1000;

/// Lifetime of an association without a running keep alive timer, in milliseconds.
///
/// Applies to a discovery controller without KATO (Base, 3.1.2.3.3.1: two minutes), and to any
/// controller that is not ready.
pub const IDLE_ASSOCIATION_MS: u32 = 120_000;

/// Longest time between CC.EN and CSTS.RDY, in units of 500 ms.
///
/// RDY changes at once unless a reset waits for outstanding I/O.
pub const READY_TIMEOUT: u8 = 30;

/// Configurable limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// MDTS: the largest transfer is 2^MDTS pages of [`PAGE_BYTES`].
    pub mdts: u8,
    /// Entries of an I/O submission queue, 1-based (CAP.MQES, MAXCMD).
    pub io_queue_entries: u16,
    /// I/O queues of a controller.
    pub io_queues: u16,
    /// In-capsule data of an I/O command, in bytes (IOCCSZ).
    pub in_capsule_bytes: u32,
    /// NN: the largest NSID.
    pub namespaces: u32,
    /// Controllers of a subsystem.
    pub controllers: u16,
    /// Controllers of a subsystem for each host NQN and address.
    pub controllers_per_host: u16,
    /// Controllers of a subsystem for each address.
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
    /// Maximum transfer of a command, in bytes.
    #[must_use]
    pub const fn transfer_bytes(&self) -> u32 {
        PAGE_BYTES << self.mdts
    }

    /// Maximum entries of a submission queue, 1-based.
    #[must_use]
    pub const fn queue_entries(&self, qid: u16) -> u16 {
        if qid == 0 {
            ADMIN_QUEUE_ENTRIES
        } else {
            self.io_queue_entries
        }
    }

    /// Panics if a limit exceeds the protocol's range.
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
