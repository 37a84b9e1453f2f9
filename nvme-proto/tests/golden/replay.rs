//! Replay of captured sessions with this crate's controllers instead of the Linux target.
//!
//! Responses must equal the captured responses, except as in [`differs_on_purpose`].

use std::collections::HashMap;
use std::time::Duration;

use nvme_proto::ana::AnaStates;
use nvme_proto::controller::{
    Action, AdminCommand, Completion, ConnectRequest, Exchange, Outcome, SmartCounters, Transfer,
    connect,
};
use nvme_proto::discovery::{Exported, Listener};
use nvme_proto::io::{IoCommand, NamespaceView};
use nvme_proto::limits::Limits;
use nvme_proto::namespace::{Atomic, Namespace};
use nvme_proto::subsystem::{Arrival, CNTLIDS_ALL, HostAccess, Settings, Subsystem};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::fabrics::{ConnectData, PropertyGetCommand, PropertySetCommand};
use nvme_proto::wire::feature::{Feature, WriteProtectionState};
use nvme_proto::wire::identify::Cns;
use nvme_proto::wire::log::RdmaProvider;
use nvme_proto::wire::property::offset;
use nvme_proto::wire::{AdminOpcode, Cqe, FabricsType, FromBytes, Nqn, NvmOpcode, Sqe, Status};

use crate::capture::{Capsule, Session};

struct Target<'a> {
    session: &'a Session,
    discovery: Subsystem,
    disks: Subsystem,
    /// By connection: true if connected to `discovery`, and the CNTLID.
    queues: HashMap<usize, (bool, u16)>,
    now: Duration,
    smart: SmartCounters,
}

impl<'a> Target<'a> {
    fn new(session: &'a Session) -> Self {
        let nqn = session.commands.iter().find_map(|command| {
            let (sqe, _) = Sqe::split_capsule(&command.capsule).unwrap();
            let is_connect = sqe.is_fabrics() && sqe.fctype() == FabricsType::CONNECT;
            let subnqn = is_connect.then(|| Nqn::decode(&data(session, command).subnqn).unwrap());
            subnqn.filter(|nqn| !nqn.is_discovery())
        });
        let settings = Settings {
            nqn: nqn.expect("a host connected to an NVM subsystem"),
            serial: "1".into(),
            model: "Cairn".into(),
            firmware: "0.1".into(),
            hosts: HostAccess::Any,
            volatile_write_cache: true,
            cntlids: CNTLIDS_ALL,
            limits: Limits::default(),
        };
        let mut disks = Subsystem::new(settings.clone());
        for nsid in [1, 2] {
            disks
                .add_namespace(namespace(nsid), &mut Vec::new())
                .unwrap();
        }
        let mut discovery = Subsystem::discovery(settings.clone());
        let listener = Listener {
            portid: 1,
            address: "10.9.2.1:4420".parse().unwrap(),
            provider: RdmaProvider::ROCE_V2,
            pkey: 0xffff,
        };
        let exported = Exported {
            nqn: settings.nqn,
            hosts: HostAccess::Any,
            ports: None,
        };
        discovery.set_discovery(vec![listener], vec![exported], &mut Vec::new());
        Self {
            session,
            discovery,
            disks,
            queues: HashMap::new(),
            now: Duration::ZERO,
            smart: SmartCounters::default(),
        }
    }

    fn answer(&mut self, command: &Capsule) -> Outcome {
        let (sqe, in_capsule) = Sqe::split_capsule(&command.capsule).unwrap();
        let Some(&(is_discovery, cntlid)) = self.queues.get(&command.connection) else {
            return Outcome::Complete(self.connect(command, sqe, in_capsule.len()));
        };
        if command.qid != 0 {
            return Outcome::Complete(self.io(sqe, in_capsule.len()));
        }
        let subsystem = if is_discovery {
            &mut self.discovery
        } else {
            &mut self.disks
        };
        let transfer_bytes = subsystem.settings().limits.transfer_bytes();
        let admin = AdminCommand::parse(sqe, transfer_bytes).unwrap();
        admin.locate(sqe).unwrap();
        let length = match admin.transfer() {
            Transfer::None => 0,
            Transfer::ToHost { length } => length as usize,
            Transfer::FromHost { .. } => panic!("no such command in the captures"),
        };
        let mut data_out = vec![0; length];
        let exchange = Exchange {
            now: self.now,
            smart: &self.smart,
            data_in: &[],
            data_out: &mut data_out,
        };
        let mut actions = Vec::new();
        let outcome = subsystem.execute(cntlid, sqe.cid.get(), &admin, exchange, &mut actions);
        carry_out(actions, subsystem, self.now);
        outcome
    }

