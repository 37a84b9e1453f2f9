//! Parser of the ANA log page (0Ch).

use core::fmt;

use crate::wire::log::{AnaGroup, AnaLogHeader, AnaState};
use crate::wire::{FromBytes, U32};

const ANAS_MASK: u8 = 0x0f;

/// ANA log page with a valid structure.
#[derive(Clone, Copy, Debug)]
pub struct AnaLog<'a> {
    chgcnt: u64,
    ngrps: u16,
    groups: &'a [u8],
}

/// ANA group descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnaEntry<'a> {
    /// ANAGRPID, not 0.
    pub anagrpid: u32,
    /// State of the group's namespaces.
    pub state: AnaState,
    /// Change count of the group; 0 if unsupported.
    pub chgcnt: u64,
    nsids: &'a [U32],
}

impl AnaEntry<'_> {
    /// NSIDs of the group.
    pub fn nsids(&self) -> impl Iterator<Item = u32> {
        self.nsids.iter().map(|nsid| nsid.get())
    }
}

/// Invalid structure of the log page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnaLogError {
    /// The page ends within its header or a group.
    Short,
    /// A group's identifier is 0.
    NoGroup,
    /// The ANA state is undefined (Base, figure 225).
    UnknownState(u8),
}

impl fmt::Display for AnaLogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => f.write_str("the ANA log is shorter than its groups"),
            Self::NoGroup => f.write_str("the ANA log has a group of number 0"),
            Self::UnknownState(state) => write!(f, "the ANA log has a state {state:#x}"),
        }
    }
}

impl core::error::Error for AnaLogError {}

impl<'a> AnaLog<'a> {
    /// Validates the structure of the page; ignores bytes after the last group.
    pub fn parse(page: &'a [u8]) -> Result<Self, AnaLogError> {
        let (head, groups) =
            AnaLogHeader::read_from_prefix(page).map_err(|_| AnaLogError::Short)?;
        let log = Self {
            chgcnt: head.chgcnt.get(),
            ngrps: head.ngrps.get(),
            groups,
        };
        let mut rest = groups;
        for _ in 0..log.ngrps {
            (_, rest) = split_group(rest)?;
        }
        Ok(log)
    }

    /// CHGCNT of the page.
    #[must_use]
    pub fn chgcnt(&self) -> u64 {
        self.chgcnt
    }

    /// Group descriptors.
    pub fn groups(&self) -> impl Iterator<Item = AnaEntry<'a>> {
        let mut rest = self.groups;
        (0..self.ngrps).map_while(move |_| {
            let (entry, more) = split_group(rest).ok()?;
            rest = more;
            Some(entry)
        })
    }

    /// ANA state of a namespace; `None` if not listed.
    #[must_use]
    pub fn state_of(&self, nsid: u32) -> Option<AnaState> {
        let mut groups = self.groups();
        let group = groups.find(|group| group.nsids().any(|other| other == nsid))?;
        Some(group.state)
    }
}

fn split_group(bytes: &[u8]) -> Result<(AnaEntry<'_>, &[u8]), AnaLogError> {
    let (group, rest) = AnaGroup::read_from_prefix(bytes).map_err(|_| AnaLogError::Short)?;
    let count = usize::try_from(group.nnsids.get()).map_err(|_| AnaLogError::Short)?;
    let (nsids, rest) =
        <[U32]>::ref_from_prefix_with_elems(rest, count).map_err(|_| AnaLogError::Short)?;
    if group.agid.get() == 0 {
        return Err(AnaLogError::NoGroup);
    }
    let state = AnaState(group.anas & ANAS_MASK);
    if !matches!(state.0, 1..=4 | 0xf) {
        return Err(AnaLogError::UnknownState(state.0));
    }
    let entry = AnaEntry {
        anagrpid: group.agid.get(),
        state,
        chgcnt: group.chgcnt.get(),
        nsids,
    };
    Ok((entry, rest))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::wire::{FromZeros, IntoBytes};

    fn page(groups: &[(u32, u8, &[u32])]) -> Vec<u8> {
        let mut head = AnaLogHeader::new_zeroed();
        head.chgcnt.set(9);
        head.ngrps.set(groups.len() as u16);
        let mut page = head.as_bytes().to_vec();
        for (agid, anas, nsids) in groups {
            let mut group = AnaGroup::new_zeroed();
            group.agid.set(*agid);
            group.anas = *anas;
            group.nnsids.set(nsids.len() as u32);
            page.extend(group.as_bytes());
            page.extend(nsids.iter().flat_map(|nsid| nsid.to_le_bytes()));
        }
        page
    }

    #[test]
    fn a_namespace_has_the_state_of_its_group() {
        let page = page(&[(1, 1, &[1, 7]), (2, 3, &[]), (9, 0xf, &[4])]);
        let log = AnaLog::parse(&page).unwrap();
        assert_eq!(log.chgcnt(), 9);
        assert_eq!(log.groups().count(), 3);
        assert_eq!(log.state_of(7), Some(AnaState::OPTIMIZED));
        assert_eq!(log.state_of(4), Some(AnaState::CHANGE));
        assert_eq!(log.state_of(2), None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let error = |page: &[u8]| AnaLog::parse(page).unwrap_err();
        let good = page(&[(1, 1, &[1, 7])]);
        for length in 0..good.len() {
            assert_eq!(error(&good[..length]), AnaLogError::Short);
        }
        assert_eq!(error(&page(&[(0, 1, &[])])), AnaLogError::NoGroup);
        assert_eq!(error(&page(&[(1, 0, &[])])), AnaLogError::UnknownState(0));
        assert_eq!(error(&page(&[(1, 5, &[])])), AnaLogError::UnknownState(5));
        let mut long = good;
        long[20..24].fill(0xff);
        assert_eq!(error(&long), AnaLogError::Short);
    }

    #[test]
    fn no_bytes_panic() {
        proptest::proptest!(|(bytes: Vec<u8>)| {
            if let Ok(log) = AnaLog::parse(&bytes) {
                assert_eq!(log.groups().count(), usize::from(log.ngrps));
                let _ = log.state_of(1);
            }
        });
    }
}
