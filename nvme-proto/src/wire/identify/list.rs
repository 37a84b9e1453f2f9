//! Namespace lists (CNS 02h) and namespace identification descriptors (CNS 03h).

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::IDENTIFY_BYTES;

/// NSIDs in ascending order; unused entries are 0 (CNS 02h, 07h, 10h: Base, 4.4.2; log page 04h).
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct NamespaceList {
    /// Entries; 0 after the last NSID.
    pub nsids: [U32; NAMESPACE_LIST_MAX],
}
assert_size!(NamespaceList = IDENTIFY_BYTES);

/// Maximum NSIDs of a [`NamespaceList`].
pub const NAMESPACE_LIST_MAX: usize = 1024;

impl NamespaceList {
    /// Creates a list of the first [`NAMESPACE_LIST_MAX`] NSIDs.
    #[must_use]
    pub fn new(nsids: impl IntoIterator<Item = u32>) -> Self {
        let mut list = Self {
            nsids: [U32::ZERO; NAMESPACE_LIST_MAX],
        };
        for (slot, nsid) in list.nsids.iter_mut().zip(nsids) {
            slot.set(nsid);
        }
        list
    }

    /// NSIDs before the first unused entry.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.nsids
            .iter()
            .map(|nsid| nsid.get())
            .take_while(|&nsid| nsid != 0)
    }
}

/// Namespace identification descriptor (CNS 03h; Base, figure 279).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceDescriptor<'a> {
    /// NIDT 1h: EUI-64, big-endian.
    Eui64([u8; 8]),
    /// NIDT 2h: NGUID, big-endian.
    Nguid([u8; 16]),
    /// NIDT 3h: UUID, big-endian.
    Uuid([u8; 16]),
    /// NIDT 4h: I/O command set.
    Csi(u8),
    /// Unknown type or invalid length.
    Other {
        /// NIDT: type.
        nidt: u8,
        /// NID: value.
        nid: &'a [u8],
    },
}

const DESCRIPTOR_HEADER_BYTES: usize = 4;

impl NamespaceDescriptor<'_> {
    /// Encoded length in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        DESCRIPTOR_HEADER_BYTES + self.nid().len()
    }

    /// Writes the descriptor to the start of `out` and returns the rest. If it does not fit, writes
    /// nothing and returns `None`.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Option<&'o mut [u8]> {
        let nid = self.nid();
        let (head, rest) = out.split_at_mut_checked(self.encoded_len())?;
        head[..DESCRIPTOR_HEADER_BYTES].copy_from_slice(&[self.nidt(), nid.len() as u8, 0, 0]);
        head[DESCRIPTOR_HEADER_BYTES..].copy_from_slice(nid);
        Some(rest)
    }

    fn nidt(&self) -> u8 {
        match self {
            Self::Eui64(_) => 1,
            Self::Nguid(_) => 2,
            Self::Uuid(_) => 3,
            Self::Csi(_) => 4,
            Self::Other { nidt, .. } => *nidt,
        }
    }

    fn nid(&self) -> &[u8] {
        match self {
            Self::Eui64(nid) => nid,
            Self::Nguid(nid) | Self::Uuid(nid) => nid,
            Self::Csi(csi) => core::slice::from_ref(csi),
            Self::Other { nid, .. } => nid,
        }
    }
}

/// Parses a descriptor list (CNS 03h), which ends at a length of 0.
pub fn namespace_descriptors(list: &[u8]) -> impl Iterator<Item = NamespaceDescriptor<'_>> {
    let mut rest = list;
    core::iter::from_fn(move || {
        let (header, tail) = rest.split_at_checked(DESCRIPTOR_HEADER_BYTES)?;
        let (nidt, nidl) = (header[0], usize::from(header[1]));
        if nidl == 0 {
            return None;
        }
        let (nid, tail) = tail.split_at_checked(nidl)?;
        rest = tail;
        Some(descriptor(nidt, nid))
    })
}

fn descriptor(nidt: u8, nid: &[u8]) -> NamespaceDescriptor<'_> {
    let known = match nidt {
        1 => nid.try_into().ok().map(NamespaceDescriptor::Eui64),
        2 => nid.try_into().ok().map(NamespaceDescriptor::Nguid),
        3 => nid.try_into().ok().map(NamespaceDescriptor::Uuid),
        4 => <[u8; 1]>::try_from(nid)
            .ok()
            .map(|[csi]| NamespaceDescriptor::Csi(csi)),
        _ => None,
    };
    known.unwrap_or(NamespaceDescriptor::Other { nidt, nid })
}

#[cfg(test)]
mod tests {
    use super::super::CSI_NVM;
    use super::*;
    use std::vec::Vec;

    #[test]
    fn descriptors_round_trip_and_stop_at_the_end() {
        let all = [
            NamespaceDescriptor::Eui64([1; 8]),
            NamespaceDescriptor::Nguid([2; 16]),
            NamespaceDescriptor::Uuid([3; 16]),
            NamespaceDescriptor::Csi(CSI_NVM),
            NamespaceDescriptor::Other {
                nidt: 9,
                nid: &[7, 7],
            },
        ];
        let mut list = [0u8; 128];
        let mut rest = &mut list[..];
        for descriptor in all {
            rest = descriptor.write(rest).unwrap();
        }
        assert_eq!(namespace_descriptors(&list).collect::<Vec<_>>(), all);
        assert_eq!(
            namespace_descriptors(&[1, 8, 0, 0, 1]).count(),
            0,
            "cut short"
        );
        assert!(NamespaceDescriptor::Csi(0).write(&mut [0; 4]).is_none());
    }

    #[test]
    fn namespace_list_ends_at_zero() {
        let list = NamespaceList::new([1, 2, 7]);
        assert_eq!(list.iter().collect::<Vec<_>>(), [1, 2, 7]);
        assert_eq!(
            NamespaceList::new(1..=2000).iter().count(),
            NAMESPACE_LIST_MAX
        );
    }
}
