//! Target without network or files: a disk in memory, a subsystem, and a host that writes and
//! reads.
//!
//! `cargo run -p nvme-proto --example target`. The transport is a function call. RDMA copies from
//! or to the slice `memory`, whose index is the virtual address.

use std::collections::BTreeMap;
use std::mem::take;
use std::time::Duration;

use nvme_proto::ana::AnaStates;
use nvme_proto::controller::connect::{admit, refuse_on_io_queue};
use nvme_proto::controller::{
    Action, AdminCommand, Completion, ConnectRequest, Exchange, Outcome, Refusal, SmartCounters,
};
use nvme_proto::io::{BlockRange, CopyRanges, DatasetRanges, IoCommand, Operation};
use nvme_proto::namespace::Namespace;
use nvme_proto::subsystem::{Arrival, Connected, Settings, Subsystem};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::cm::{CNTLID_NONE, RejectStatus, ReplyData, RequestData};
use nvme_proto::wire::fabrics::{
    CNTLID_DYNAMIC, ConnectCommand, ConnectData, PropertyGetCommand, PropertySetCommand,
    PropertySize,
};
use nvme_proto::wire::identify::{Cns, IdentifyCdw10, IdentifyController};
use nvme_proto::wire::property::{Cc, Csts, offset};
use nvme_proto::wire::{
    AdminOpcode, Cqe, FromBytes, IntoBytes, Nqn, NvmOpcode, SglDescriptor, Sqe, Status,
};

pub(crate) const SUBNQN: &str = "nqn.2026-01.org.example:memory";
pub(crate) const BLOCK_BYTES: usize = 1 << BLOCK_SHIFT;
pub(crate) const BLOCKS: u64 = 128;
const BLOCK_SHIFT: u8 = 9;

pub(crate) struct Target {
    subsystem: Subsystem,
    disk: Vec<u8>,
    queues: BTreeMap<u16, Queue>,
    /// QIDs of queues closed by the target, whose connections the transport closes.
    pub(crate) closed: Vec<u16>,
    last_command: Duration,
}

struct Queue {
    request: RequestData,
    connected: Option<Connected>,
    sqhd: u16,
}

impl Target {
    pub(crate) fn new() -> Self {
        let nqn = SUBNQN.parse().expect("SUBNQN is an NQN");
        let mut subsystem = Subsystem::new(Settings::new(nqn, "MEMORY01"));
        let namespace = Namespace::new(1, [1; 16], BLOCKS, BLOCK_SHIFT);
        subsystem
            .add_namespace(namespace, &mut Vec::new())
            .expect("NSID 1 is free");
        Self {
            subsystem,
            disk: vec![0; BLOCKS as usize * BLOCK_BYTES],
            queues: BTreeMap::new(),
            closed: Vec::new(),
            last_command: Duration::ZERO,
        }
    }

    pub(crate) fn accept(&mut self, private_data: &[u8]) -> Result<ReplyData, RejectStatus> {
        let request = RequestData::parse(private_data)?;
        let reply = admit(&request, &self.subsystem.settings().limits)?;
        let queue = Queue {
            request,
            connected: None,
            sqhd: 0,
        };
        self.queues.insert(request.qid.get(), queue);
        Ok(reply)
    }

    pub(crate) fn receive(
        &mut self,
        qid: u16,
        capsule: &[u8],
        memory: &mut [u8],
        now: Duration,
    ) -> Vec<Vec<u8>> {
        let (sqe, in_capsule) = Sqe::split_capsule(capsule).expect("the capsule holds an SQE");
        self.last_command = now;
        let mut completions = Vec::new();
        let cid = sqe.cid.get();
        match self.queues[&qid].connected {
            None => completions.push(
                self.connect(qid, sqe, in_capsule, memory, now)
                    .unwrap_or_else(|refusal| refusal.completion(cid)),
            ),
            Some(queue) if qid == 0 => {
                self.execute_admin(queue.cntlid, sqe, memory, now, &mut completions);
            }
            Some(_) if sqe.is_fabrics() => {
                completions.push(refuse_on_io_queue(sqe).completion(cid));
            }
            Some(_) => {
                let done = self.execute_io(sqe, in_capsule, memory);
                let status = done.err().unwrap_or(Status::SUCCESS);
                completions.push(Completion {
                    status,
                    ..Completion::success(cid, 0)
                });
            }
        }
        let sqhd = self.queues.get_mut(&qid).map_or(0, Queue::take_entry);
        let response = |completion: Completion| completion.cqe(sqhd).as_bytes().to_vec();
        completions.into_iter().map(response).collect()
    }