    fn connect(&mut self, command: &Capsule, sqe: &Sqe, in_capsule_bytes: usize) -> Completion {
        let located = ConnectRequest::locate(sqe, in_capsule_bytes as u32).unwrap();
        assert_eq!(
            matches!(located, DataTransfer::InCapsule(_)),
            command.qid != 0
        );
        let request = ConnectRequest::parse(sqe, data(self.session, command)).unwrap();
        let cm = RequestData::parse(&self.session.requests[command.connection].1).unwrap();
        assert!(connect::admit(&cm, &Limits::default()).is_ok());
        let is_discovery = request.subnqn.is_discovery();
        let subsystem = if is_discovery {
            &mut self.discovery
        } else {
            &mut self.disks
        };
        let arrival = Arrival {
            now: self.now,
            cm: Some(&cm),
            peer: None,
            local: None,
            port: 0,
            random: 7,
            ana: &AnaStates::default(),
        };
        let connected = subsystem.connect(&request, &arrival).unwrap();
        assert_eq!(connected.qid, command.qid);
        self.queues
            .insert(command.connection, (is_discovery, connected.cntlid));
        connected.completion
    }

    fn io(&self, sqe: &Sqe, in_capsule_bytes: usize) -> Completion {
        let view = self
            .disks
            .namespaces()
            .find(|n| n.nsid == sqe.nsid.get())
            .map(Namespace::view);
        let view: Option<NamespaceView> = view;
        let limits = self.disks.io_limits();
        let parsed = IoCommand::parse(sqe, in_capsule_bytes as u32, view.as_ref(), &limits);
        let status = parsed.err().unwrap_or(Status::SUCCESS);
        Completion {
            cid: sqe.cid.get(),
            status,
            result: 0,
        }
    }
}

/// Carries out actions as a target: flushes succeed, and queues close at once.
fn carry_out(mut actions: Vec<Action>, subsystem: &mut Subsystem, now: Duration) {
    while let Some(action) = actions.pop() {
        match action {
            Action::FlushAll { cntlid } => subsystem.flushed(cntlid, true, now, &mut actions),
            Action::DisconnectIoQueues { cntlid } => {
                let qids: Vec<_> = subsystem.controller(cntlid).unwrap().io_queues().collect();
                for qid in qids {
                    subsystem.queue_disconnected(cntlid, qid, now, &mut actions);
                }
            }
            other => panic!("{other:?}"),
        }
    }
}

fn namespace(nsid: u32) -> Namespace {
    Namespace {
        nsid,
        uuid: [nsid as u8; 16],
        nguid: [0; 16],
        eui64: [0; 8],
        anagrpid: 1,
        blocks: 1 << 16,
        block_shift: 12,
        read_only: false,
        protectable: true,
        keeps_protection: false,
        protection: WriteProtectionState::NONE,
        deallocates: true,
        write_uncorrectable: false,
        reservable: true,
        keeps_reservations: true,
        reservations_persist: false,
        preferred: None,
        atomic: Atomic::BLOCK,
        boundary: 0,
    }
}

pub(crate) fn data<'a>(session: &'a Session, command: &'a Capsule) -> &'a ConnectData {
    let (sqe, in_capsule) = Sqe::split_capsule(&command.capsule).unwrap();
    let bytes = match ConnectRequest::locate(sqe, in_capsule.len() as u32).unwrap() {
        DataTransfer::InCapsule(slice) => &in_capsule[slice.range()],
        DataTransfer::FromHost(host) => session.read_by_target(host.rkey, host.address),
        other => panic!("{other:?}"),
    };
    ConnectData::ref_from_bytes(bytes).unwrap()
}

