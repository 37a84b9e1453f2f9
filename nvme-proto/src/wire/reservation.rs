//! Reservation commands and their data (Base 2.1, 7.5 to 7.8 and 5.1.12.1.32).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

bitfields! {
    /// CDW10 of Reservation Register.
    pub struct RegisterCdw10(u32);
    fields {
        /// RREGA (a `REGISTER`, `UNREGISTER` or `REPLACE` constant).
        rrega with_rrega: u8 = 0..=2;
        /// CPTPL: change of the PTPL state (a `CPTPL_` constant).
        cptpl with_cptpl: u8 = 30..=31;
    }
    flags {
        /// IEKEY: the current key is not checked.
        iekey with_iekey = 3;
    }
}

impl RegisterCdw10 {
    /// Registers a key.
    pub const REGISTER: u8 = 0;
    /// Unregisters the host.
    pub const UNREGISTER: u8 = 1;
    /// Replaces the host's key.
    pub const REPLACE: u8 = 2;
    /// Keeps the PTPL state.
    pub const CPTPL_KEEP: u8 = 0;
    /// Clears the PTPL state: reservations end with the target's process.
    pub const CPTPL_CLEAR: u8 = 2;
    /// Sets the PTPL state: reservations persist through power loss.
    pub const CPTPL_SET: u8 = 3;
}

bitfields! {
    /// CDW10 of Reservation Acquire.
    pub struct AcquireCdw10(u32);
    fields {
        /// RACQA (`ACQUIRE`, `PREEMPT` or `PREEMPT_AND_ABORT`).
        racqa with_racqa: u8 = 0..=2;
        /// RTYPE to acquire.
        rtype with_rtype: u8 = 8..=15;
    }
    flags {
        /// IEKEY; must be 0.
        iekey with_iekey = 3;
    }
}

impl AcquireCdw10 {
    /// Acquires a reservation that no host holds.
    pub const ACQUIRE: u8 = 0;
    /// Preempts the reservation or registration of other hosts.
    pub const PREEMPT: u8 = 1;
    /// Like `PREEMPT`; also ends the commands of the preempted hosts.
    pub const PREEMPT_AND_ABORT: u8 = 2;
}

bitfields! {
    /// CDW10 of Reservation Release.
    pub struct ReleaseCdw10(u32);
    fields {
        /// RRELA (`RELEASE` or `CLEAR`).
        rrela with_rrela: u8 = 0..=2;
        /// RTYPE to release.
        rtype with_rtype: u8 = 8..=15;
    }
    flags {
        /// IEKEY; must be 0.
        iekey with_iekey = 3;
    }
}

impl ReleaseCdw10 {
    /// Releases the host's reservation.
    pub const RELEASE: u8 = 0;
    /// Releases the reservation and unregisters all hosts.
    pub const CLEAR: u8 = 1;
}

bitfields! {
    /// CDW11 of Reservation Report.
    pub struct ReportCdw11(u32);
    flags {
        /// EDS: the data is a [`ReservationStatusExtended`].
        eds with_eds = 0;
    }
}

/// Data of Reservation Register.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RegisterData {
    /// CRKEY: current key.
    pub crkey: U64,
    /// NRKEY: new key.
    pub nrkey: U64,
}
assert_size!(RegisterData = 16);

/// Data of Reservation Acquire.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AcquireData {
    /// CRKEY: current key.
    pub crkey: U64,
    /// PRKEY: key of the hosts to preempt.
    pub prkey: U64,
}
assert_size!(AcquireData = 16);

/// Header of Reservation Report data for 64-bit host identifiers, before [`RegisteredController`]s.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReservationStatus {
    /// GEN: generation of the registrations.
    pub generation: U32,
    /// RTYPE; 0 without a reservation.
    pub rtype: u8,
    /// REGSTRNT: number of registrants.
    pub registrants: U16,
    /// Reserved.
    pub reserved7: [u8; 2],
    /// PTPLS: 1 if reservations persist through power loss.
    pub ptpls: u8,
    /// Reserved.
    pub reserved10: [u8; 14],
}
assert_size!(ReservationStatus = 24);

