//! Random commands, compared with a model of the specification.

use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::wire::Status;
use crate::wire::reservation::{AcquireCdw10, RegisterCdw10, ReleaseCdw10};

const HOSTS: u8 = 4;
const KEYS: u64 = 4;

fn id(host: u8) -> HostId {
    [host; 16]
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Register(u8, u8, bool, u8, u64, u64),
    Acquire(u8, u8, u8, u64, u64),
    Release(u8, u8, u8, u64),
    Clear,
}

impl Step {
    fn host(self) -> u8 {
        match self {
            Self::Register(host, ..) | Self::Acquire(host, ..) | Self::Release(host, ..) => host,
            Self::Clear => HOSTS,
        }
    }

    fn change(self) -> Change {
        match self {
            Self::Register(_, action, iekey, cptpl, current, new) => Change::Register {
                fields: RegisterCdw10(0)
                    .with_rrega(action)
                    .with_iekey(iekey)
                    .with_cptpl(cptpl),
                current,
                new,
            },
            Self::Acquire(_, action, rtype, current, preempted) => Change::Acquire {
                action,
                rtype: ReservationType::from_code(rtype).unwrap(),
                current,
                preempted,
            },
            Self::Release(_, action, rtype, current) => Change::Release {
                fields: ReleaseCdw10(0).with_rrela(action).with_rtype(rtype),
                current,
            },
            Self::Clear => Change::Clear,
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    prop_oneof![
        8 => (0..HOSTS, 0..3u8, any::<bool>(), 0..3u8, key(), key()).prop_map(
            |(host, action, iekey, cptpl, current, new)| {
                let cptpl = [0, 2, 3][usize::from(cptpl)];
                Step::Register(host, action, iekey, cptpl, current, new)
            }
        ),
        8 => (0..HOSTS, 0..3u8, 1..=6u8, key(), key()).prop_map(|(host, action, rtype, key, other)| {
            Step::Acquire(host, action, rtype, key, other)
        }),
        8 => (0..HOSTS, 0..2u8, 1..=6u8, key())
            .prop_map(|(host, action, rtype, key)| Step::Release(host, action, rtype, key)),
        1 => Just(Step::Clear),
    ]
}

type Events = BTreeSet<(u8, u8)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    keys: BTreeMap<u8, u64>,
    rtype: u8,
    holders: BTreeSet<u8>,
    generation: u32,
    ptpl: bool,
}

impl Model {
    fn with_key(&self, key: u64) -> BTreeSet<u8> {
        let all = self.keys.iter().filter(|(_, own)| **own == key);
        all.map(|(host, _)| *host).collect()
    }

    fn drop_registrations(&mut self, gone: &BTreeSet<u8>) {
        self.keys.retain(|host, _| !gone.contains(host));
        self.holders.retain(|host| !gone.contains(host));
    }

    fn take(&mut self, rtype: u8, by: u8) {
        self.rtype = rtype;
        self.holders = match rtype {
            5 | 6 => self.keys.keys().copied().collect(),
            _ => [by].into(),
        };
    }

    fn released_if_unheld(&mut self) -> u8 {
        match self.holders.is_empty() {
            true => std::mem::take(&mut self.rtype),
            false => 0,
        }
    }

    fn others(&self, host: u8, event: u8) -> Events {
        let others = self.keys.keys().filter(|one| **one != host);
        others.map(|one| (*one, event)).collect()
    }

    fn step(&mut self, step: Step) -> Result<Events, Status> {
        let before = self.clone();
        let result = self.try_step(step);
        if result.is_err() {
            *self = before;
        }
        result
    }

