use proptest::prelude::*;

use super::*;

const ANATT: Duration = Duration::from_secs(10);

fn set(policy: Policy, states: &[AnaState]) -> PathSet {
    let mut set = PathSet::new(policy);
    for &state in states {
        let path = set.add();
        set.set_link(path, Link::Live);
        set.set_ana(path, state, ANATT, Duration::ZERO);
    }
    set
}

fn choices(set: &mut PathSet, count: usize) -> Vec<Choice> {
    (0..count)
        .map(|_| {
            let choice = set.choose(|_| true);
            if let Choice::Path(path) = choice {
                set.begin(path);
            }
            choice
        })
        .collect()
}

const BEST: AnaState = AnaState::OPTIMIZED;
const WORSE: AnaState = AnaState::NON_OPTIMIZED;
const NONE: AnaState = AnaState::INACCESSIBLE;

#[test]
fn round_robin_goes_round_the_best_paths() {
    let mut set = set(Policy::RoundRobin, &[BEST, WORSE, BEST, NONE]);
    use Choice::Path;
    assert_eq!(choices(&mut set, 4), [Path(2), Path(0), Path(2), Path(0)]);
    set.set_link(2, Link::Reconnecting);
    assert_eq!(choices(&mut set, 2), [Path(0), Path(0)]);
    set.set_ana(0, NONE, ANATT, Duration::ZERO);
    assert_eq!(choices(&mut set, 2), [Path(1), Path(1)]);
}

#[test]
fn queue_depth_goes_to_the_least_loaded() {
    let mut set = set(Policy::QueueDepth, &[BEST, BEST, WORSE]);
    for _ in 0..3 {
        set.begin(0);
    }
    use Choice::Path;
    assert_eq!(choices(&mut set, 3), [Path(1), Path(1), Path(1)]);
    set.end(0);
    assert_eq!(choices(&mut set, 1), [Path(0)]);
}

#[test]
fn a_full_path_is_waited_for_rather_than_left_for_a_worse_one() {
    let mut set = set(Policy::RoundRobin, &[BEST, WORSE]);
    assert_eq!(set.choose(|path| path != 0), Choice::Wait);
    let mut set = self::set(Policy::RoundRobin, &[BEST, BEST]);
    assert_eq!(set.choose(|path| path != 1), Choice::Path(0));
}

#[test]
fn commands_wait_while_there_is_hope() {
    let mut set = set(Policy::RoundRobin, &[NONE, BEST]);
    set.doubt_ana(1);
    assert_eq!(set.choose(|_| true), Choice::Wait);
    set.set_link(1, Link::Reconnecting);
    set.set_link(0, Link::Lost);
    assert_eq!(set.choose(|_| true), Choice::Wait);
    set.set_fails_fast(1);
    assert_eq!(set.choose(|_| true), Choice::Fail);
    set.set_link(1, Link::Live);
    assert_eq!(set.choose(|_| true), Choice::Wait, "its state is not known");
    set.set_ana(1, AnaState::PERSISTENT_LOSS, ANATT, Duration::ZERO);
    assert_eq!(set.choose(|_| true), Choice::Fail);
    set.set_link(1, Link::Reconnecting);
    assert_eq!(
        set.choose(|_| true),
        Choice::Wait,
        "it may fail fast anew only later"
    );
    set.set_link(1, Link::Lost);
    assert_eq!(set.choose(|_| true), Choice::Fail);
}

#[test]
fn a_change_that_never_ends_is_overdue_once() {
    let mut set = set(Policy::RoundRobin, &[BEST, AnaState::CHANGE]);
    assert_eq!(set.deadline(), Some(ANATT * 2));
    set.set_ana(1, AnaState::CHANGE, ANATT, ANATT);
    assert_eq!(set.tick(ANATT * 2 - Duration::from_millis(1)), None);
    assert_eq!(set.tick(ANATT * 2), Some(1));
    assert_eq!(set.tick(ANATT * 3), None);
    set.set_ana(1, BEST, ANATT, ANATT * 3);
    assert_eq!(set.deadline(), None);
}

#[test]
fn without_paths_there_is_nothing_to_wait_for() {
    assert_eq!(
        PathSet::new(Policy::RoundRobin).choose(|_| true),
        Choice::Fail
    );
}

fn any_state() -> impl Strategy<Value = Option<AnaState>> {
    prop_oneof![
        Just(None),
        Just(Some(BEST)),
        Just(Some(WORSE)),
        Just(Some(NONE)),
        Just(Some(AnaState::CHANGE)),
        Just(Some(AnaState::PERSISTENT_LOSS)),
    ]
}

fn any_link() -> impl Strategy<Value = Link> {
    prop_oneof![Just(Link::Live), Just(Link::Reconnecting), Just(Link::Lost)]
}

proptest! {
    #[test]
    fn the_choice_is_always_one_of_the_best(
        paths in prop::collection::vec((any_link(), any_state()), 0..6),
        queue_depth: bool,
    ) {
        let policy = if queue_depth { Policy::QueueDepth } else { Policy::RoundRobin };
        let mut set = PathSet::new(policy);
        for (link, state) in &paths {
            let path = set.add();
            set.set_link(path, *link);
            if let (Link::Live, Some(state)) = (link, state) {
                set.set_ana(path, *state, ANATT, Duration::ZERO);
            }
        }
        let of = |wanted| {
            let is = |path: &(Link, Option<AnaState>)| *path == (Link::Live, Some(wanted));
            (0..paths.len()).filter(|&index| is(&paths[index])).collect::<Vec<_>>()
        };
        let best = if of(BEST).is_empty() { of(WORSE) } else { of(BEST) };
        let mut chosen = choices(&mut set, paths.len().max(1));
        if best.is_empty() {
            prop_assert!(chosen.iter().all(|choice| !matches!(choice, Choice::Path(_))));
            return Ok(());
        }
        chosen.sort_by_key(|choice| match choice {
            Choice::Path(path) => *path,
            _ => usize::MAX,
        });
        chosen.dedup();
        prop_assert_eq!(chosen, best.into_iter().map(Choice::Path).collect::<Vec<_>>());
    }
}