    fn connect(
        &mut self,
        qid: u16,
        sqe: &Sqe,
        in_capsule: &[u8],
        memory: &[u8],
        now: Duration,
    ) -> Result<Completion, Refusal> {
        let transfer = ConnectRequest::locate(sqe, in_capsule.len() as u32)?;
        let bytes = fetch(transfer, in_capsule, memory);
        let data = ConnectData::ref_from_bytes(&bytes).expect("the transfer has its length");
        let request = ConnectRequest::parse(sqe, data)?;
        let queue = self.queues.get_mut(&qid).expect("the queue is connected");
        let ana = AnaStates::default();
        let arrival = Arrival::new(now, Some(&queue.request), &ana);
        let connected = self.subsystem.connect(&request, &arrival)?;
        queue.connected = Some(connected);
        Ok(connected.completion)
    }

    fn execute_admin(
        &mut self,
        cntlid: u16,
        sqe: &Sqe,
        memory: &mut [u8],
        now: Duration,
        completions: &mut Vec<Completion>,
    ) {
        let cid = sqe.cid.get();
        let mdts = self.subsystem.settings().limits.transfer_bytes();
        let located = AdminCommand::parse(sqe, mdts)
            .and_then(|command| command.locate(sqe).map(|transfer| (command, transfer)));
        let (command, transfer) = match located {
            Ok(located) => located,
            Err(refusal) => return completions.push(self.subsystem.refuse(cntlid, cid, refusal)),
        };
        let mut data_out = match transfer {
            DataTransfer::ToHost(buffer) => vec![0; buffer.length as usize],
            _ => Vec::new(),
        };
        let exchange = Exchange {
            now,
            smart: &SmartCounters::default(),
            data_in: &fetch(transfer, &[], memory),
            data_out: &mut data_out,
        };
        let mut actions = Vec::new();
        let outcome = self
            .subsystem
            .execute(cntlid, cid, &command, exchange, &mut actions);
        self.carry_out(actions, now, completions);
        if let Outcome::Complete(completion) = outcome {
            if completion.status.is_success() {
                send(transfer, &data_out, memory);
            }
            completions.push(completion);
        }
    }

    fn execute_io(
        &mut self,
        sqe: &Sqe,
        in_capsule: &[u8],
        memory: &mut [u8],
    ) -> Result<(), Status> {
        let nsid = sqe.nsid.get();
        let namespace = self.subsystem.namespaces().find(|ns| ns.nsid == nsid);
        let view = namespace.map(Namespace::view);
        let limits = self.subsystem.io_limits();
        let command = IoCommand::parse(sqe, in_capsule.len() as u32, view.as_ref(), &limits)?;
        let transfer = command.transfer;
        let data = fetch(transfer, in_capsule, memory);
        match command.operation {
            Operation::Read(access) => send(transfer, &self.disk[bytes(access.range)], memory),
            Operation::Write(access) => self.disk[bytes(access.range)].copy_from_slice(&data),
            Operation::Compare(access) if self.disk[bytes(access.range)] != data => {
                return Err(Status::COMPARE_FAILURE);
            }
            Operation::WriteZeroes { access, .. } => self.disk[bytes(access.range)].fill(0),
            Operation::DatasetManagement { .. } => {
                // Deallocation is optional, but the ranges must be valid.
                DatasetRanges::parse(&data, &view.expect("the parser requires it"))?;
            }
            Operation::Copy(copy) => {
                let view = view.expect("the parser requires it");
                let mut to = copy.sdlba as usize * BLOCK_BYTES;
                for from in CopyRanges::parse(sqe, &data, &view, &limits)?.iter() {
                    let from = bytes(from);
                    self.disk.copy_within(from.clone(), to);
                    to += from.len();
                }
            }
            // Compare found equal data. The others do nothing: the disk has no cache, media errors
            // or Write Uncorrectable.
            Operation::Compare(_)
            | Operation::Verify(_)
            | Operation::Flush(_)
            | Operation::WriteUncorrectable(_) => {}
        }
        Ok(())
    }

