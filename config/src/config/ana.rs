use std::collections::BTreeMap;

use nvme_proto::ana::AnaStates;
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;

/// ANA states that replace a listener's states for one subsystem.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnaOverride {
    /// State of all groups not in `groups`; `None` keeps the listener's states.
    pub all: Option<AnaState>,
    pub groups: BTreeMap<u32, AnaState>,
}

impl AnaOverride {
    #[must_use]
    pub fn over(&self, listener: &AnaStates) -> AnaStates {
        let mut states = self.all.map_or(*listener, AnaStates::all);
        for (group, state) in &self.groups {
            states.set(*group, *state);
        }
        states
    }

    /// Returns groups and states; `all`, if set, comes first, with group `None`.
    pub fn entries(&self) -> impl Iterator<Item = (Option<u32>, AnaState)> {
        let groups = self.groups.iter();
        let of_groups = groups.map(|(group, state)| (Some(*group), *state));
        self.all
            .into_iter()
            .map(|state| (None, state))
            .chain(of_groups)
    }
}

/// Returns the most frequent state, and the groups with other states.
#[must_use]
pub fn summary(states: &AnaStates) -> (AnaState, Vec<(u32, AnaState)>) {
    let all = || (1..=ANA_GROUPS_MAX).map(|group| (group, states.get(group)));
    let count = |state: AnaState| all().filter(|(_, other)| *other == state).count();
    let most = ANA_STATES.map(|(_, state)| state).into_iter();
    // `max_by_key` returns the last of equal counts, so the reversed order prefers the best state.
    let most = most.rev().max_by_key(|state| count(*state));
    let most = most.unwrap_or(AnaState::OPTIMIZED);
    let others = all().filter(|(_, state)| *state != most);
    (most, others.collect())
}

/// Words for ANA states in the configuration, best state first.
pub const ANA_STATES: [(&str, AnaState); 5] = [
    ("optimized", AnaState::OPTIMIZED),
    ("non-optimized", AnaState::NON_OPTIMIZED),
    ("inaccessible", AnaState::INACCESSIBLE),
    ("persistent-loss", AnaState::PERSISTENT_LOSS),
    ("change", AnaState::CHANGE),
];

/// Returns the configuration's word for a state; "inaccessible" for undefined states.
#[must_use]
pub fn ana_word(state: AnaState) -> &'static str {
    let mut words = ANA_STATES.iter();
    let known = words.find(|(_, other)| *other == state);
    known.map_or("inaccessible", |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_go_before_all_and_all_before_the_listener() {
        let mut of_listener = AnaStates::all(AnaState::NON_OPTIMIZED);
        of_listener.set(2, AnaState::INACCESSIBLE);
        let mut own = AnaOverride::default();
        assert_eq!(own.over(&of_listener), of_listener);
        own.groups.insert(3, AnaState::CHANGE);
        let states = own.over(&of_listener);
        let of = |states: &AnaStates| [1, 2, 3].map(|group| states.get(group));
        let [worse, none, change] = [
            AnaState::NON_OPTIMIZED,
            AnaState::INACCESSIBLE,
            AnaState::CHANGE,
        ];
        assert_eq!(of(&states), [worse, none, change]);
        own.all = Some(AnaState::OPTIMIZED);
        let states = own.over(&of_listener);
        let best = AnaState::OPTIMIZED;
        assert_eq!(of(&states), [best, best, change]);
        assert_eq!(summary(&states), (best, vec![(3, change)]));
        let entries: Vec<_> = own.entries().collect();
        assert_eq!(entries, [(None, best), (Some(3), change)]);
        assert_eq!(ana_word(change), "change");
    }
}
