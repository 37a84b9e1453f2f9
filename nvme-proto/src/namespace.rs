//! Namespaces: the disks of a subsystem, as its controllers describe them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::access::HostAccess;
use crate::io::NamespaceView;
use crate::limits::{ANA_GROUPS_MAX, NAMESPACES_MAX};
use crate::wire::{NSID_ALL, Nqn, Status};

/// A namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// NSID: 1 up to NN.
    pub nsid: u32,
    /// Its identity across restarts and controllers, in the order it is written.
    pub uuid: [u8; 16],
    /// NGUID, or zeroes for none.
    pub nguid: [u8; 16],
    /// EUI64, or zeroes for none.
    pub eui64: [u8; 8],
    /// ANAGRPID: its ANA group, 1 up to [`ANA_GROUPS_MAX`].
    pub anagrpid: u32,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block are 2^`block_shift`: 9 or 12.
    pub block_shift: u8,
    /// Writes are refused.
    pub read_only: bool,
    /// Deallocating blocks frees space, and they read as zeroes then.
    pub deallocates: bool,
    /// The sizes in which it works best, if they are known.
    pub preferred: Option<Preferred>,
    /// What a write is atomic in.
    pub atomic: Atomic,
}

/// Sizes in which a namespace works best, and that places should be multiples of, in logical
/// blocks (NVM, 4.1.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preferred {
    /// NPWG: of a write.
    pub write: u32,
    /// NPWA: what a write begins at multiples of.
    pub write_alignment: u32,
    /// NOWS: of a write, for the best performance.
    pub optimal_write: u32,
    /// NPDG: of a range to deallocate.
    pub deallocate: u32,
    /// NPDA: what a range to deallocate begins at multiples of.
    pub deallocate_alignment: u32,
}

/// What a write is atomic in: others see all of it or nothing (NVM, 2.1.4). In logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// NAWUN: as long as there is power.
    pub normal: u32,
    /// NAWUPF: also if the power fails.
    pub power_fail: u32,
    /// NABSN: a write across a multiple of this is not atomic; 0: there is none.
    pub boundary: u32,
    /// NABO: where the first boundary is.
    pub boundary_offset: u16,
    /// NABSPF: the boundary if the power fails; 0: there is none.
    pub boundary_power_fail: u32,
}

impl Atomic {
    /// One block, as the controller says for all namespaces.
    pub const BLOCK: Self = Self {
        normal: 1,
        power_fail: 1,
        boundary: 0,
        boundary_offset: 0,
        boundary_power_fail: 0,
    };
}

impl Namespace {
    /// What the parser of I/O commands has to know of it.
    #[must_use]
    pub fn view(&self) -> NamespaceView {
        NamespaceView {
            nsze: self.blocks,
            lbads: self.block_shift,
            write_protected: self.read_only,
        }
    }
}

/// Why a namespace cannot be added or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamespaceError {
    /// NSIDs go from 1 to NN.
    NsidOutOfRange,
    /// A namespace with this NSID is there already.
    NsidInUse,
    /// No namespace with this NSID is there.
    Unknown,
    /// No whole logical block, or a block size other than 512 B and 4 KiB.
    BadGeometry,
    /// ANA groups go from 1 to [`ANA_GROUPS_MAX`].
    AnaGroupOutOfRange,
}

impl core::fmt::Display for NamespaceError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NsidOutOfRange => "the NSID is 0 or above the largest of the subsystem",
            Self::NsidInUse => "the NSID is taken by another namespace of the subsystem",
            Self::Unknown => "no namespace of the subsystem has this NSID",
            Self::BadGeometry => {
                "a namespace needs one logical block at least, of 512 or 4096 bytes"
            }
            Self::AnaGroupOutOfRange => "the ANA group is 0 or above the largest there can be",
        })
    }
}

impl core::error::Error for NamespaceError {}

/// Words of an [`NsidSet`].
pub const NSID_WORDS: usize = NAMESPACES_MAX as usize / 64;

/// NSIDs, such as those of the namespaces that a controller shows its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NsidSet([u64; NSID_WORDS]);

impl Default for NsidSet {
    fn default() -> Self {
        Self([0; NSID_WORDS])
    }
}

impl NsidSet {
    /// Where the bit of an NSID is: which word, and which bit of it. `None`: no namespace can
    /// have it.
    #[inline]
    #[must_use]
    pub const fn place(nsid: u32) -> Option<(usize, u64)> {
        // 0 becomes the largest number there is.
        let slot = nsid.wrapping_sub(1);
        if slot < NAMESPACES_MAX {
            Some((slot as usize / 64, 1 << (slot % 64)))
        } else {
            None
        }
    }

    /// Whether it has this one.
    #[must_use]
    pub fn contains(&self, nsid: u32) -> bool {
        Self::place(nsid).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }

    /// Bit `NSID - 1` of the words, the lowest first.
    #[must_use]
    pub fn words(&self) -> &[u64; NSID_WORDS] {
        &self.0
    }

    /// Adds one, or takes it away.
    pub(crate) fn set(&mut self, nsid: u32, is_in: bool) {
        let (word, bit) = Self::place(nsid).expect("the NSID of a namespace");
        if is_in {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }
}

/// The namespaces of a subsystem, with what hosts have set for them.
#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    by_nsid: BTreeMap<u32, Attached>,
}

