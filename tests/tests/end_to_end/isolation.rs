//! A hung disk or host must not stall other hosts. The clock is simulated.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::Clock;
use cairn_config::{Config, Flags};
use cairn_disk::{Habits, Operation, SimulatedDisk};
use cairn_initiator::{
    Controller, Data, HostError, HostOptions, Identity, Recovery, Response, Ticket, command,
};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_target::SteppedTarget;
use cairn_tests::harness::{NQN, Scratch, host_nqn, nqn, subsystem};
use nvme_proto::wire::{Sqe, Status};

pub(super) const BLOCK: u32 = 4096;
const DISK_BYTES: u64 = 4 << 20;
const TARGET: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
const TURNS_MAX: usize = 60_000;

pub(super) struct Bed {
    pub(super) network: Arc<Loopback>,
    pub(super) target: SteppedTarget,
    hosts: Vec<Option<Controller>>,
    pub(super) clock: Clock,
    pub(super) disks: [SimulatedDisk; 2],
    _files: [Scratch; 2],
}

impl Bed {
    pub(super) fn new(name: &str, settings: &str) -> Self {
        Self::limited(name, settings, ["", ""])
    }

    pub(super) fn limited(name: &str, settings: &str, lines: [&str; 2]) -> Self {
        Self::with(name, settings, "", lines)
    }

    pub(super) fn with(name: &str, settings: &str, subsystems: &str, lines: [&str; 2]) -> Self {
        let clock = Clock::simulated();
        let files = [1, 2].map(|n| Scratch::in_memory(&format!("{name}-{n}"), DISK_BYTES));
        let register = |file: &Scratch| SimulatedDisk::register(file.path(), &clock, 1).unwrap();
        let disks = [register(&files[0]), register(&files[1])];
        let export = |at: usize| format!("{}\n{}", files[at].export(BLOCK), lines[at]);
        let exports = [0, 1].map(export);
        let text = format!(
            "[target]\nreactors = 1\n{settings}\n{}[[listener]]\naddress = \"{TARGET}\"\n",
            subsystem(NQN, &[&exports[0], &exports[1]]).replacen(
                "\n",
                &format!("\n{subsystems}\n"),
                1
            )
        );
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let network = Arc::new(Loopback::default());
        let providers: Vec<Arc<dyn Provider>> = vec![Arc::clone(&network) as _];
        let target = SteppedTarget::start(config, providers, clock.clone()).unwrap();
        Self {
            network,
            target,
            hosts: Vec::new(),
            clock,
            disks,
            _files: files,
        }
    }

    pub(super) fn connect(&mut self, name: &str, io_queues: u16, entries: u16) -> usize {
        let options = self.options(name, io_queues, entries);
        self.connect_as(options)
    }

    pub(super) fn options(&self, name: &str, io_queues: u16, entries: u16) -> HostOptions {
        HostOptions {
            local: Some(IpAddr::from([192, 0, 2, 2])),
            io_queues,
            queue_entries: entries,
            recovery: Recovery::NONE,
            requeue: false,
            timeout: Duration::from_secs(3600),
            kato_ms: 0,
            ..HostOptions::new(
                self.target.addresses()[0],
                nqn(NQN),
                Identity::named(host_nqn(name)),
            )
        }
    }

    pub(super) fn connect_as(&mut self, options: HostOptions) -> usize {
        let remote = options.remote;
        let device = self.network.device_for(remote, options.local).unwrap();
        let host = Controller::begin(&device, options, self.clock.now()).unwrap();
        self.hosts.push(Some(host));
        let at = self.hosts.len() - 1;
        self.until("a connection", |bed| bed.host(at).is_live());
        at
    }

    pub(super) fn host(&mut self, at: usize) -> &mut Controller {
        self.hosts[at].as_mut().unwrap()
    }

    pub(super) fn turn(&mut self) {
        let now = self.clock.now() + Duration::from_micros(100);
        self.clock.advance_to(now);
        self.target.step();
        for host in self.hosts.iter_mut().flatten() {
            host.poll(now);
        }
    }

