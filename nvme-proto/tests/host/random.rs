use std::collections::BTreeSet;
use std::time::Duration;

use nvme_proto::host::{
    Action, Association, AssociationState, AuthenticationStep, Duty, Payload, Recovery, Report,
    Settings,
};
use nvme_proto::wire::identify::IdentifyController;
use nvme_proto::wire::{Cqe, FromBytes, FromZeros, IntoBytes, Status};
use proptest::prelude::*;

use crate::rig::settings;

#[derive(Clone, Debug)]
enum Event {
    /// Response to the oldest command: status, result, kind of data.
    Answer(u16, u64, u8),
    /// Response to a step, Keep Alive or Abort that need not be in flight.
    Stray(u32),
    Connected(u16),
    Lost(u16),
    Closed(u16),
    Pass(u64),
    Reset,
    Shutdown,
    Disconnect,
    Release(u16),
    TimedOut(u16, bool),
    DeviceRemoved,
    Reauthenticate,
    /// Authentication step, even if not requested.
    Authenticate(u8),
}

fn any_event() -> impl Strategy<Value = Event> {
    let status = prop_oneof![6 => Just(0), 1 => any::<u16>()];
    let result = prop_oneof![3 => Just(1), 1 => 0..16_u64, 1 => any::<u64>()];
    prop_oneof![
        30 => (status, result, any::<u8>()).prop_map(|(s, r, d)| Event::Answer(s, r, d)),
        1 => any::<u32>().prop_map(Event::Stray),
        20 => (0..4_u16).prop_map(Event::Connected),
        1 => (0..4_u16).prop_map(Event::Lost),
        4 => (0..4_u16).prop_map(Event::Closed),
        4 => (0..20_000_u64).prop_map(Event::Pass),
        1 => Just(Event::Reset),
        1 => Just(Event::Shutdown),
        1 => Just(Event::Disconnect),
        1 => (0..4_u16).prop_map(Event::Release),
        1 => (any::<u16>(), any::<bool>()).prop_map(|(c, l)| Event::TimedOut(c, l)),
        1 => Just(Event::DeviceRemoved),
        4 => Just(Event::Reauthenticate),
        12 => any::<u8>().prop_map(Event::Authenticate),
    ]
}

fn identity(kind: u8, cntlid: u16) -> IdentifyController {
    let mut identity = IdentifyController::new_zeroed();
    if kind == 255 {
        return IdentifyController::read_from_bytes(&[0xa5; 4096]).unwrap();
    }
    identity.cntlid.set(cntlid);
    identity
        .sgls
        .set(if kind & 7 == 0 { 0 } else { 0x0010_0005 });
    identity
        .ioccsz
        .set(if kind & 8 == 0 { u32::MAX } else { 260 });
    identity.iorcsz.set(1);
    identity.kas.set(10);
    identity.maxcmd.set(u16::from(kind & 0x30));
    identity.oaes.set(0x900);
    identity.acl = kind;
    identity
}

struct Driver {
    host: Association,
    now: Duration,
    unanswered: Vec<(Duty, usize)>,
    open: BTreeSet<u16>,
    gone: bool,
}

impl Driver {
    fn obey(&mut self) {
        while let Some(action) = self.host.next_action() {
            assert!(!self.gone, "{action:?} after the end");
            match action {
                Action::Connect(spec) => {
                    assert!(self.open.insert(spec.qid), "{spec:?} is connected");
                    assert!((1..=1023).contains(&spec.depth), "{spec:?}");
                    assert!((64..=64 + 16384).contains(&spec.capsule_bytes), "{spec:?}");
                }
                Action::Send(command) => {
                    assert!(self.open.contains(&command.qid), "{command:?}");
                    let length = match command.payload {
                        Payload::ToHost(length) => length as usize,
                        _ => 0,
                    };
                    self.unanswered.push((command.duty, length));
                    assert!(self.unanswered.len() < 64);
                }
                Action::Disconnect { qid } => assert!(self.open.contains(&qid)),
                Action::Report(Report::Gone(_)) => {
                    self.gone = true;
                    assert_eq!(self.host.state(), AssociationState::Gone);
                }
                Action::Authenticate { qid, .. } => {
                    assert!(self.open.contains(&qid));
                    assert!(self.host.is_authenticating());
                }
                Action::Report(_) => {}
            }
        }
    }

