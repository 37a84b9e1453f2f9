//! After a host's keep alive timer expires, or a new association replaces the host's association,
//! older commands must not take effect. The clock is simulated.

mod cross_reset;
mod epochs;
mod fused;
mod order;
mod pauses;
mod reservations;
mod stops;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::Clock;
use cairn_config::{Config, Flags};
use cairn_disk::{Habits, Operation, SimulatedDisk};
use cairn_initiator::{Buffer, Controller, Data, HostOptions, Identity, Ticket, command};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_target::{SteppedTarget, Usage};
use cairn_tests::harness::{NQN, Scratch, host_nqn, nqn, subsystem};
use nvme_proto::wire::Status;

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;
const TURNS_MAX: usize = 10_000;
const MOMENT: Duration = Duration::from_micros(500);

struct Bed {
    network: Arc<Loopback>,
    target: SteppedTarget,
    clock: Clock,
    disk: SimulatedDisk,
    _file: Scratch,
}

impl Bed {
    fn new(name: &str) -> Self {
        Self::with(name, "")
    }

    fn with(name: &str, more: &str) -> Self {
        Self::exporting(name, more, "")
    }

    fn exporting(name: &str, more: &str, of_disk: &str) -> Self {
        let file = Scratch::new(name, (BLOCKS * BLOCK) as u64);
        let clock = Clock::simulated();
        let disk = SimulatedDisk::register(file.path(), &clock, 1).unwrap();
        let export = format!("{}\n{of_disk}", file.export(BLOCK as u32));
        let subsystem = subsystem(NQN, &[&export, "mem:1MiB block_size = 4096"]);
        let subsystem = subsystem.replacen("allow_any_host", &format!("{more}\nallow_any_host"), 1);
        let config = format!(
            "[target]\nreactors = 2\nqueue_depth = 1024\n{subsystem}[[listener]]\naddress = \"192.0.2.1\"\n"
        );
        let config = Config::parse("test", &config, &Flags::default()).unwrap();
        let network = Arc::new(Loopback::default());
        let providers: Vec<Arc<dyn Provider>> = vec![Arc::clone(&network) as _];
        Self {
            target: SteppedTarget::start(config, providers, clock.clone()).unwrap(),
            network,
            clock,
            disk,
            _file: file,
        }
    }

    fn host(&self, name: &str, kato_ms: u32) -> Controller {
        self.begin(self.options(name, kato_ms))
    }

    fn options(&self, name: &str, kato_ms: u32) -> HostOptions {
        HostOptions {
            local: Some(IpAddr::from([192, 0, 2, 2])),
            kato_ms,
            ..HostOptions::new(
                self.target.addresses()[0],
                nqn(NQN),
                Identity::named(host_nqn(name)),
            )
        }
    }

    fn begin(&self, options: HostOptions) -> Controller {
        let device = self
            .network
            .device_for(options.remote, options.local)
            .unwrap();
        Controller::begin(&device, options, self.clock.now()).unwrap()
    }

    fn live_host(&mut self, name: &str, kato_ms: u32) -> Controller {
        let mut host = self.host(name, kato_ms);
        self.until(&mut host, Controller::is_live);
        host
    }

    fn turn(&mut self, host: &mut Controller) {
        self.target.step();
        host.poll(self.clock.now());
        self.jump(MOMENT);
    }

    fn until(&mut self, host: &mut Controller, reached: impl Fn(&Controller) -> bool) {
        for _ in 0..TURNS_MAX {
            self.turn(host);
            if reached(host) {
                return;
            }
        }
        panic!("it did not come about: {host:?}");
    }

    fn answer(&mut self, host: &mut Controller, ticket: Ticket) -> Status {
        self.end(host, ticket).0
    }

    fn end(&mut self, host: &mut Controller, ticket: Ticket) -> (Status, Option<Buffer>) {
        for _ in 0..TURNS_MAX {
            self.turn(host);
            if let Some(ended) = host.take(ticket) {
                return (ended.answer.unwrap().cqe.status(), ended.buffer);
            }
        }
        panic!("no answer: {host:?}");
    }

