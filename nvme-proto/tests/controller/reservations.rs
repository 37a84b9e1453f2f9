use nvme_proto::controller::{Action, Outcome};
use nvme_proto::reservation::Notice;
use nvme_proto::wire::reservation::NotificationLog;
use nvme_proto::wire::{FromBytes, NSID_ALL, Sqe, Status};

use crate::rig::*;

const MASK: u8 = 0x82;
const PERSISTENCE: u8 = 0x83;

fn of(nsid: u32, mut sqe: Sqe) -> Sqe {
    sqe.nsid.set(nsid);
    sqe
}

fn notify(rig: &mut Rig, nsid: u32, notice: Notice) {
    let controller = rig.subsystem.controllers().next().unwrap();
    let notices = [(controller.host().id, notice), ([0xee; 16], notice)];
    rig.subsystem
        .reservations_changed(nsid, false, &notices, &mut rig.actions);
}

fn next(rig: &mut Rig) -> (u64, u8, u8, u32) {
    let log = NotificationLog::read_from_bytes(&rig.log(0x80, 64)).unwrap();
    let (count, nsid) = (log.count.get(), log.nsid.get());
    (count, log.notice, log.available, nsid)
}

#[test]
fn the_oldest_notification_is_lost_if_a_host_reads_none() {
    let mut rig = Rig::ready();
    for _ in 0..260 {
        notify(&mut rig, 1, Notice::ReservationReleased);
    }
    assert_eq!(next(&mut rig), (5, 2, 255, 1));
    assert_eq!(next(&mut rig), (6, 2, 254, 1));
}

#[test]
fn a_mask_of_all_namespaces_is_one_of_each() {
    let mut rig = Rig::ready();
    rig.succeed(of(NSID_ALL, set_features(MASK, 0b0010)));
    assert_eq!(rig.succeed(of(1, get_features(MASK, 0, 0))).0, 0b0010);
    for fid in [MASK, PERSISTENCE] {
        let refused = rig.fail(of(NSID_ALL, get_features(fid, 0, 0)));
        assert_eq!(refused, Status::INVALID_FIELD);
    }
    notify(&mut rig, 1, Notice::RegistrationPreempted);
    assert_eq!(next(&mut rig), (0, 0, 0, 0));
    notify(&mut rig, 1, Notice::ReservationPreempted);
    assert_eq!(next(&mut rig), (1, 3, 0, 1));
    notify(&mut rig, 77, Notice::ReservationPreempted);
    assert_eq!(next(&mut rig), (0, 0, 0, 0), "an unknown namespace");
}

#[test]
fn a_change_of_persistence_is_answered_by_the_target_or_by_the_removal() {
    let mut rig = Rig::ready();
    let set = |value| of(1, set_features(PERSISTENCE, value));
    assert_eq!(rig.fail(set(2)), Status::INVALID_FIELD);
    for removed in [false, true] {
        assert_eq!(rig.send(set(1), &[]).0, Outcome::Parked);
        let actions = rig.take_actions();
        let [
            Action::PersistReservations {
                cntlid,
                nsid,
                change,
                ..
            },
        ] = actions[..]
        else {
            panic!("{actions:?}");
        };
        assert_eq!(rig.fail(set(0)), Status::COMMAND_INTERRUPTED);
        if removed {
            rig.subsystem
                .remove_namespace(nsid, &mut rig.actions)
                .unwrap();
        } else {
            let done = Status::SUCCESS;
            rig.subsystem
                .persistence_done(cntlid, nsid, change, done, &mut rig.actions);
        }
        let completed = rig
            .take_actions()
            .iter()
            .filter(|action| matches!(action, Action::Complete { .. }))
            .count();
        assert_eq!(completed, 1, "removed: {removed}");
    }
}