    pub(super) fn until(&mut self, what: &str, mut reached: impl FnMut(&mut Self) -> bool) {
        for _ in 0..TURNS_MAX {
            self.turn();
            if reached(self) {
                return;
            }
        }
        panic!("{what} did not come about: {:?}", self.target);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        while self.clock.now() < end {
            self.clock
                .advance_to(self.clock.now() + Duration::from_millis(5));
            self.turn();
        }
    }

    pub(super) fn submit(&mut self, at: usize, sqe: Sqe, data: Data<'_>) -> Ticket {
        self.host(at).submit(sqe, data).unwrap()
    }

    pub(super) fn submit_admin(&mut self, at: usize, sqe: Sqe) -> Ticket {
        self.host(at).submit_admin(sqe, Data::None).unwrap()
    }

    pub(super) fn run(
        &mut self,
        at: usize,
        sqe: Sqe,
        data: Data<'_>,
    ) -> Result<Response, HostError> {
        let ticket = self.submit(at, sqe, data);
        let mut ended = None;
        self.until("an answer", |bed| {
            ended = bed.host(at).take(ticket);
            ended.is_some()
        });
        ended.unwrap().answer
    }

    pub(super) fn block(&mut self, at: usize) -> Data<'static> {
        Data::whole(self.host(at).buffer(BLOCK as usize).unwrap())
    }

    pub(super) fn check_io(&mut self, at: usize, nsid: u32) {
        for sqe in [command::write(nsid, 7, 1), command::read(nsid, 7, 1)] {
            let data = self.block(at);
            let response = self.run(at, sqe, data).unwrap();
            let status = response.cqe.status();
            assert!(status.is_success(), "{status}");
        }
    }

    pub(super) fn flood(
        &mut self,
        at: usize,
        queues: u16,
        depth: usize,
        sqe: Sqe,
        bytes: u32,
    ) -> Vec<Ticket> {
        let all = depth * usize::from(queues) * bytes.max(1) as usize;
        let mut buffers = self
            .host(at)
            .buffer(all)
            .unwrap()
            .split(bytes.max(1) as usize);
        let mut tickets = Vec::new();
        for queue in (0..queues).map(usize::from) {
            let queue = self.host(at).io_queue(queue);
            for _ in 0..depth {
                let data = match bytes {
                    0 => Data::None,
                    _ => Data::whole(buffers.pop().unwrap()),
                };
                tickets.push(self.host(at).submit_on(queue, sqe, data).unwrap());
            }
        }
        for _ in 0..100 {
            self.turn();
        }
        tickets
    }

    fn flood_in_capsule(&mut self, at: usize, queues: u16, depth: usize) -> Vec<Ticket> {
        let bytes = [7; BLOCK as usize];
        let mut tickets = Vec::new();
        for queue in (0..queues).map(usize::from) {
            let queue = self.host(at).io_queue(queue);
            for _ in 0..depth {
                let write = command::write(1, 0, 1);
                let data = Data::InCapsule(&bytes);
                tickets.push(self.host(at).submit_on(queue, write, data).unwrap());
            }
        }
        for _ in 0..100 {
            self.turn();
        }
        tickets
    }

    pub(super) fn collect(&mut self, at: usize, tickets: Vec<Ticket>) {
        for ticket in tickets {
            let mut ended = None;
            self.until("an answer", |bed| {
                ended = bed.host(at).take(ticket);
                ended.is_some()
            });
            let status = status_of(ended.unwrap().answer);
            assert!(status.is_success(), "{status}");
        }
    }

    pub(super) fn kill(&mut self, at: usize) {
        self.hosts[at] = None;
    }

    pub(super) fn quiet(&mut self) {
        for at in 0..self.hosts.len() {
            self.kill(at);
        }
        self.until("silence", |bed| {
            let held = bed.target.usage();
            (
                held.queue_pairs,
                held.requests,
                held.buffer_bytes,
                held.capsules,
            ) == (0, 0, 0, 0)
                && (held.receives, held.shares) == (0, 0)
        });
    }
}

