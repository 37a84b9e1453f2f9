use std::time::Duration;

use nvme_proto::controller::{Action, Completion, Outcome, Termination};
use nvme_proto::subsystem::{Settings, Subsystem};
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::cross_reset::{
    CrossResetEntry, CrossResetLogHeader, CrossResetState, Instance,
};
use nvme_proto::wire::identify::{Cns, IdentifyController};
use nvme_proto::wire::{AdminOpcode, Sqe, Status};

use crate::rig::*;

const COMPLETED_NOTICES: u32 = 1 << 20;
const REMOVES: u32 = 1 << 8;

fn reset(instance: &Instance) -> Sqe {
    let mut sqe = sqe(AdminOpcode::CROSS_CONTROLLER_RESET);
    instance.put(&mut sqe);
    sqe
}

impl Rig {
    fn instance(&mut self) -> Instance {
        let id: IdentifyController = self.identify_as(Cns::CONTROLLER, 0);
        Instance::of(&id).unwrap()
    }

    fn other(&mut self, hostid: u8, queues: &[u16]) -> Instance {
        let mut connect = Connect::admin(SUBNQN, 5000);
        connect.data.hostid = [hostid; 16];
        let cntlid = connect.send(&mut self.subsystem, self.now).unwrap().cntlid;
        let own = std::mem::replace(&mut self.cntlid, cntlid);
        self.enable();
        for &qid in queues {
            self.connect_io(qid).unwrap();
        }
        let instance = self.instance();
        self.cntlid = own;
        self.take_actions();
        instance
    }

    fn end(&mut self, instance: &Instance, qid: u16) {
        self.subsystem
            .queue_disconnected(instance.cntlid, qid, self.now, &mut self.actions);
    }

    fn begin_reset(&mut self, instance: &Instance) -> u16 {
        let (outcome, _) = self.send(reset(instance), &[]);
        assert_eq!(outcome, Outcome::Parked);
        self.last_cid()
    }

    fn poll(&mut self) {
        let now = self.now;
        self.subsystem.poll(now, |_| now, &mut self.actions);
    }

    fn completions(&mut self) -> Vec<(u16, u64)> {
        let completion = |action| match action {
            Action::Complete { completion, .. } => {
                let Completion { cid, result, .. } = completion;
                Some((cid, result))
            }
            _ => None,
        };
        self.take_actions()
            .into_iter()
            .filter_map(completion)
            .collect()
    }

    fn states(&mut self, more: u32) -> Vec<(u16, u8)> {
        let mut get = log(0x1e, 4096);
        get.cdw10.set(get.cdw10.get() | more);
        let page = self.succeed(get).1;
        let entries = read::<CrossResetLogHeader>(&page).ne.get();
        (0..usize::from(entries))
            .map(|index| read::<CrossResetEntry>(&page[8 * (1 + index)..]))
            .map(|entry| (entry.icid.get(), entry.ccrs))
            .collect()
    }
}

#[test]
fn a_reset_is_answered_when_the_last_queue_of_the_controller_has_ended() {
    let mut rig = Rig::ready();
    let other = rig.other(7, &[1, 2]);
    let cid = rig.begin_reset(&other);
    let (cntlid, reason) = (other.cntlid, Termination::CrossControllerReset);
    assert_eq!(rig.take_actions(), [Action::Terminate { cntlid, reason }]);
    rig.end(&other, 1);
    rig.end(&other, 0);
    assert_eq!(rig.completions(), [], "a queue is left");
    rig.end(&other, 2);
    assert_eq!(rig.completions(), [(cid, 1)]);
    assert_eq!(rig.states(0), []);
    assert_eq!(rig.succeed(reset(&other)).0, 1, "it has ended already");
}

#[test]
fn a_late_reset_is_in_the_log_and_ends_with_an_event() {
    let mut rig = Rig::ready();
    rig.succeed(set_features(0x0b, COMPLETED_NOTICES));
    let event = rig.park_aer();
    let other = rig.other(7, &[1]);
    let cid = rig.begin_reset(&other);
    rig.end(&other, 0);
    rig.take_actions();
    let until = rig.subsystem.next_deadline().unwrap();
    rig.now = until - Duration::from_nanos(1);
    rig.poll();
    assert_eq!(rig.completions(), []);
    rig.now = until;
    rig.poll();
    assert_eq!(rig.completions(), [(cid, 0)]);
    let in_progress = [(other.cntlid, CrossResetState::IN_PROGRESS.0)];
    assert_eq!(rig.states(REMOVES), in_progress);
    let again = rig.fail(reset(&other));
    assert_eq!(again, Status::CROSS_CONTROLLER_RESET_IN_PROGRESS);
    rig.end(&other, 1);
    let notice = AsyncEvent::NOTICE_CROSS_CONTROLLER_RESET.0;
    assert_eq!(rig.completions(), [(event, notice.into())]);
    let done = [(other.cntlid, CrossResetState::SUCCESS.0)];
    assert_eq!(rig.states(0), done);
    assert_eq!(rig.states(REMOVES), done);
    assert_eq!(rig.states(0), []);
}

