//! Asymmetric namespace access (Base, 8.1).
//!
//! Each namespace is in an ANA group (ANAGRPID), and each port has an access state for each group.

use crate::limits::ANA_GROUPS_MAX;
use crate::wire::Status;
use crate::wire::log::AnaState;

/// ANA state of each group at one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnaStates([AnaState; ANA_GROUPS_MAX as usize]);

impl AnaStates {
    /// Creates states with every group in `state`.
    #[must_use]
    pub const fn all(state: AnaState) -> Self {
        Self([state; ANA_GROUPS_MAX as usize])
    }

    /// State of group `anagrpid`.
    ///
    /// # Panics
    /// If `anagrpid` is not in 1 to [`ANA_GROUPS_MAX`].
    #[must_use]
    pub fn get(&self, anagrpid: u32) -> AnaState {
        self.0[index(anagrpid)]
    }

    /// Sets the state of group `anagrpid`.
    ///
    /// # Panics
    /// If `anagrpid` is not in 1 to [`ANA_GROUPS_MAX`].
    pub fn set(&mut self, anagrpid: u32, state: AnaState) {
        self.0[index(anagrpid)] = state;
    }
}

impl Default for AnaStates {
    fn default() -> Self {
        Self::all(AnaState::OPTIMIZED)
    }
}

/// Checks that a namespace in this ANA state accepts I/O commands.
///
/// # Errors
/// Status of the rejected command (Base, 8.1.3.3 to 8.1.3.5). DNR is clear: a later retry, or
/// another path, may succeed.
#[inline]
pub const fn check_access(state: AnaState) -> Result<(), Status> {
    match state {
        AnaState::INACCESSIBLE => Err(Status::ANA_INACCESSIBLE),
        AnaState::PERSISTENT_LOSS => Err(Status::ANA_PERSISTENT_LOSS),
        AnaState::CHANGE => Err(Status::ANA_TRANSITION),
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub(crate) struct AnaView {
    states: AnaStates,
    /// CHGCNT of the ANA log; counts the changes visible to the host.
    changes: u64,
    group_changes: [u32; ANA_GROUPS_MAX as usize],
}

impl AnaView {
    pub(crate) fn new(states: &AnaStates) -> Self {
        Self {
            states: *states,
            changes: 0,
            group_changes: [0; ANA_GROUPS_MAX as usize],
        }
    }

    pub(crate) fn get(&self, anagrpid: u32) -> AnaState {
        self.states.get(anagrpid)
    }

    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn group_changes(&self, anagrpid: u32) -> u64 {
        u64::from(self.group_changes[index(anagrpid)])
    }

    pub(crate) fn note_change(&mut self, groups: &[u32]) {
        self.changes += 1;
        for &anagrpid in groups {
            self.group_changes[index(anagrpid)] += 1;
        }
    }

    pub(crate) fn change(&mut self, states: &AnaStates, shown: impl Fn(u32) -> bool) -> bool {
        let mut is_shown = false;
        for anagrpid in 1..=ANA_GROUPS_MAX {
            if self.states.get(anagrpid) != states.get(anagrpid) {
                self.group_changes[index(anagrpid)] += 1;
                is_shown |= shown(anagrpid);
            }
        }
        self.changes += u64::from(is_shown);
        self.states = *states;
        is_shown
    }
}

fn index(anagrpid: u32) -> usize {
    assert!(
        (1..=ANA_GROUPS_MAX).contains(&anagrpid),
        "there is no ANA group {anagrpid}"
    );
    anagrpid as usize - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_that_the_log_shows_count() {
        let mut view = AnaView::new(&AnaStates::default());
        let mut states = AnaStates::default();
        assert!(!view.change(&states, |_| true));
        states.set(7, AnaState::INACCESSIBLE);
        assert!(!view.change(&states, |group| group == 1));
        states.set(1, AnaState::NON_OPTIMIZED);
        assert!(view.change(&states, |group| group == 1));
        assert_eq!(view.changes(), 1);
        assert_eq!((view.group_changes(1), view.group_changes(7)), (1, 1));
        assert_eq!(view.get(7), AnaState::INACCESSIBLE);
    }

    #[test]
    fn a_state_says_whether_there_is_access() {
        assert_eq!(check_access(AnaState::OPTIMIZED), Ok(()));
        assert_eq!(check_access(AnaState::NON_OPTIMIZED), Ok(()));
        for (state, status) in [
            (AnaState::INACCESSIBLE, 0x302),
            (AnaState::PERSISTENT_LOSS, 0x301),
            (AnaState::CHANGE, 0x303),
        ] {
            let refused = check_access(state).unwrap_err();
            assert_eq!(
                u16::from(refused.sct()) << 8 | u16::from(refused.sc()),
                status
            );
            assert!(!refused.dnr());
        }
    }
}