    fn happen(&mut self, event: &Event) {
        let now = self.now;
        match *event {
            Event::Answer(status, result, kind) => {
                if self.unanswered.is_empty() {
                    return;
                }
                let (duty, length) = self.unanswered.remove(0);
                let cqe = Cqe::new(0, 0, Status::from_bits(status), result);
                let identity = identity(kind, self.host.cntlid());
                let data = &identity.as_bytes()[..length];
                self.host.completed(duty, &cqe, data, now);
            }
            Event::Stray(serial) => {
                let cqe = Cqe::new(0, 0, Status::SUCCESS, u64::from(serial));
                let odd = [Duty::Step(serial), Duty::KeepAlive, Duty::Abort];
                let duty = odd[serial as usize % odd.len()];
                self.host.completed(duty, &cqe, &[], now);
            }
            Event::Connected(qid) => self.host.queue_connected(qid, now),
            Event::Lost(qid) => self.host.queue_lost(qid, now),
            Event::Closed(qid) => {
                self.open.remove(&qid);
                if qid == 0 {
                    self.unanswered.clear();
                }
                self.host.queue_closed(qid, now);
            }
            Event::Pass(ms) => {
                self.now += Duration::from_millis(ms);
                self.host.tick(self.now);
            }
            Event::Reset => self.host.reset(now),
            Event::Shutdown => self.host.shutdown(now),
            Event::Disconnect => self.host.disconnect(now),
            Event::Release(qid) => self.host.release_queue(qid),
            Event::TimedOut(cid, last) => {
                self.host.command_timed_out(1, cid, last, now);
            }
            Event::Reauthenticate => {
                let began = self.host.reauthenticate();
                assert!(!began || self.host.state() == AssociationState::Live);
            }
            Event::Authenticate(kind) => {
                let next = match kind {
                    0..=9 => AuthenticationStep::Failed("as chance has it"),
                    10..=99 => AuthenticationStep::Done,
                    100..=179 => AuthenticationStep::Receive(4096),
                    _ => AuthenticationStep::Send([0; 40].into()),
                };
                self.host.authenticate(next, now);
            }
            Event::DeviceRemoved => {
                self.open.clear();
                self.unanswered.clear();
                self.host.device_removed(now);
            }
        }
        self.obey();
    }

    fn finish(mut self) {
        self.happen(&Event::Disconnect);
        while let Some(&qid) = self.open.first() {
            self.happen(&Event::Closed(qid));
        }
        assert!(self.gone, "{:?}", self.host);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn nothing_upsets_a_host(
        events in prop::collection::vec(any_event(), 0..200),
        io_queues in 0..4_u16,
        queue_entries in prop_oneof![Just(0), Just(1), Just(128), Just(1024)],
        kato_ms in prop_oneof![Just(0), Just(1), Just(5000)],
        reconnect in any::<bool>(),
        spare_entry in any::<bool>(),
        again in prop_oneof![Just(None), Just(Some(Duration::from_secs(5)))],
    ) {
        let recovery = if reconnect { Recovery::default() } else { Recovery::NONE };
        let settings = Settings {
            io_queues,
            queue_entries,
            spare_entry,
            kato_ms,
            reauthenticate_every: again,
            recovery,
            ..settings()
        };
        let mut driver = Driver {
            host: Association::new(settings),
            now: Duration::ZERO,
            unanswered: Vec::new(),
            open: BTreeSet::new(),
            gone: false,
        };
        driver.host.begin(Duration::ZERO);
        driver.obey();
        for event in &events {
            driver.happen(event);
        }
        driver.finish();
    }
}