#[test]
fn a_host_resets_no_other_host_and_no_unknown_controller() {
    let mut rig = Rig::ready();
    let (stranger, own) = (rig.other(8, &[]), rig.instance());
    let other = rig.other(7, &[]);
    let never = Instance {
        cirn: other.cirn ^ 1,
        ..other
    };
    for instance in [stranger, own, never] {
        assert_eq!(rig.fail(reset(&instance)), Status::INVALID_FIELD);
    }
    assert_eq!(rig.take_actions(), []);
    rig.end(&stranger, 0);
    assert_eq!(rig.succeed(reset(&stranger)).0, 1);
}

#[test]
fn a_former_instance_is_not_its_successor() {
    let mut rig = Rig::connected(
        Subsystem::new(Settings {
            cntlids: 7..=8,
            ..settings()
        }),
        5000,
    );
    rig.enable();
    let former = rig.other(7, &[]);
    rig.end(&former, 0);
    let next = rig.other(7, &[]);
    assert_eq!(next.cntlid, former.cntlid);
    assert_eq!(rig.succeed(reset(&former)).0, 1);
    assert_eq!(rig.take_actions(), []);
    let own = rig.instance();
    rig.enable();
    let enabled = rig.instance();
    assert!(own.ciu != enabled.ciu && own.cirn != enabled.cirn);
    assert_eq!(rig.succeed(reset(&own)).0, 1);
}

#[test]
fn a_controller_that_is_enabled_again_ends_the_resets_of_its_former_instance() {
    let mut rig = Rig::ready();
    rig.succeed(set_features(0x0b, COMPLETED_NOTICES));
    let event = rig.park_aer();
    let (late, early) = (rig.other(7, &[]), rig.other(7, &[1]));
    rig.begin_reset(&late);
    rig.now = rig.subsystem.next_deadline().unwrap();
    rig.poll();
    let cid = rig.begin_reset(&early);
    rig.end(&early, 1);
    rig.take_actions();
    let own = std::mem::replace(&mut rig.cntlid, late.cntlid);
    rig.enable();
    rig.cntlid = early.cntlid;
    rig.enable();
    rig.cntlid = own;
    let notice = AsyncEvent::NOTICE_CROSS_CONTROLLER_RESET.0;
    assert_eq!(rig.completions(), [(event, notice.into()), (cid, 1)]);
    let done = [(late.cntlid, CrossResetState::SUCCESS.0)];
    assert_eq!(rig.states(REMOVES), done);
    for _ in 0..4 {
        let other = rig.other(7, &[]);
        rig.begin_reset(&other);
    }
}

#[test]
fn a_reset_is_answered_however_its_controller_ends() {
    type End = fn(&mut Rig, u16);
    let ends: [End; 4] = [
        |rig, cntlid| rig.subsystem.disconnect(cntlid, &mut rig.actions),
        |rig, cntlid| rig.subsystem.terminate_faulty(cntlid, &mut rig.actions),
        |rig, cntlid| {
            let (hour, last) = (Duration::from_secs(3600), || Duration::ZERO);
            let actions = &mut rig.actions;
            rig.subsystem.poll_one(cntlid, hour, last, actions);
        },
        |rig, cntlid| {
            let own = std::mem::replace(&mut rig.cntlid, cntlid);
            rig.set_cc(CC_SHUT_DOWN);
            rig.cntlid = own;
        },
    ];
    for (end, is_first) in ends.iter().flat_map(|end| [(end, true), (end, false)]) {
        let mut rig = Rig::ready();
        let other = rig.other(7, &[1]);
        if is_first {
            end(&mut rig, other.cntlid);
        }
        let cid = rig.begin_reset(&other);
        if !is_first {
            end(&mut rig, other.cntlid);
        }
        rig.end(&other, 0);
        rig.end(&other, 1);
        assert_eq!(rig.completions(), [(cid, 1)]);
    }
}

#[test]
fn the_fifth_reset_in_progress_is_one_too_many() {
    let mut rig = Rig::ready();
    let others: Vec<Instance> = (0..5).map(|_| rig.other(7, &[])).collect();
    for other in &others[..4] {
        rig.begin_reset(other);
    }
    rig.take_actions();
    let refused = rig.fail(reset(&others[4]));
    assert_eq!(refused, Status::CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED);
    assert_eq!(rig.take_actions(), []);
    rig.end(&others[0], 0);
    rig.begin_reset(&others[4]);
    rig.set_cc(CC_DISABLED);
    rig.end(&others[1], 0);
    assert_eq!(rig.completions()[1..], [], "a reset forgets its commands");
}

#[test]
fn the_log_has_a_limit() {
    let mut rig = Rig::ready();
    for _ in 0..511 {
        let other = rig.other(7, &[]);
        rig.begin_reset(&other);
        rig.now = rig.subsystem.next_deadline().unwrap();
        rig.poll();
        rig.end(&other, 0);
    }
    let other = rig.other(7, &[]);
    let refused = rig.fail(reset(&other));
    assert_eq!(refused, Status::CROSS_CONTROLLER_RESET_LOG_FULL);
    assert_eq!(rig.states(REMOVES).len(), 511);
    rig.begin_reset(&other);
}