    fn carry_out(
        &mut self,
        mut actions: Vec<Action>,
        now: Duration,
        completions: &mut Vec<Completion>,
    ) {
        while !actions.is_empty() {
            for action in take(&mut actions) {
                match action {
                    Action::Complete { completion, .. } => completions.push(completion),
                    Action::DisconnectIoQueues { .. } => self.close_from(1, now, &mut actions),
                    Action::Terminate { .. } => self.close_from(0, now, &mut actions),
                    Action::FlushAll { cntlid } => {
                        self.subsystem.flushed(cntlid, true, now, &mut actions);
                    }
                    // Each command completes before the next is received, so none can be aborted.
                    Action::Abort {
                        cntlid, abort_cid, ..
                    } => self
                        .subsystem
                        .abort_done(cntlid, abort_cid, false, &mut actions),
                    Action::SetProtection { nsid, change, .. } => {
                        self.subsystem
                            .protection_done(nsid, change, true, &mut actions);
                    }
                    Action::PersistReservations {
                        cntlid,
                        nsid,
                        change,
                        ..
                    } => {
                        let refused = Status::INVALID_FIELD;
                        self.subsystem.persistence_done(
                            cntlid,
                            nsid,
                            change,
                            refused,
                            &mut actions,
                        );
                    }
                    // The disk has no cache, and every host may use the namespace.
                    Action::SetWriteCache { .. } | Action::SetSeen { .. } => {}
                }
            }
        }
    }

    fn close_from(&mut self, first: u16, now: Duration, actions: &mut Vec<Action>) {
        let qids: Vec<_> = self.queues.range(first..).map(|(&qid, _)| qid).collect();
        for qid in qids.into_iter().rev() {
            self.remove(qid, now, actions);
            self.closed.push(qid);
        }
    }

    fn remove(&mut self, qid: u16, now: Duration, actions: &mut Vec<Action>) {
        let queue = self.queues.remove(&qid);
        if let Some(connected) = queue.and_then(|queue| queue.connected) {
            self.subsystem
                .queue_disconnected(connected.cntlid, qid, now, actions);
        }
    }

    pub(crate) fn disconnected(&mut self, qid: u16, now: Duration) {
        let mut actions = Vec::new();
        self.remove(qid, now, &mut actions);
        self.carry_out(actions, now, &mut Vec::new());
    }

    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.subsystem.next_deadline()
    }

    pub(crate) fn tick(&mut self, now: Duration) {
        let (mut actions, last) = (Vec::new(), self.last_command);
        self.subsystem.poll(now, |_| last, &mut actions);
        self.carry_out(actions, now, &mut Vec::new());
    }
}

impl Queue {
    fn take_entry(&mut self) -> u16 {
        match self.connected {
            Some(connected) if connected.flow_control => {
                self.sqhd = (self.sqhd + 1) % connected.sq_entries;
                self.sqhd
            }
            _ => Cqe::SQHD_NO_FLOW_CONTROL,
        }
    }
}

fn bytes(range: BlockRange) -> std::ops::Range<usize> {
    let start = range.slba as usize * BLOCK_BYTES;
    start..start + range.blocks as usize * BLOCK_BYTES
}

fn fetch(transfer: DataTransfer, in_capsule: &[u8], memory: &[u8]) -> Vec<u8> {
    match transfer {
        DataTransfer::InCapsule(slice) => in_capsule[slice.range()].to_vec(),
        DataTransfer::FromHost(buffer) => {
            memory[buffer.address as usize..][..buffer.length as usize].to_vec()
        }
        _ => Vec::new(),
    }
}

fn send(transfer: DataTransfer, data: &[u8], memory: &mut [u8]) {
    if let DataTransfer::ToHost(buffer) = transfer {
        memory[buffer.address as usize..][..data.len()].copy_from_slice(data);
    }
}

struct Host {
    target: Target,
    memory: Vec<u8>,
    now: Duration,
}

impl Host {
    fn send(&mut self, qid: u16, sqe: impl Into<Sqe>, in_capsule: &[u8]) -> Cqe {
        let capsule = [sqe.into().as_bytes(), in_capsule].concat();
        let responses = self
            .target
            .receive(qid, &capsule, &mut self.memory, self.now);
        let [response] = &responses[..] else {
            panic!("{} responses to one command", responses.len());
        };
        Cqe::read_from_bytes(response).expect("a response capsule is a CQE")
    }