    fn try_step(&mut self, step: Step) -> Result<Events, Status> {
        let host = step.host();
        let own = self.keys.get(&host).copied();
        match step {
            Step::Register(_, action, iekey, cptpl, current, new) => {
                let known = own.is_some() && (iekey || own == Some(current));
                let events = match (action, own) {
                    (1, _) if known => {
                        self.drop_registrations(&[host].into());
                        match self.released_if_unheld() {
                            3 | 4 => self.others(host, 2),
                            _ => Events::new(),
                        }
                    }
                    (1, _) => return Err(Status::RESERVATION_CONFLICT),
                    _ if new == 0 => return Err(Status::INVALID_FIELD),
                    (0, Some(own)) if own != new => return Err(Status::RESERVATION_CONFLICT),
                    (2, Some(_)) if !known => return Err(Status::RESERVATION_CONFLICT),
                    (2, None) if !iekey => return Err(Status::RESERVATION_CONFLICT),
                    _ => {
                        self.keys.insert(host, new);
                        if self.rtype >= 5 {
                            self.holders.insert(host);
                        }
                        Events::new()
                    }
                };
                self.ptpl = [self.ptpl, self.ptpl, false, true][usize::from(cptpl)];
                self.generation += 1;
                Ok(events)
            }
            Step::Acquire(.., current, _) | Step::Release(.., current) if own != Some(current) => {
                Err(Status::RESERVATION_CONFLICT)
            }
            Step::Acquire(_, 0, rtype, ..) => {
                if self.rtype == 0 {
                    self.take(rtype, host);
                } else if self.rtype != rtype || !self.holders.contains(&host) {
                    return Err(Status::RESERVATION_CONFLICT);
                }
                Ok(Events::new())
            }
            Step::Acquire(_, _, rtype, _, key) => self.preempt(host, rtype, key),
            Step::Release(_, 0, rtype, _) => {
                if !self.holders.contains(&host) {
                    return Ok(Events::new());
                }
                if self.rtype != rtype {
                    return Err(Status::INVALID_FIELD);
                }
                self.rtype = 0;
                self.holders.clear();
                Ok(match rtype {
                    1 | 2 => Events::new(),
                    _ => self.others(host, 2),
                })
            }
            Step::Clear if self.keys.is_empty() => Ok(Events::new()),
            Step::Release(..) | Step::Clear => {
                let events = self.others(host, 3);
                self.keys.clear();
                self.holders.clear();
                self.rtype = 0;
                self.generation += 1;
                Ok(events)
            }
        }
    }

    fn preempt(&mut self, host: u8, rtype: u8, key: u64) -> Result<Events, Status> {
        let before = self.rtype;
        let mut gone = self.with_key(key);
        let takes = match before {
            0 => false,
            5 | 6 => key == 0,
            _ if key == 0 => return Err(Status::INVALID_FIELD),
            _ => self.holders.is_subset(&gone),
        };
        if takes {
            if key == 0 {
                gone = self.keys.keys().copied().collect();
            }
            gone.remove(&host);
        } else if gone.is_empty() {
            return Err(Status::RESERVATION_CONFLICT);
        }
        let preempted = gone.iter().filter(|one| **one != host);
        let mut events: Events = preempted.map(|one| (*one, 1)).collect();
        self.drop_registrations(&gone);
        if takes {
            self.take(rtype, host);
            if rtype != before {
                events.extend(self.others(host, 2));
            }
        } else {
            self.released_if_unheld();
        }
        self.generation += 1;
        Ok(events)
    }

    fn may(&self, host: u8) -> (bool, bool) {
        let registered = self.keys.contains_key(&host);
        if self.rtype == 0 || self.holders.contains(&host) {
            return (true, true);
        }
        match self.rtype {
            1 => (true, false),
            2 => (false, false),
            3 | 5 => (true, registered),
            _ => (registered, registered),
        }
    }
}

/// Faults that the comparison must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    GenerationOfPreempt,
    HolderSurvivesUnregister,
    PreemptedStaysRegistered,
    NoticeToItself,
    NoReleaseNotice,
    LateRegistrantOfAllIsNoHolder,
    RegistrantReads,
    AcquireTakesOver,
    LostPtpl,
}

