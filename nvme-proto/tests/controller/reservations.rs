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
    assert_eq!(
        rig.fail(of(NSID_ALL, get_features(MASK, 0, 0))),
        Status::INVALID_NAMESPACE_OR_FORMAT
    );
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
