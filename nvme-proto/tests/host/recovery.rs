use std::time::Duration;

use nvme_proto::host::{AssociationState, Cause, Recovery, Report, Settings};
use nvme_proto::subsystem::HostAccess;
use nvme_proto::wire::Status;

use crate::rig::{Rig, settings};

const SECOND: Duration = Duration::from_secs(1);

fn with(recovery: Recovery) -> Settings {
    Settings {
        recovery,
        ..settings()
    }
}

#[test]
fn a_lost_controller_is_connected_to_again() {
    for qid in [0, 1, 2] {
        let mut rig = Rig::live(settings());
        rig.cut(qid);
        assert_eq!(rig.state(), AssociationState::Reconnecting { tries: 0 });
        let lost = Report::Lost(Cause::QueueLost { qid });
        assert_eq!(rig.take_reports(), [lost]);
        rig.pass(9 * SECOND);
        assert!(rig.take_reports().is_empty());
        rig.pass(2 * SECOND);
        assert_eq!(rig.take_reports(), [Report::Live { tries: 1 }]);
        rig.pass(100 * SECOND);
        assert_eq!(rig.state(), AssociationState::Live);
    }
}

#[test]
fn tries_go_on_until_ctrl_loss_tmo() {
    let mut rig = Rig::live(with(Recovery {
        ctrl_loss_tmo: Some(35 * SECOND),
        reconnect_delay: 10 * SECOND,
        fast_io_fail_tmo: None,
    }));
    rig.unreachable = true;
    rig.cut(1);
    rig.pass(600 * SECOND);
    let cause = Cause::NotConnected { qid: 0 };
    let mut expected = vec![Report::Lost(Cause::QueueLost { qid: 1 })];
    expected.extend((1..=3).map(|tries| Report::TryFailed { tries, cause }));
    expected.push(Report::Gone(Some(cause)));
    assert_eq!(rig.take_reports(), expected);
    assert_eq!(rig.state(), AssociationState::Gone);
}

#[test]
fn a_controller_counts_as_gone_when_ctrl_loss_tmo_is_over() {
    for (tmo, tries_fail) in [(35, true), (30, true), (25, false), (11, false)] {
        let mut rig = Rig::live(with(Recovery {
            ctrl_loss_tmo: Some(tmo * SECOND),
            reconnect_delay: 10 * SECOND,
            fast_io_fail_tmo: None,
        }));
        rig.unreachable = tries_fail;
        rig.mute = !tries_fail;
        rig.cut(1);
        rig.pass((tmo - 1) * SECOND);
        assert!(
            matches!(rig.state(), AssociationState::Reconnecting { .. }),
            "{tmo}"
        );
        rig.pass(2 * SECOND);
        assert_eq!(rig.state(), AssociationState::Gone, "{tmo}");
    }
}

#[test]
fn a_network_that_comes_back_in_time_is_enough() {
    let mut rig = Rig::live(settings());
    rig.unreachable = true;
    rig.cut(0);
    rig.pass(95 * SECOND);
    assert_eq!(rig.state(), AssociationState::Reconnecting { tries: 9 });
    rig.unreachable = false;
    rig.pass(10 * SECOND);
    let reports = rig.take_reports();
    assert_eq!(reports.last(), Some(&Report::Live { tries: 10 }));
    rig.cut(0);
    assert_eq!(rig.state(), AssociationState::Reconnecting { tries: 0 });
}

#[test]
fn commands_learn_when_to_stop_waiting() {
    let mut rig = Rig::live(with(Recovery {
        fast_io_fail_tmo: Some(15 * SECOND),
        ..Recovery::default()
    }));
    rig.unreachable = true;
    rig.cut(1);
    rig.pass(14 * SECOND);
    assert!(!rig.host.fails_fast());
    rig.pass(2 * SECOND);
    assert!(rig.host.fails_fast());
    rig.pass(30 * SECOND);
    let reports = rig.take_reports();
    let reports = reports.iter().filter(|r| **r == Report::FailFast).count();
    assert_eq!(reports, 1);
    rig.unreachable = false;
    rig.pass(20 * SECOND);
    assert!(rig.state() == AssociationState::Live && !rig.host.fails_fast());
}

#[test]
fn without_recovery_a_loss_is_the_end() {
    let mut rig = Rig::live(with(Recovery::NONE));
    rig.cut(2);
    let cause = Cause::QueueLost { qid: 2 };
    assert_eq!(
        rig.take_reports(),
        [Report::Lost(cause), Report::Gone(Some(cause))]
    );
}

