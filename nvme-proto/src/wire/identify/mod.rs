//! Identify and its data (Base, 5.17; NVM, 4.1.5).

use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

mod bits;
mod controller;
mod list;
mod namespace;

pub use bits::{CONTROLLER_BITS, NAMESPACE_BITS};
pub use controller::{
    Anacap, Cmic, Ctratt, IdentifyController, IdentifyControllerNvm, Lpa, Oncs, PowerState, Sgls,
    Vwc, ascii_field,
};
pub use list::{NAMESPACE_LIST_MAX, NamespaceDescriptor, NamespaceList, namespace_descriptors};
pub use namespace::{
    Dlfeat, IdentifyNamespace, IdentifyNamespaceIndependent, IdentifyNamespaceNvm, LbaFormat,
    Nsfeat,
};

/// Length of Identify data in bytes.
pub const IDENTIFY_BYTES: usize = 4096;

codes! {
    /// CNS: data structure (Base, figure 273).
    pub struct Cns(u8);
    0x00 NAMESPACE "Identify Namespace";
    0x01 CONTROLLER "Identify Controller";
    0x02 ACTIVE_NAMESPACES "Active Namespace ID list";
    0x03 NAMESPACE_DESCRIPTORS "Namespace Identification Descriptor list";
    0x05 IO_COMMAND_SET_NAMESPACE "I/O Command Set specific Identify Namespace";
    0x06 IO_COMMAND_SET_CONTROLLER "I/O Command Set specific Identify Controller";
    0x07 IO_COMMAND_SET_ACTIVE_NAMESPACES "I/O Command Set specific Active Namespace ID list";
    0x08 NAMESPACE_INDEPENDENT "I/O Command Set Independent Identify Namespace";
    0x10 ALLOCATED_NAMESPACES "Allocated Namespace ID list";
    0x11 ALLOCATED_NAMESPACE "Identify Namespace for an Allocated Namespace ID";
    0x12 NAMESPACE_CONTROLLERS "Controller list of a Namespace";
    0x13 CONTROLLERS "Controller list of the NVM subsystem";
    0x1c IO_COMMAND_SETS "I/O Command Set data structure";
}

/// CSI of the NVM command set.
pub const CSI_NVM: u8 = 0x00;

bitfields! {
    /// CDW10 of Identify.
    pub struct IdentifyCdw10(u32);
    fields {
        /// A [`Cns`].
        cns with_cns: u8 = 0..=7;
        /// Controller identifier, for some values of CNS.
        cntid with_cntid: u16 = 16..=31;
    }
}

bitfields! {
    /// CDW11 of Identify.
    pub struct IdentifyCdw11(u32);
    fields {
        /// Identifier specific to CNS.
        cnssid with_cnssid: u16 = 0..=15;
        /// I/O command set, for some values of CNS.
        csi with_csi: u8 = 24..=31;
    }
}

/// I/O command set combinations (CNS 1Ch; Base, figure 290).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IoCommandSets {
    /// Combinations: bit n stands for CSI n; unused entries are 0.
    pub combinations: [U64; 512],
}
assert_size!(IoCommandSets = IDENTIFY_BYTES);