#[test]
fn the_end_of_an_earlier_change_does_not_answer_a_later_command() {
    let mut rig = Rig::ready();
    let set = of(1, set_features(PERSISTENCE, 1));
    let park = |rig: &mut Rig| {
        assert_eq!(rig.send(set, &[]).0, Outcome::Parked);
        let actions = rig.take_actions();
        let [Action::PersistReservations { cntlid, change, .. }] = actions[..] else {
            panic!("{actions:?}");
        };
        (cntlid, change)
    };
    let (cntlid, earlier) = park(&mut rig);
    rig.subsystem.remove_namespace(1, &mut rig.actions).unwrap();
    let other = namespace(1);
    rig.subsystem
        .add_namespace(other, &mut rig.actions)
        .unwrap();
    rig.take_actions();
    let (_, later) = park(&mut rig);
    let mut completions = |change| {
        let mut actions = Vec::new();
        rig.subsystem
            .persistence_done(cntlid, 1, change, Status::SUCCESS, &mut actions);
        actions.len()
    };
    assert_eq!([completions(earlier), completions(later)], [0, 1]);
}

fn changes(rig: &mut Rig) -> Vec<(u32, u64, bool)> {
    let of_one = |action: &Action| match *action {
        Action::PersistReservations {
            nsid,
            change,
            persistent,
            ..
        } => (nsid, change, persistent),
        _ => panic!("{action:?}"),
    };
    rig.take_actions().iter().map(of_one).collect()
}

#[test]
fn a_change_of_all_namespaces_ends_with_the_last_and_fails_with_any() {
    let mut rig = Rig::ready();
    for (statuses, expected) in [
        ([Status::SUCCESS; 2], Status::SUCCESS),
        (
            [Status::INTERNAL_ERROR, Status::SUCCESS],
            Status::INTERNAL_ERROR,
        ),
        ([Status::INVALID_FIELD; 2], Status::INVALID_FIELD),
    ] {
        let set = of(NSID_ALL, set_features(PERSISTENCE, 1));
        assert_eq!(rig.send(set, &[]).0, Outcome::Parked);
        let changes = changes(&mut rig);
        let nsids: Vec<(u32, bool)> = changes.iter().map(|one| (one.0, one.2)).collect();
        assert_eq!(nsids, [(1, true), (2, true)]);
        let one = of(2, set_features(PERSISTENCE, 0));
        assert_eq!(rig.fail(one), Status::COMMAND_INTERRUPTED);
        let cntlid = rig.cntlid;
        for ((nsid, change, _), status) in changes.into_iter().zip(statuses) {
            assert_eq!(rig.take_actions(), []);
            rig.subsystem
                .persistence_done(cntlid, nsid, change, status, &mut rig.actions);
        }
        let actions = rig.take_actions();
        let [Action::Complete { completion, .. }] = actions[..] else {
            panic!("{actions:?}");
        };
        assert_eq!(completion.status.code(), expected);
    }
}

#[test]
fn a_change_of_all_namespaces_leaves_out_those_without_ptpl_and_those_removed() {
    let mut rig = Rig::ready();
    let mut plain = namespace(3);
    plain.keeps_reservations = false;
    let added = rig.subsystem.add_namespace(plain, &mut rig.actions);
    added.unwrap();
    rig.take_actions();
    let set = |value| of(NSID_ALL, set_features(PERSISTENCE, value));
    let started = |rig: &mut Rig, value| {
        assert_eq!(rig.send(set(value), &[]).0, Outcome::Parked);
        let all = changes(rig);
        all.iter().map(|one| one.0).collect::<Vec<u32>>()
    };
    assert_eq!(started(&mut rig, 1), [1, 2]);
    for nsid in [1, 2] {
        rig.subsystem
            .remove_namespace(nsid, &mut rig.actions)
            .unwrap();
    }
    let completed = rig
        .take_actions()
        .into_iter()
        .filter_map(|action| match action {
            Action::Complete { completion, .. } => Some(completion.status),
            _ => None,
        });
    assert_eq!(completed.collect::<Vec<Status>>(), [Status::SUCCESS]);
    assert_eq!(rig.fail(set(1)), Status::INVALID_FIELD);
    assert_eq!(started(&mut rig, 0), [3]);
}