#[test]
fn a_controller_that_was_never_reached_is_not_waited_for() {
    let mut rig = Rig::new(settings());
    rig.unreachable = true;
    rig.host.begin(rig.now);
    assert_eq!(rig.state(), AssociationState::Connecting);
    rig.settle();
    let cause = Cause::NotConnected { qid: 0 };
    assert_eq!(rig.take_reports(), [Report::Gone(Some(cause))]);
}

#[test]
fn do_not_retry_means_that() {
    let mut rig = Rig::live(settings());
    rig.change(|target, actions| target.set_hosts(HostAccess::only([]), actions));
    assert!(matches!(rig.state(), AssociationState::Reconnecting { .. }));
    rig.pass(11 * SECOND);
    let reports = rig.take_reports();
    let Some(Report::Gone(Some(Cause::Status { status, .. }))) = reports.last() else {
        panic!("{reports:?}");
    };
    assert_eq!(*status, Status::CONNECT_INVALID_HOST.with_dnr());
    assert_eq!(rig.state(), AssociationState::Gone);
}

#[test]
fn a_mute_controller_is_noticed_by_its_keep_alive() {
    let mut rig = Rig::live(settings());
    rig.mute = true;
    rig.pass(7 * SECOND);
    let what = "the answer to a Keep Alive";
    let cause = Cause::TooSlow { what };
    assert_eq!(rig.take_reports(), [Report::Lost(cause)]);
    rig.pass(20 * SECOND);
    let what = "Connect";
    let cause = Cause::TooSlow { what };
    assert_eq!(rig.take_reports(), [Report::TryFailed { tries: 1, cause }]);
    rig.mute = false;
    rig.pass(20 * SECOND);
    assert_eq!(rig.take_reports(), [Report::Live { tries: 2 }]);
}

#[test]
fn a_command_that_hangs_is_aborted_and_then_the_controller_is_lost() {
    let mut rig = Rig::live(settings());
    rig.mute = true;
    let now = rig.now;
    let sent = (0..10).filter(|&cid| rig.host.command_timed_out(1, cid, false, now));
    assert_eq!(sent.count(), 4);
    rig.settle();
    assert_eq!(rig.state(), AssociationState::Live);
    assert!(!rig.host.command_timed_out(1, 3, true, now));
    rig.settle();
    let cause = Cause::CommandTimeout { qid: 1, cid: 3 };
    assert_eq!(rig.take_reports(), [Report::Lost(cause)]);
}

#[test]
fn answered_aborts_make_room_for_more() {
    let mut rig = Rig::live(settings());
    for cid in 0..20 {
        assert!(rig.host.command_timed_out(1, cid, false, rig.now));
        rig.settle();
    }
    assert_eq!(rig.state(), AssociationState::Live);
}

#[test]
fn a_reset_that_fails_is_a_loss() {
    let mut rig = Rig::live(settings());
    rig.mute = true;
    rig.host.reset(rig.now);
    rig.settle();
    rig.pass(11 * SECOND);
    assert!(matches!(rig.state(), AssociationState::Reconnecting { .. }));
    rig.mute = false;
    rig.pass(20 * SECOND);
    assert_eq!(rig.state(), AssociationState::Live);
}

#[test]
fn a_shutdown_that_fails_ends_all_the_same() {
    // With KATO 0, the target does not end the association before the host.
    let mut rig = Rig::live(Settings {
        kato_ms: 0,
        ..settings()
    });
    rig.mute = true;
    rig.host.shutdown(rig.now);
    rig.settle();
    rig.pass(11 * SECOND);
    let reports = rig.take_reports();
    assert!(matches!(
        reports[..],
        [Report::Gone(Some(Cause::TooSlow { .. }))]
    ));
    assert_eq!(rig.target.controllers().count(), 0);
}

#[test]
fn a_shutdown_whose_flush_failed_is_no_success() {
    let mut rig = Rig::live(settings());
    rig.flush_fails = true;
    rig.host.shutdown(rig.now);
    rig.settle();
    // After a failed flush, CSTS has SHST = complete and CFS set.
    assert_eq!(rig.take_reports(), [Report::Gone(Some(Cause::Fatal))]);
}

#[test]
fn a_shutdown_of_a_lost_controller_does_not_wait_for_it() {
    let mut rig = Rig::live(settings());
    rig.cut(0);
    rig.take_reports();
    rig.host.shutdown(rig.now);
    rig.settle();
    assert_eq!(rig.take_reports(), [Report::Gone(None)]);
}

#[test]
fn a_device_that_is_pulled_out_is_the_end() {
    let mut rig = Rig::live(settings());
    rig.host.device_removed(rig.now);
    rig.settle();
    let reports = rig.take_reports();
    assert!(matches!(reports[..], [Report::Gone(Some(_))]));
    assert_eq!(rig.host.deadline(), None);
}
