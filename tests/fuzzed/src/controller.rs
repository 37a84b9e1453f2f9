use std::collections::BTreeSet;
use std::time::Duration;

use nvme_proto::ana::AnaStates;
use nvme_proto::controller::{
    Action, AdminCommand, ConnectRequest, Exchange, Outcome, SmartCounters, Transfer,
};
use nvme_proto::limits::Limits;
use nvme_proto::namespace::{Atomic, Namespace};
use nvme_proto::subsystem::{Arrival, CNTLIDS_ALL, Connected, HostAccess, Settings, Subsystem};
use nvme_proto::wire::fabrics::{ConnectCommand, ConnectData, PropertySetCommand, PropertySize};
use nvme_proto::wire::feature::WriteProtectionState;
use nvme_proto::wire::property::offset;
use nvme_proto::wire::{AdminOpcode, FromBytes, FromZeros, Nqn, Sqe, Status, U16, U32};

use crate::input::Input;

const SUBNQN: &str = "nqn.2026-01.org.example:disks";
const HOSTNQN: &str = "nqn.2026-01.org.example:host";

/// Values that Linux writes to CC to disable and to enable a controller.
const CC: [u64; 2] = [0x0046_0060, 0x0046_0061];

const OPCODES: [AdminOpcode; 8] = [
    AdminOpcode::GET_LOG_PAGE,
    AdminOpcode::IDENTIFY,
    AdminOpcode::ABORT,
    AdminOpcode::SET_FEATURES,
    AdminOpcode::GET_FEATURES,
    AdminOpcode::ASYNC_EVENT_REQUEST,
    AdminOpcode::KEEP_ALIVE,
    AdminOpcode(0x7f),
];

const STEPS_MAX: usize = 64;

struct Rig {
    subsystem: Subsystem,
    now: Duration,
    cntlid: u16,
    actions: Vec<Action>,
    parked: BTreeSet<u16>,
    cid: u16,
}

pub(crate) fn run(bytes: &[u8]) {
    let mut subsystem = Subsystem::new(settings());
    for nsid in [1, 2] {
        let added = subsystem.add_namespace(namespace(nsid), &mut Vec::new());
        added.expect("there is room for two");
    }
    drive(subsystem, bytes);
}

pub(crate) fn run_discovery(bytes: &[u8]) {
    drive(Subsystem::discovery(settings()), bytes);
}

fn drive(subsystem: Subsystem, bytes: &[u8]) {
    let mut rig = Rig::new(subsystem);
    let mut input = Input::new(bytes);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        rig.step(&mut input);
    }
    rig.answer();
    rig.write_cc(0);
    rig.answer();
}

impl Rig {
    fn new(mut subsystem: Subsystem) -> Self {
        let now = Duration::from_secs(1000);
        let subnqn = subsystem.settings().nqn;
        let connected = connect(&mut subsystem, subnqn, 0xffff, 0, now);
        let cntlid = connected.expect("a host may connect").cntlid;
        let mut rig = Self {
            subsystem,
            now,
            cntlid,
            actions: Vec::new(),
            parked: BTreeSet::new(),
            cid: 0,
        };
        for cc in CC {
            rig.write_cc(cc);
        }
        rig
    }

    fn step(&mut self, input: &mut Input<'_>) {
        match input.byte() % 8 {
            0..4 => {
                let mut sqe = Sqe::read_from_bytes(&input.array::<64>()).expect("64 bytes");
                let opcode = OPCODES.get(usize::from(sqe.opc) % (OPCODES.len() + 1));
                if let Some(opcode) = opcode {
                    sqe.opc = opcode.0;
                    sqe.flags = Sqe::FLAGS_SGL;
                }
                self.send(&sqe, input.byte());
            }
            4 => {
                let [low, high] = input.array();
                let cc = CC[usize::from(low & 1)] | u64::from(high) << 8;
                self.write_cc(cc);
            }
            5 => {
                let subnqn = self.subsystem.settings().nqn;
                let qid = u16::from(input.byte() % 5);
                let _ = connect(
                    &mut self.subsystem,
                    subnqn,
                    self.cntlid,
                    qid.max(1),
                    self.now,
                );
            }
            6 => {
                let qid = u16::from(input.byte() % 4) + 1;
                self.disconnect(qid);
            }
            _ => {
                self.now += Duration::from_millis(input.short().into());
                let now = self.now;
                self.subsystem.poll(now, |_| now, &mut self.actions);
                self.answer();
            }
        }
    }

