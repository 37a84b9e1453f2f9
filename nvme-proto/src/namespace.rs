//! Namespaces of a subsystem.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Bound;

use crate::access::HostAccess;
use crate::io::NamespaceView;
use crate::limits::{ANA_GROUPS_MAX, NAMESPACES_MAX};
use crate::wire::feature::WriteProtectionState;
use crate::wire::{NSID_ALL, Nqn, Status};

/// Namespace, as visible to hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// NSID, 1 to NN.
    pub nsid: u32,
    /// UUID, big-endian; equal after a restart and at all controllers.
    pub uuid: [u8; 16],
    /// NGUID, big-endian; zeroes if missing.
    pub nguid: [u8; 16],
    /// EUI64, big-endian; zeroes if missing.
    pub eui64: [u8; 8],
    /// ANA group (ANAGRPID), 1 to [`ANA_GROUPS_MAX`].
    pub anagrpid: u32,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Log2 of the block size in bytes: 9 or 12.
    pub block_shift: u8,
    /// True if every write fails.
    pub read_only: bool,
    /// True if hosts may change `protection`.
    pub protectable: bool,
    /// True if `protection` survives a restart of the target. The state "until power cycle" never
    /// survives.
    pub keeps_protection: bool,
    /// Write protection set by hosts.
    pub protection: WriteProtectionState,
    /// True if deallocation frees space and makes blocks read as zeroes.
    pub deallocates: bool,
    /// True if Write Uncorrectable is supported.
    pub write_uncorrectable: bool,
    /// True if hosts may reserve the namespace.
    pub reservable: bool,
    /// True if reservations can persist through power loss.
    pub keeps_reservations: bool,
    /// PTPL state: true if reservations persist through power loss.
    pub reservations_persist: bool,
    /// Preferred I/O sizes, if known.
    pub preferred: Option<Preferred>,
    /// Atomicity of writes.
    pub atomic: Atomic,
    /// NOIOB: optimal I/O boundary in logical blocks; 0 if none.
    pub boundary: u16,
}

/// Preferred I/O sizes in logical blocks (NVM, 4.1.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preferred {
    /// NPWG: preferred write granularity.
    pub write: u32,
    /// NPWA: preferred write alignment.
    pub write_alignment: u32,
    /// NOWS: optimal write size.
    pub optimal_write: u32,
    /// NPDG: preferred deallocate granularity.
    pub deallocate: u32,
    /// NPDA: preferred deallocate alignment.
    pub deallocate_alignment: u32,
}

/// Atomicity of writes, in logical blocks (NVM, 2.1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// NAWUN: maximum atomic write.
    pub normal: u32,
    /// NAWUPF: maximum write that is atomic if power fails.
    pub power_fail: u32,
    /// NABSN: a write that crosses a multiple of this value is not atomic; 0 for no boundary.
    pub boundary: u32,
    /// NABO: offset of the first boundary.
    pub boundary_offset: u16,
    /// NABSPF: like `boundary`, for writes during a power failure.
    pub boundary_power_fail: u32,
}

impl Atomic {
    /// Only writes of a single block are atomic.
    pub const BLOCK: Self = Self {
        normal: 1,
        power_fail: 1,
        boundary: 0,
        boundary_offset: 0,
        boundary_power_fail: 0,
    };
}

impl Namespace {
    /// Creates a writable namespace of `blocks` logical blocks of 2^`block_shift` bytes.
    ///
    /// The namespace is in ANA group 1, with single-block atomic writes and no optional properties.
    #[must_use]
    pub fn new(nsid: u32, uuid: [u8; 16], blocks: u64, block_shift: u8) -> Self {
        Self {
            nsid,
            uuid,
            nguid: [0; 16],
            eui64: [0; 8],
            anagrpid: 1,
            blocks,
            block_shift,
            read_only: false,
            protectable: false,
            keeps_protection: false,
            protection: WriteProtectionState::NONE,
            deallocates: false,
            write_uncorrectable: false,
            reservable: false,
            keeps_reservations: false,
            reservations_persist: false,
            preferred: None,
            atomic: Atomic::BLOCK,
            boundary: 0,
        }
    }

    /// True if writes fail.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        self.read_only || self.protection != WriteProtectionState::NONE
    }

    /// Properties for the parser of I/O commands.
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

/// Error of a change to namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamespaceError {
    /// The NSID is outside 1 to NN.
    NsidOutOfRange,
    /// A namespace with this NSID exists.
    NsidInUse,
    /// The NSID has no namespace.
    Unknown,
    /// The size is 0, or the block size is neither 512 nor 4096 bytes.
    BadGeometry,
    /// The ANA group is outside 1 to [`ANA_GROUPS_MAX`].
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

/// Number of 64-bit words of an [`NsidSet`].
pub const NSID_WORDS: usize = NAMESPACES_MAX as usize / 64;

/// Set of NSIDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NsidSet([u64; NSID_WORDS]);

impl Default for NsidSet {
    fn default() -> Self {
        Self([0; NSID_WORDS])
    }
}

