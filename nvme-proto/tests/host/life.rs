use std::time::Duration;

use nvme_proto::controller::Completion;
use nvme_proto::host::{AssociationState, Notice, Report, Settings};
use nvme_proto::limits::Limits;
use nvme_proto::wire::fabrics::{ConnectCommand, PropertySetCommand};
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::{AdminOpcode, FabricsType, Sqe, Status};

use crate::rig::{Rig, namespace, settings, subsystem_with};

fn word((qid, sqe): &(u16, Sqe)) -> String {
    if sqe.is_fabrics() {
        let set = PropertySetCommand::from(*sqe);
        return match sqe.fctype() {
            FabricsType::CONNECT => format!("connect {qid}"),
            FabricsType::PROPERTY_SET => format!("cc {:x}", set.value.get()),
            _ => format!("get {:x}", set.ofst.get()),
        };
    }
    match AdminOpcode(sqe.opc) {
        AdminOpcode::IDENTIFY => format!("identify {}", sqe.cdw10.get()),
        AdminOpcode::SET_FEATURES => {
            format!("feature {:x} {:x}", sqe.cdw10.get(), sqe.cdw11.get())
        }
        other => other.name().unwrap().to_owned(),
    }
}

fn words(rig: &mut Rig) -> Vec<String> {
    let words = rig.sent.iter().map(word).collect();
    rig.sent.clear();
    words
}

#[test]
fn the_way_up_is_that_of_linux() {
    let mut rig = Rig::live(settings());
    assert_eq!(rig.state(), AssociationState::Live);
    assert_eq!(
        words(&mut rig),
        [
            "connect 0",
            "get 0",
            "cc 460060",
            "get 0",
            "get 68",
            "cc 460061",
            "get 1c",
            "get 8",
            "identify 1",
            "Get Log Page",
            "feature 7 10001",
            "connect 1",
            "connect 2",
            "feature b 100900",
            "Asynchronous Event Request",
        ]
    );
    let sizes: Vec<_> = rig
        .requests
        .iter()
        .map(|r| (r.qid.get(), r.hrqsize.get(), r.hsqsize.get()))
        .collect();
    assert_eq!(sizes, [(0, 32, 31), (1, 128, 127), (2, 128, 127)]);
    assert_eq!(rig.requests[0].cntlid.get(), 0);
    assert_eq!(rig.requests[1].cntlid.get(), rig.host.cntlid());
    assert_eq!(rig.host.io_queues(), 2);
    assert!(rig.host.cancels());
}

#[test]
fn a_controller_without_cancel_or_without_the_log_is_live_all_the_same() {
    type Forge = fn(&Sqe, &mut Completion, &mut [u8]);
    let forges: [Forge; 2] = [
        |sqe, completion, _| {
            if AdminOpcode(sqe.opc) == AdminOpcode::GET_LOG_PAGE {
                completion.status = Status::INVALID_LOG_PAGE;
            }
        },
        |sqe, _, data| {
            if AdminOpcode(sqe.opc) == AdminOpcode::GET_LOG_PAGE {
                data[1024 + 4 * 0x18] = 0;
            }
        },
    ];
    for forge in forges {
        let mut rig = Rig::new(settings());
        rig.forge = forge;
        rig.host.begin(rig.now);
        rig.settle();
        assert_eq!(rig.state(), AssociationState::Live);
        assert!(!rig.host.cancels());
    }
}

#[test]
fn queues_are_as_large_as_both_sides_allow() {
    for (asked, entries, expected) in [(128, 64, 63), (32, 128, 31), (1024, 1024, 1023)] {
        let limits = Limits {
            io_queue_entries: entries,
            io_queues: 3,
            ..Limits::default()
        };
        let settings = Settings {
            io_queues: 8,
            queue_entries: asked,
            ..settings()
        };
        let mut rig = Rig::with_target(settings, subsystem_with(limits));
        rig.host.begin(rig.now);
        rig.settle();
        assert_eq!(rig.host.io_queues(), 3);
        let connects = rig.sent.iter().filter(|(qid, _)| *qid != 0);
        for (_, sqe) in connects {
            let connect = ConnectCommand::from(*sqe);
            assert_eq!(connect.sqsize.get(), expected);
        }
    }
}

