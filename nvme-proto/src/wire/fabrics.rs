//! Fabrics commands (Base, 6): Connect, Disconnect, properties and authentication.
//!
//! Each command type converts from and to [`Sqe`].

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::nqn::{NQN_FIELD_BYTES, Nqn};
use super::sgl::SglDescriptor;
use super::sqe::{FabricsType, OPCODE_FABRICS, Sqe};

/// RECFMT of Connect and Disconnect.
pub const RECFMT: u16 = 0;
/// Size of [`ConnectData`], the data of a Connect command.
pub const CONNECT_DATA_BYTES: usize = 1024;
/// CNTLID that requests any controller (dynamic model).
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// CNTLID that requests any controller (static model).
pub const CNTLID_STATIC_ANY: u16 = 0xfffe;
/// Largest CNTLID (Base, 5.17.2.1).
pub const CNTLID_MAX: u16 = 0xffef;

macro_rules! fabrics_command {
    ($name:ident = $fctype:ident) => {
        assert_size!($name = 64);

        impl $name {
            /// FCTYPE of the command.
            pub const FCTYPE: FabricsType = FabricsType::$fctype;
        }

        impl From<Sqe> for $name {
            fn from(sqe: Sqe) -> Self {
                zerocopy::transmute!(sqe)
            }
        }

        impl From<$name> for Sqe {
            fn from(command: $name) -> Self {
                zerocopy::transmute!(command)
            }
        }
    };
}

/// Connect (Base, 6.3).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectCommand {
    /// OPC: 7Fh.
    pub opc: u8,
    /// PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// FCTYPE: 01h.
    pub fctype: u8,
    /// Reserved.
    pub reserved5: [u8; 19],
    /// Location of the [`ConnectData`].
    pub sgl1: SglDescriptor,
    /// RECFMT: 0.
    pub recfmt: U16,
    /// QID; 0 is the admin queue, whose Connect creates the controller.
    pub qid: U16,
    /// Entries of the submission queue, 0-based.
    pub sqsize: U16,
    /// A [`Cattr`].
    pub cattr: u8,
    /// Reserved.
    pub reserved47: u8,
    /// KATO in milliseconds, for the admin queue; 0 disables keep alive.
    pub kato: U32,
    /// Reserved.
    pub reserved52: [u8; 12],
}
fabrics_command!(ConnectCommand = CONNECT);

impl ConnectCommand {
    /// Creates a Connect without data pointer; `sqsize` is 0-based.
    #[must_use]
    pub fn new(cid: u16, qid: u16, sqsize: u16) -> Self {
        let mut command = Self::from(Sqe::fabrics(cid, Self::FCTYPE));
        command.qid = U16::new(qid);
        command.sqsize = U16::new(sqsize);
        command
    }
}

bitfields! {
    /// CATTR: attributes of Connect.
    pub struct Cattr(u8);
    fields {
        /// Class for weighted round robin arbitration.
        priority with_priority: u8 = 0..=1;
    }
    flags {
        /// Disables SQ flow control: SQHD is always FFFFh.
        dissqfc with_dissqfc = 2;
        /// The host can delete I/O queues by Disconnect.
        io_queue_deletion with_io_queue_deletion = 3;
    }
}

/// Data of a Connect.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct ConnectData {
    /// HOSTID, not 0.
    pub hostid: [u8; 16],
    /// CNTLID; [`CNTLID_DYNAMIC`] or [`CNTLID_STATIC_ANY`] for the admin queue.
    pub cntlid: U16,
    /// Reserved.
    pub reserved18: [u8; 238],
    /// SUBNQN, padded with NULs.
    pub subnqn: [u8; NQN_FIELD_BYTES],
    /// HOSTNQN, padded with NULs.
    pub hostnqn: [u8; NQN_FIELD_BYTES],
    /// Reserved.
    pub reserved768: [u8; 256],
}
assert_size!(ConnectData = CONNECT_DATA_BYTES);

impl ConnectData {
    /// Creates Connect data; for the admin queue, `cntlid` is [`CNTLID_DYNAMIC`].
    #[must_use]
    pub fn new(hostid: [u8; 16], cntlid: u16, subnqn: &Nqn, hostnqn: &Nqn) -> Self {
        let mut data: Self = zerocopy::FromZeros::new_zeroed();
        data.hostid = hostid;
        data.cntlid = U16::new(cntlid);
        data.subnqn = subnqn.encode();
        data.hostnqn = hostnqn.encode();
        data
    }
}