    fn send(&mut self, sqe: &Sqe, fill: u8) {
        self.cid = self.cid.wrapping_add(1);
        let (cntlid, cid) = (self.cntlid, self.cid);
        let transfer_bytes = self.subsystem.settings().limits.transfer_bytes();
        let command = match AdminCommand::parse(sqe, transfer_bytes) {
            Ok(command) => command,
            Err(refusal) => {
                let completion = self.subsystem.refuse(cntlid, cid, refusal);
                assert_eq!(completion.cid, cid);
                return;
            }
        };
        let (from_host, to_host) = match command.transfer() {
            Transfer::None => (0, 0),
            Transfer::ToHost { length } => (0, length as usize),
            Transfer::FromHost { length } => (length as usize, 0),
        };
        let data_in = vec![fill; from_host];
        let mut data_out = vec![0xee; to_host];
        let exchange = Exchange {
            now: self.now,
            smart: &SmartCounters::default(),
            data_in: &data_in,
            data_out: &mut data_out,
        };
        let outcome = self
            .subsystem
            .execute(cntlid, cid, &command, exchange, &mut self.actions);
        match outcome {
            Outcome::Complete(completion) => assert_eq!(completion.cid, cid),
            Outcome::Parked => assert!(self.parked.insert(cid)),
        }
    }

    fn write_cc(&mut self, cc: u64) {
        let set = PropertySetCommand::new(0, PropertySize::Four, offset::CC, cc);
        self.send(&set.into(), 0);
    }

    fn disconnect(&mut self, qid: u16) {
        let (cntlid, now) = (self.cntlid, self.now);
        self.subsystem
            .queue_disconnected(cntlid, qid, now, &mut self.actions);
    }

    fn answer(&mut self) {
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                self.carry_out(action);
            }
        }
    }

    fn carry_out(&mut self, action: Action) {
        let (now, actions) = (self.now, &mut self.actions);
        match action {
            Action::Complete { completion, .. } => {
                let waited = self.parked.remove(&completion.cid);
                assert!(waited, "CID {} completed twice", completion.cid);
            }
            Action::DisconnectIoQueues { cntlid } | Action::Terminate { cntlid, .. } => {
                let controller = self.subsystem.controller(cntlid);
                let queues = controller.map(|controller| controller.io_queues().collect());
                let queues: Vec<u16> = queues.unwrap_or_default();
                queues.into_iter().for_each(|qid| self.disconnect(qid));
            }
            Action::FlushAll { cntlid, .. } => {
                self.subsystem.flushed(cntlid, true, now, actions);
            }
            Action::Abort {
                cntlid, abort_cid, ..
            } => {
                self.subsystem.abort_done(cntlid, abort_cid, true, actions);
            }
            Action::SetProtection { nsid, change, .. } => {
                self.subsystem.protection_done(nsid, change, true, actions);
            }
            Action::PersistReservations {
                cntlid,
                nsid,
                change,
                ..
            } => {
                let done = Status::SUCCESS;
                self.subsystem
                    .persistence_done(cntlid, nsid, change, done, actions);
            }
            Action::SetWriteCache { .. } | Action::SetSeen { .. } => {}
        }
    }
}

fn connect(
    subsystem: &mut Subsystem,
    subnqn: Nqn,
    cntlid: u16,
    qid: u16,
    now: Duration,
) -> Option<Connected> {
    let mut command = ConnectCommand::new_zeroed();
    command.opc = 0x7f;
    command.flags = Sqe::FLAGS_SGL;
    command.fctype = 1;
    command.sqsize = U16::new(31);
    command.kato = U32::new(if qid == 0 { 5000 } else { 0 });
    command.qid = U16::new(qid);
    let mut data = ConnectData::new_zeroed();
    data.hostid = [7; 16];
    data.cntlid = U16::new(cntlid);
    data.subnqn = subnqn.encode();
    data.hostnqn = nqn(HOSTNQN).encode();
    let request = ConnectRequest::parse(&command.into(), &data);
    let request = request.expect("it is as the specification has it");
    let arrival = Arrival {
        now,
        cm: None,
        peer: None,
        local: None,
        port: 0,
        random: 7,
        ana: &AnaStates::default(),
    };
    subsystem.connect(&request, &arrival).ok()
}

fn nqn(name: &str) -> Nqn {
    name.parse().expect("it is a name")
}

fn settings() -> Settings {
    Settings {
        nqn: nqn(SUBNQN),
        serial: "CAIRN0001".into(),
        model: "Cairn".into(),
        firmware: "0.1.0".into(),
        hosts: HostAccess::Any,
        volatile_write_cache: true,
        cntlids: CNTLIDS_ALL,
        limits: Limits::default(),
    }
}

fn namespace(nsid: u32) -> Namespace {
    Namespace {
        nsid,
        uuid: [nsid as u8; 16],
        nguid: [0; 16],
        eui64: [0; 8],
        anagrpid: 1,
        blocks: 1 << 20,
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
