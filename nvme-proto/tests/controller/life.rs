use std::time::Duration;

use nvme_proto::controller::{Action, Completion, Outcome, Termination};
use nvme_proto::subsystem::{HostAccess, Settings, Subsystem};
use nvme_proto::wire::cqe::Cqe;
use nvme_proto::wire::identify::Cns;
use nvme_proto::wire::{AdminOpcode, Status};

use crate::rig::*;

const SHST_OCCURRING: u32 = 0b01 << 2;
const SHST_COMPLETE: u32 = 0b10 << 2;
const SHST: u32 = 0b11 << 2;

#[test]
fn before_ready_only_fabrics_commands_are_taken() {
    let mut rig = Rig::connected(Subsystem::new(settings()), 5000);
    for opcode in [
        AdminOpcode::IDENTIFY,
        AdminOpcode::KEEP_ALIVE,
        AdminOpcode::ASYNC_EVENT_REQUEST,
    ] {
        assert_eq!(rig.fail(sqe(opcode)), Status::COMMAND_SEQUENCE_ERROR);
    }
    assert_eq!(rig.csts(), 0);
    rig.enable();
    assert_eq!(rig.csts(), 1);
    rig.identify(Cns::CONTROLLER, 0);
}

#[test]
fn a_completion_carries_the_head_of_its_queue() {
    let completion = Completion::success(5, 0x1_0000_0002);
    let cqe = completion.cqe(17);
    assert_eq!(
        (cqe.cid.get(), cqe.sqhd.get(), cqe.result()),
        (5, 17, 0x1_0000_0002)
    );
    assert_eq!(completion.cqe(Cqe::SQHD_NO_FLOW_CONTROL).sqhd.get(), 0xffff);
}

#[test]
fn a_shutdown_flushes_and_then_is_complete() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    rig.set_cc(CC_SHUT_DOWN);
    assert_eq!(rig.take_actions(), [Action::FlushAll { cntlid }]);
    assert_eq!(rig.csts() & SHST, SHST_OCCURRING);
    assert_eq!(
        rig.fail(sqe(AdminOpcode::KEEP_ALIVE)),
        Status::COMMAND_SEQUENCE_ERROR
    );
    rig.flushed(true);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
}

#[test]
fn a_shutdown_first_disconnects_io_queues() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    rig.connect_io(1).unwrap();
    rig.connect_io(2).unwrap();
    rig.set_cc(CC_SHUT_DOWN);
    assert_eq!(rig.take_actions(), [Action::DisconnectIoQueues { cntlid }]);
    rig.disconnect(1);
    assert_eq!(rig.take_actions(), []);
    rig.disconnect(2);
    assert_eq!(rig.take_actions(), [Action::FlushAll { cntlid }]);
}

#[test]
fn a_host_that_shuts_down_and_resets_for_ever_has_one_flush_at_a_time() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    rig.succeed(set_features(0x06, 0));
    rig.take_actions();
    for _ in 0..10 {
        rig.set_cc(CC_SHUT_DOWN);
        rig.set_cc(CC_DISABLED);
        rig.set_cc(CC_ENABLED);
    }
    assert_eq!(rig.take_actions(), [Action::FlushAll { cntlid }]);
    assert_eq!(rig.csts() & 1, 1, "the reset waits");
    rig.flushed(true);
    let enabled = true;
    assert_eq!(
        rig.take_actions(),
        [Action::SetWriteCache { cntlid, enabled }]
    );
    assert_eq!(rig.csts(), 0);
    rig.enable();
    assert_eq!(rig.csts(), 1);
}

#[test]
fn without_a_write_cache_a_shutdown_is_complete_at_once() {
    let settings = Settings {
        volatile_write_cache: false,
        ..settings()
    };
    let mut rig = Rig::connected(Subsystem::new(settings), 0);
    rig.enable();
    rig.set_cc(CC_SHUT_DOWN);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
    rig.set_cc(CC_DISABLED);
    assert_eq!(rig.csts(), 0);
    assert_eq!(rig.take_actions(), []);
}