pub(super) fn status_of(answer: Result<Response, HostError>) -> Status {
    match answer {
        Ok(response) => response.cqe.status().code(),
        Err(HostError::Status { status, .. }) => status.code(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_disk_that_hangs_takes_no_requests_from_others() {
    let mut bed = Bed::new("hangs", "receives = 64");
    let greedy = bed.connect("greedy", 4, 32);
    let also = bed.connect("also", 4, 32);
    let bystander = bed.connect("bystander", 1, 32);
    bed.disks[0].hold(Operation::Read);
    let read = command::read(1, 0, 1);
    let held = bed.flood(greedy, 4, 30, read, BLOCK);
    let more = bed.flood(also, 4, 30, read, BLOCK);
    bed.check_io(bystander, 2);
    bed.check_io(greedy, 2);
    let keep_alive = bed.submit_admin(greedy, command::keep_alive());
    bed.collect(greedy, vec![keep_alive]);
    let newcomer = bed.connect("newcomer", 1, 32);
    bed.check_io(newcomer, 2);
    bed.disks[0].release_all();
    bed.collect(greedy, held);
    bed.collect(also, more);
    bed.check_io(newcomer, 1);
    bed.quiet();
}

#[test]
fn in_capsule_writes_to_a_disk_that_hangs_keep_no_receives_from_others() {
    let mut bed = Bed::new("capsules", "receives = 64");
    let greedy = bed.connect("greedy", 4, 64);
    let also = bed.connect("also", 4, 32);
    let bystander = bed.connect("bystander", 1, 32);
    bed.disks[0].hold(Operation::Write);
    let mut held = Vec::new();
    for (host, depth) in [(greedy, 60), (also, 30)] {
        held.push(bed.flood_in_capsule(host, 4, depth));
    }
    let began = bed.clock.now();
    bed.check_io(bystander, 2);
    let took = bed.clock.now() - began;
    assert!(took < Duration::from_millis(500), "{took:?}");
    for _ in 0..100 {
        let began = bed.clock.now();
        bed.check_io(bystander, 2);
        let took = bed.clock.now() - began;
        assert!(took < Duration::from_millis(5), "{took:?}");
    }
    bed.check_io(greedy, 2);
    let newcomer = bed.connect("newcomer", 1, 32);
    bed.check_io(newcomer, 2);
    bed.pass(Duration::from_secs(12));
    let [of_greedy, of_also] = held.try_into().unwrap();
    let mut refused = 0;
    for (host, tickets) in [(greedy, &of_greedy), (also, &of_also)] {
        for &ticket in tickets {
            let answer = bed
                .host(host)
                .take(ticket)
                .map(|ended| status_of(ended.answer));
            assert!(matches!(answer, None | Some(Status::NAMESPACE_NOT_READY)));
            refused += usize::from(answer.is_some());
        }
    }
    assert!(refused > 100, "{refused}");
    bed.check_io(bystander, 2);
    bed.disks[0].release_all();
    bed.check_io(newcomer, 1);
    bed.quiet();
}

#[test]
fn in_capsule_writes_that_waited_for_a_disk_succeed_when_sent_again() {
    let mut bed = Bed::new("again-in-capsule", "receives = 64");
    let host = bed.connect("one", 4, 64);
    bed.disks[0].hold(Operation::Write);
    let mut tickets = bed.flood_in_capsule(host, 4, 60);
    bed.pass(Duration::from_secs(1));
    bed.disks[0].release_all();
    for round in 0.. {
        let mut again = 0;
        for ticket in std::mem::take(&mut tickets) {
            let mut answer = None;
            bed.until("an answer", |bed| {
                answer = bed.host(host).take(ticket);
                answer.is_some()
            });
            match status_of(answer.unwrap().answer) {
                Status::NAMESPACE_NOT_READY => again += 1,
                status => assert!(status.is_success(), "{status}"),
            }
        }
        if again == 0 {
            break;
        }
        assert!(round < 1, "{again} are refused again");
        tickets = bed.flood_in_capsule(host, 1, again.min(60));
    }
    bed.quiet();
}

#[test]
fn in_capsule_writes_to_a_slow_disk_wait() {
    let mut bed = Bed::new("slow-in-capsule", "receives = 64");
    let host = bed.connect("one", 4, 64);
    bed.disks[0].set_habits(Habits {
        delay: Duration::from_millis(50)..Duration::from_millis(150),
        ..Habits::default()
    });
    let tickets = bed.flood_in_capsule(host, 4, 60);
    bed.collect(host, tickets);
    bed.quiet();
}

#[test]
fn what_former_controllers_hold_counts_as_their_host_s() {
    let mut bed = Bed::new("dies", "data_buffers = \"4MiB\"\nin_capsule_data = \"0\"");
    let bystander = bed.connect("bystander", 1, 32);
    bed.disks[0].hold(Operation::Write);
    for _ in 0..4 {
        let host = bed.connect("mortal", 4, 32);
        bed.flood(host, 4, 31, command::write(1, 0, 16), 16 * BLOCK);
        let held = bed.target.usage().buffer_bytes;
        assert!(
            held <= 2 << 20,
            "{held} bytes of 4 MiB are held for one host"
        );
        bed.kill(host);
        for _ in 0..100 {
            bed.turn();
        }
    }
    bed.check_io(bystander, 2);
    let newcomer = bed.connect("newcomer", 1, 32);
    bed.check_io(newcomer, 2);
    bed.disks[0].release_all();
    bed.quiet();
}

#[test]
fn flushes_of_a_disk_that_hangs_take_one_thread_and_end_together() {
    let mut bed = Bed::new("flushes", "");
    let (one, other) = (bed.connect("one", 2, 32), bed.connect("other", 1, 32));
    bed.disks[0].hold(Operation::Flush);
    let first = bed.flood(one, 2, 20, command::flush(1), 0);
    let second = bed.flood(other, 1, 20, command::flush(1), 0);
    assert_eq!(bed.disks[0].waiting(Operation::Flush), 1);
    let response = bed.run(other, command::flush(2), Data::None).unwrap();
    assert!(response.cqe.status().is_success());
    assert!(bed.disks[0].release_oldest(Operation::Flush));
    for _ in 0..100 {
        bed.turn();
    }
    assert_eq!(bed.disks[0].waiting(Operation::Flush), 1);
    assert!(bed.disks[0].release_oldest(Operation::Flush));
    bed.collect(one, first);
    bed.collect(other, second);
    assert_eq!(bed.disks[0].waiting(Operation::Flush), 0);
    bed.quiet();
}

#[test]
fn a_flush_whose_host_goes_leaves_those_that_joined_it() {
    let mut bed = Bed::new("joined", "");
    let (one, other) = (bed.connect("one", 1, 32), bed.connect("other", 1, 32));
    bed.disks[0].hold(Operation::Flush);
    bed.flood(one, 1, 3, command::flush(1), 0);
    let flushes = bed.flood(other, 1, 5, command::flush(1), 0);
    bed.kill(one);
    for _ in 0..100 {
        bed.turn();
    }
    bed.disks[0].release(Operation::Flush);
    bed.collect(other, flushes);
    bed.quiet();
}

#[test]
fn a_command_that_a_disk_keeps_is_cancelled_in_time() {
    let mut bed = Bed::new("keeps", "io_timeout_s = 10");
    let host = bed.connect("one", 1, 32);
    let data = bed.block(host);
    bed.disks[0].allow_cancel(true);
    bed.disks[0].hold(Operation::Write);
    bed.disks[0].hold(Operation::Flush);
    let write = bed.submit(host, command::write(1, 0, 1), data);
    let flushes = [(); 2].map(|()| bed.submit(host, command::flush(1), Data::None));
    bed.pass(Duration::from_secs(9));
    assert!(bed.host(host).take(write).is_none());
    bed.pass(Duration::from_secs(2));
    for ticket in [write, flushes[0], flushes[1]] {
        let answer = bed.host(host).take(ticket).expect("an end");
        assert_eq!(status_of(answer.answer), Status::NAMESPACE_NOT_READY);
    }
    bed.disks[0].release_all();
    bed.check_io(host, 1);
    assert_eq!(bed.disks[0].contents(0, 8), [0; 8], "it was not written");
    bed.quiet();
}

#[test]
fn a_command_that_a_disk_does_not_let_go_of_has_no_answer() {
    let mut bed = Bed::new("keeps-on", "io_timeout_s = 10");
    let host = bed.connect("one", 1, 32);
    let data = bed.block(host);
    bed.disks[0].hold(Operation::Write);
    let write = bed.submit(host, command::write(1, 0, 1), data);
    bed.pass(Duration::from_secs(25));
    assert!(
        bed.host(host).take(write).is_none(),
        "its data may still land"
    );
    bed.disks[0].release_all();
    bed.collect(host, vec![write]);
    bed.quiet();
}

#[test]
fn an_abort_reaches_the_disk_and_says_what_became_of_it() {
    let mut bed = Bed::new("aborts", "");
    let host = bed.connect("one", 1, 32);
    bed.disks[0].hold(Operation::Read);
    let reads = bed.flood(host, 1, 2, command::read(1, 0, 1), BLOCK);
    for (ticket, cancels) in [(reads[0], false), (reads[1], true)] {
        bed.disks[0].allow_cancel(cancels);
        let abort = command::abort(1, ticket.cid());
        let abort = bed.submit_admin(host, abort);
        bed.pass(Duration::from_secs(3));
        let answer = bed.host(host).take(abort).expect("the Abort is answered");
        let not_aborted = answer.answer.unwrap().cqe.dw0.get() & 1;
        assert_eq!(not_aborted, u32::from(!cancels));
        let victim = bed.host(host).take(ticket);
        assert_eq!(victim.is_some(), cancels);
        if let Some(answer) = victim {
            assert_eq!(status_of(answer.answer), Status::ABORT_REQUESTED);
        }
    }
    bed.disks[0].release_all();
    bed.collect(host, vec![reads[0]]);
    bed.quiet();
}

#[test]
fn a_disk_that_always_asks_to_try_again_costs_its_command_and_no_more() {
    let mut bed = Bed::new("again", "");
    let host = bed.connect("one", 1, 32);
    bed.disks[0].fail(Operation::Read, libc::EAGAIN, u32::MAX);
    let data = bed.block(host);
    let read = bed.submit(host, command::read(1, 0, 1), data);
    bed.pass(Duration::from_millis(100));
    assert!(bed.host(host).take(read).is_none(), "it is tried again");
    bed.pass(Duration::from_secs(5));
    let answer = bed.host(host).take(read).expect("the tries have an end");
    assert_eq!(status_of(answer.answer), Status::NAMESPACE_NOT_READY);
    let data = bed.block(host);
    let _ = bed.submit(host, command::read(1, 0, 1), data);
    bed.turn();
    bed.quiet();
}

#[test]
fn a_disk_that_asks_to_try_again_for_a_while_costs_time_alone() {
    let mut bed = Bed::new("while", "");
    let host = bed.connect("one", 1, 32);
    bed.disks[0].fail(Operation::Write, libc::EAGAIN, 8);
    let data = bed.block(host);
    let write = bed.submit(host, command::write(1, 0, 1), data);
    bed.pass(Duration::from_secs(2));
    let answer = bed.host(host).take(write).expect("it was tried again");
    assert!(status_of(answer.answer).is_success());
    bed.quiet();
}

#[test]
fn a_device_removed_while_a_short_write_resumes_loses_the_write() {
    let mut bed = Bed::new("removed", "in_capsule_data = \"8KiB\"");
    let host = bed.connect("one", 1, 32);
    bed.disks[0].hold(Operation::Write);
    let bytes = [7; 2 * BLOCK as usize];
    let _ = bed.submit(host, command::write(1, 0, 2), Data::InCapsule(&bytes));
    bed.until("the write at the disk", |bed| {
        bed.disks[0].waiting(Operation::Write) > 0
    });
    bed.network.unplug(TARGET);
    for _ in 0..100 {
        bed.turn();
    }
    assert_eq!(bed.target.usage().receives, 0, "the port is gone");
    bed.disks[0].set_habits(Habits {
        short: 1000,
        ..Habits::default()
    });
    bed.disks[0].release_all();
    bed.until("the end of the write", |bed| {
        bed.target.usage().requests == 0
    });
}
