//! Cross-Controller Reset (Base 2.3, 5.4.3 and 5.2.12.3.1).

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::Sqe;
use super::identify::IdentifyController;

bitfields! {
    /// CDW10 of Cross-Controller Reset.
    pub struct CrossResetCdw10(u32);
    fields {
        /// ICID: CNTLID of the impacted controller.
        icid with_icid: u16 = 0..=15;
        /// CIU of the impacted controller.
        ciu with_ciu: u8 = 16..=23;
    }
}

/// Lifetime of a controller from CC.EN = 1 to the next reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Controller identifier.
    pub cntlid: u16,
    /// CIU, not 0.
    pub ciu: u8,
    /// CIRN: random number.
    pub cirn: u64,
}

impl Instance {
    /// IRS in DW0 of the completion: the reset is complete.
    pub const RESET_SUCCESSFUL: u32 = 1;

    /// Returns the instance that Identify Controller reports, if any.
    #[must_use]
    pub fn of(id: &IdentifyController) -> Option<Self> {
        (id.ciu != 0).then(|| Self {
            cntlid: id.cntlid.get(),
            ciu: id.ciu,
            cirn: id.cirn.get(),
        })
    }

    /// Returns the instance to reset.
    #[must_use]
    pub fn of_command(sqe: &Sqe) -> Self {
        let cdw10 = CrossResetCdw10(sqe.cdw10.get());
        Self {
            cntlid: cdw10.icid(),
            ciu: cdw10.ciu(),
            cirn: u64::from(sqe.cdw12.get()) | u64::from(sqe.cdw13.get()) << 32,
        }
    }

    /// Writes the instance to CDW10, CDW12 and CDW13.
    pub fn put(&self, sqe: &mut Sqe) {
        let cdw10 = CrossResetCdw10(0).with_icid(self.cntlid).with_ciu(self.ciu);
        sqe.cdw10.set(cdw10.0);
        sqe.cdw12.set(self.cirn as u32);
        sqe.cdw13.set((self.cirn >> 32) as u32);
    }
}

bitfields! {
    /// LSP of Get Log Page for the Cross-Controller Reset log.
    pub struct CrossResetLsp(u8);
    flags {
        /// RMC: removes completed entries.
        rmc with_rmc = 0;
    }
}

/// Header of the Cross-Controller Reset log (LID 1Eh).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CrossResetLogHeader {
    /// NE: number of entries.
    pub ne: U16,
    /// Reserved.
    pub reserved2: [u8; 6],
}
assert_size!(CrossResetLogHeader = 8);

/// Entry of the Cross-Controller Reset log.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct CrossResetEntry {
    /// ICID: CNTLID of the impacted controller.
    pub icid: U16,
    /// CIU of the impacted controller.
    pub ciu: u8,
    /// Reserved.
    pub reserved3: u8,
    /// ACID: alternate controller; FFFFh for none.
    pub acid: U16,
    /// CCRS, a [`CrossResetState`].
    pub ccrs: u8,
    /// CCRF, [`CrossResetFlags`].
    pub ccrf: u8,
}
assert_size!(CrossResetEntry = 8);

codes! {
    /// CCRS: state of a Cross-Controller Reset.
    pub struct CrossResetState(u8);
    0x00 IN_PROGRESS "In Progress";
    0x01 SUCCESS "Success";
    0x02 FAILED "Failed";
}

bitfields! {
    /// CCRF: flags of a Cross-Controller Reset.
    pub struct CrossResetFlags(u8);
    flags {
        /// V: the parameters were valid.
        validated with_validated = 0;
        /// CLRI: the Controller Level Reset was initiated.
        initiated with_initiated = 1;
    }
}