    fn writes(&mut self, host: &mut Controller, block: usize) {
        let buffer = [2; BLOCK];
        let ticket = write(host, 1, block as u64, &buffer);
        assert_eq!(self.answer(host, ticket), Status::SUCCESS);
        assert_eq!(self.block(block), [2; BLOCK]);
    }

    fn holds_a_write(&mut self, host: &mut Controller) -> Ticket {
        let buffer = [1; BLOCK];
        self.disk.hold(Operation::Write);
        let ticket = write(host, 1, 3, &buffer);
        for _ in 0..TURNS_MAX {
            self.turn(host);
            if self.disk.waiting(Operation::Write) > 0 {
                self.disk.hold_no_more(Operation::Write);
                return ticket;
            }
        }
        panic!("the disk has no write: {:?}", self.target);
    }

    fn is_live_once_the_disk_lets_go(&mut self, host: &mut Controller) {
        for _ in 0..1000 {
            self.turn(host);
        }
        assert!(!host.is_live(), "its old write is at the disk");
        self.disk.release(Operation::Write);
        self.until(host, Controller::is_live);
    }

    fn jump(&self, time: Duration) {
        self.clock.advance_to(self.clock.now() + time);
    }

    fn pass(&mut self, time: Duration) {
        let end = self.clock.now() + time;
        while let Some(next) = self.target.step().filter(|&next| next < end) {
            let now = self.clock.now();
            self.clock
                .advance_to(next.max(now + Duration::from_millis(1)));
        }
        self.clock.advance_to(end.max(self.clock.now()));
        self.target.step();
    }

    fn block(&self, number: usize) -> Vec<u8> {
        self.disk.contents(number * BLOCK, BLOCK)
    }

    fn is_alone(&self) -> bool {
        self.target.usage() == Usage::default()
    }
}

fn write(host: &mut Controller, nsid: u32, slba: u64, block: &[u8; BLOCK]) -> Ticket {
    let mut buffer = host.buffer(BLOCK).unwrap();
    buffer.write(0, block);
    let data = Data::whole(buffer);
    host.submit(command::write(nsid, slba, 1), data).unwrap()
}

#[test]
fn a_lone_host_that_dies_is_noticed_after_kato() {
    let mut bed = Bed::new("kato");
    let _host = bed.live_host("dies", 2000);
    bed.pass(Duration::from_millis(1900));
    assert!(!bed.is_alone(), "too early");
    bed.pass(Duration::from_millis(200));
    assert!(bed.is_alone(), "{:?}", bed.target);
}

#[test]
fn kato_of_set_features_holds_at_once() {
    let mut bed = Bed::new("set-kato");
    let mut host = bed.live_host("dies", 100_000);
    let set = nvme_proto::wire::Sqe {
        cdw10: 0x0f.into(),
        cdw11: 700.into(),
        opc: 0x09,
        ..command::keep_alive()
    };
    let ticket = host.submit_admin(set, Data::None).unwrap();
    assert_eq!(bed.answer(&mut host, ticket), Status::SUCCESS);
    bed.pass(Duration::from_millis(650));
    assert!(!bed.is_alone(), "too early");
    bed.pass(Duration::from_millis(100));
    assert!(bed.is_alone(), "{:?}", bed.target);
}

#[test]
fn a_host_that_sends_io_alone_stays() {
    let mut bed = Bed::new("io-alone");
    let mut host = bed.live_host("stays", 1000);
    let buffer = [1; BLOCK];
    for _ in 0..20 {
        bed.pass(Duration::from_millis(900));
        let ticket = write(&mut host, 1, 0, &buffer);
        assert_eq!(bed.answer(&mut host, ticket), Status::SUCCESS);
    }
}

#[test]
fn a_capsule_that_waited_through_a_pause_longer_than_kato_is_not_executed() {
    let mut bed = Bed::new("stale-capsule");
    let mut host = bed.live_host("fails-over", 5000);
    host.submit(command::write(1, 3, 1), Data::InCapsule(&[7; BLOCK]))
        .unwrap();
    host.submit(command::write(2, 3, 1), Data::InCapsule(&[7; BLOCK]))
        .unwrap();
    bed.jump(Duration::from_millis(5020));
    bed.target.step();
    assert_eq!(bed.block(3), [0; BLOCK], "a stale write was executed");
    bed.pass(Duration::from_secs(1));
    assert!(bed.is_alone(), "{:?}", bed.target);
}

