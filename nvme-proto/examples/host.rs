//! Host without I/O that connects to the target of example `target`, writes and reads.
//!
//! `cargo run -p nvme-proto --example host`. Time jumps to the next deadline.

#[allow(
    dead_code,
    reason = "only the test of the examples calls the main function of the target"
)]
#[path = "target.rs"]
pub(crate) mod target;

use std::collections::BTreeMap;
use std::mem::take;
use std::time::Duration;

use nvme_proto::host::{
    Action, Association, AssociationState, Duty, OwnCommand, Payload, Report, Settings,
};
use nvme_proto::wire::{Cqe, FromBytes, IntoBytes, Nqn, NvmOpcode, SglDescriptor, Sqe, Status};

use target::{BLOCK_BYTES, SUBNQN, Target, access};

struct Driver {
    association: Association,
    target: Target,
    /// Host memory: data of the association's command in progress, and user data at [`USER_DATA`].
    memory: Vec<u8>,
    now: Duration,
    last_cid: u16,
    own_commands: BTreeMap<u16, OwnCommand>,
    keep_alives: u32,
    reports: Vec<Report>,
}

const USER_DATA: usize = 4096;

impl Driver {
    fn new(settings: Settings) -> Self {
        Self {
            association: Association::new(settings),
            target: Target::new(),
            memory: vec![0; 2 * USER_DATA],
            now: Duration::from_secs(1),
            last_cid: 0,
            own_commands: BTreeMap::new(),
            keep_alives: 0,
            reports: Vec::new(),
        }
    }

    fn run(&mut self) {
        while let Some(action) = self.association.next_action() {
            match action {
                Action::Connect(spec) => match self.target.accept(spec.request.as_bytes()) {
                    Ok(_) => self.association.queue_connected(spec.qid, self.now),
                    Err(_) => self.association.queue_lost(spec.qid, self.now),
                },
                Action::Send(command) => self.send_own(command),
                Action::Disconnect { qid } => {
                    self.target.disconnected(qid, self.now);
                    self.association.queue_closed(qid, self.now);
                }
                Action::Authenticate { .. } => unreachable!("the target requires none"),
                Action::Report(report) => self.reports.push(report),
            }
        }
    }

    fn wait(&mut self) {
        let deadlines = [self.association.deadline(), self.target.deadline()];
        let next = deadlines.into_iter().flatten().min();
        self.now = next.expect("a deadline").max(self.now);
        self.target.tick(self.now);
        self.notice_closed();
        self.association.tick(self.now);
        self.run();
    }

    fn send_own(&mut self, command: OwnCommand) {
        let mut sqe = command.sqe;
        sqe.flags = Sqe::FLAGS_SGL;
        sqe.dptr = match &command.payload {
            Payload::None => SglDescriptor::none(),
            Payload::ToHost(length) => SglDescriptor::keyed(0, *length, 0, false),
            Payload::FromHost(data) => {
                self.memory[..data.len()].copy_from_slice(data);
                SglDescriptor::keyed(0, data.len() as u32, 0, false)
            }
        };
        self.keep_alives += u32::from(command.duty == Duty::KeepAlive);
        let qid = command.qid;
        self.last_cid += 1;
        self.own_commands.insert(self.last_cid, command);
        for cqe in self.exchange(qid, sqe, &[]) {
            // The completed command may be an Asynchronous Event Request of an earlier call.
            let command = self.own_commands.remove(&cqe.cid.get());
            let command = command.expect("the CID of a command in flight");
            let length = match command.payload {
                Payload::ToHost(length) => length as usize,
                _ => 0,
            };
            let data = &self.memory[..length];
            self.association
                .completed(command.duty, &cqe, data, self.now);
        }
    }

    fn send_user(&mut self, sqe: Sqe, in_capsule: &[u8]) -> Status {
        assert_eq!(self.association.state(), AssociationState::Live);
        self.last_cid += 1;
        self.exchange(1, sqe, in_capsule)[0].status()
    }

    fn exchange(&mut self, qid: u16, mut sqe: Sqe, in_capsule: &[u8]) -> Vec<Cqe> {
        sqe.cid.set(self.last_cid);
        let capsule = [sqe.as_bytes(), in_capsule].concat();
        let responses = self
            .target
            .receive(qid, &capsule, &mut self.memory, self.now);
        self.notice_closed();
        let cqe = |bytes: &Vec<u8>| Cqe::read_from_bytes(bytes).expect("a whole CQE");
        responses.iter().map(cqe).collect()
    }

    fn notice_closed(&mut self) {
        for qid in take(&mut self.target.closed) {
            self.association.queue_lost(qid, self.now);
        }
    }
}

pub(crate) fn main() {
    let nqn = |name: &str| name.parse::<Nqn>().expect("an NQN");
    let hostnqn = nqn("nqn.2026-01.org.example:host");
    let mut driver = Driver::new(Settings::new(nqn(SUBNQN), hostnqn, [7; 16]));
    driver.association.begin(driver.now);
    driver.run();
    while driver.association.state() == AssociationState::Connecting {
        driver.wait();
    }
    assert_eq!(driver.reports, [Report::Live { tries: 0 }]);
    let identity = driver.association.identity().expect("the host is live");
    let cntlid = driver.association.cntlid();
    assert_eq!(identity.cntlid.get(), cntlid);
    assert_eq!(driver.association.io_queues(), 1);
    println!("Controller {cntlid} is live");

    let data = [0xa5; 2 * BLOCK_BYTES];
    let length = data.len() as u32;
    let write = access(NvmOpcode::WRITE, 8, 2, SglDescriptor::in_capsule(0, length));
    assert_eq!(driver.send_user(write, &data), Status::SUCCESS);
    let buffer = SglDescriptor::keyed(USER_DATA as u64, length, 0, false);
    let read = access(NvmOpcode::READ, 8, 2, buffer);
    assert_eq!(driver.send_user(read, &[]), Status::SUCCESS);
    assert_eq!(driver.memory[USER_DATA..][..data.len()], data);
    println!("Write and Read moved {length} bytes");

    while driver.keep_alives < 3 {
        driver.wait();
    }
    assert_eq!(driver.association.state(), AssociationState::Live);
    println!("Keep Alives kept the association until {:?}", driver.now);

    driver.association.shutdown(driver.now);
    driver.run();
    while driver.association.state() != AssociationState::Gone {
        driver.wait();
    }
    assert_eq!(driver.reports.last(), Some(&Report::Gone(None)));
    println!("The controller was shut down");
}