    fn succeed(&mut self, qid: u16, sqe: impl Into<Sqe>, in_capsule: &[u8]) -> u64 {
        let cqe = self.send(qid, sqe, in_capsule);
        assert_eq!(cqe.status(), Status::SUCCESS);
        cqe.result()
    }

    fn connect(&mut self, qid: u16, cntlid: u16) -> u16 {
        let request = RequestData::new(qid, 32, 31, CNTLID_NONE);
        let reply = self.target.accept(request.as_bytes());
        assert_eq!(reply.map(|reply| reply.crqsize.get()), Ok(32));
        let nqn = |name: &str| name.parse::<Nqn>().expect("an NQN");
        let hostnqn = nqn("nqn.2026-01.org.example:host");
        let data = ConnectData::new([7; 16], cntlid, &nqn(SUBNQN), &hostnqn);
        let mut command = ConnectCommand::new(1, qid, 31);
        command.sgl1 = SglDescriptor::in_capsule(0, size_of_val(&data) as u32);
        command.kato.set(if qid == 0 { 5000 } else { 0 });
        self.succeed(qid, command, data.as_bytes()) as u16
    }
}

pub(crate) fn access(opcode: NvmOpcode, slba: u64, blocks: u32, dptr: SglDescriptor) -> Sqe {
    let mut sqe = Sqe::new(2, opcode.0, 1);
    sqe.cdw10.set(slba as u32);
    sqe.cdw11.set((slba >> 32) as u32);
    sqe.cdw12.set(blocks - 1);
    sqe.dptr = dptr;
    sqe
}

pub(crate) fn main() {
    let mut host = Host {
        target: Target::new(),
        memory: vec![0; 8192],
        now: Duration::from_secs(1),
    };
    let cntlid = host.connect(0, CNTLID_DYNAMIC);
    println!("Connect created controller {cntlid}");

    let cc = Cc(0).with_iosqes(6).with_iocqes(4).with_en(true);
    let enable = PropertySetCommand::new(1, PropertySize::Four, offset::CC, cc.0.into());
    host.succeed(0, enable, &[]);
    let csts = PropertyGetCommand::new(1, PropertySize::Four, offset::CSTS);
    let csts = Csts(host.succeed(0, csts, &[]) as u32);
    assert!(csts.rdy());
    println!("The controller is enabled: {csts:?}");

    let mut identify = Sqe::new(1, AdminOpcode::IDENTIFY.0, 0);
    identify
        .cdw10
        .set(IdentifyCdw10(0).with_cns(Cns::CONTROLLER.0).0);
    identify.dptr = SglDescriptor::keyed(0, 4096, 0, false);
    host.succeed(0, identify, &[]);
    let (identity, _) = IdentifyController::ref_from_prefix(&host.memory).expect("4096 bytes");
    assert_eq!(identity.cntlid.get(), cntlid);
    assert!(identity.sn.starts_with(b"MEMORY01"));
    println!("Identify: {} namespaces at most", identity.nn.get());

    assert_eq!(host.connect(1, cntlid), cntlid);
    let data: Vec<u8> = (0..4 * BLOCK_BYTES).map(|i| (i % 251) as u8).collect();
    let length = data.len() as u32;
    let in_capsule = SglDescriptor::in_capsule(0, length);
    host.succeed(1, access(NvmOpcode::WRITE, 16, 4, in_capsule), &data);
    println!("Write of {length} bytes in the capsule");

    let buffer = SglDescriptor::keyed(4096, length, 0, false);
    host.succeed(1, access(NvmOpcode::READ, 16, 4, buffer), &[]);
    assert_eq!(host.memory[4096..][..data.len()], data);
    println!("Read returned the same bytes by RDMA");

    let beyond = access(NvmOpcode::READ, BLOCKS - 3, 4, buffer);
    let status = host.send(1, beyond, &[]).status();
    assert_eq!(status.code(), Status::LBA_OUT_OF_RANGE);
    println!("Read beyond the end: {status}");

    host.target.disconnected(1, host.now);
    host.now = host.target.deadline().expect("KATO is not 0");
    host.target.tick(host.now);
    assert_eq!(host.target.closed, [0]);
    println!("The silent host was disconnected after {:?}", host.now);
}