#[derive(Debug)]
struct Attached {
    namespace: Namespace,
    /// Which hosts see it.
    hosts: HostAccess,
    /// TLER: time limited error recovery, in 100 ms (feature 05h).
    tler: u16,
}

impl Namespaces {
    pub(crate) fn add(
        &mut self,
        namespace: Namespace,
        hosts: HostAccess,
        nn: u32,
    ) -> Result<(), NamespaceError> {
        if !(1..=nn).contains(&namespace.nsid) {
            return Err(NamespaceError::NsidOutOfRange);
        }
        check_ana_group(namespace.anagrpid)?;
        if namespace.blocks == 0 || !matches!(namespace.block_shift, 9 | 12) {
            return Err(NamespaceError::BadGeometry);
        }
        if self.by_nsid.contains_key(&namespace.nsid) {
            return Err(NamespaceError::NsidInUse);
        }
        let attached = Attached {
            namespace,
            hosts,
            tler: 0,
        };
        self.by_nsid.insert(namespace.nsid, attached);
        Ok(())
    }

    pub(crate) fn remove(&mut self, nsid: u32) -> Result<Namespace, NamespaceError> {
        let removed = self.by_nsid.remove(&nsid).ok_or(NamespaceError::Unknown)?;
        Ok(removed.namespace)
    }

    /// Moves a namespace to an ANA group, and returns the one that it was in.
    pub(crate) fn set_ana_group(
        &mut self,
        nsid: u32,
        anagrpid: u32,
    ) -> Result<u32, NamespaceError> {
        check_ana_group(anagrpid)?;
        let attached = self.by_nsid.get_mut(&nsid).ok_or(NamespaceError::Unknown)?;
        Ok(core::mem::replace(
            &mut attached.namespace.anagrpid,
            anagrpid,
        ))
    }

    /// Sets which hosts see a namespace.
    pub(crate) fn set_hosts(
        &mut self,
        nsid: u32,
        hosts: HostAccess,
    ) -> Result<&Namespace, NamespaceError> {
        let attached = self.by_nsid.get_mut(&nsid).ok_or(NamespaceError::Unknown)?;
        attached.hosts = hosts;
        Ok(&attached.namespace)
    }

    /// What a host sees.
    pub(crate) fn seen_by(&self, host: &Nqn) -> NsidSet {
        let mut seen = NsidSet::default();
        for (&nsid, attached) in &self.by_nsid {
            seen.set(nsid, attached.hosts.allows(host));
        }
        seen
    }

    /// Changes the size; whether it was another one.
    pub(crate) fn resize(&mut self, nsid: u32, blocks: u64) -> Result<bool, NamespaceError> {
        let attached = self.by_nsid.get_mut(&nsid).ok_or(NamespaceError::Unknown)?;
        if blocks == 0 {
            return Err(NamespaceError::BadGeometry);
        }
        Ok(core::mem::replace(&mut attached.namespace.blocks, blocks) != blocks)
    }

    pub(crate) fn get(&self, nsid: u32) -> Option<&Namespace> {
        self.by_nsid.get(&nsid).map(|attached| &attached.namespace)
    }

    /// In the order of NSIDs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_nsid.values().map(|attached| &attached.namespace)
    }

    /// NSIDs above this one.
    pub(crate) fn nsids_after(&self, nsid: u32) -> impl Iterator<Item = u32> {
        let after = (Bound::Excluded(nsid), Bound::Unbounded);
        self.by_nsid.range(after).map(|(&nsid, _)| nsid)
    }

    /// The ANA groups that have namespaces which are `seen`, and these, both ascending.
    pub(crate) fn by_ana_group(&self, seen: impl Fn(u32) -> bool) -> BTreeMap<u32, Vec<u32>> {
        let mut groups: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for namespace in self.iter().filter(|namespace| seen(namespace.nsid)) {
            groups
                .entry(namespace.anagrpid)
                .or_default()
                .push(namespace.nsid);
        }
        groups
    }

    /// Of one that is `seen`.
    pub(crate) fn tler(&self, nsid: u32, seen: &NsidSet) -> Result<u16, Status> {
        let attached = self.by_nsid.get(&nsid).filter(|_| seen.contains(nsid));
        attached
            .map(|attached| attached.tler)
            .ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)
    }

    /// Of one that is `seen`, or of all of these.
    pub(crate) fn set_tler(&mut self, nsid: u32, seen: &NsidSet, tler: u16) -> Result<(), Status> {
        if nsid == NSID_ALL {
            let all = self.by_nsid.iter_mut();
            for (_, attached) in all.filter(|(nsid, _)| seen.contains(**nsid)) {
                attached.tler = tler;
            }
            return Ok(());
        }
        let attached = self.by_nsid.get_mut(&nsid);
        let attached = attached
            .filter(|_| seen.contains(nsid))
            .ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)?;
        attached.tler = tler;
        Ok(())
    }
}

fn check_ana_group(anagrpid: u32) -> Result<(), NamespaceError> {
    if (1..=ANA_GROUPS_MAX).contains(&anagrpid) {
        Ok(())
    } else {
        Err(NamespaceError::AnaGroupOutOfRange)
    }
}
