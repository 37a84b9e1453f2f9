//! Program that runs target and host in one thread. `tests/costs` counts its instructions with
//! callgrind.
//!
//! The clock is simulated, so all runs over the loopback provider execute the same instructions.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_config::{Config, Flags};
use cairn_initiator::{
    Buffer, Controller, Data, HostOptions, Identity, IoQueue, Recovery, command,
};
use cairn_rdma::Provider;
use cairn_rdma::loopback::{Loopback, Posted};
use cairn_roce::{Soft, SoftOptions};
use cairn_target::SteppedTarget;
use cairn_tests::attacker::{self, Attack, Attacker};
use cairn_tests::harness::{NQN, host_nqn, nqn, own_loopback_address, subsystem};
use clap::{Parser, ValueEnum};

const BLOCK: u32 = 512;

/// Minimum simulated time of a loop iteration.
const TURN: Duration = Duration::from_micros(10);
/// Simulated time per outstanding command; an iteration takes at least [`TURN`].
const TURN_OF_COMMAND: Duration = Duration::from_micros(2);

const TURNS_MAX: u32 = 10_000;

const GLUTTON_LIMITS: &str = "iops = 400, total = \"16MiB\"";

const RESTING: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fabric {
    Loopback,
    Soft,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Job {
    Read,
    /// Writes with the data in the capsule, if it fits
    Write,
    /// Writes whose data the target reads from the host's memory
    Fetch,
}

/// Reads or writes a disk without latency, so that callgrind can count instructions.
#[derive(Debug, Parser)]
struct Args {
    #[arg(long)]
    fabric: Fabric,
    #[arg(long)]
    depth: u32,
    #[arg(long, default_value_t = 1)]
    queues: u16,
    #[arg(long)]
    job: Job,
    #[arg(long)]
    bytes: u32,
    #[arg(long, default_value = "null:64MiB")]
    disk: String,
    /// Number of counted commands; the same number of commands runs before them as a warm-up
    #[arg(long)]
    commands: u32,
    #[arg(long, default_value_t = 0)]
    others: u16,
    #[arg(long)]
    former: bool,
    #[arg(long)]
    attack: Option<Attack>,
}

struct World {
    clock: Clock,
    soft: Option<Soft>,
    loopback: Option<Loopback>,
    target: SteppedTarget,
    host: Controller,
    attacker: Option<Attacker>,
    _others: Vec<Controller>,
    buffers: Vec<Buffer>,
    capsule: Vec<u8>,
    job: Job,
    bytes: u32,
    depth: u32,
    queues: Vec<IoQueue>,
    outstanding: u32,
    turn: usize,
}

fn main() {
    let args = Args::parse();
    let mut world = World::connect(&args);
    world.serve(args.commands);
    if let Some(attacker) = &world.attacker {
        println!("attacked {}", attacker.begun);
    }
    let before = world.packets();
    let posted_before = world.posted();
    milestone("begin");
    world.serve(args.commands);
    milestone("end");
    let posted = world.posted();
    if let Some(attacker) = &world.attacker {
        println!("attacks {}", attacker.begun);
        println!("attacks_ended {}", attacker.ended);
    }
    let after = world.packets();
    println!("commands {}", args.commands);
    println!("sent_packets {}", after.0 - before.0);
    println!("received_packets {}", after.1 - before.1);
    println!(
        "send_posts {}",
        posted.send_posts - posted_before.send_posts
    );
    println!("sends {}", posted.sends - posted_before.sends);
    println!(
        "receive_posts {}",
        posted.receive_posts - posted_before.receive_posts
    );
    println!(
        "completions {}",
        posted.completions - posted_before.completions
    );
    std::process::exit(0);
}

/// Marker at which callgrind writes and resets its counts.
#[inline(never)]
fn milestone(name: &str) {
    black_box(name);
}

#[inline(never)]
fn target_turn(target: &mut SteppedTarget) {
    target.round();
}

#[inline(never)]
fn control_turn(target: &mut SteppedTarget) {
    target.attend();
}

#[inline(never)]
fn host_turn(world: &mut World, now: Instant, more: u32) -> (u32, u32) {
    let host = &mut world.host;
    host.poll(now);
    let mut ended = 0;
    for &queue in &world.queues {
        while let Some((_, done)) = host.reap(queue) {
            let response = done.answer.expect("the connection holds");
            assert!(response.cqe.status().is_success(), "{response:?}");
            world.buffers.extend(done.buffer);
            ended += 1;
        }
    }
    world.outstanding -= ended;
    let more = more.min(world.depth - world.outstanding);
    world.outstanding += more;
    for turn in 0..more {
        let blocks = world.bytes / BLOCK;
        let slba = u64::from(turn * blocks);
        let queue = world.queues[world.turn];
        world.turn = (world.turn + 1) % world.queues.len();
        let command = match world.job {
            Job::Read => command::read(1, slba, blocks),
            Job::Write | Job::Fetch => command::write(1, slba, blocks),
        };
        let in_capsule =
            world.job == Job::Write && world.capsule.len() <= host.in_capsule_max(queue);
        let data = if in_capsule {
            Data::InCapsule(&world.capsule)
        } else {
            let buffer = world.buffers.pop();
            Data::whole(buffer.expect("a buffer for each command of the depth"))
        };
        host.submit_on(queue, command, data)
            .expect("the queue holds as many");
    }
    if more > 0 {
        host.poll(now);
    }
    (ended, more)
}

impl World {
    fn connect(args: &Args) -> Self {
        let clock = Clock::simulated();
        let mut soft = None;
        let mut loopback = None;
        let (provider, address): (Arc<dyn Provider>, _) = match args.fabric {
            Fabric::Loopback => {
                let network = loopback.insert(Loopback::new()).clone();
                (Arc::new(network), Ipv4Addr::new(192, 0, 2, 1))
            }
            Fabric::Soft => {
                let options = SoftOptions {
                    clock: clock.clone(),
                    ..SoftOptions::default()
                };
                let network = soft.insert(Soft::new(options)).clone();
                (Arc::new(network), own_loopback_address())
            }
        };
        let mut target = start_target(&provider, &clock, address, args);
        let remote = target.addresses()[0];
        let local = match args.fabric {
            Fabric::Loopback => Ipv4Addr::new(192, 0, 2, 2),
            Fabric::Soft => own_loopback_address(),
        };
        let mut others: Vec<Controller> = Vec::new();
        for _ in 0..args.others {
            let mut other = begin_host(&*provider, remote, local.into(), args, clock.now());
            wait_until_live(&clock, &mut target, &mut other);
            others.push(other);
        }
        if args.former {
            others.clear();
        }
        let host = begin_host(&*provider, remote, local.into(), args, clock.now());
        let attacker = args.attack.map(|attack| {
            let local = match args.fabric {
                Fabric::Loopback => Ipv4Addr::new(192, 0, 2, 3),
                Fabric::Soft => own_loopback_address(),
            };
            Attacker::new(attack, &*provider, remote, local.into())
        });
        let mut world = Self {
            attacker,
            _others: others,
            buffers: host
                .buffer((args.depth * args.bytes) as usize)
                .expect("memory for the data")
                .split(args.bytes as usize),
            clock,
            soft,
            loopback,
            target,
            host,
            capsule: vec![0; args.bytes as usize],
            job: args.job,
            bytes: args.bytes,
            depth: args.depth,
            queues: Vec::new(),
            outstanding: 0,
            turn: 0,
        };
        wait_until_live(&world.clock, &mut world.target, &mut world.host);
        world.queues = world.host.io_queues().collect();
        world
    }

    fn serve(&mut self, count: u32) {
        let (mut left, mut over, mut turns) = (count, 0, 0);
        let time = TURN.max(TURN_OF_COMMAND * self.depth);
        while over < count {
            self.pass(time);
            let (ended, begun) = host_turn(self, self.clock.now(), left);
            over += ended;
            left -= begun;
            if let Some(attacker) = &mut self.attacker {
                attacker.turn(self.clock.now());
            }
            target_turn(&mut self.target);
            control_turn(&mut self.target);
            turns = if ended > 0 { 0 } else { turns + 1 };
            assert!(turns < TURNS_MAX, "a command is not answered");
        }
    }

    fn rest(&mut self) {
        for _ in 0..RESTING {
            self.pass(Duration::from_millis(1));
            self.target.step();
            self.host.poll(self.clock.now());
        }
        self.host.endpoint().arm().expect("the device is there");
    }

    fn pass(&self, time: Duration) {
        self.clock.advance_to(self.clock.now() + time);
    }

    fn posted(&self) -> Posted {
        let at = self.target.addresses()[0].ip();
        self.loopback
            .as_ref()
            .map(|network| network.posted(at))
            .unwrap_or_default()
    }

    fn packets(&mut self) -> (u64, u64) {
        self.rest();
        let counters = self.soft.iter().flat_map(Soft::counters);
        counters.fold((0, 0), |(sent, received), (_, device)| {
            (sent + device.sent_pkts, received + device.rcvd_pkts)
        })
    }
}

fn wait_until_live(clock: &Clock, target: &mut SteppedTarget, host: &mut Controller) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !host.is_live() {
        assert!(Instant::now() < patience, "the host cannot connect");
        clock.advance_to(clock.now() + TURN);
        target.step();
        host.poll(clock.now());
    }
}