fn execute(state: &Reservations, step: Step, bug: Bug) -> Result<Outcome, Status> {
    let host = id(step.host());
    let mut outcome = state.execute(&host, &step.change(), true);
    if bug == Bug::AcquireTakesOver
        && let Step::Acquire(_, 0, rtype, current, _) = step
        && state.check_key(&host, current).is_ok()
    {
        let mut taken = state.clone();
        let rtype = ReservationType::from_code(rtype).unwrap();
        taken.held = Some(Held::by(rtype, &host));
        return Ok(Outcome::of(&taken));
    }
    let done = outcome.as_mut().map_err(|status| *status)?;
    match (bug, step) {
        (Bug::GenerationOfPreempt, Step::Acquire(_, 1 | 2, ..)) => {
            done.next.generation = state.generation;
        }
        (Bug::HolderSurvivesUnregister, Step::Register(_, 1, ..)) => done.next.held = state.held,
        (Bug::PreemptedStaysRegistered, Step::Acquire(_, 1 | 2, ..)) => {
            done.next.registrants.clone_from(&state.registrants);
        }
        (Bug::NoticeToItself, Step::Release(..)) if !done.notices.is_empty() => {
            done.notices.push((host, Notice::ReservationPreempted));
        }
        (Bug::NoReleaseNotice, _) => done
            .notices
            .retain(|(_, notice)| *notice != Notice::ReservationReleased),
        (Bug::LateRegistrantOfAllIsNoHolder, Step::Register(_, 0, ..)) => {
            if let Some(held) = &mut done.next.held
                && held.holder.is_none()
            {
                held.holder = Some(state.registrants[0].host);
            }
        }
        (Bug::LostPtpl, Step::Register(_, 2, ..)) => done.next.persistent = false,
        _ => {}
    }
    outcome
}

fn agrees(steps: &[Step], bug: Bug) -> Result<(), std::string::String> {
    let (mut state, mut model) = (Reservations::default(), Model::default());
    for (number, step) in steps.iter().enumerate() {
        let told = execute(&state, *step, bug);
        let expected = model.step(*step);
        let told = told.map(|outcome| {
            state = outcome.next;
            let notices = outcome.notices.iter();
            notices
                .map(|(host, notice)| (host[0], *notice as u8))
                .collect::<Events>()
        });
        let told = told.map_err(Status::code);
        if told != expected {
            return Err(std::format!(
                "{number}: {step:?}: {told:?}, not {expected:?}"
            ));
        }
        let mut report = vec![0; 64 + 64 * usize::from(HOSTS)];
        state.report(&mut report);
        if report != shown(&model) {
            return Err(std::format!("{number}: {step:?}: {state:?}, not {model:?}"));
        }
        for host in 0..HOSTS {
            let may = [Access::Read, Access::Write].map(|access| {
                let registrant = state.role(&id(host)) == Role::Registrant;
                let wrong = bug == Bug::RegistrantReads && registrant && access == Access::Read;
                wrong || !state.forbids(&id(host), access)
            });
            if (may[0], may[1]) != model.may(host) {
                return Err(std::format!("{number}: {step:?}: host {host} may {may:?}"));
            }
        }
    }
    Ok(())
}

fn shown(model: &Model) -> Vec<u8> {
    let mut bytes = vec![0; 64 + 64 * usize::from(HOSTS)];
    bytes[..4].copy_from_slice(&model.generation.to_le_bytes());
    bytes[4] = model.rtype;
    bytes[5] = model.keys.len() as u8;
    bytes[9] = model.ptpl.into();
    for (at, (host, key)) in (64..).step_by(64).zip(&model.keys) {
        bytes[at..at + 2].fill(0xff);
        bytes[at + 2] = model.holders.contains(host).into();
        bytes[at + 8..at + 16].copy_from_slice(&key.to_le_bytes());
        bytes[at + 16..at + 32].copy_from_slice(&id(*host));
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_commands_do_what_the_model_does(steps in prop::collection::vec(step(), 1..60)) {
        prop_assert_eq!(agrees(&steps, Bug::None), Ok(()));
    }
}

#[test]
fn the_model_finds_planted_bugs() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    for bug in [
        Bug::GenerationOfPreempt,
        Bug::HolderSurvivesUnregister,
        Bug::PreemptedStaysRegistered,
        Bug::NoticeToItself,
        Bug::NoReleaseNotice,
        Bug::LateRegistrantOfAllIsNoHolder,
        Bug::RegistrantReads,
        Bug::AcquireTakesOver,
        Bug::LostPtpl,
    ] {
        let mut runner = TestRunner::deterministic();
        let steps = prop::collection::vec(step(), 60..61);
        let found = (0..2000).any(|_| {
            let steps = steps.new_tree(&mut runner).unwrap().current();
            agrees(&steps, bug).is_err()
        });
        assert!(found, "{bug:?}");
    }
}

