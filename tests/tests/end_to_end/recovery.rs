//! Controllers that are reset, hang, end or return during verified I/O, on a simulated clock. Each
//! command must complete exactly once, without data loss.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_config::{Config, Flags};
use cairn_initiator::{
    AssociationState, Buffer, Controller, Data, Ended, Event, HostError, HostOptions, Identity,
    Recovery, Ticket, command,
};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_sim::Random;
use cairn_target::SteppedTarget;
use cairn_tests::harness::{NQN, Scratch, host_nqn, nqn, subsystem};
use nvme_proto::wire::Status;

use crate::verified::bytes;

pub(super) const BLOCK: usize = 4096;
const LANES: usize = 24;
const TURN: Duration = Duration::from_micros(10);
const TURNS_MAX: usize = 200_000;

pub(super) struct Bed {
    network: Arc<Loopback>,
    pub(super) config: String,
    pub(super) target: Option<SteppedTarget>,
    pub(super) host: Controller,
    pub(super) now: Instant,
    clock: Clock,
    target_next: Option<Instant>,
    events: Vec<Event>,
    _disk: Scratch,
}

impl Bed {
    pub(super) fn new(name: &str, change: impl FnOnce(&mut HostOptions)) -> Self {
        let disk = Scratch::new(name, (LANES * BLOCK) as u64);
        let config = format!(
            "[target]\nreactors = 1\n{}[[listener]]\naddress = \"192.0.2.1\"\n",
            subsystem(NQN, &[&disk.export(BLOCK as u32)])
        );
        let network = Arc::new(Loopback::default());
        let clock = Clock::simulated();
        let target = start(&config, &network, &clock);
        let remote = target.addresses()[0];
        let mut options = HostOptions {
            local: Some(IpAddr::from([192, 0, 2, 2])),
            io_queues: 2,
            queue_entries: 16,
            kato_ms: 0,
            ..HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn(name)))
        };
        change(&mut options);
        let device = network.device_for(remote, options.local).unwrap();
        let now = clock.now();
        let mut bed = Self {
            host: Controller::begin(&device, options, now).unwrap(),
            network,
            config,
            target: Some(target),
            now,
            clock,
            target_next: None,
            events: Vec::new(),
            _disk: disk,
        };
        bed.until("the controller", |host| host.is_live());
        assert!(matches!(bed.events[..], [Event::Live { tries: 0 }]));
        bed
    }

    pub(super) fn turn(&mut self) {
        self.now += TURN;
        self.clock.advance_to(self.now);
        loop {
            self.target_next = self.target.as_mut().and_then(SteppedTarget::step);
            if !self.host.poll(self.now) {
                break;
            }
        }
        while let Some(event) = self.host.take_event() {
            self.events.push(event);
        }
    }

    pub(super) fn until(&mut self, what: &str, mut reached: impl FnMut(&mut Controller) -> bool) {
        for _ in 0..TURNS_MAX {
            self.turn();
            if reached(&mut self.host) {
                return;
            }
        }
        panic!(
            "{what} did not come about: {:?}, {:?}",
            self.host, self.events
        );
    }

    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.next_deadline().filter(|&next| next < end) {
            self.now = next.max(self.now + Duration::from_millis(1));
            self.turn();
        }
        self.now = self.now.max(end);
        self.turn();
    }

    fn next_deadline(&self) -> Option<Instant> {
        let host = self.host.next_deadline();
        [host, self.target_next].into_iter().flatten().min()
    }

    fn pass_until_lost(&mut self) {
        for _ in 0..300 {
            self.pass(Duration::from_secs(1));
            if !self.host.is_live() {
                return;
            }
        }
        panic!("the host noticed nothing: {:?}", self.events);
    }

    pub(super) fn kill(&mut self) {
        if let Some(target) = self.target.take() {
            target.kill();
        }
    }

    pub(super) fn restart(&mut self) {
        self.target = Some(start(&self.config, &self.network, &self.clock));
    }
}

fn start(config: &str, network: &Arc<Loopback>, clock: &Clock) -> SteppedTarget {
    let config = Config::parse("test", config, &Flags::default()).unwrap();
    let providers: Vec<Arc<dyn Provider>> = vec![Arc::clone(network) as _];
    SteppedTarget::start(config, providers, clock.clone()).unwrap()
}

struct Storm {
    buffers: Vec<Option<Buffer>>,
    lanes: Vec<Lane>,
    random: Random,
    submitted: usize,
    answered: usize,
    lost: usize,
}