fn start_target(
    provider: &Arc<dyn Provider>,
    clock: &Clock,
    address: Ipv4Addr,
    args: &Args,
) -> SteppedTarget {
    let key = args.attack.map(|_| attacker::key_file());
    let tables = key
        .as_ref()
        .map(|key| attacker::tables(key, GLUTTON_LIMITS));
    let text = format!(
        "[target]\nreactors = 1\nio_queues = 512\n{}{}\
         [[listener]]\naddress = \"{address}\"\nprovider = \"auto\"\n",
        subsystem(NQN, &[&format!("{} block_size = 512", args.disk)]),
        tables.unwrap_or_default(),
    );
    let config = Config::parse("counted", &text, &Flags::default())
        .unwrap_or_else(|error| panic!("the configuration is wrong:\n{error}\n{text}"));
    SteppedTarget::start(config, vec![Arc::clone(provider)], clock.clone())
        .unwrap_or_else(|error| panic!("the target does not start: {error}"))
}

fn begin_host(
    provider: &dyn Provider,
    remote: SocketAddr,
    local: IpAddr,
    args: &Args,
    now: Instant,
) -> Controller {
    let device = provider
        .device_for(remote, Some(local))
        .expect("the host has a device");
    let options = HostOptions {
        local: Some(local),
        io_queues: args.queues,
        queue_entries: (args.depth + 1).max(128) as u16,
        kato_ms: 0,
        recovery: Recovery::NONE,
        ..HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn("counted")))
    };
    Controller::begin(&device, options, now).expect("the host begins to connect")
}