proptest! {
    #[test]
    fn a_stored_state_is_restored_and_a_damaged_or_foreign_one_is_refused(
        steps in prop::collection::vec(step(), 0..60),
        bit in any::<prop::sample::Index>(),
    ) {
        let mut state = Reservations::default();
        for step in steps {
            if let Ok(outcome) = state.execute(&id(step.host()), &step.change(), true) {
                state = outcome.next;
            }
        }
        state.persistent = true;
        let bytes = state.encode(&[7; 16], "nqn");
        prop_assert_eq!(Reservations::decode(&bytes, &[7; 16], "nqn"), Ok(state));
        for (uuid, subnqn) in [([8; 16], "nqn"), ([7; 16], "nqx")] {
            let foreign = Reservations::decode(&bytes, &uuid, subnqn);
            prop_assert_eq!(foreign, Err(StoredError::Foreign));
        }
        let bit = bit.index(bytes.len() * 8);
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let short = &bytes[..bit / 8];
        for damaged in [&flipped, short] {
            let error = Reservations::decode(damaged, &[7; 16], "nqn");
            prop_assert_eq!(error, Err(StoredError::Damaged));
        }
    }
}

fn register(host: HostId, state: &Reservations) -> Result<Outcome, Status> {
    let change = Change::Register {
        fields: RegisterCdw10(0),
        current: 0,
        new: 1,
    };
    state.execute(&host, &change, false)
}

#[test]
fn one_registrant_more_than_128_is_refused() {
    let mut state = Reservations::default();
    for number in 0..=u8::MAX {
        let host = core::array::from_fn(|at| number.rotate_left(at as u32));
        match register(host, &state) {
            Ok(outcome) => state = outcome.next,
            Err(status) => {
                assert_eq!(status.code(), Status::INTERNAL_ERROR);
                assert_eq!(state.registrants().len(), REGISTRANTS_MAX);
                return;
            }
        }
    }
    panic!("256 registrants");
}

#[test]
fn a_preempt_and_abort_names_the_hosts_whose_commands_end() {
    let mut state = register(id(1), &Reservations::default()).unwrap().next;
    state = register(id(2), &state).unwrap().next;
    state.registrants[1].key = 2;
    let preempt = |action| Change::Acquire {
        action,
        rtype: ReservationType::WriteExclusive,
        current: 1,
        preempted: 2,
    };
    let outcome = state.execute(&id(1), &preempt(AcquireCdw10::PREEMPT), false);
    assert_eq!(outcome.unwrap().aborted, Vec::<HostId>::new());
    let abort = preempt(AcquireCdw10::PREEMPT_AND_ABORT);
    let outcome = state.execute(&id(1), &abort, false);
    assert_eq!(outcome.unwrap().aborted, [id(2)]);
}

#[test]
fn a_state_that_cannot_come_about_is_not_restored() {
    let registrants = |hosts: &[u8]| -> Vec<Registrant> {
        let one = |host: &u8| Registrant {
            host: id(*host),
            key: 1,
        };
        hosts.iter().map(one).collect()
    };
    let held = Some((ReservationType::ExclusiveAccess, 1));
    let state = Reservations::restore(7, true, registrants(&[1, 2]), held).unwrap();
    assert!(state.is_holder(&id(2)) && !state.is_holder(&id(1)));
    let many: Vec<u8> = (0..129).collect();
    for hosts in [&[2, 1][..], &[1, 1], &[1], &many] {
        assert_eq!(
            Reservations::restore(7, true, registrants(hosts), held),
            None
        );
    }
    let keyless = Registrant {
        host: id(1),
        key: 0,
    };
    assert_eq!(Reservations::restore(7, true, vec![keyless], None), None);
}
