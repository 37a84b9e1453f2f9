use std::time::Duration;

use nvme_proto::host::{Action, AuthenticationStep as Next, Cause, OwnCommand, Report, Settings};
use nvme_proto::wire::{Cqe, Status};

use crate::rig::{Rig, settings};

fn live() -> Rig {
    Rig::live(Settings {
        spare_entry: true,
        ..settings()
    })
}

fn asked(rig: &mut Rig) -> (u16, bool) {
    match rig.host.next_action() {
        Some(Action::Authenticate { qid, answer }) => (qid, answer.is_none()),
        other => panic!("{other:?}"),
    }
}

fn sent(rig: &mut Rig) -> OwnCommand {
    match rig.host.next_action() {
        Some(Action::Send(command)) => command,
        other => panic!("{other:?}"),
    }
}

fn exchange(rig: &mut Rig, qid: u16, status: Status) {
    let message = Next::Send([1; 40].into());
    rig.host.authenticate(message, rig.now);
    let command = sent(rig);
    assert_eq!(command.qid, qid);
    let cqe = Cqe::new(0, 0, status, 0);
    rig.host.completed(command.duty, &cqe, &[], rig.now);
}

fn report(rig: &mut Rig) -> Report {
    match rig.host.next_action() {
        Some(Action::Report(report)) => report,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_queue_has_its_turn() {
    let mut rig = live();
    assert!(rig.host.reauthenticate());
    assert!(!rig.host.reauthenticate(), "one at a time");
    for qid in 0..=2 {
        assert_eq!(asked(&mut rig), (qid, true));
        exchange(&mut rig, qid, Status::SUCCESS);
        assert_eq!(asked(&mut rig), (qid, false));
        rig.host.authenticate(Next::Done, rig.now);
    }
    assert_eq!(report(&mut rig), Report::Reauthenticated);
    assert!(rig.host.reauthenticate(), "and once more");
}

#[test]
fn a_queue_that_goes_meanwhile_is_left_out() {
    let mut rig = live();
    assert!(rig.host.reauthenticate());
    assert_eq!(asked(&mut rig), (0, true));
    rig.host.authenticate(Next::Done, rig.now);
    assert_eq!(asked(&mut rig), (1, true));
    rig.host.authenticate(Next::Receive(4096), rig.now);
    sent(&mut rig);
    rig.host.release_queue(1);
    assert_eq!(rig.host.next_action(), Some(Action::Disconnect { qid: 1 }));
    rig.host.queue_closed(1, rig.now);
    assert_eq!(asked(&mut rig), (2, true));
    rig.host.authenticate(Next::Done, rig.now);
    assert_eq!(report(&mut rig), Report::Reauthenticated);
}

#[test]
fn a_controller_that_does_not_offer_it_stays() {
    let mut rig = live();
    assert!(rig.host.reauthenticate());
    assert_eq!(asked(&mut rig), (0, true));
    exchange(&mut rig, 0, Status::INVALID_OPCODE);
    let Report::NotReauthenticated(Cause::Status { status, .. }) = report(&mut rig) else {
        panic!("it is refused");
    };
    assert_eq!(status, Status::INVALID_OPCODE);
    assert_eq!(rig.host.next_action(), None);
}

#[test]
fn a_controller_that_does_not_answer_or_cannot_prove_itself_is_lost() {
    for answers in [false, true] {
        let mut rig = live();
        assert!(rig.host.reauthenticate());
        assert_eq!(asked(&mut rig), (0, true));
        let cause = if answers {
            rig.host.authenticate(Next::Failed("a liar"), rig.now);
            Cause::NotAuthenticated("a liar")
        } else {
            rig.host.authenticate(Next::Receive(4096), rig.now);
            sent(&mut rig);
            rig.host.note_traffic();
            rig.host.tick(rig.now + Duration::from_secs(10));
            Cause::TooSlow {
                what: "reauthentication",
            }
        };
        assert_eq!(report(&mut rig), Report::Lost(cause));
    }
}
