//! Behaviour of adapters and drivers, as test profiles.
//!
//! The profiles follow rdma-core's providers and the kernel's drivers; docs/roce/adapters.md lists
//! the sources.

#[cfg(feature = "quirks")]
pub(crate) mod layer;

use std::time::Duration;

pub(crate) const BROADCOM: u32 = 0x14e4;

/// Support for shared receive queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedReceives {
    /// Supported.
    Present,
    /// The device reports a maximum of 0.
    Absent,
    /// The device reports a maximum, but the driver does not implement shared receive queues.
    Unimplemented,
}

/// Differences of one adapter family from `rdma_rxe`.
#[derive(Debug, Clone, Copy)]
pub struct Quirks {
    /// Name of the profile.
    pub name: &'static str,
    /// Support for shared receive queues.
    pub shared_receives: SharedReceives,
    /// Maximum scatter/gather elements of a work request.
    pub max_sge: i32,
    /// Maximum inline data in bytes.
    pub max_inline: u32,
    /// True if `MEM_MGT_EXTENSIONS` (SEND with Invalidate) are reported.
    pub send_with_invalidate: bool,
    /// True if an error of a queue pair raises `QP_FATAL` instead of `LAST_WQE_REACHED`.
    pub no_last_wqe: bool,
    /// True if flushed receives are not reported.
    pub swallows_receives: bool,
    /// True if an error completion contains the id of the oldest work request, signaled or not.
    /// Only the test double of libibverbs simulates this.
    pub blames_oldest: bool,
    /// Delay of calls that create, change or destroy queue pairs.
    pub control_verb: Duration,
}

impl Quirks {
    /// Device without peculiarities.
    pub const NONE: Self = Self {
        name: "none",
        shared_receives: SharedReceives::Present,
        max_sge: 16,
        max_inline: 256,
        send_with_invalidate: true,
        no_last_wqe: false,
        swallows_receives: false,
        blames_oldest: false,
        control_verb: Duration::ZERO,
    };

    /// Profiles of the tests; the first has no quirks.
    pub const ALL: [Self; 10] = [
        Self::NONE,
        Self {
            name: "e810",
            shared_receives: SharedReceives::Absent,
            max_sge: 6,
            ..Self::NONE
        },
        Self {
            name: "bnxt",
            no_last_wqe: true,
            swallows_receives: true,
            blames_oldest: true,
            ..Self::NONE
        },
        Self {
            name: "bnxt-own-queues",
            shared_receives: SharedReceives::Absent,
            no_last_wqe: true,
            swallows_receives: true,
            blames_oldest: true,
            ..Self::NONE
        },
        Self {
            name: "mana",
            shared_receives: SharedReceives::Absent,
            max_inline: 0,
            ..Self::NONE
        },
        Self {
            name: "ionic",
            shared_receives: SharedReceives::Unimplemented,
            ..Self::NONE
        },
        Self {
            name: "mlx5",
            max_inline: 60,
            ..Self::NONE
        },
        Self {
            name: "hns",
            max_inline: 32,
            ..Self::NONE
        },
        Self {
            name: "qedr",
            send_with_invalidate: false,
            ..Self::NONE
        },
        Self {
            name: "slow-firmware",
            control_verb: Duration::from_millis(2),
            ..Self::NONE
        },
    ];

    /// Returns the profile with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|quirks| quirks.name == name)
    }
}
