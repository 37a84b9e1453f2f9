//! Minimal NVMe target. Unlike Cairn, it does not protect hosts against replaced disks: a command
//! reaches the disk that currently has its NSID.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_base::Mapping;
use cairn_initiator::{HostOptions, Identity, Recovery};
use cairn_rdma::loopback::Loopback;
use cairn_rdma::{
    Access, Completion, CompletionKind, ConnRequest, Endpoint, EndpointOptions, Event, Listener,
    Operation, QpId, QpOptions, RecvWork, Region, RemoteBuffer, SendWork, Sge,
};
use cairn_tests::harness::{NQN, host_nqn, nqn};
use cairn_tests::provider::listen;
use crossbeam_channel::Receiver;
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::cm::{ReplyData, RequestData};
use nvme_proto::wire::fabrics::{PropertyGetCommand, PropertySetCommand};
use nvme_proto::wire::feature::Feature;
use nvme_proto::wire::identify::{
    Cns, IDENTIFY_BYTES, IdentifyController, IdentifyNamespace, NamespaceDescriptor,
};
use nvme_proto::wire::property::offset;
use nvme_proto::wire::sqe::SQE_BYTES;
use nvme_proto::wire::{
    AdminOpcode, Cqe, FabricsType, FromBytes, FromZeros, IntoBytes, NvmOpcode, Sgl, Sqe, Status,
};

pub(crate) const BLOCK: usize = 4096;
const BLOCKS: usize = 16;
const RECEIVES: u64 = 64;
const RESPONSES: usize = RECEIVES as usize * SQE_BYTES;
const DATA: usize = RESPONSES + 4096;
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Plain {
    provider: Arc<Loopback>,
    address: SocketAddr,
    disks: Arc<Mutex<Disks>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    _listener: Box<dyn Listener>,
}

struct Disks {
    contents: Vec<Vec<u8>>,
    is_listed: bool,
    is_due: bool,
    is_masked: bool,
    /// Number of commands to fail, with their status. Element 0 is for Identify and Get Log Page,
    /// element 1 for I/O commands.
    failing: [(usize, Status); 2],
}

impl Disks {
    fn uuid(&self) -> [u8; 16] {
        [self.contents.len() as u8; 16]
    }
}