#[derive(Clone, Copy, Default)]
struct Lane {
    seed: u64,
    write: bool,
    ticket: Option<Ticket>,
}

impl Storm {
    fn new(bed: &Bed, seed: u64) -> Self {
        let buffers = bed.host.buffer(LANES * BLOCK).unwrap().split(BLOCK);
        Self {
            buffers: buffers.into_iter().map(Some).collect(),
            lanes: vec![Lane::default(); LANES],
            random: Random::new(seed),
            submitted: 0,
            answered: 0,
            lost: 0,
        }
    }

    fn fill(&mut self, bed: &mut Bed) {
        for at in 0..LANES {
            if self.lanes[at].ticket.is_none() {
                self.submit(bed, at);
            }
        }
    }

    fn submit(&mut self, bed: &mut Bed, at: usize) {
        let lane = &mut self.lanes[at];
        lane.write = lane.seed == 0 || self.random.below(2) == 0;
        let slba = at as u64;
        let buffer = self.buffers[at].as_mut().unwrap();
        let sqe = if lane.write {
            lane.seed = self.random.bits() | 1;
            buffer.write(0, &bytes(lane.seed, BLOCK));
            command::write(1, slba, 1)
        } else {
            buffer.write(0, &[0; BLOCK]);
            command::read(1, slba, 1)
        };
        let queue = bed.host.io_queue(at);
        let in_capsule = bytes(lane.seed, BLOCK);
        let data = if lane.write && self.random.below(2) == 0 {
            Data::InCapsule(&in_capsule)
        } else {
            Data::whole(self.buffers[at].take().unwrap())
        };
        lane.ticket = Some(bed.host.submit_on(queue, sqe, data).unwrap());
        self.submitted += 1;
    }

    fn reap(&mut self, bed: &mut Bed) -> usize {
        let mut count = 0;
        for queue in bed.host.io_queues() {
            while let Some((ticket, ended)) = bed.host.reap(queue) {
                self.check(ticket, ended);
                count += 1;
            }
        }
        count
    }

    fn check(&mut self, ticket: Ticket, ended: Ended) {
        let mine = |lane: &Lane| lane.ticket == Some(ticket);
        let at = self.lanes.iter().position(mine);
        let at = at.expect("each answer belongs to one command, and comes once");
        self.lanes[at].ticket = None;
        self.answered += 1;
        let lane = self.lanes[at];
        self.buffers[at] = ended.buffer.or(self.buffers[at].take());
        match ended.answer {
            Err(HostError::Lost { .. }) => {
                self.lost += 1;
                self.lanes[at].seed = if lane.write { 0 } else { lane.seed };
            }
            Err(other) => panic!("{other}"),
            Ok(response) => {
                let status = response.cqe.status();
                assert!(status.is_success(), "{status}");
                if !lane.write {
                    let found = self.buffers[at].as_ref().unwrap().bytes(0, BLOCK);
                    assert!(
                        found == bytes(lane.seed, BLOCK),
                        "lane {at} read other data"
                    );
                }
            }
        }
    }

    fn run(&mut self, bed: &mut Bed, commands: usize) {
        let end = self.answered + commands;
        self.fill(bed);
        for _ in 0..TURNS_MAX {
            bed.turn();
            self.reap(bed);
            if self.answered >= end {
                return;
            }
            self.fill(bed);
        }
        panic!("{} of {end} answers: {:?}", self.answered, bed.host);
    }

    fn drain(&mut self, bed: &mut Bed) {
        for _ in 0..TURNS_MAX {
            if self.answered == self.submitted {
                return;
            }
            bed.turn();
            self.reap(bed);
        }
        panic!("{} of {} answers", self.answered, self.submitted);
    }
}

#[test]
fn resets_under_io_lose_nothing() {
    let mut bed = Bed::new("reset", |_| {});
    let mut storm = Storm::new(&bed, 1);
    for _ in 0..10 {
        storm.run(&mut bed, 100);
        storm.fill(&mut bed);
        bed.host.reset();
        assert_eq!(bed.host.state(), AssociationState::Resetting);
        storm.fill(&mut bed);
        for _ in 0..100 {
            bed.pass(Duration::from_millis(1));
        }
        bed.until("the end of the reset", |host| host.is_live());
    }
    storm.drain(&mut bed);
    assert_eq!((storm.lost, storm.answered), (0, storm.submitted));
}

