//! Test fixture: a host connected to a subsystem.

use std::collections::BTreeMap;
use std::time::Duration;

use nvme_proto::controller::{
    Action as TargetAction, AdminCommand, Completion, ConnectRequest, Exchange, Outcome,
    SmartCounters, Transfer,
};
use nvme_proto::host::{
    Action, Association, AssociationState, Duty, OwnCommand, Payload, Recovery, Report, Settings,
    all_notices,
};
use nvme_proto::limits::Limits;
use nvme_proto::namespace::{Atomic, Namespace};
use nvme_proto::subsystem::{self, Arrival, HostAccess, Subsystem};
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::fabrics::ConnectData;
use nvme_proto::wire::feature::WriteProtectionState;
use nvme_proto::wire::{Cqe, FabricsType, FromBytes, Nqn, Sqe, Status};

pub(crate) const SUBNQN: &str = "nqn.2026-01.org.example:disks";

pub(crate) fn settings() -> Settings {
    Settings {
        subnqn: nqn(SUBNQN),
        hostnqn: nqn("nqn.2026-01.org.example:host"),
        hostid: [7; 16],
        io_queues: 2,
        queue_entries: 128,
        kato_ms: 5000,
        disable_sq_flow_control: false,
        expects_proof: false,
        reauthenticate_every: None,
        spare_entry: false,
        events: all_notices(),
        step_timeout: Duration::from_secs(10),
        recovery: Recovery::default(),
    }
}

pub(crate) fn subsystem_with(limits: Limits) -> Subsystem {
    let mut subsystem = Subsystem::new(subsystem::Settings {
        nqn: nqn(SUBNQN),
        serial: "CAIRN0001".into(),
        model: "Cairn".into(),
        firmware: "0.1.0".into(),
        hosts: HostAccess::Any,
        volatile_write_cache: true,
        cntlids: subsystem::CNTLIDS_ALL,
        limits,
    });
    subsystem
        .add_namespace(namespace(1), &mut Vec::new())
        .unwrap();
    subsystem
}