bitfields! {
    /// DW0 of a successful Connect (Base, figure 393).
    pub struct ConnectResult(u32);
    fields {
        /// Controller identifier.
        cntlid with_cntlid: u16 = 0..=15;
    }
    flags {
        /// AUTHREQ.ATR: authentication is required.
        atr with_atr = 17;
        /// AUTHREQ.ASCR: authentication over a secure channel is required.
        ascr with_ascr = 18;
    }
}

bitfields! {
    /// DW0 of Connect Invalid Parameters.
    pub struct ConnectInvalidParameter(u32);
    fields {
        /// Byte offset of the invalid parameter.
        ipo with_ipo: u16 = 0..=15;
    }
    flags {
        /// IATTR: the offset is in the Connect data, not the SQE.
        in_data with_in_data = 16;
    }
}

impl ConnectInvalidParameter {
    /// RECFMT of the SQE.
    pub const RECFMT: Self = Self::in_sqe(core::mem::offset_of!(ConnectCommand, recfmt));
    /// QID of the SQE.
    pub const QID: Self = Self::in_sqe(core::mem::offset_of!(ConnectCommand, qid));
    /// SQSIZE of the SQE.
    pub const SQSIZE: Self = Self::in_sqe(core::mem::offset_of!(ConnectCommand, sqsize));
    /// CATTR of the SQE.
    pub const CATTR: Self = Self::in_sqe(core::mem::offset_of!(ConnectCommand, cattr));
    /// KATO of the SQE.
    pub const KATO: Self = Self::in_sqe(core::mem::offset_of!(ConnectCommand, kato));
    /// HOSTID of the Connect data.
    pub const HOSTID: Self = Self::of_data(core::mem::offset_of!(ConnectData, hostid));
    /// CNTLID of the Connect data.
    pub const CNTLID: Self = Self::of_data(core::mem::offset_of!(ConnectData, cntlid));
    /// SUBNQN of the Connect data.
    pub const SUBNQN: Self = Self::of_data(core::mem::offset_of!(ConnectData, subnqn));
    /// HOSTNQN of the Connect data.
    pub const HOSTNQN: Self = Self::of_data(core::mem::offset_of!(ConnectData, hostnqn));

    const fn in_sqe(offset: usize) -> Self {
        Self(0).with_ipo(offset as u16)
    }

    const fn of_data(offset: usize) -> Self {
        Self::in_sqe(offset).with_in_data(true)
    }
}

/// Disconnect of an I/O queue (Base, 6.4).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct DisconnectCommand {
    /// OPC: 7Fh.
    pub opc: u8,
    /// PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// FCTYPE: 08h.
    pub fctype: u8,
    /// Reserved.
    pub reserved5: [u8; 19],
    /// Unused.
    pub sgl1: SglDescriptor,
    /// RECFMT: 0.
    pub recfmt: U16,
    /// Reserved.
    pub reserved42: [u8; 22],
}
fabrics_command!(DisconnectCommand = DISCONNECT);

/// ATTRIB: size of a property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySize {
    /// 000b: 4 bytes.
    Four,
    /// 001b: 8 bytes.
    Eight,
}

impl PropertySize {
    /// Decodes ATTRIB bits 2:0 (7:3 are reserved); `None` for a reserved value.
    #[must_use]
    pub const fn from_attrib(attrib: u8) -> Option<Self> {
        match attrib & 0b111 {
            0 => Some(Self::Four),
            1 => Some(Self::Eight),
            _ => None,
        }
    }

    /// Returns the value of ATTRIB.
    #[must_use]
    pub const fn to_attrib(self) -> u8 {
        match self {
            Self::Four => 0,
            Self::Eight => 1,
        }
    }
}

/// Property Get (Base, 6.5).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PropertyGetCommand {
    /// OPC: 7Fh.
    pub opc: u8,
    /// PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// FCTYPE: 04h.
    pub fctype: u8,
    /// Reserved.
    pub reserved5: [u8; 35],
    /// A [`PropertySize`].
    pub attrib: u8,
    /// Reserved.
    pub reserved41: [u8; 3],
    /// OFST ([`super::property::offset`]).
    pub ofst: U32,
    /// Reserved.
    pub reserved48: [u8; 16],
}
fabrics_command!(PropertyGetCommand = PROPERTY_GET);

impl PropertyGetCommand {
    /// Creates a Property Get.
    #[must_use]
    pub fn new(cid: u16, size: PropertySize, ofst: u32) -> Self {
        let mut command = Self::from(Sqe::fabrics(cid, Self::FCTYPE));
        command.attrib = size.to_attrib();
        command.ofst = U32::new(ofst);
        command
    }
}