#[test]
fn a_target_that_dies_and_comes_back_costs_time_alone() {
    let mut bed = Bed::new("dies", |_| {});
    let mut storm = Storm::new(&bed, 2);
    for round in 0..5 {
        storm.run(&mut bed, 100);
        storm.fill(&mut bed);
        bed.kill();
        bed.until("the loss", |host| !host.is_live());
        bed.pass(Duration::from_secs(5));
        storm.reap(&mut bed);
        storm.fill(&mut bed);
        bed.pass(Duration::from_secs(20));
        assert_eq!(storm.reap(&mut bed), 0, "round {round}");
        bed.restart();
        bed.pass(Duration::from_secs(10));
        bed.until("the controller again", |host| host.is_live());
        let last = bed.events.last();
        assert!(matches!(last, Some(Event::Live { tries: 1.. })), "{last:?}");
    }
    storm.drain(&mut bed);
    assert_eq!((storm.lost, storm.answered), (0, storm.submitted));
}

#[test]
fn a_lost_path_gives_its_commands_back() {
    let mut bed = Bed::new("path", |options| options.requeue = false);
    let mut storm = Storm::new(&bed, 3);
    for _ in 0..5 {
        storm.run(&mut bed, 50);
        storm.fill(&mut bed);
        bed.kill();
        let before = storm.lost;
        storm.drain(&mut bed);
        assert!(storm.lost > before);
        let refused = bed.host.submit(command::flush(1), Data::None);
        let refused = refused.unwrap_err().error;
        assert!(matches!(refused, HostError::Lost { qid: 1, .. }));
        bed.restart();
        bed.pass(Duration::from_secs(11));
        bed.until("the controller again", |host| host.is_live());
    }
    assert_eq!(storm.answered, storm.submitted);
}

#[test]
fn a_controller_that_does_not_come_back_ends_what_waits_for_it() {
    let mut bed = Bed::new("gone", |options| {
        options.recovery.ctrl_loss_tmo = Some(Duration::from_secs(30));
    });
    let mut storm = Storm::new(&bed, 4);
    storm.run(&mut bed, 50);
    storm.fill(&mut bed);
    bed.kill();
    bed.until("the loss", |host| !host.is_live());
    bed.pass(Duration::from_secs(25));
    assert!(matches!(
        bed.host.state(),
        AssociationState::Reconnecting { tries: 2 }
    ));
    bed.pass(Duration::from_secs(10));
    bed.until("the end", |host| host.state() == AssociationState::Gone);
    storm.drain(&mut bed);
    assert!(storm.lost > 0);
    let last = bed.events.last();
    let Some(Event::Gone(Some(error))) = last else {
        panic!("{last:?}");
    };
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
}

#[test]
fn the_last_error_names_the_first_cause_beside_the_last() {
    let mut bed = Bed::new("first-cause", |options| {
        options.kato_ms = 5000;
        options.recovery.ctrl_loss_tmo = Some(Duration::from_secs(30));
    });
    let hung = bed.target.take();
    bed.pass_until_lost();
    drop(hung);
    let data = Data::whole(bed.host.buffer(BLOCK).unwrap());
    let read = bed.host.submit(command::read(1, 0, 1), data).unwrap();
    bed.pass(Duration::from_secs(60));
    bed.until("the end", |host| host.state() == AssociationState::Gone);

    let Some(Event::Gone(Some(end))) = bed.events.pop() else {
        panic!("{:?}", bed.events);
    };
    let waited = bed.host.take(read).unwrap().answer.unwrap_err();
    let later = bed.host.submit(command::read(1, 0, 1), Data::None);
    for error in [end, waited, later.unwrap_err().error] {
        let text = error.to_string();
        let (first, last) = text.split_once("; connecting again failed: ").expect(&text);
        let silence = "is lost: the answer to a Keep Alive timed out";
        assert!(first.ends_with(silence), "{text}");
        assert!(last.contains("nothing listens there"), "{text}");
    }
}

#[test]
fn a_loss_that_is_final_is_named_in_full() {
    let mut bed = Bed::new("final", |options| {
        options.recovery = Recovery::NONE;
    });
    bed.kill();
    bed.until("the end", |host| host.state() == AssociationState::Gone);
    let [.., Event::Lost(lost), Event::Gone(Some(end))] = &bed.events[..] else {
        panic!("{:?}", bed.events);
    };
    assert_eq!(lost.to_string(), end.to_string());
}