#[test]
fn a_quiet_host_keeps_alive_and_a_busy_one_need_not() {
    let mut rig = Rig::live(settings());
    words(&mut rig);
    // With TBKAS, Keep Alives are sent at intervals of KATO / 4.
    rig.pass(Duration::from_millis(5000));
    assert_eq!(words(&mut rig), ["Keep Alive"; 4]);
    rig.host.note_traffic();
    rig.pass(Duration::from_millis(2500));
    assert_eq!(words(&mut rig), ["Keep Alive"]);
    rig.pass(Duration::from_secs(600));
    assert_eq!(rig.state(), AssociationState::Live);
    assert!(rig.take_reports().is_empty());
}

#[test]
fn without_a_timer_no_keep_alive_is_sent() {
    let mut rig = Rig::live(Settings {
        kato_ms: 0,
        ..settings()
    });
    assert_eq!(rig.host.deadline(), None);
    words(&mut rig);
    rig.pass(Duration::from_secs(60));
    assert!(words(&mut rig).is_empty());
}

#[test]
fn events_come_as_notices_and_are_asked_for_again() {
    let mut rig = Rig::live(settings());
    words(&mut rig);
    rig.change(|target, actions| target.add_namespace(namespace(2), actions).unwrap());
    let notice = Report::Notice(Notice::NamespacesChanged);
    assert_eq!(rig.take_reports(), [notice]);
    assert_eq!(words(&mut rig), ["Asynchronous Event Request"]);

    let mut silent = Rig::live(Settings {
        events: AsyncEventConfig(0),
        ..settings()
    });
    silent.change(|target, actions| target.add_namespace(namespace(2), actions).unwrap());
    assert!(silent.take_reports().is_empty());
    assert!(!words(&mut silent).contains(&"Asynchronous Event Request".to_owned()));
}

#[test]
fn a_shutdown_is_orderly() {
    let mut rig = Rig::live(settings());
    words(&mut rig);
    rig.host.shutdown(rig.now);
    rig.settle();
    assert_eq!(words(&mut rig), ["cc 464061", "get 1c"]);
    assert_eq!(rig.take_reports(), [Report::Gone(None)]);
    assert_eq!(rig.state(), AssociationState::Gone);
    assert_eq!(rig.target.controllers().count(), 0);
    rig.host.reset(rig.now);
    rig.host.shutdown(rig.now);
    rig.pass(Duration::from_secs(1000));
    assert!(words(&mut rig).is_empty() && rig.take_reports().is_empty());
}

#[test]
fn a_reset_goes_down_and_up() {
    let mut rig = Rig::live(settings());
    words(&mut rig);
    rig.host.reset(rig.now);
    assert_eq!(rig.state(), AssociationState::Resetting);
    rig.settle();
    assert_eq!(rig.state(), AssociationState::Live);
    let words = words(&mut rig);
    assert_eq!(words[..3], ["cc 460060", "get 1c", "connect 0"]);
    assert_eq!(rig.take_reports(), [Report::Live { tries: 0 }]);
    assert_eq!(rig.target.controllers().count(), 1);
}

#[test]
fn a_queue_that_is_not_needed_may_go() {
    let mut rig = Rig::live(settings());
    rig.host.release_queue(2);
    rig.settle();
    assert_eq!(rig.state(), AssociationState::Live);
    rig.host.release_queue(0);
    rig.settle();
    assert_eq!(rig.state(), AssociationState::Live);
    rig.host.shutdown(rig.now);
    rig.settle();
    assert_eq!(rig.take_reports(), [Report::Gone(None)]);
}