#[test]
fn a_reset_disconnects_io_queues_and_forgets_what_the_host_set() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    rig.succeed(set_features(0x0b, 0x100));
    rig.succeed(set_features(0x06, 0));
    rig.succeed(set_features(0x07, 0));
    rig.park_aer();
    rig.park_aer();
    rig.subsystem
        .resize_namespace(2, 5, &mut rig.actions)
        .unwrap();
    rig.connect_io(1).unwrap();
    rig.take_actions();
    rig.set_cc(CC_DISABLED);
    assert_eq!(rig.take_actions(), [Action::DisconnectIoQueues { cntlid }]);
    assert_eq!(rig.csts() & 1, 1, "not before the queues are gone");
    rig.disconnect(1);
    assert_eq!(
        rig.take_actions(),
        [Action::SetWriteCache {
            cntlid,
            enabled: true
        }]
    );
    assert_eq!(rig.csts(), 0);
    rig.set_cc(CC_ENABLED);
    assert_eq!(rig.csts(), 1);
    assert_eq!(rig.log(0x04, 4096), [0; 4096]);
    assert_eq!(rig.succeed(get_features(0x0b, 0, 0)).0, 0);
    assert_eq!(rig.succeed(get_features(0x06, 0, 0)).0, 1);
    assert_eq!(rig.succeed(get_features(0x07, 0, 0)).0, 0x007f_007f);
    assert_eq!(
        rig.succeed(get_features(0x0f, 0, 0)).0,
        5000,
        "KATO is of Connect"
    );
    rig.succeed(set_features(0x0b, 0x100));
    rig.subsystem.remove_namespace(1, &mut rig.actions).unwrap();
    assert_eq!(
        rig.take_actions(),
        [Action::SetSeen { cntlid }],
        "the parked request is forgotten"
    );
}

#[test]
fn a_silent_host_expires_and_reads_cfs() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    assert_eq!(
        rig.subsystem.next_deadline(),
        Some(rig.now + Duration::from_secs(5))
    );
    rig.now += Duration::from_secs(5);
    rig.subsystem
        .poll(rig.now, |_| Duration::ZERO, &mut rig.actions);
    let reason = Termination::KeepAliveExpired;
    assert_eq!(rig.take_actions(), [Action::Terminate { cntlid, reason }]);
    assert_eq!(rig.csts() & 0b10, 0b10);
    assert_eq!(rig.subsystem.next_deadline(), None);
    rig.subsystem
        .poll(rig.now, |_| Duration::ZERO, &mut rig.actions);
    assert_eq!(rig.take_actions(), [], "once is enough");
    assert!(rig.connect_io(1).is_err());
    rig.disconnect(0);
    assert!(rig.subsystem.controller(cntlid).is_none());
}

#[test]
fn a_reset_does_not_save_who_is_to_go() {
    let mut rig = Rig::ready();
    rig.subsystem.terminate_all(&mut rig.actions);
    rig.enable();
    assert_eq!(
        rig.fail(sqe(AdminOpcode::KEEP_ALIVE)),
        Status::COMMAND_SEQUENCE_ERROR
    );
}

#[test]
fn after_any_shutdown_the_association_ends_when_idle() {
    for cc in [CC_SHUT_DOWN, CC_SHUT_DOWN_ABRUPTLY] {
        let mut rig = Rig::connected(Subsystem::new(settings()), 0);
        rig.enable();
        assert_eq!(rig.subsystem.next_deadline(), None, "KATO is 0");
        rig.set_cc(cc);
        let idle = rig.now + Duration::from_secs(120);
        assert_eq!(rig.subsystem.next_deadline(), Some(idle));
    }
}

#[test]
fn any_command_keeps_the_association_alive() {
    let mut rig = Rig::ready();
    for round in 0..6 {
        let begin = rig.now;
        let on_io_queues = match round {
            1 | 5 => {
                rig.identify(Cns::CONTROLLER, 0);
                Duration::ZERO
            }
            3 => {
                assert_eq!(rig.fail(identify(Cns(0x7f), 0)), Status::INVALID_FIELD);
                Duration::ZERO
            }
            _ => begin,
        };
        rig.now += Duration::from_millis(4999);
        rig.subsystem
            .poll(rig.now, |_| on_io_queues, &mut rig.actions);
        assert_eq!(rig.take_actions(), [], "round {round}");
    }
    rig.now += Duration::from_millis(1);
    rig.subsystem
        .poll(rig.now, |_| Duration::ZERO, &mut rig.actions);
    assert!(matches!(rig.actions[..], [Action::Terminate { .. }]));
}

