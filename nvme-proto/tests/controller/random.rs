use std::collections::BTreeSet;

use nvme_proto::controller::{Action, Outcome};
use nvme_proto::subsystem::{HostAccess, Subsystem};
use nvme_proto::wire::{AdminOpcode, FromBytes, Sqe, Status};
use proptest::prelude::*;

use crate::rig::*;

fn any_sqe() -> impl Strategy<Value = Sqe> {
    let opcode = prop_oneof![
        4 => prop::sample::select(&[0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f][..]),
        1 => any::<u8>(),
    ];
    let flags = prop_oneof![8 => Just(Sqe::FLAGS_SGL), 1 => any::<u8>()];
    let nsid = prop_oneof![0..4u32, Just(u32::MAX), any::<u32>()];
    let identifier = prop_oneof![4 => 0..0x20u32, 1 => Just(0x70), 1 => Just(0x81), 1 => 0..256u32];
    let upper = prop_oneof![Just(0), 0..0x400_0000u32];
    let cdw = || prop_oneof![Just(0), 0..8u32, any::<u32>()];
    (
        any::<[u8; 64]>(),
        opcode,
        flags,
        nsid,
        (identifier, upper),
        cdw(),
        cdw(),
        cdw(),
    )
        .prop_map(
            |(bytes, opcode, flags, nsid, (identifier, upper), cdw11, cdw12, cdw14)| {
                let mut sqe = Sqe::read_from_bytes(&bytes).unwrap();
                (sqe.opc, sqe.flags) = (opcode, flags);
                sqe.nsid.set(nsid);
                sqe.cdw10.set(identifier | upper << 8);
                sqe.cdw11.set(cdw11);
                sqe.cdw12.set(cdw12);
                sqe.cdw14.set(cdw14);
                sqe
            },
        )
}

#[derive(Clone, Debug)]
enum Event {
    Command(Sqe),
    WriteCc(u32),
    ConnectIo(u16),
    Disconnect(u16),
    AnswerActions,
    Time(u64),
    Resize(u64),
    Show(bool),
}

fn any_event() -> impl Strategy<Value = Event> {
    let cc = prop_oneof![
        Just(CC_ENABLED as u32),
        Just(CC_DISABLED as u32),
        Just(CC_SHUT_DOWN as u32),
        any::<u32>(),
    ];
    prop_oneof![
        12 => any_sqe().prop_map(Event::Command),
        2 => cc.prop_map(Event::WriteCc),
        2 => (0..5u16).prop_map(Event::ConnectIo),
        1 => (1..5u16).prop_map(Event::Disconnect),
        2 => Just(Event::AnswerActions),
        1 => (0..200_000u64).prop_map(Event::Time),
        1 => (1..10u64).prop_map(Event::Resize),
        1 => any::<bool>().prop_map(Event::Show),
    ]
}

struct Account {
    rig: Rig,
    parked: BTreeSet<u16>,
    next_cid: u16,
}

impl Account {
    fn happen(&mut self, event: &Event, data: &[u8; 512]) {
        let rig = &mut self.rig;
        match event {
            Event::Command(sqe) => {
                let mut sqe = *sqe;
                self.next_cid += 1;
                sqe.cid.set(self.next_cid);
                let (outcome, _) = rig.send_as_is(&sqe, data);
                match outcome {
                    Outcome::Complete(completion) => assert_eq!(completion.cid, self.next_cid),
                    Outcome::Parked => assert!(self.parked.insert(self.next_cid)),
                }
            }
            Event::WriteCc(cc) => {
                rig.set_cc(u64::from(*cc));
            }
            Event::ConnectIo(qid) => {
                let _ = rig.connect_io(*qid);
            }
            Event::Disconnect(qid) => rig.disconnect(*qid),
            Event::Time(ms) => {
                rig.now += std::time::Duration::from_millis(*ms);
                let last = if ms % 2 == 0 {
                    rig.now
                } else {
                    std::time::Duration::ZERO
                };
                rig.subsystem.poll(rig.now, |_| last, &mut rig.actions);
            }
            Event::Resize(blocks) => {
                rig.subsystem
                    .resize_namespace(1, *blocks, &mut rig.actions)
                    .unwrap();
            }
            Event::Show(is_seen) => {
                let hosts = is_seen.then(|| nqn(HOSTNQN));
                rig.subsystem
                    .set_namespace_hosts(1, &HostAccess::only(hosts), &mut rig.actions)
                    .unwrap();
            }
            Event::AnswerActions => self.answer(),
        }
    }

    fn answer(&mut self) {
        let rig = &mut self.rig;
        while !rig.actions.is_empty() {
            for action in rig.take_actions() {
                match action {
                    Action::Complete { completion, .. } => {
                        let waited = self.parked.remove(&completion.cid);
                        assert!(waited, "CID {} completed twice", completion.cid);
                    }
                    Action::DisconnectIoQueues { cntlid } | Action::Terminate { cntlid, .. } => {
                        let controller = rig.subsystem.controller(cntlid).unwrap();
                        let qids: Vec<_> = controller.io_queues().collect();
                        qids.into_iter().for_each(|qid| rig.disconnect(qid));
                    }
                    Action::FlushAll { .. } => rig.flushed(true),
                    Action::Abort {
                        cntlid, abort_cid, ..
                    } => {
                        let aborted = abort_cid % 2 == 0;
                        rig.subsystem
                            .abort_done(cntlid, abort_cid, aborted, &mut rig.actions);
                    }
                    Action::SetProtection { nsid, change, .. } => {
                        let intact = change % 3 != 0;
                        rig.subsystem
                            .protection_done(nsid, change, intact, &mut rig.actions);
                    }
                    Action::PersistReservations {
                        cntlid,
                        nsid,
                        change,
                        ..
                    } => {
                        let done = Status::SUCCESS;
                        rig.subsystem.persistence_done(
                            cntlid,
                            nsid,
                            change,
                            done,
                            &mut rig.actions,
                        );
                    }
                    Action::SetWriteCache { .. } | Action::SetSeen { .. } => {}
                }
            }
        }
    }

    fn settle(&mut self) {
        self.answer();
        self.rig.set_cc(0);
        self.answer();
        assert_eq!(self.rig.csts() & 1, 0, "a reset ends");
        self.parked.clear();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_command_ends_once_or_is_parked(
        events in prop::collection::vec(any_event(), 1..60),
        data: [u8; 512],
    ) {
        let mut account = Account { rig: Rig::ready(), parked: BTreeSet::new(), next_cid: 1000 };
        for event in &events {
            account.happen(event, &data);
        }
        account.settle();
    }

    #[test]
    fn discovery_survives_anything(sqes in prop::collection::vec(any_sqe(), 1..40)) {
        let mut rig = Rig::connected(Subsystem::discovery(settings()), 0);
        rig.enable();
        for sqe in &sqes {
            if let (Outcome::Parked, _) = rig.send_as_is(sqe, &[0xff; 512]) {
                prop_assert_eq!(sqe.opc, AdminOpcode::ASYNC_EVENT_REQUEST.0);
            }
        }
    }
}