/// Property Set (Base, 6.6).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct PropertySetCommand {
    /// OPC: 7Fh.
    pub opc: u8,
    /// PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// FCTYPE: 00h.
    pub fctype: u8,
    /// Reserved.
    pub reserved5: [u8; 35],
    /// A [`PropertySize`].
    pub attrib: u8,
    /// Reserved.
    pub reserved41: [u8; 3],
    /// OFST ([`super::property::offset`]).
    pub ofst: U32,
    /// New value; the upper half is reserved in a 4-byte property.
    pub value: U64,
    /// Reserved.
    pub reserved56: [u8; 8],
}
fabrics_command!(PropertySetCommand = PROPERTY_SET);

impl PropertySetCommand {
    /// Creates a Property Set.
    #[must_use]
    pub fn new(cid: u16, size: PropertySize, ofst: u32, value: u64) -> Self {
        let mut command = Self::from(Sqe::fabrics(cid, Self::FCTYPE));
        command.attrib = size.to_attrib();
        command.ofst = U32::new(ofst);
        command.value = U64::new(value);
        command
    }
}

/// Authentication Send or Receive (Base, 6.1 and 6.2).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct AuthenticationCommand {
    /// OPC: 7Fh.
    pub opc: u8,
    /// PSDT in bits 7:6.
    pub flags: u8,
    /// Command identifier.
    pub cid: U16,
    /// FCTYPE: 05h (Send) or 06h (Receive).
    pub fctype: u8,
    /// Reserved.
    pub reserved5: [u8; 19],
    /// Message or receive buffer.
    pub sgl1: SglDescriptor,
    /// Reserved.
    pub reserved40: u8,
    /// SPSP0: 01h.
    pub spsp0: u8,
    /// SPSP1: 01h.
    pub spsp1: u8,
    /// SECP: E9h (NVMe).
    pub secp: u8,
    /// TL or AL: length of message or buffer in bytes.
    pub length: U32,
    /// Reserved.
    pub reserved48: [u8; 16],
}
assert_size!(AuthenticationCommand = 64);

impl From<Sqe> for AuthenticationCommand {
    fn from(sqe: Sqe) -> Self {
        zerocopy::transmute!(sqe)
    }
}

impl From<AuthenticationCommand> for Sqe {
    fn from(command: AuthenticationCommand) -> Self {
        zerocopy::transmute!(command)
    }
}

impl Sqe {
    /// Creates a Fabrics command without data.
    #[must_use]
    pub fn fabrics(cid: u16, fctype: FabricsType) -> Self {
        Self::new(cid, OPCODE_FABRICS, u32::from(fctype.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::property::offset;

    #[test]
    fn invalid_parameter_offsets() {
        assert_eq!(ConnectInvalidParameter::RECFMT.0, 40);
        assert_eq!(ConnectInvalidParameter::QID.0, 42);
        assert_eq!(ConnectInvalidParameter::SQSIZE.0, 44);
        assert_eq!(ConnectInvalidParameter::CATTR.0, 46);
        assert_eq!(ConnectInvalidParameter::KATO.0, 48);
        assert_eq!(ConnectInvalidParameter::HOSTID.0, 0x1_0000);
        assert_eq!(ConnectInvalidParameter::CNTLID.0, 0x1_0010);
        assert_eq!(ConnectInvalidParameter::SUBNQN.0, 0x1_0100);
        assert_eq!(ConnectInvalidParameter::HOSTNQN.0, 0x1_0200);
    }

    #[test]
    fn property_set_layout() {
        let command = PropertySetCommand::new(0x1000, PropertySize::Four, offset::CC, 0x0046_0060);
        let bytes = command.as_bytes();
        assert_eq!(bytes[..5], [0x7f, 0x40, 0x00, 0x10, 0x00]);
        assert_eq!(
            bytes[39], 0x40,
            "an all-zero keyed descriptor stands for no data"
        );
        assert_eq!(
            bytes[40..56],
            [0, 0, 0, 0, 0x14, 0, 0, 0, 0x60, 0, 0x46, 0, 0, 0, 0, 0]
        );
        assert_eq!(PropertySetCommand::from(Sqe::from(command)), command);
    }

    #[test]
    fn property_sizes() {
        assert_eq!(PropertySize::from_attrib(0), Some(PropertySize::Four));
        assert_eq!(PropertySize::from_attrib(1), Some(PropertySize::Eight));
        assert_eq!(PropertySize::from_attrib(2), None);
    }
}