#[test]
fn the_deadline_follows_cc_en_and_set_features_at_once() {
    let mut rig = Rig::connected(Subsystem::new(settings()), 2000);
    let after = |rig: &Rig, ms| Some(rig.now + Duration::from_millis(ms));
    assert_eq!(rig.subsystem.next_deadline(), after(&rig, 120_000));
    rig.enable();
    assert_eq!(rig.subsystem.next_deadline(), after(&rig, 2000));
    rig.succeed(set_features(0x0f, 700));
    assert_eq!(rig.subsystem.next_deadline(), after(&rig, 700));
}

#[test]
fn a_cntlid_is_not_used_again_while_a_queue_of_the_old_controller_is_left() {
    let mut rig = Rig::connected(
        Subsystem::new(Settings {
            cntlids: 7..=8,
            ..settings()
        }),
        0,
    );
    rig.enable();
    rig.connect_io(1).unwrap();
    rig.connect_io(2).unwrap();
    let (old, now) = (rig.cntlid, rig.now);
    rig.disconnect(0);
    let connect = Connect::admin(SUBNQN, 0);
    let other = connect.send(&mut rig.subsystem, now).unwrap().cntlid;
    assert_ne!(other, old);
    let refused = |rig: &mut Rig| connect.send(&mut rig.subsystem, now).unwrap_err().status;
    assert_eq!(refused(&mut rig), Status::CONNECT_CONTROLLER_BUSY);
    rig.disconnect(1);
    assert_eq!(refused(&mut rig), Status::CONNECT_CONTROLLER_BUSY);
    rig.disconnect(2);
    assert_eq!(connect.send(&mut rig.subsystem, now).unwrap().cntlid, old);
}

#[test]
fn a_command_of_a_controller_that_is_gone_is_refused() {
    let mut rig = Rig::ready();
    rig.disconnect(0);
    let outcome = completion(rig.send(sqe(AdminOpcode::KEEP_ALIVE), &[]).0);
    assert_eq!(outcome.status.code(), Status::COMMAND_SEQUENCE_ERROR);
    let outcome = completion(rig.send(sqe(AdminOpcode(0x80)), &[]).0);
    assert!(!outcome.status.is_success());
}

#[test]
fn a_controller_that_is_never_enabled_does_not_stay() {
    let mut rig = Rig::connected(Subsystem::new(settings()), 0);
    rig.now = rig.subsystem.next_deadline().unwrap();
    rig.subsystem
        .poll(rig.now, |_| Duration::ZERO, &mut rig.actions);
    assert!(matches!(rig.actions[..], [Action::Terminate { .. }]));
}

#[test]
fn the_end_of_the_admin_queue_is_the_end_of_the_association() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    rig.connect_io(1).unwrap();
    rig.disconnect(0);
    assert_eq!(rig.take_actions(), [Action::DisconnectIoQueues { cntlid }]);
    assert!(rig.subsystem.controller(cntlid).is_none());
    rig.disconnect(1);
    rig.flushed(true);
    rig.subsystem.abort_done(cntlid, 1, true, &mut rig.actions);
    assert_eq!(rig.take_actions(), [], "late answers are dropped");
}

#[test]
fn a_host_that_is_no_longer_allowed_is_sent_away() {
    let mut rig = Rig::ready();
    let cntlid = rig.cntlid;
    rig.subsystem
        .set_hosts(HostAccess::only([nqn(HOSTNQN)]), &mut rig.actions);
    assert_eq!(rig.take_actions(), []);
    rig.subsystem
        .set_hosts(HostAccess::only([]), &mut rig.actions);
    let reason = Termination::HostNotAllowed;
    assert_eq!(rig.take_actions(), [Action::Terminate { cntlid, reason }]);
    rig.subsystem.terminate_all(&mut rig.actions);
    assert_eq!(rig.take_actions(), [], "it is on its way already");
}

#[test]
fn an_association_that_the_target_lost_a_part_of_ends() {
    let mut rig = Rig::ready();
    rig.connect_io(1).unwrap();
    let cntlid = rig.cntlid;
    rig.subsystem.terminate_faulty(cntlid + 1, &mut rig.actions);
    assert_eq!(rig.take_actions(), []);
    rig.subsystem.terminate_faulty(cntlid, &mut rig.actions);
    let reason = Termination::TargetFault;
    assert_eq!(rig.take_actions(), [Action::Terminate { cntlid, reason }]);
    rig.subsystem.terminate_faulty(cntlid, &mut rig.actions);
    assert_eq!(rig.take_actions(), [], "it is on its way already");
}