fn differs_on_purpose(sqe: &Sqe, qid: u16) -> Option<&'static str> {
    if qid != 0 && !sqe.is_fabrics() {
        return match NvmOpcode(sqe.opc) {
            NvmOpcode::COMPARE => Some("the other target has no Compare"),
            NvmOpcode::READ if sqe.cdw10_11() > 1 << 16 => Some("it calls this an internal error"),
            _ => None,
        };
    }
    if sqe.is_fabrics() {
        return match sqe.fctype() {
            FabricsType::PROPERTY_GET => match PropertyGetCommand::from(*sqe).ofst.get() {
                offset::CAP | offset::VS => Some("another version, with CRWMS"),
                offset::CSTS => Some("it clears RDY in a shutdown, while CC.EN is set"),
                _ => None,
            },
            _ => None,
        };
    }
    let code = sqe.cdw10.get() as u8;
    match (AdminOpcode(sqe.opc), code) {
        (AdminOpcode::IDENTIFY, code) if Cns(code) == Cns::IO_COMMAND_SET_NAMESPACE => {
            Some("it has CNS 05h for zoned namespaces alone")
        }
        (AdminOpcode::SET_FEATURES, code) if Feature(code) == Feature::NUMBER_OF_QUEUES => {
            Some("it grants all it has, we what was asked for")
        }
        (AdminOpcode::SET_FEATURES, code)
            if Feature(code) == Feature::ASYNC_EVENT_CONFIGURATION =>
        {
            Some("it returns the value in DW0, which is reserved")
        }
        _ => None,
    }
}

#[test]
fn a_linux_session_goes_as_it_went_with_another_target() {
    for session in crate::sessions() {
        let mut target = Target::new(&session);
        let mut differences = 0;
        for command in &session.commands {
            target.now += Duration::from_millis(10);
            let (sqe, _) = Sqe::split_capsule(&command.capsule).unwrap();
            let theirs = session.completions.iter().find(|completion| {
                completion.connection == command.connection
                    && completion.frame > command.frame
                    && Cqe::ref_from_bytes(&completion.capsule).unwrap().cid == sqe.cid
            });
            let ours = match target.answer(command) {
                Outcome::Complete(completion) => completion,
                Outcome::Parked => {
                    assert_eq!(sqe.opc, AdminOpcode::ASYNC_EVENT_REQUEST.0);
                    assert!(theirs.is_none(), "frame {}", command.frame);
                    continue;
                }
            };
            let theirs = theirs.unwrap_or_else(|| panic!("frame {} has no answer", command.frame));
            let theirs = Cqe::ref_from_bytes(&theirs.capsule).unwrap();
            if differs_on_purpose(sqe, command.qid).is_some() {
                differences += 1;
                continue;
            }
            let expected = (theirs.status(), theirs.result());
            assert_eq!(
                (ours.status, ours.result),
                expected,
                "frame {}: {sqe:?}",
                command.frame
            );
        }
        assert!(
            differences < session.commands.len() / 3,
            "{differences} differ"
        );
        linux_saw_ready_and_shut_down(&session);
    }
}

fn linux_saw_ready_and_shut_down(session: &Session) {
    let mut target = Target::new(session);
    let mut last_cc = HashMap::new();
    let mut looks = 0;
    for command in &session.commands {
        let (sqe, _) = Sqe::split_capsule(&command.capsule).unwrap();
        let Outcome::Complete(ours) = target.answer(command) else {
            continue;
        };
        if !sqe.is_fabrics() {
            continue;
        }
        let set = PropertySetCommand::from(*sqe);
        match sqe.fctype() {
            FabricsType::PROPERTY_SET => {
                last_cc.insert(command.connection, set.value.get());
            }
            FabricsType::PROPERTY_GET if set.ofst.get() == offset::CSTS => {
                let expected = match last_cc[&command.connection] {
                    0x0046_0061 => 0b0001,
                    0x0046_4061 => 0b1001,
                    other => panic!("CC {other:#x}"),
                };
                assert_eq!(ours.result, expected, "frame {}", command.frame);
                looks += 1;
            }
            _ => {}
        }
    }
    assert!(looks >= 3, "CSTS was read {looks} times");
}