impl NsidSet {
    /// Returns the word index and bit mask of the NSID; `None` if out of range.
    #[inline]
    #[must_use]
    pub const fn place(nsid: u32) -> Option<(usize, u64)> {
        let slot = nsid.wrapping_sub(1);
        if slot < NAMESPACES_MAX {
            Some((slot as usize / 64, 1 << (slot % 64)))
        } else {
            None
        }
    }

    /// True if the set contains the NSID.
    #[must_use]
    pub fn contains(&self, nsid: u32) -> bool {
        Self::place(nsid).is_some_and(|(word, bit)| self.0[word] & bit != 0)
    }

    /// Words of the set: NSID `n` is bit `n - 1`, from the least significant bit of the first word.
    #[must_use]
    pub fn words(&self) -> &[u64; NSID_WORDS] {
        &self.0
    }

    pub(crate) fn set(&mut self, nsid: u32, is_in: bool) {
        let (word, bit) = Self::place(nsid).expect("the NSID of a namespace");
        if is_in {
            self.0[word] |= bit;
        } else {
            self.0[word] &= !bit;
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Namespaces {
    by_nsid: BTreeMap<u32, Attached>,
    changes: u64,
}

#[derive(Debug)]
struct Attached {
    namespace: Namespace,
    hosts: HostAccess,
    /// TLER (feature 05h; unit: 100 ms).
    tler: u16,
    change: Option<Change>,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    number: u64,
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

    pub(crate) fn set_hosts(
        &mut self,
        nsid: u32,
        hosts: HostAccess,
    ) -> Result<&Namespace, NamespaceError> {
        let attached = self.by_nsid.get_mut(&nsid).ok_or(NamespaceError::Unknown)?;
        attached.hosts = hosts;
        Ok(&attached.namespace)
    }

    pub(crate) fn seen_by(&self, host: &Nqn) -> NsidSet {
        let mut seen = NsidSet::default();
        for (&nsid, attached) in &self.by_nsid {
            seen.set(nsid, attached.hosts.allows(host));
        }
        seen
    }

    pub(crate) fn resize(&mut self, nsid: u32, blocks: u64) -> Result<bool, NamespaceError> {
        let attached = self.by_nsid.get_mut(&nsid).ok_or(NamespaceError::Unknown)?;
        if blocks == 0 {
            return Err(NamespaceError::BadGeometry);
        }
        Ok(core::mem::replace(&mut attached.namespace.blocks, blocks) != blocks)
    }

    pub(crate) fn set_reservations_persist(&mut self, nsid: u32, persist: bool) {
        if let Some(attached) = self.by_nsid.get_mut(&nsid) {
            attached.namespace.reservations_persist = persist;
        }
    }

    fn get(&self, nsid: u32) -> Option<&Namespace> {
        self.by_nsid.get(&nsid).map(|attached| &attached.namespace)
    }

    pub(crate) fn seen(&self, nsid: u32, seen: &NsidSet) -> Option<&Namespace> {
        self.get(nsid).filter(|_| seen.contains(nsid))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_nsid.values().map(|attached| &attached.namespace)
    }

    pub(crate) fn nsids_after(&self, nsid: u32) -> impl Iterator<Item = u32> {
        let after = (Bound::Excluded(nsid), Bound::Unbounded);
        self.by_nsid.range(after).map(|(&nsid, _)| nsid)
    }

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

    pub(crate) fn keep_protection(&self, seen: &NsidSet) -> bool {
        let mut all = self.iter();
        all.any(|namespace| namespace.keeps_protection && seen.contains(namespace.nsid))
    }

    pub(crate) fn write_uncorrectable(&self, seen: impl Fn(u32) -> bool) -> bool {
        let mut seen = self
            .iter()
            .filter(|namespace| seen(namespace.nsid))
            .peekable();
        seen.peek().is_some() && seen.all(|namespace| namespace.write_uncorrectable)
    }

    pub(crate) fn next_change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    /// Returns the number of the change for [`Self::end_change`], or `None` if the target need not
    /// act.
    pub(crate) fn protect(
        &mut self,
        nsid: u32,
        seen: &NsidSet,
        state: WriteProtectionState,
    ) -> Result<Option<u64>, Status> {
        let attached = self.by_nsid.get_mut(&nsid);
        let attached = attached.filter(|_| seen.contains(nsid));
        let attached = attached.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)?;
        // A host that repeats the command while a disk hangs must not start more flushes.
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
        let number = self.next_change();
        let attached = self.by_nsid.get_mut(&nsid).expect("it was found");
        attached.change = Some(Change { number, before });
        Ok(Some(number))
    }

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

    /// Sets `protectable`. If false, removes the protection set by hosts and discards a change in
    /// progress. Returns true if protection was removed.
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

    pub(crate) fn tler(&self, nsid: u32, seen: &NsidSet) -> Result<u16, Status> {
        let attached = self.by_nsid.get(&nsid).filter(|_| seen.contains(nsid));
        attached
            .map(|attached| attached.tler)
            .ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)
    }

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