pub(crate) fn namespace(nsid: u32) -> Namespace {
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

fn nqn(name: &str) -> Nqn {
    name.parse().unwrap()
}

pub(crate) struct Rig {
    pub(crate) host: Association,
    pub(crate) target: Subsystem,
    pub(crate) now: Duration,
    pub(crate) unreachable: bool,
    pub(crate) mute: bool,
    pub(crate) flush_fails: bool,
    pub(crate) forge: fn(&Sqe, &mut Completion, &mut [u8]),
    pub(crate) sent: Vec<(u16, Sqe)>,
    pub(crate) requests: Vec<RequestData>,
    pub(crate) reports: Vec<Report>,
    cntlid: Option<u16>,
    linked: BTreeMap<u16, RequestData>,
    parked: BTreeMap<u16, Duty>,
    last_cid: u16,
}

impl Rig {
    pub(crate) fn new(settings: Settings) -> Self {
        Self::with_target(settings, subsystem_with(Limits::default()))
    }

    pub(crate) fn with_target(settings: Settings, target: Subsystem) -> Self {
        Self {
            host: Association::new(settings),
            target,
            now: Duration::from_secs(1000),
            unreachable: false,
            mute: false,
            flush_fails: false,
            forge: |_, _, _| (),
            sent: Vec::new(),
            requests: Vec::new(),
            reports: Vec::new(),
            cntlid: None,
            linked: BTreeMap::new(),
            parked: BTreeMap::new(),
            last_cid: 0,
        }
    }

    pub(crate) fn live(settings: Settings) -> Self {
        let mut rig = Self::new(settings);
        rig.host.begin(rig.now);
        rig.settle();
        assert_eq!(rig.take_reports(), [Report::Live { tries: 0 }]);
        rig
    }

    pub(crate) fn settle(&mut self) {
        while let Some(action) = self.host.next_action() {
            match action {
                Action::Connect(spec) if self.unreachable => {
                    self.host.queue_lost(spec.qid, self.now);
                }
                Action::Connect(spec) => {
                    self.requests.push(spec.request);
                    self.linked.insert(spec.qid, spec.request);
                    self.host.queue_connected(spec.qid, self.now);
                }
                Action::Send(command) => self.send(&command),
                Action::Disconnect { qid } => {
                    self.unlink(qid);
                    self.host.queue_closed(qid, self.now);
                }
                Action::Authenticate { .. } => panic!("nobody requires it"),
                Action::Report(report) => self.reports.push(report),
            }
        }
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let wakes = [self.host.deadline(), self.target.next_deadline()];
            let Some(next) = wakes.into_iter().flatten().min() else {
                break;
            };
            if next.max(self.now) >= end {
                break;
            }
            self.now = next.max(self.now + Duration::from_millis(1));
            self.wake();
        }
        self.now = self.now.max(end);
        self.wake();
    }

    pub(crate) fn wake(&mut self) {
        // While `mute` is set, the target must not end the association before the host.
        if !self.mute {
            let mut actions = Vec::new();
            self.target.poll(self.now, |_| Duration::ZERO, &mut actions);
            self.carry_out(actions);
        }
        self.host.tick(self.now);
        self.settle();
    }

    pub(crate) fn cut(&mut self, qid: u16) {
        self.host.queue_lost(qid, self.now);
        self.settle();
    }

    pub(crate) fn take_reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.reports)
    }

    pub(crate) fn state(&self) -> AssociationState {
        self.host.state()
    }

    pub(crate) fn change(&mut self, what: impl FnOnce(&mut Subsystem, &mut Vec<TargetAction>)) {
        let mut actions = Vec::new();
        what(&mut self.target, &mut actions);
        self.carry_out(actions);
        self.settle();
    }

    fn unlink(&mut self, qid: u16) {
        if self.linked.remove(&qid).is_none() {
            return;
        }
        let Some(cntlid) = self.cntlid else { return };
        let mut actions = Vec::new();
        let now = self.now;
        self.target
            .queue_disconnected(cntlid, qid, now, &mut actions);
        if qid == 0 {
            self.cntlid = None;
            self.parked.clear();
        }
        self.carry_out(actions);
    }

    fn send(&mut self, command: &OwnCommand) {
        self.sent.push((command.qid, command.sqe));
        self.last_cid = self.last_cid.wrapping_add(1);
        let cid = self.last_cid;
        let mut sqe = command.sqe;
        sqe.cid.set(cid);
        sqe.flags = Sqe::FLAGS_SGL;
        if self.mute {
            return;
        }
        let is_connect = sqe.is_fabrics() && sqe.fctype() == FabricsType::CONNECT;
        let (mut completion, mut data) = if is_connect {
            (self.connect(command.qid, &sqe, &command.payload), vec![])
        } else {
            // The command is recorded first, because an action of `execute` may complete it.
            self.parked.insert(cid, command.duty);
            match self.execute(&sqe) {
                (Outcome::Complete(completion), data) => {
                    self.parked.remove(&cid);
                    (completion, data)
                }
                (Outcome::Parked, _) => return,
            }
        };
        let wanted = match command.payload {
            Payload::ToHost(length) => length as usize,
            _ => 0,
        };
        assert_eq!(data.len(), wanted);
        (self.forge)(&sqe, &mut completion, &mut data);
        self.answer(command.duty, &completion, &data);
    }

    fn connect(&mut self, qid: u16, sqe: &Sqe, payload: &Payload) -> Completion {
        let Payload::FromHost(bytes) = payload else {
            panic!("Connect without data");
        };
        let data = ConnectData::ref_from_bytes(bytes).unwrap();
        let request = ConnectRequest::parse(sqe, data).unwrap();
        let arrival = Arrival {
            now: self.now,
            cm: self.linked.get(&qid),
            peer: None,
            local: None,
            port: 0,
            random: 7,
            ana: &nvme_proto::ana::AnaStates::default(),
        };
        match self.target.connect(&request, &arrival) {
            Ok(connected) => {
                self.cntlid = Some(connected.cntlid);
                connected.completion
            }
            Err(refusal) => refusal.completion(sqe.cid.get()),
        }
    }

    fn execute(&mut self, sqe: &Sqe) -> (Outcome, Vec<u8>) {
        let cntlid = self.cntlid.unwrap();
        let cid = sqe.cid.get();
        let bytes = self.target.settings().limits.transfer_bytes();
        let admin = AdminCommand::parse(sqe, bytes).unwrap();
        let length = match admin.transfer() {
            Transfer::ToHost { length } => length as usize,
            _ => 0,
        };
        let mut data = vec![0; length];
        let exchange = Exchange {
            now: self.now,
            smart: &SmartCounters::default(),
            data_in: &[],
            data_out: &mut data,
        };
        let mut actions = Vec::new();
        let outcome = self
            .target
            .execute(cntlid, cid, &admin, exchange, &mut actions);
        self.carry_out(actions);
        (outcome, data)
    }

    fn carry_out(&mut self, actions: Vec<TargetAction>) {
        for action in actions {
            match action {
                TargetAction::Complete { completion, .. } => {
                    if let Some(duty) = self.parked.remove(&completion.cid) {
                        self.answer(duty, &completion, &[]);
                    }
                }
                TargetAction::DisconnectIoQueues { .. } => self.hang_up(|qid| qid != 0),
                TargetAction::Terminate { .. } => self.hang_up(|_| true),
                TargetAction::FlushAll { cntlid } => {
                    let mut more = Vec::new();
                    self.target
                        .flushed(cntlid, !self.flush_fails, self.now, &mut more);
                    self.carry_out(more);
                }
                TargetAction::Abort {
                    cntlid, abort_cid, ..
                } => {
                    let mut more = Vec::new();
                    self.target.abort_done(cntlid, abort_cid, true, &mut more);
                    self.carry_out(more);
                }
                TargetAction::SetProtection { nsid, change, .. } => {
                    let mut more = Vec::new();
                    self.target.protection_done(nsid, change, true, &mut more);
                    self.carry_out(more);
                }
                TargetAction::PersistReservations {
                    cntlid,
                    nsid,
                    change,
                    ..
                } => {
                    let mut more = Vec::new();
                    let done = Status::SUCCESS;
                    self.target
                        .persistence_done(cntlid, nsid, change, done, &mut more);
                    self.carry_out(more);
                }
                TargetAction::SetWriteCache { .. } | TargetAction::SetSeen { .. } => {}
            }
        }
    }

    fn hang_up(&mut self, which: impl Fn(u16) -> bool) {
        let qids: Vec<_> = self.linked.keys().copied().filter(|&q| which(q)).collect();
        for qid in qids.into_iter().rev() {
            self.unlink(qid);
            self.host.queue_lost(qid, self.now);
        }
    }

    fn answer(&mut self, duty: Duty, completion: &Completion, data: &[u8]) {
        let cqe: Cqe = completion.cqe(0);
        self.host.completed(duty, &cqe, data, self.now);
    }
}
