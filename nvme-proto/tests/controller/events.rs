use nvme_proto::controller::{Action, Completion};
use nvme_proto::subsystem::Health;
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::{AdminOpcode, Status};

use crate::rig::*;

const NAMESPACE_NOTICES: u32 = 1 << 8;

impl Rig {
    fn resize(&mut self, blocks: u64) {
        self.subsystem
            .resize_namespace(1, blocks, &mut self.actions)
            .unwrap();
    }

    fn events(&mut self) -> Vec<(u16, AsyncEvent)> {
        let event = |action| match action {
            Action::Complete {
                completion:
                    Completion {
                        cid,
                        status,
                        result,
                    },
                ..
            } => {
                assert_eq!(status, Status::SUCCESS);
                (cid, AsyncEvent(result as u32))
            }
            other => panic!("{other:?}"),
        };
        self.take_actions().into_iter().map(event).collect()
    }
}

#[test]
fn a_change_of_a_namespace_is_reported_until_the_list_was_read() {
    let mut rig = Rig::ready();
    rig.succeed(set_features(0x0b, NAMESPACE_NOTICES));
    let (first, second) = (rig.park_aer(), rig.park_aer());
    rig.resize(5);
    assert_eq!(
        rig.events(),
        [(first, AsyncEvent::NOTICE_NAMESPACE_CHANGED)]
    );
    rig.resize(6);
    assert_eq!(rig.events(), [], "masked");
    rig.succeed(with_rae(log(0x04, 4096)));
    rig.resize(8);
    assert_eq!(rig.events(), [], "the event was retained, and still masks");
    rig.log(0x04, 4096);
    assert_eq!(rig.events(), [], "the list reported both");
    rig.resize(7);
    assert_eq!(
        rig.events(),
        [(second, AsyncEvent::NOTICE_NAMESPACE_CHANGED)]
    );
}

#[test]
fn an_event_waits_for_a_request() {
    let mut rig = Rig::ready();
    rig.succeed(set_features(0x0b, NAMESPACE_NOTICES));
    rig.resize(5);
    assert_eq!(rig.events(), []);
    let cid = rig.park_aer();
    assert_eq!(rig.events(), [(cid, AsyncEvent::NOTICE_NAMESPACE_CHANGED)]);
}

#[test]
fn what_was_not_enabled_is_not_reported() {
    let mut rig = Rig::ready();
    rig.park_aer();
    rig.resize(5);
    let health = Health {
        critical_warning: 0b1101,
        ..Health::default()
    };
    rig.subsystem.set_health(health, &mut rig.actions);
    assert_eq!(rig.events(), []);
    rig.succeed(set_features(0x0b, NAMESPACE_NOTICES | 0xff));
    assert_eq!(rig.events(), [], "nor afterwards");
}

#[test]
fn new_warnings_of_health_are_events() {
    let mut rig = Rig::ready();
    rig.succeed(set_features(0x0b, 0xff));
    let cid = rig.park_aer();
    let read_only = Health {
        critical_warning: 1 << 3,
        ..Health::default()
    };
    rig.subsystem.set_health(read_only, &mut rig.actions);
    assert_eq!(rig.events(), [(cid, AsyncEvent::SMART_RELIABILITY)]);
    let cid = rig.park_aer();
    let and_spare = Health {
        critical_warning: 1 << 3 | 1,
        ..Health::default()
    };
    rig.subsystem.set_health(and_spare, &mut rig.actions);
    assert_eq!(rig.events(), [], "masked until the health log is read");
    rig.log(0x02, 512);
    rig.subsystem
        .set_health(Health::default(), &mut rig.actions);
    rig.subsystem.set_health(and_spare, &mut rig.actions);
    assert_eq!(rig.events(), [(cid, AsyncEvent::SMART_SPARE)]);
    rig.log(0x02, 512);
    let cid = rig.park_aer();
    assert_eq!(rig.events(), [], "the page reported the other warning too");
    let hot = Health {
        temperature_k: 360,
        ..and_spare
    };
    rig.succeed(set_features(0x04, 350));
    rig.subsystem.set_health(hot, &mut rig.actions);
    assert_eq!(rig.events(), [(cid, AsyncEvent::SMART_TEMPERATURE)]);
}

#[test]
fn a_threshold_that_is_already_crossed_is_an_event() {
    let mut rig = Rig::ready();
    rig.succeed(set_features(0x0b, 0xff));
    let warm = Health {
        temperature_k: 330,
        critical_warning: 1,
        ..Health::default()
    };
    rig.subsystem.set_health(warm, &mut Vec::new());
    rig.log(0x02, 512);
    let cid = rig.park_aer();
    rig.succeed(set_features(0x04, 331));
    assert_eq!(rig.events(), []);
    rig.succeed(set_features(0x04, 330));
    assert_eq!(rig.events(), [(cid, AsyncEvent::SMART_TEMPERATURE)]);
}

#[test]
fn internal_errors_are_always_reported() {
    let mut rig = Rig::ready();
    let (first, second) = (rig.park_aer(), rig.park_aer());
    rig.subsystem.internal_error(false, &mut rig.actions);
    assert_eq!(
        rig.events(),
        [(first, AsyncEvent::ERROR_TRANSIENT_INTERNAL)]
    );
    rig.log(0x01, 64);
    rig.subsystem.internal_error(true, &mut rig.actions);
    assert_eq!(
        rig.events(),
        [(second, AsyncEvent::ERROR_PERSISTENT_INTERNAL)]
    );
}

#[test]
fn every_host_receives_it_on_its_own_queue() {
    let mut rig = Rig::ready();
    let first = rig.cntlid;
    rig.succeed(set_features(0x0b, NAMESPACE_NOTICES));
    let first_cid = rig.park_aer();
    rig.cntlid = Connect::admin(SUBNQN, 0)
        .send(&mut rig.subsystem, rig.now)
        .unwrap()
        .cntlid;
    rig.enable();
    rig.succeed(set_features(0x0b, NAMESPACE_NOTICES));
    let second_cid = rig.park_aer();
    rig.resize(5);
    let event = |cntlid, cid| {
        let result = u64::from(AsyncEvent::NOTICE_NAMESPACE_CHANGED.0);
        Action::Complete {
            cntlid,
            completion: Completion::success(cid, result),
        }
    };
    assert_eq!(
        rig.take_actions(),
        [event(first, first_cid), event(rig.cntlid, second_cid)]
    );
}

#[test]
fn one_request_too_many_is_refused() {
    let mut rig = Rig::ready();
    for _ in 0..4 {
        rig.park_aer();
    }
    let status = rig.fail(sqe(AdminOpcode::ASYNC_EVENT_REQUEST));
    assert_eq!(status, Status::ASYNC_EVENT_REQUEST_LIMIT_EXCEEDED);
}