#[test]
fn an_abort_waits_for_the_target() {
    let mut rig = Rig::ready();
    rig.connect_io(1).unwrap();
    let cntlid = rig.cntlid;
    let mut abort = sqe(AdminOpcode::ABORT);
    abort.cdw10.set(1 | 0x42 << 16);
    assert_eq!(rig.send(abort, &[]).0, Outcome::Parked);
    let abort_cid = rig.last_cid();
    assert_eq!(
        rig.take_actions(),
        [Action::Abort {
            cntlid,
            abort_cid,
            sqid: 1,
            cid: 0x42
        }]
    );
    for _ in 0..3 {
        assert_eq!(rig.send(abort, &[]).0, Outcome::Parked);
    }
    assert_eq!(rig.fail(abort), Status::ABORT_COMMAND_LIMIT_EXCEEDED);
    rig.take_actions();
    rig.subsystem
        .abort_done(cntlid, abort_cid, true, &mut rig.actions);
    let completion = Completion::success(abort_cid, 0);
    assert_eq!(
        rig.take_actions(),
        [Action::Complete { cntlid, completion }]
    );
    rig.subsystem
        .abort_done(cntlid, abort_cid + 1, false, &mut rig.actions);
    let completion = Completion::success(abort_cid + 1, 1);
    assert_eq!(
        rig.take_actions(),
        [Action::Complete { cntlid, completion }]
    );
}

#[test]
fn a_reset_forgets_an_abort_that_waits() {
    let mut rig = Rig::ready();
    rig.connect_io(1).unwrap();
    let mut abort = sqe(AdminOpcode::ABORT);
    abort.cdw10.set(1);
    assert_eq!(rig.send(abort, &[]).0, Outcome::Parked);
    let (cntlid, abort_cid) = (rig.cntlid, rig.last_cid());
    rig.set_cc(CC_DISABLED);
    rig.disconnect(1);
    rig.take_actions();
    rig.subsystem
        .abort_done(cntlid, abort_cid, true, &mut rig.actions);
    assert_eq!(rig.take_actions(), []);
}

#[test]
fn an_abort_ends_with_the_queue_of_its_command() {
    let mut rig = Rig::ready();
    rig.connect_io(1).unwrap();
    rig.connect_io(2).unwrap();
    let cntlid = rig.cntlid;
    let abort = |sqid| {
        let mut abort = sqe(AdminOpcode::ABORT);
        abort.cdw10.set(sqid);
        abort
    };
    rig.send(abort(1), &[]);
    let ended = rig.last_cid();
    rig.send(abort(2), &[]);
    rig.take_actions();
    rig.disconnect(1);
    let completion = Completion::success(ended, 1);
    assert_eq!(
        rig.take_actions(),
        [Action::Complete { cntlid, completion }]
    );
    rig.subsystem
        .abort_done(cntlid, ended, true, &mut rig.actions);
    assert_eq!(rig.take_actions(), [], "the answer is late");
    rig.set_cc(CC_DISABLED);
    rig.take_actions();
    rig.disconnect(2);
    let completes = |action: &Action| matches!(action, Action::Complete { .. });
    assert!(!rig.take_actions().iter().any(completes), "a reset forgets");
}

#[test]
fn an_abort_of_what_is_not_there_says_so() {
    let mut rig = Rig::ready();
    let parked = u32::from(rig.park_aer());
    for (sqid, cid) in [(0, 0x42), (1, 0x42), (500, 0x42), (1, parked)] {
        let mut abort = sqe(AdminOpcode::ABORT);
        abort.cdw10.set(sqid | cid << 16);
        assert_eq!(rig.succeed(abort).0, 1);
    }
    assert_eq!(rig.take_actions(), []);
}

#[test]
fn an_abort_of_an_async_event_request_ends_it_first() {
    let mut rig = Rig::ready();
    let (cntlid, cid) = (rig.cntlid, rig.park_aer());
    let mut abort = sqe(AdminOpcode::ABORT);
    abort.cdw10.set(u32::from(cid) << 16);
    assert_eq!(rig.succeed(abort).0, 0);
    let completion = Completion {
        cid,
        status: Status::ABORT_REQUESTED,
        result: 0,
    };
    assert_eq!(
        rig.take_actions(),
        [Action::Complete { cntlid, completion }]
    );
}
