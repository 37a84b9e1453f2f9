use nvme_proto::controller::{Action, Completion, Outcome};
use nvme_proto::namespace::Namespace;
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::identify::{Cns, IdentifyController, IdentifyNamespace};
use nvme_proto::wire::{NSID_ALL, Sqe, Status};

use crate::rig::*;

const FID: u8 = 0x84;
const NONE: u32 = 0;
const PROTECTED: u32 = 1;
const UNTIL_POWER_CYCLE: u32 = 2;
const PERMANENT: u32 = 3;

fn set(nsid: u32, state: u32) -> Sqe {
    let mut sqe = set_features(FID, state);
    sqe.nsid.set(nsid);
    sqe
}

fn state(rig: &mut Rig, nsid: u32) -> u32 {
    let mut sqe = get_features(FID, 0, 0);
    sqe.nsid.set(nsid);
    rig.succeed(sqe).0
}

fn nsattr(rig: &mut Rig, nsid: u32) -> u8 {
    let id: IdentifyNamespace = rig.identify_as(Cns::NAMESPACE, nsid);
    id.nsattr
}

fn nwpc(rig: &mut Rig) -> u8 {
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    id.nwpc
}

fn begin(rig: &mut Rig, nsid: u32, state: u32) -> (u32, u64) {
    assert_eq!(rig.send(set(nsid, state), &[]).0, Outcome::Parked);
    let [
        Action::SetProtection {
            nsid: asked,
            state: to_be,
            change,
            ..
        },
    ] = rig.take_actions()[..]
    else {
        panic!("one action");
    };
    assert_eq!(asked, nsid);
    (to_be.0.into(), change)
}

fn end(rig: &mut Rig, nsid: u32, change: u64, intact: bool) -> Vec<Status> {
    rig.subsystem
        .protection_done(nsid, change, intact, &mut rig.actions);
    let completed = rig.take_actions().into_iter().map(|action| match action {
        Action::Complete { completion, .. } => completion.status,
        other => panic!("{other:?}"),
    });
    completed.collect()
}

fn change(rig: &mut Rig, nsid: u32, state: u32) {
    let (asked, change) = begin(rig, nsid, state);
    assert_eq!(asked, state);
    assert_eq!(end(rig, nsid, change, true), [Status::SUCCESS]);
}

#[test]
fn a_namespace_is_protected_and_lifted() {
    let mut rig = Rig::ready();
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    assert_eq!(id.nwpc, 0b011, "no permanent protection");
    assert_eq!((state(&mut rig, 1), nsattr(&mut rig, 1)), (NONE, 0));
    change(&mut rig, 1, PROTECTED);
    assert_eq!((state(&mut rig, 1), nsattr(&mut rig, 1)), (PROTECTED, 1));
    let view = rig.subsystem.namespaces().next().unwrap().view();
    assert!(view.write_protected);
    rig.succeed(set(1, PROTECTED));
    assert!(rig.take_actions().is_empty());
    change(&mut rig, 1, NONE);
    assert_eq!((state(&mut rig, 1), nsattr(&mut rig, 1)), (NONE, 0));
    change(&mut rig, 1, PROTECTED);
    rig.succeed(set(1, UNTIL_POWER_CYCLE));
    rig.succeed(set(1, UNTIL_POWER_CYCLE));
    assert!(rig.take_actions().is_empty());
    for other in [NONE, PROTECTED] {
        assert_eq!(rig.fail(set(1, other)), Status::FEATURE_NOT_CHANGEABLE);
    }
    let now = (state(&mut rig, 1), nsattr(&mut rig, 1));
    assert_eq!(now, (UNTIL_POWER_CYCLE, 1));
}

#[test]
fn what_cannot_be_is_refused() {
    let mut rig = Rig::ready();
    for state in PERMANENT..8 {
        assert_eq!(rig.fail(set(1, state)), Status::INVALID_FIELD, "{state}");
    }
    for nsid in [0, 77, NSID_ALL] {
        let refused = rig.fail(set(nsid, PROTECTED));
        assert_eq!(refused, Status::INVALID_NAMESPACE_OR_FORMAT, "{nsid}");
    }
    let closed = [
        Namespace {
            protectable: false,
            ..namespace(7)
        },
        Namespace {
            read_only: true,
            ..namespace(8)
        },
    ];
    for one in closed {
        rig.subsystem.add_namespace(one, &mut Vec::new()).unwrap();
        for state in [PROTECTED, UNTIL_POWER_CYCLE] {
            let refused = rig.fail(set(one.nsid, state));
            assert_eq!(refused, Status::FEATURE_NOT_CHANGEABLE);
        }
    }
    let reported = (state(&mut rig, 7), state(&mut rig, 8));
    assert_eq!(reported, (NONE, PROTECTED));
    assert_eq!(rig.fail(set(8, NONE)), Status::FEATURE_NOT_CHANGEABLE);
}