/// Header of Reservation Report data for 128-bit host identifiers, before
/// [`RegisteredControllerExtended`]s.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ReservationStatusExtended {
    /// Fields of the format for 64-bit host identifiers.
    pub status: ReservationStatus,
    /// Reserved.
    pub reserved24: [u8; 40],
}
assert_size!(ReservationStatusExtended = 64);

/// Registrant with a 64-bit host identifier.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RegisteredController {
    /// CNTLID; FFFFh for a dynamic controller.
    pub cntlid: U16,
    /// RCSTS: bit 0 is set if the host holds the reservation.
    pub rcsts: u8,
    /// Reserved.
    pub reserved3: [u8; 5],
    /// HOSTID of the registrant.
    pub hostid: U64,
    /// RKEY: reservation key.
    pub rkey: U64,
}
assert_size!(RegisteredController = 24);

/// Registrant with a 128-bit host identifier.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RegisteredControllerExtended {
    /// CNTLID; FFFFh for a dynamic controller.
    pub cntlid: U16,
    /// RCSTS: bit 0 is set if the host holds the reservation.
    pub rcsts: u8,
    /// Reserved.
    pub reserved3: [u8; 5],
    /// RKEY: reservation key.
    pub rkey: U64,
    /// HOSTID of the registrant.
    pub hostid: [u8; 16],
    /// Reserved.
    pub reserved32: [u8; 32],
}
assert_size!(RegisteredControllerExtended = 64);

/// Log page 80h: oldest unread notification of the controller.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NotificationLog {
    /// LPC: number of the notification, from 1; 0 if the page is empty.
    pub count: U64,
    /// RNLPT: type of the notification; 0 if the page is empty.
    pub notice: u8,
    /// NALP: number of further unread notifications.
    pub available: u8,
    /// Reserved.
    pub reserved10: [u8; 2],
    /// NSID; 0 if the page is empty.
    pub nsid: U32,
    /// Reserved.
    pub reserved16: [u8; 48],
}
assert_size!(NotificationLog = 64);

bitfields! {
    /// RESCAP of Identify Namespace.
    pub struct Rescap(u8);
    fields {
        /// Supported types; bit n of RESCAP is type n, so bit 0 of this field is type 1.
        types with_types: u8 = 1..=6;
    }
    flags {
        /// Reservations can persist through power loss.
        ptpl with_ptpl = 0;
        /// IEKEY is used as defined since NVMe 1.3.
        iekey with_iekey = 7;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwords_and_structures_have_their_places() {
        let register = RegisterCdw10(0)
            .with_rrega(2)
            .with_iekey(true)
            .with_cptpl(3);
        assert_eq!(register.0, 0xc000_000a);
        assert_eq!(AcquireCdw10(0).with_racqa(2).with_rtype(6).0, 0x0602);
        assert_eq!(ReleaseCdw10(0).with_rrela(1).with_rtype(3).0, 0x0301);
        assert_eq!(Rescap(0).with_types(0x3f).with_iekey(true).0, 0xfe);

        let mut bytes = [0; 64];
        bytes[4] = 5;
        bytes[5..7].copy_from_slice(&[3, 1]);
        bytes[9] = 1;
        let status = ReservationStatusExtended::read_from_bytes(&bytes).unwrap();
        let status = status.status;
        assert_eq!((status.rtype, status.registrants.get()), (5, 0x103));
        assert_eq!(status.ptpls, 1);

        let mut bytes = [0; 64];
        bytes[8] = 7;
        bytes[16] = 9;
        let wide = RegisteredControllerExtended::read_from_bytes(&bytes).unwrap();
        assert_eq!((wide.rkey.get(), wide.hostid[0]), (7, 9));
        let short = RegisteredController::read_from_bytes(&bytes[..24]).unwrap();
        assert_eq!((short.hostid.get(), short.rkey.get()), (7, 9));
        let log = NotificationLog::read_from_bytes(&bytes).unwrap();
        assert_eq!(log.notice, 7);
    }
}