impl Plain {
    pub(crate) fn start() -> Self {
        let provider = Arc::<Loopback>::default();
        let address = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 9), 4420));
        let (listener, requests) = listen(&*provider, address, 16).unwrap();
        let disks = Arc::new(Mutex::new(Disks {
            contents: vec![vec![0; BLOCKS * BLOCK]],
            is_listed: false,
            is_due: false,
            is_masked: false,
            failing: [(0, Status::SUCCESS); 2],
        }));
        let stop = Arc::new(AtomicBool::new(false));
        let (of_thread, until) = (Arc::clone(&disks), Arc::clone(&stop));
        let thread = std::thread::spawn(move || serve(&requests, &of_thread, &until));
        Self {
            provider,
            address: listener.local_addr(),
            disks,
            stop,
            thread: Some(thread),
            _listener: listener,
        }
    }

    pub(crate) fn provider(&self) -> Arc<Loopback> {
        Arc::clone(&self.provider)
    }

    pub(crate) fn options(&self) -> HostOptions {
        HostOptions {
            local: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))),
            recovery: Recovery::NONE,
            timeout: PATIENCE,
            kato_ms: 0,
            ..HostOptions::new(self.address, nqn(NQN), Identity::named(host_nqn("plain")))
        }
    }

    pub(crate) fn replace(&self) {
        let mut disks = self.disks.lock().unwrap();
        disks.contents.push(vec![0; BLOCKS * BLOCK]);
        (disks.is_listed, disks.is_due) = (true, true);
    }

    pub(crate) fn fail(&self, questions: usize, io: usize, status: Status) {
        let mut disks = self.disks.lock().unwrap();
        disks.failing = [(questions, status), (io, status)];
    }

    pub(crate) fn failing(&self) -> usize {
        let disks = self.disks.lock().unwrap();
        disks.failing.iter().map(|(left, _)| left).sum()
    }

    pub(crate) fn contents(&self, disk: usize) -> Vec<u8> {
        self.disks.lock().unwrap().contents[disk].clone()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

struct Connection {
    endpoint: Box<dyn Endpoint>,
    region: Region,
    qp: QpId,
    qid: u16,
    cc: u32,
    looks: u32,
    event_request: Option<u16>,
    received: Vec<u64>,
    ended: u64,
    is_gone: bool,
}

fn serve(requests: &Receiver<ConnRequest>, disks: &Mutex<Disks>, stop: &AtomicBool) {
    let mut connections: Vec<Connection> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        while let Ok(request) = requests.try_recv() {
            connections.push(Connection::accept(request));
        }
        for connection in &mut connections {
            connection.turn(disks);
        }
        connections.retain(|connection| !connection.is_gone);
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Connection {
    fn accept(request: ConnRequest) -> Self {
        let qid = RequestData::parse(request.private_data.as_slice());
        let qid = qid.unwrap().qid.get();
        let device = Arc::clone(&request.device);
        let mapping = Arc::new(Mapping::anonymous(1 << 20).unwrap());
        let region = device.register(mapping, Access::LOCAL_WRITE).unwrap();
        let options = EndpointOptions {
            receives: RECEIVES as u32,
            completions: 512,
            queue_pairs: 1,
        };
        let endpoint = device.open(&options).unwrap();
        let reply = ReplyData::new(RECEIVES as u16);
        let mut connection = Self {
            qp: QpId::new(0, 0),
            region,
            qid,
            cc: 0,
            looks: 0,
            event_request: None,
            received: Vec::new(),
            ended: 0,
            is_gone: false,
            endpoint,
        };
        for slot in 0..RECEIVES {
            connection.post_receive(slot);
        }
        let qp = connection
            .endpoint
            .accept(request, &QpOptions::default(), reply.as_bytes());
        connection.qp = qp.unwrap();
        connection
    }

    fn sge(&self, at: usize, length: usize) -> Sge {
        self.region.sge(at, length as u32)
    }

    fn post_receive(&mut self, slot: u64) {
        let sges = self.sge(slot as usize * SQE_BYTES, SQE_BYTES).into();
        let work = RecvWork { id: slot, sges };
        self.endpoint.post_receives(&[work]).unwrap();
    }

    fn poll(&mut self) {
        let mut batch = [Completion::EMPTY; 16];
        let count = self.endpoint.poll(&mut batch);
        for completion in &batch[..count] {
            if !completion.status.is_success() {
                self.is_gone = true;
            } else if completion.kind == CompletionKind::Recv {
                self.received.push(completion.id);
            } else {
                self.ended += 1;
            }
        }
        let mut events = Vec::new();
        self.endpoint.poll_events(&mut events);
        self.is_gone |= events
            .iter()
            .any(|event| matches!(event, Event::Disconnected { .. } | Event::Closed { .. }));
    }

    fn carry_out(&mut self, op: Operation, at: usize, length: usize) {
        let sges = self.sge(at, length).into();
        let work = SendWork {
            id: 1 << 32,
            op,
            sges,
            signaled: true,
        };
        let (ended, end) = (self.ended, Instant::now() + PATIENCE);
        self.is_gone |= self.endpoint.post(self.qp, &[work]).is_err();
        while self.ended == ended && !self.is_gone {
            assert!(Instant::now() < end, "{op:?} does not end");
            self.poll();
        }
    }

    fn turn(&mut self, disks: &Mutex<Disks>) {
        self.poll();
        for slot in std::mem::take(&mut self.received) {
            let mut sqe = [0; SQE_BYTES];
            let mapping = Arc::clone(self.region.mapping());
            mapping.read(slot as usize * SQE_BYTES, &mut sqe);
            self.post_receive(slot);
            let sqe = Sqe::read_from_bytes(&sqe).unwrap();
            if let Some((status, result)) = self.answer(&sqe, disks) {
                self.respond(sqe.cid.get(), status, result);
            }
        }
        let mut shared = disks.lock().unwrap();
        if shared.is_due
            && !shared.is_masked
            && let Some(cid) = self.event_request.take()
        {
            (shared.is_due, shared.is_masked) = (false, true);
            let event = AsyncEvent::NOTICE_NAMESPACE_CHANGED.0;
            drop(shared);
            self.respond(cid, Status::SUCCESS, event.into());
        }
    }

    fn respond(&mut self, cid: u16, status: Status, result: u64) {
        let cqe = Cqe::new(cid, 0, status, result);
        self.region.mapping().write(RESPONSES, cqe.as_bytes());
        self.carry_out(Operation::Send, RESPONSES, cqe.as_bytes().len());
    }

    fn fetch(&mut self, sqe: &Sqe) -> Vec<u8> {
        let (host, length) = host_memory(sqe);
        self.carry_out(Operation::Read(host), DATA, length);
        let mut bytes = vec![0; length];
        self.region.mapping().read(DATA, &mut bytes);
        bytes
    }

    fn put(&mut self, sqe: &Sqe, bytes: &[u8]) {
        let (host, length) = host_memory(sqe);
        let length = length.min(bytes.len());
        self.region.mapping().write(DATA, &bytes[..length]);
        self.carry_out(Operation::Write(host), DATA, length);
    }

    fn answer(&mut self, sqe: &Sqe, disks: &Mutex<Disks>) -> Option<(Status, u64)> {
        if sqe.is_fabrics() {
            return Some((Status::SUCCESS, self.fabrics(sqe)));
        }
        let is_question = sqe.cdw10.get() as u8 != Cns::CONTROLLER.0
            && AdminOpcode(sqe.opc) == AdminOpcode::IDENTIFY
            || AdminOpcode(sqe.opc) == AdminOpcode::GET_LOG_PAGE;
        if self.qid != 0 || is_question {
            let mut shared = disks.lock().unwrap();
            let (left, status) = &mut shared.failing[usize::from(self.qid != 0)];
            if *left > 0 {
                *left -= 1;
                return Some((*status, 0));
            }
        }
        if self.qid != 0 {
            self.io(sqe, &mut disks.lock().unwrap());
            return Some((Status::SUCCESS, 0));
        }
        match AdminOpcode(sqe.opc) {
            AdminOpcode::ASYNC_EVENT_REQUEST => {
                self.event_request = Some(sqe.cid.get());
                return None;
            }
            AdminOpcode::IDENTIFY => {
                let bytes = identify(sqe, &disks.lock().unwrap());
                self.put(sqe, &bytes);
            }
            AdminOpcode::GET_LOG_PAGE => {
                let mut page = vec![0; IDENTIFY_BYTES];
                let mut shared = disks.lock().unwrap();
                page[0] = u8::from(std::mem::take(&mut shared.is_listed));
                shared.is_masked = false;
                drop(shared);
                self.put(sqe, &page);
            }
            AdminOpcode::SET_FEATURES if sqe.cdw10.get() as u8 == Feature::NUMBER_OF_QUEUES.0 => {
                return Some((Status::SUCCESS, 0));
            }
            _ => {}
        }
        Some((Status::SUCCESS, 0))
    }

    fn fabrics(&mut self, sqe: &Sqe) -> u64 {
        match FabricsType(sqe.fctype().0) {
            FabricsType::PROPERTY_GET => {
                let get = PropertyGetCommand::read_from_bytes(sqe.as_bytes()).unwrap();
                match get.ofst.get() {
                    offset::CAP => 63 | 1 << 16 | 1 << 37,
                    offset::VS => 0x0001_0400,
                    offset::CSTS if self.cc & 0xc000 != 0 => 2 << 2,
                    offset::CSTS => {
                        self.looks += 1;
                        u64::from(self.looks > 1 && self.cc & 1 != 0)
                    }
                    _ => 0,
                }
            }
            FabricsType::PROPERTY_SET => {
                let set = PropertySetCommand::read_from_bytes(sqe.as_bytes()).unwrap();
                (self.cc, self.looks) = (set.value.get() as u32, 0);
                0
            }
            _ => 1,
        }
    }

    fn io(&mut self, sqe: &Sqe, disks: &mut Disks) {
        let start = sqe.cdw10_11() as usize * BLOCK;
        let end = start + (sqe.cdw12.get() as u16 as usize + 1) * BLOCK;
        let disk = disks.contents.last_mut().unwrap();
        match NvmOpcode(sqe.opc) {
            NvmOpcode::WRITE => disk[start..end].copy_from_slice(&self.fetch(sqe)),
            NvmOpcode::READ => self.put(sqe, &disk[start..end]),
            _ => {}
        }
    }
}

fn host_memory(sqe: &Sqe) -> (RemoteBuffer, usize) {
    let Ok(Sgl::Keyed {
        address,
        length,
        rkey,
        ..
    }) = sqe.dptr.parse()
    else {
        panic!("this target takes no data in capsules: {sqe:?}")
    };
    let addr = address;
    (RemoteBuffer { addr, rkey }, length as usize)
}

fn identify(sqe: &Sqe, disks: &Disks) -> Vec<u8> {
    let mut descriptors = vec![0; IDENTIFY_BYTES];
    match Cns(sqe.cdw10.get() as u8) {
        Cns::CONTROLLER => {
            let mut id = IdentifyController::new_zeroed();
            id.cntlid.set(1);
            id.cntrltype = 1;
            (id.sqes, id.cqes) = (0x66, 0x44);
            id.nn.set(1);
            id.oaes.set(1 << 8);
            id.sgls.set(1 | 1 << 2);
            id.ioccsz.set(4);
            id.iorcsz.set(1);
            id.maxcmd.set(63);
            id.crdt1.set(2);
            id.as_bytes().to_vec()
        }
        Cns::NAMESPACE => {
            let mut id = IdentifyNamespace::new_zeroed();
            id.nsze.set(BLOCKS as u64);
            id.lbaf[0].lbads = 12;
            id.as_bytes().to_vec()
        }
        Cns::NAMESPACE_DESCRIPTORS => {
            NamespaceDescriptor::Uuid(disks.uuid()).write(&mut descriptors);
            descriptors
        }
        _ => {
            descriptors[0] = 1;
            descriptors
        }
    }
}