#[test]
fn one_change_is_under_way_at_a_time() {
    let mut rig = Rig::ready();
    let (_, first) = begin(&mut rig, 1, PROTECTED);
    for state in [NONE, UNTIL_POWER_CYCLE] {
        assert_eq!(rig.fail(set(1, state)), Status::COMMAND_INTERRUPTED);
    }
    assert_eq!(end(&mut rig, 1, first, false), [Status::WRITE_FAULT]);
    assert_eq!((state(&mut rig, 1), nsattr(&mut rig, 1)), (NONE, 0));
    let (_, second) = begin(&mut rig, 1, PROTECTED);
    assert!(end(&mut rig, 1, first, true).is_empty(), "it is over");
    assert_eq!(end(&mut rig, 1, second, true), [Status::SUCCESS]);
    assert!(end(&mut rig, 1, second, true).is_empty(), "it is over");
    assert_eq!(state(&mut rig, 1), PROTECTED);
}

#[test]
fn a_reset_forgets_who_waits_and_keeps_the_protection() {
    let mut rig = Rig::ready();
    let (_, waiting) = begin(&mut rig, 1, PROTECTED);
    rig.set_cc(u64::from(CC_DISABLED as u32));
    rig.set_cc(u64::from(CC_ENABLED as u32));
    rig.take_actions();
    assert!(end(&mut rig, 1, waiting, true).is_empty());
    assert_eq!(state(&mut rig, 1), PROTECTED);
}

#[test]
fn the_administrator_ends_it() {
    let mut rig = Rig::ready();
    change(&mut rig, 1, UNTIL_POWER_CYCLE);
    rig.subsystem
        .set_protectable(1, false, &mut rig.actions)
        .unwrap();
    assert_eq!((state(&mut rig, 1), nsattr(&mut rig, 1)), (NONE, 0));
    assert_eq!(rig.fail(set(1, PROTECTED)), Status::FEATURE_NOT_CHANGEABLE);
    rig.subsystem
        .set_protectable(1, true, &mut rig.actions)
        .unwrap();
    let (_, waiting) = begin(&mut rig, 1, PROTECTED);
    let cid = rig.last_cid();
    rig.subsystem
        .set_protectable(1, false, &mut rig.actions)
        .unwrap();
    let refused = Action::Complete {
        cntlid: rig.cntlid,
        completion: Completion {
            cid,
            status: Status::FEATURE_NOT_CHANGEABLE,
            result: 0,
        },
    };
    assert_eq!(rig.take_actions(), [refused]);
    assert!(end(&mut rig, 1, waiting, true).is_empty());
    assert_eq!(state(&mut rig, 1), NONE);
}

#[test]
fn hosts_receive_an_event_and_who_waits_for_a_namespace_that_goes_an_answer() {
    let mut rig = Rig::ready();
    rig.succeed(set_features(0x0b, 1 << 8));
    let event = rig.park_aer();
    let (_, number) = begin(&mut rig, 1, PROTECTED);
    let waiting = rig.last_cid();
    rig.subsystem
        .protection_done(1, number, true, &mut rig.actions);
    let completed: Vec<u16> = rig
        .take_actions()
        .into_iter()
        .map(|action| match action {
            Action::Complete { completion, .. } => {
                if completion.cid == event {
                    let raised = AsyncEvent(completion.result as u32);
                    assert_eq!(raised, AsyncEvent::NOTICE_NAMESPACE_CHANGED);
                }
                completion.cid
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(completed, [waiting, event]);
    begin(&mut rig, 1, NONE);
    rig.subsystem.remove_namespace(1, &mut rig.actions).unwrap();
    let ended = rig.take_actions().into_iter().any(|action| {
        matches!(action, Action::Complete { completion, .. }
            if completion.status == Status::INVALID_NAMESPACE_OR_FORMAT)
    });
    assert!(ended);
}

#[test]
fn a_permanent_protection_is_kept_and_never_lifted() {
    let mut rig = Rig::ready();
    assert_eq!(nwpc(&mut rig), 0b011);
    let keeping = Namespace {
        keeps_protection: true,
        ..namespace(7)
    };
    rig.subsystem
        .add_namespace(keeping, &mut Vec::new())
        .unwrap();
    rig.take_actions();
    assert_eq!(nwpc(&mut rig), 0b111);
    assert_eq!(rig.fail(set(1, PERMANENT)), Status::INVALID_FIELD);
    // From PROTECTED to PERMANENT, writes stay rejected, but the target must save the new state.
    change(&mut rig, 7, PROTECTED);
    let (asked, number) = begin(&mut rig, 7, PERMANENT);
    assert_eq!(asked, PERMANENT);
    assert_eq!(end(&mut rig, 7, number, false), [Status::WRITE_FAULT]);
    assert_eq!(state(&mut rig, 7), PROTECTED, "it could not be kept");
    change(&mut rig, 7, PERMANENT);
    for state in [NONE, PROTECTED, UNTIL_POWER_CYCLE] {
        assert_eq!(rig.fail(set(7, state)), Status::FEATURE_NOT_CHANGEABLE);
    }
    assert_eq!(state(&mut rig, 7), PERMANENT);
}
