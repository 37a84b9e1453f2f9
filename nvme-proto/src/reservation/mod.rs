//! Reservations of a namespace (Base 2.1, 8.1.22), without I/O.
//!
//! [`Reservations`] is the state of one namespace, [`Request`] and [`Change`] are the commands, and
//! [`Reservations::forbids`] decides on I/O commands. A change returns the next state. The target
//! stores this state and applies it to I/O before answering the command.

mod access;
mod change;
mod request;
mod stored;

use alloc::vec::Vec;
use zerocopy::{FromZeros, IntoBytes};

pub use access::{Access, Role};
pub use change::{Change, Notice, Outcome};
pub use request::Request;
pub use stored::StoredError;

use crate::wire::reservation::{RegisteredControllerExtended, ReservationStatusExtended};

/// HOSTID, which identifies a registrant.
pub type HostId = [u8; 16];

/// Maximum registrants of a namespace.
pub const REGISTRANTS_MAX: usize = 128;

/// CNTLID reported for each registrant, because all controllers are dynamic.
const CNTLID_DYNAMIC: u16 = 0xffff;

/// RTYPE: type of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReservationType {
    /// Only the holder writes.
    WriteExclusive = 1,
    /// Only the holder reads and writes.
    ExclusiveAccess = 2,
    /// Only registrants write.
    WriteExclusiveRegistrantsOnly = 3,
    /// Only registrants read and write.
    ExclusiveAccessRegistrantsOnly = 4,
    /// Only registrants write, and each is a holder.
    WriteExclusiveAllRegistrants = 5,
    /// Only registrants read and write, and each is a holder.
    ExclusiveAccessAllRegistrants = 6,
}

impl ReservationType {
    /// Reservation types, ordered by code.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// Returns the type with this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.code() == code)
    }

    /// RTYPE code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    const fn has_all_holders(self) -> bool {
        matches!(
            self,
            Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants
        )
    }

    /// True if a release changes the access of registrants, which are then notified.
    const fn concerns_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }
}

impl core::fmt::Display for ReservationType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::WriteExclusive => "write exclusive",
            Self::ExclusiveAccess => "exclusive access",
            Self::WriteExclusiveRegistrantsOnly => "write exclusive, registrants only",
            Self::ExclusiveAccessRegistrantsOnly => "exclusive access, registrants only",
            Self::WriteExclusiveAllRegistrants => "write exclusive, all registrants",
            Self::ExclusiveAccessAllRegistrants => "exclusive access, all registrants",
        })
    }
}

/// Registered host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registrant {
    /// HOSTID, unique in the namespace.
    pub host: HostId,
    /// Reservation key, not 0.
    pub key: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    rtype: ReservationType,
    /// `None` if all registrants hold the reservation.
    holder: Option<HostId>,
}

impl Held {
    fn by(rtype: ReservationType, host: &HostId) -> Self {
        let holder = (!rtype.has_all_holders()).then_some(*host);
        Self { rtype, holder }
    }
}

/// Registrants and reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    generation: u32,
    persistent: bool,
    /// Sorted by HOSTID.
    registrants: Vec<Registrant>,
    held: Option<Held>,
}

impl Reservations {
    /// Restores a state; `None` if invalid.
    ///
    /// `held` has the type and the holder's index. If all registrants hold the reservation, the
    /// index of any registrant is accepted.
    fn restore(
        generation: u32,
        persistent: bool,
        registrants: Vec<Registrant>,
        held: Option<(ReservationType, usize)>,
    ) -> Option<Self> {
        let ascend = registrants.windows(2).all(|two| two[0].host < two[1].host);
        let keyed = registrants.iter().all(|one| one.key != 0);
        if !ascend || !keyed || registrants.len() > REGISTRANTS_MAX {
            return None;
        }
        let held = match held {
            None => None,
            Some((rtype, holder)) => Some(Held::by(rtype, &registrants.get(holder)?.host)),
        };
        Some(Self {
            generation,
            persistent,
            registrants,
            held,
        })
    }

    /// GEN: counts changes of registrations.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// PTPL state: true if reservations persist through power loss.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        self.persistent
    }

    /// Registrants, ascending by host.
    #[must_use]
    pub fn registrants(&self) -> &[Registrant] {
        &self.registrants
    }

    /// Type of the reservation, if one is held.
    #[must_use]
    pub fn rtype(&self) -> Option<ReservationType> {
        self.held.map(|held| held.rtype)
    }

    /// Single holder; `None` without a reservation, or if all registrants hold it.
    #[must_use]
    pub fn holder(&self) -> Option<&HostId> {
        self.held.as_ref()?.holder.as_ref()
    }

    /// True if the host holds the reservation.
    #[must_use]
    pub fn is_holder(&self, host: &HostId) -> bool {
        match self.held {
            None => false,
            Some(Held { holder: None, .. }) => self.find(host).is_some(),
            Some(Held { holder, .. }) => holder.as_ref() == Some(host),
        }
    }

    fn find(&self, host: &HostId) -> Option<usize> {
        self.registrants
            .binary_search_by(|registrant| registrant.host.cmp(host))
            .ok()
    }

    /// Writes Reservation Report data in the extended format, truncated to `out`.
    pub fn report(&self, out: &mut [u8]) {
        let mut header = ReservationStatusExtended::new_zeroed();
        header.status.generation.set(self.generation);
        header.status.rtype = self.rtype().map_or(0, ReservationType::code);
        header.status.registrants.set(self.registrants.len() as u16);
        header.status.ptpls = self.persistent.into();
        let mut page = crate::window::Window::new(out, 0);
        page.put(0, header.as_bytes());
        let mut at = size_of_val(&header) as u64;
        for registrant in &self.registrants {
            let mut entry = RegisteredControllerExtended::new_zeroed();
            entry.cntlid.set(CNTLID_DYNAMIC);
            entry.rcsts = self.is_holder(&registrant.host).into();
            entry.rkey.set(registrant.key);
            entry.hostid = registrant.host;
            page.put(at, entry.as_bytes());
            at += size_of_val(&entry) as u64;
        }
    }
}

#[cfg(test)]
mod tests;