#[test]
fn commands_wait_no_longer_than_fast_io_fail_tmo() {
    let mut bed = Bed::new("fast", |options| {
        options.recovery.fast_io_fail_tmo = Some(Duration::from_secs(15));
    });
    let mut storm = Storm::new(&bed, 5);
    storm.run(&mut bed, 50);
    storm.fill(&mut bed);
    bed.kill();
    bed.until("the loss", |host| !host.is_live());
    storm.reap(&mut bed);
    bed.pass(Duration::from_secs(14));
    assert_eq!(storm.reap(&mut bed), 0);
    bed.pass(Duration::from_secs(2));
    storm.drain(&mut bed);
    assert!(storm.lost > 0);
    assert!(bed.host.submit(command::flush(1), Data::None).is_err());
    bed.restart();
    bed.pass(Duration::from_secs(20));
    bed.until("the controller again", |host| host.is_live());
    storm.run(&mut bed, 50);
    storm.drain(&mut bed);
}

#[test]
fn a_target_that_hangs_for_a_while_is_asked_to_cancel() {
    asks_a_hanging_target(128, 3, [0, 6]);
}

#[test]
fn a_target_with_a_full_queue_is_asked_to_abort() {
    asks_a_hanging_target(2, 1, [1, 1]);
}

fn asks_a_hanging_target(queue_entries: u16, reads: usize, aborts_and_outstanding: [usize; 2]) {
    let mut bed = Bed::new("hangs", |options| options.queue_entries = queue_entries);
    let queue = bed.host.io_queue(0);
    let read = |_| {
        let data = Data::whole(bed.host.buffer(BLOCK).unwrap());
        let read = command::read(1, 0, 1);
        bed.host.submit_on(queue, read, data).unwrap()
    };
    let reads: Vec<_> = (0..reads).map(read).collect();
    let hung = bed.target.take();
    let before = bed.host.admin_outstanding();
    bed.pass(Duration::from_secs(29));
    assert_eq!(bed.host.admin_outstanding(), before);
    bed.pass(Duration::from_secs(10));
    let aborts = bed.host.admin_outstanding() - before;
    let outstanding = bed.host.outstanding(queue);
    assert_eq!([aborts, outstanding], aborts_and_outstanding);
    assert!(bed.host.is_live());
    bed.target = hung;
    for read in reads {
        let mut answer = None;
        bed.until("an answer", |host| {
            answer = host.take(read);
            answer.is_some()
        });
        let status = answer.unwrap().answer.unwrap().cqe.status();
        assert!(status.is_success() || status.code() == Status::ABORT_REQUESTED);
    }
    bed.until("the end of the Abort", |host| {
        host.admin_outstanding() == before && host.outstanding(queue) == 0
    });
    bed.pass(Duration::from_secs(300));
    assert!(bed.host.is_live());
}

#[test]
fn a_target_that_hangs_for_good_is_given_up() {
    let mut bed = Bed::new("for-good", |options| {
        options.requeue = false;
        options.recovery = Recovery::NONE;
    });
    let data = Data::whole(bed.host.buffer(BLOCK).unwrap());
    let read = bed.host.submit(command::read(1, 0, 1), data).unwrap();
    let hung = bed.target.take();
    bed.pass(Duration::from_secs(80));
    bed.target = hung;
    bed.until("the end", |host| host.state() == AssociationState::Gone);
    let answer = bed.host.take(read).unwrap().answer;
    let Err(error @ HostError::Lost { .. }) = answer else {
        panic!("{answer:?}");
    };
    assert!(error.to_string().contains("got no answer"), "{error}");
}

fn shut_down(name: &str, before: impl FnOnce(&mut Bed), after: impl FnOnce(&mut Bed)) -> Event {
    let mut bed = Bed::new(name, |_| {});
    before(&mut bed);
    bed.host.shutdown();
    after(&mut bed);
    bed.pass(Duration::from_secs(60));
    bed.until("the end", |host| host.state() == AssociationState::Gone);
    bed.events.pop().expect("an end is an event")
}

#[test]
fn a_shutdown_that_is_not_confirmed_is_an_error() {
    let confirmed = shut_down("confirmed", |_| {}, |_| {});
    assert!(matches!(confirmed, Event::Gone(None)), "{confirmed:?}");
    let lost_before = |bed: &mut Bed| {
        bed.kill();
        bed.until("the loss", |host| !host.is_live());
    };
    for unconfirmed in [
        shut_down("shut-down-late", lost_before, |_| {}),
        shut_down("shut-down-lost", |_| {}, Bed::kill),
    ] {
        let Event::Gone(Some(HostError::NotShutDown(why))) = unconfirmed else {
            panic!("{unconfirmed:?}");
        };
        assert!(matches!(*why, HostError::Lost { .. }), "{why}");
    }
}
