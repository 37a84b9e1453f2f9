//! Asymmetric namespace access (Base, 8.1): which way to a namespace is a good one.
//!
//! A namespace is in an ANA group (ANAGRPID), and every port of the subsystem has
//! a state for each group. A controller shows the states of the port that its
//! host came by, in log page 0Ch, and reports an event when they change.

use crate::limits::ANA_GROUPS_MAX;
use crate::wire::Status;
use crate::wire::log::AnaState;

/// The state of each ANA group at one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnaStates([AnaState; ANA_GROUPS_MAX as usize]);

impl AnaStates {
    /// Every group in this state.
    #[must_use]
    pub const fn all(state: AnaState) -> Self {
        Self([state; ANA_GROUPS_MAX as usize])
    }

    /// The state of a group.
    ///
    /// # Panics
    /// If there can be no such group.
    #[must_use]
    pub fn get(&self, anagrpid: u32) -> AnaState {
        self.0[index(anagrpid)]
    }

    /// Sets the state of a group.
    ///
    /// # Panics
    /// If there can be no such group.
    pub fn set(&mut self, anagrpid: u32, state: AnaState) {
        self.0[index(anagrpid)] = state;
    }
}

impl Default for AnaStates {
    /// Every group optimized: a port that is like any other.
    fn default() -> Self {
        Self::all(AnaState::OPTIMIZED)
    }
}

/// Whether a namespace in this state takes I/O commands.
///
/// # Errors
/// The status to complete them with (Base, 8.1.3.3 to 8.1.3.5). Another path may
/// work, and this one may later: DNR is clear.
#[inline]
pub const fn check_access(state: AnaState) -> Result<(), Status> {
    match state {
        AnaState::INACCESSIBLE => Err(Status::ANA_INACCESSIBLE),
        AnaState::PERSISTENT_LOSS => Err(Status::ANA_PERSISTENT_LOSS),
        AnaState::CHANGE => Err(Status::ANA_TRANSITION),
        _ => Ok(()),
    }
}

/// The states as one controller shows them, with their change counts.
#[derive(Debug)]
pub(crate) struct AnaView {
    states: AnaStates,
    /// How often the log changed: the states, the namespaces that are shown, the group of one.
    changes: u64,
    /// The same of each group.
    group_changes: [u32; ANA_GROUPS_MAX as usize],
}

impl AnaView {
    /// At the beginning of an association.
    pub(crate) fn new(states: &AnaStates) -> Self {
        Self {
            states: *states,
            changes: 0,
            group_changes: [0; ANA_GROUPS_MAX as usize],
        }
    }

    /// The state of a group.
    pub(crate) fn get(&self, anagrpid: u32) -> AnaState {
        self.states.get(anagrpid)
    }

    /// How often the log changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// How often this group changed.
    pub(crate) fn group_changes(&self, anagrpid: u32) -> u64 {
        u64::from(self.group_changes[index(anagrpid)])
    }

    /// The namespaces of these groups are others.
    pub(crate) fn note_change(&mut self, groups: &[u32]) {
        self.changes += 1;
        for &anagrpid in groups {
            self.group_changes[index(anagrpid)] += 1;
        }
    }

    /// Takes on other states; whether one of a group that is `shown` changed.
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
