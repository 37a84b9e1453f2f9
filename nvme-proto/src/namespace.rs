//! Namespaces: the disks of a subsystem, as its controllers describe them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::access::HostAccess;
use crate::io::NamespaceView;
use crate::limits::{ANA_GROUPS_MAX, NAMESPACES_MAX};
use crate::wire::feature::WriteProtectionState;
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
    /// Writes are refused, and hosts cannot change that.
    pub read_only: bool,
    /// Hosts may set `protection`.
    pub protectable: bool,
    /// The target keeps `protection` when it ends, but for one until power cycle.
    pub keeps_protection: bool,
    /// What hosts have set.
    pub protection: WriteProtectionState,
    /// Deallocating blocks frees space, and they read as zeroes then.
    pub deallocates: bool,
    /// Its disk has Write Uncorrectable.
    pub write_uncorrectable: bool,
    /// The sizes in which it works best, if they are known.
    pub preferred: Option<Preferred>,
    /// What a write is atomic in.
    pub atomic: Atomic,
    /// NOIOB: a transfer across a multiple of so many logical blocks takes longer; 0: there is no such boundary.
    pub boundary: u16,
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
    /// Whether writes are refused.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.read_only || self.protection != WriteProtectionState::NONE
    }

    /// What the parser of I/O commands has to know of it.
    #[must_use]
    pub fn view(&self) -> NamespaceView {
        NamespaceView {
            nsze: self.blocks,
            lbads: self.block_shift,
            write_protected: self.is_protected(),
            write_uncorrectable: self.write_uncorrectable,
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
    /// Changes of protection so far.
    changes: u64,
}

#[derive(Debug)]
struct Attached {
    namespace: Namespace,
    /// Which hosts see it.
    hosts: HostAccess,
    /// TLER: time limited error recovery, in 100 ms (feature 05h).
    tler: u16,
    /// A change of its protection that the target carries out.
    change: Option<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    /// Which, among all of the subsystem.
    number: u64,
    /// What the protection was.
    before: WriteProtectionState,
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
            change: None,
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

    fn get(&self, nsid: u32) -> Option<&Namespace> {
        self.by_nsid.get(&nsid).map(|attached| &attached.namespace)
    }

    /// The namespace of this NSID, for a host that sees these. One that the host does not see is as one
    /// that is not there, in every answer.
    pub(crate) fn seen(&self, nsid: u32, seen: &NsidSet) -> Option<&Namespace> {
        self.get(nsid).filter(|_| seen.contains(nsid))
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

    /// Of one that is `seen` (feature 84h).
    pub(crate) fn protection(
        &self,
        nsid: u32,
        seen: &NsidSet,
    ) -> Result<WriteProtectionState, Status> {
        let namespace = self
            .seen(nsid, seen)
            .ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)?;
        match namespace.read_only {
            true => Ok(WriteProtectionState::PROTECTED),
            false => Ok(namespace.protection),
        }
    }

    /// Whether the target keeps the protection of any that is `seen`.
    pub(crate) fn keep_protection(&self, seen: &NsidSet) -> bool {
        let mut all = self.iter();
        all.any(|namespace| namespace.keeps_protection && seen.contains(namespace.nsid))
    }

    /// Whether some are `seen`, and each of those has Write Uncorrectable.
    pub(crate) fn write_uncorrectable(&self, seen: impl Fn(u32) -> bool) -> bool {
        let mut seen = self
            .iter()
            .filter(|namespace| seen(namespace.nsid))
            .peekable();
        seen.peek().is_some() && seen.all(|namespace| namespace.write_uncorrectable)
    }

    /// Sets the protection of one that is `seen`, as its host asks. `Some`: the target has to carry it
    /// out, and ends it by this number ([`Self::end_change`]).
    pub(crate) fn protect(
        &mut self,
        nsid: u32,
        seen: &NsidSet,
        state: WriteProtectionState,
    ) -> Result<Option<u64>, Status> {
        let attached = self.by_nsid.get_mut(&nsid);
        let attached = attached.filter(|_| seen.contains(nsid));
        let attached = attached.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)?;
        // A disk that hangs holds up one flush, however often hosts ask.
        if attached.change.is_some() {
            return Err(Status::COMMAND_INTERRUPTED);
        }
        let namespace = &mut attached.namespace;
        let is_fixed = namespace.read_only || !namespace.protectable;
        let before = namespace.protection;
        let lasts = matches!(
            before,
            WriteProtectionState::UNTIL_POWER_CYCLE | WriteProtectionState::PERMANENT
        );
        if is_fixed || lasts && state != before {
            return Err(Status::FEATURE_NOT_CHANGEABLE);
        }
        let was_protected = namespace.is_protected();
        namespace.protection = state;
        let is_kept = namespace.keeps_protection && state != before;
        if namespace.is_protected() == was_protected && !is_kept {
            return Ok(None);
        }
        self.changes += 1;
        let number = self.changes;
        attached.change = Some(Change { number, before });
        Ok(Some(number))
    }

    /// The target has carried out a change, or could not. `false`: it is not awaited.
    pub(crate) fn end_change(&mut self, nsid: u32, number: u64, is_done: bool) -> bool {
        let Some(attached) = self.by_nsid.get_mut(&nsid) else {
            return false;
        };
        let Some(change) = attached.change.take_if(|change| change.number == number) else {
            return false;
        };
        if !is_done {
            attached.namespace.protection = change.before;
        }
        true
    }

    /// Sets whether hosts may protect a namespace. If not, what they have set ends, and what
    /// they wait for is not awaited. Returns whether it was protected by them.
    pub(crate) fn set_protectable(
        &mut self,
        nsid: u32,
        protectable: bool,
    ) -> Result<bool, NamespaceError> {
        let attached = self.by_nsid.get_mut(&nsid).ok_or(NamespaceError::Unknown)?;
        attached.namespace.protectable = protectable;
        if protectable {
            return Ok(false);
        }
        attached.change = None;
        let none = WriteProtectionState::NONE;
        let before = core::mem::replace(&mut attached.namespace.protection, none);
        Ok(before != none)
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