#[test]
fn read_data_that_waited_through_a_pause_longer_than_kato_is_not_written() {
    let mut bed = Bed::new("stale-read-data");
    let mut host = bed.live_host("fails-over", 5000);
    let buffer = [7; BLOCK];
    write(&mut host, 1, 3, &buffer);
    bed.target.round();
    assert_eq!(bed.target.usage().requests, 1);
    bed.jump(Duration::from_millis(5020));
    bed.target.step();
    assert_eq!(bed.block(3), [0; BLOCK], "a stale write was executed");
    bed.pass(Duration::from_secs(1));
    assert!(bed.is_alone(), "{:?}", bed.target);
}

#[test]
fn a_capsule_whose_host_left_during_a_pause_is_not_executed() {
    let mut bed = Bed::new("left-meanwhile");
    let mut host = bed.live_host("leaves", 60_000);
    host.submit(command::write(1, 3, 1), Data::InCapsule(&[7; BLOCK]))
        .unwrap();
    bed.jump(Duration::from_secs(4));
    drop(host);
    bed.pass(Duration::from_secs(1));
    assert_eq!(bed.block(3), [0; BLOCK], "a stale write was executed");
    assert!(bed.is_alone(), "{:?}", bed.target);
}

#[test]
fn a_pause_shorter_than_kato_costs_a_host_nothing() {
    let mut bed = Bed::new("short-pause");
    let mut host = bed.live_host("stays", 5000);
    let buffer = [7; BLOCK];
    let ticket = write(&mut host, 1, 3, &buffer);
    bed.jump(Duration::from_millis(4900));
    bed.pass(Duration::from_millis(50));
    assert_eq!(bed.answer(&mut host, ticket), Status::SUCCESS);
    assert_eq!(bed.block(3), [7; BLOCK]);
}

#[test]
fn a_cntlid_is_used_again_only_when_nothing_of_its_old_controller_is_left() {
    let mut bed = Bed::with("cntlid", "controller_ids = \"7-8\"");
    let mut first = bed.live_host("first", 0);
    let buffer = [1; BLOCK];
    bed.disk.hold(Operation::Write);
    write(&mut first, 1, 0, &buffer);
    bed.turn(&mut first);
    bed.turn(&mut first);
    drop(first);
    bed.pass(Duration::from_secs(1));
    assert_eq!(bed.target.usage().requests, 1, "its write is held");
    let second = bed.live_host("second", 0);
    assert_eq!(second.cntlid(), 8);
    let mut third = bed.host("third", 0);
    for _ in 0..100 {
        bed.turn(&mut third);
    }
    assert!(!third.is_live());
    bed.disk.release(Operation::Write);
    drop(third);
    bed.pass(Duration::from_secs(1));
    let third = bed.live_host("third", 0);
    assert_eq!(third.cntlid(), 7);
}

fn host_with_a_held_write(bed: &mut Bed, name: &str) -> (Controller, Ticket) {
    let mut host = bed.live_host(name, 60_000);
    let ticket = bed.holds_a_write(&mut host);
    (host, ticket)
}

#[test]
fn a_reset_controller_is_ready_when_the_disk_has_let_go() {
    let mut bed = Bed::new("reset");
    let (mut host, _) = host_with_a_held_write(&mut bed, "resets");
    host.reset();
    bed.is_live_once_the_disk_lets_go(&mut host);
    bed.writes(&mut host, 3);
}

#[test]
fn a_closed_queues_command_submits_nothing_more() {
    let mut bed = Bed::new("no-further-step");
    let (host, _) = host_with_a_held_write(&mut bed, "goes");
    bed.disk.set_habits(Habits {
        short: 1000,
        ..Habits::default()
    });
    drop(host);
    bed.pass(Duration::from_millis(100));
    bed.disk.release(Operation::Write);
    bed.pass(Duration::from_millis(100));
    assert_eq!(bed.block(3).last(), Some(&0), "its rest was written");
    assert!(bed.is_alone(), "{:?}", bed.target);
}
