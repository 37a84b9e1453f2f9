//! Hosts that use reservations while reactors pause, connections are lost, controllers are reset,
//! and the target is killed.
//!
//! Some order of the commands of a batch must explain all answers by the specification ([`spec`]).
//! Then reports, notifications and PTPL are compared.

mod bugs;
mod explain;
mod member;
mod orders;
mod spec;

use std::collections::BTreeSet;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cairn_base::panics::message_of;
use cairn_disk::{Habits, SimulatedDisk};
use cairn_sim::Random;
use cairn_sim::network::Weather;
use cairn_sim::seeds::is_replay;
use cairn_target::SteppedTarget;
use cairn_tests::harness::{NQN, Scratch, namespace};

use crate::crowd::stage::Stage;
use bugs::{Bug, Planted};
use explain::Sent;
use member::{BLOCK_BYTES, Member};
use orders::{Order, REACTORS};
use spec::{BLOCKS, CONTROLLERS, Command, NAMESPACES, State};

const ORDERS: usize = 120;
/// Maximum commands of a batch. The search for an order takes exponential time.
const BATCH_MAX: usize = 8;
/// Number of seeds, one of which must find a planted bug.
const PLANTED_SEEDS: u64 = 40;
const PATIENCE: Duration = Duration::from_secs(300);
const EVENT_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Simulation {
    stage: Stage,
    random: Random,
    members: Vec<Member>,
    states: BTreeSet<State>,
    sent: Vec<Sent>,
    /// Number of the last command or answer, in steps of two.
    moment: u64,
    planted: Planted,
    _folder: tempfile::TempDir,
    _disks: Vec<(SimulatedDisk, Scratch)>,
}

/// Panics with the shortest list of steps that fails.
pub(crate) fn run(seed: u64) {
    let orders = orders::random(&mut Random::new(seed), ORDERS);
    let Err(why) = outcome(seed, &orders, None) else {
        return;
    };
    let orders = orders::shortest(orders, |rest| outcome(seed, rest, None).is_err());
    let shortest = outcome(seed, &orders, None).err().unwrap_or(why);
    let orders: Vec<String> = orders.iter().map(|order| format!("{order:?}")).collect();
    panic!(
        "seed {seed}: {shortest}\nwith these orders:\n{}",
        orders.join("\n")
    );
}

pub(crate) fn bugs_not_found() -> Vec<String> {
    let found = |bug, seed| {
        let orders = orders::random(&mut Random::new(seed), ORDERS);
        outcome(seed, &orders, Some(bug)).is_err()
    };
    let missed = bugs::ALL.into_iter().filter(|bug| {
        let first = (0..PLANTED_SEEDS).find(|seed| found(*bug, *seed));
        if is_replay() {
            eprintln!("{bug:?}: {first:?}");
        }
        first.is_none()
    });
    missed.map(|bug| format!("{bug:?}")).collect()
}

fn outcome(seed: u64, orders: &[Order], bug: Option<Bug>) -> Result<(), String> {
    // After a panic, the simulation is not dropped: unanswered commands would panic again.
    let mut simulation = ManuallyDrop::new(Simulation::new(seed, bug));
    let run = catch_unwind(AssertUnwindSafe(|| {
        orders.iter().try_for_each(|order| simulation.follow(order))
    }));
    SteppedTarget::interrupt_files(None);
    let outcome = run.map_err(|panic| message_of(&*panic))?;
    simulation.end();
    drop(ManuallyDrop::into_inner(simulation));
    outcome
}

impl Simulation {
    fn new(seed: u64, bug: Option<Bug>) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let mut random = Random::new(seed ^ 0x5eed);
        let weather = match random.below(3) {
            0 => Weather::foul(&mut random),
            _ => Weather::FAIR,
        };
        let mut stage = Stage::new(weather, Random::new(random.bits()), is_replay());
        let memory = std::path::Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.expect("a temporary folder");
        let mut config = format!(
            "[target]\nreactors = {REACTORS}\npoll_idle_us = 0\nqueue_depth = 16\n\
             io_queues = 4\nmdts = \"8KiB\"\ndata_buffers = \"1MiB\"\nin_capsule_data = \"4KiB\"\n\
             state_directory = \"{}\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n",
            folder.path().display()
        );
        let mut disks = Vec::new();
        for nsid in 1..=NAMESPACES {
            let run = RUNS.fetch_add(1, Ordering::Relaxed);
            let name = format!("members-{run}");
            let file = Scratch::in_memory(&name, (BLOCKS * BLOCK_BYTES) as u64);
            let disk = SimulatedDisk::register(file.path(), &stage.clock, random.bits());
            let disk = disk.expect("the file is there");
            let slowest = Duration::from_micros(1 + random.below(1000));
            disk.set_habits(Habits {
                delay: Duration::ZERO..slowest,
                ..Habits::default()
            });
            config += &namespace(nsid as u32, &file.export(BLOCK_BYTES as u32));
            disks.push((disk, file));
        }
        stage.add_target(&config);
        let members = (0..CONTROLLERS.len()).map(|index| Member::new(index, &mut stage));
        Self {
            members: members.collect(),
            planted: Planted::new(bug, folder.path()),
            states: [State::default()].into(),
            sent: Vec::new(),
            moment: 0,
            stage,
            random,
            _folder: folder,
            _disks: disks,
        }
    }

    fn end(&mut self) {
        if self.stage.has_target(0) {
            self.stage.kill_target(0);
        }
        for member in &mut self.members {
            member.die(&mut self.stage);
        }
    }

    fn follow(&mut self, order: &Order) -> Result<(), String> {
        self.stage.note(|| format!("{order:?}"));
        match *order {
            Order::Send {
                by,
                queue,
                nsid,
                command,
                apt,
            } => {
                if self.sent.len() == BATCH_MAX {
                    self.settle()?;
                }
                let state = self.states.first().expect("a possible state");
                let of = (nsid as usize).checked_sub(1);
                let of = of.and_then(|at| state.namespaces.get(at)).filter(|_| apt);
                let fit = |of| orders::apt(command, CONTROLLERS[by], of);
                self.send(by, queue, nsid, of.map_or(command, fit));
            }
            Order::Pass(us) => self.pass(Duration::from_micros(us)),
            Order::Settle => return self.settle(),
            Order::Pause(reactor) => self.stage.pause_reactor(0, reactor, true),
            Order::Reset(by) => self.members[by].reset(),
            Order::Lose(by) => self.members[by].die(&mut self.stage),
            Order::Leave(by) => self.members[by].leave(),
            Order::Kill { after_us, steps } => return self.kill(after_us, steps),
        }
        Ok(())
    }

    fn send(&mut self, by: usize, queue: usize, nsid: u32, command: Command) {
        let member = &mut self.members[by];
        // The notifications of a new controller are unknown until the batch ends.
        if member.is_new {
            return;
        }
        let mut target_nsid = nsid;
        let sent = self.planted.on_the_way(command, &mut target_nsid);
        if member.send(queue, target_nsid, sent, self.sent.len()) {
            self.moment += 2;
            self.sent.push(Sent {
                by,
                nsid,
                command,
                begun: self.moment,
                ended: None,
            });
        }
    }

    fn turn(&mut self, latest: Instant) {
        let mut next = latest;
        let mut endings = Vec::new();
        for member in &mut self.members {
            member.connect(&self.stage);
            let own = member.poll(&self.stage, &mut endings);
            next = own.into_iter().fold(next, Instant::min);
        }
        for (number, answer) in endings {
            let sent = &mut self.sent[number];
            let Some(mut answer) = answer else {
                continue;
            };
            self.planted.answered(sent.nsid, &sent.command, &mut answer);
            self.moment += 2;
            let at = match self.planted.bug {
                Some(Bug::AnswersEarly) => sent.begun + 1,
                _ => self.moment,
            };
            sent.ended = Some((at, answer));
        }
        self.stage.advance(next);
    }

    fn pass(&mut self, time: Duration) {
        let until = self.stage.now() + time;
        while self.stage.now() < until {
            self.turn(until);
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        let until = self.stage.now() + PATIENCE;
        let is_calm = |member: &Member| member.is_live() && member.is_idle();
        while !self.members.iter().all(is_calm) {
            let now = self.stage.now();
            if now > until {
                return Err(self.describe("a command or a connection hangs"));
            }
            self.turn(now + Duration::from_secs(1));
        }
        self.explain()
    }

    fn explain(&mut self) -> Result<(), String> {
        let after = explain::after(&self.states, &self.sent);
        if after.is_empty() {
            return Err(self.describe("no order of these commands explains their answers"));
        }
        self.states = after;
        self.sent.clear();
        Ok(())
    }

    fn describe(&self, why: &str) -> String {
        let sent: Vec<String> = self.sent.iter().map(Sent::to_string).collect();
        let before: Vec<String> = self.states.iter().map(|one| format!("{one:?}")).collect();
        format!(
            "{why}:\n{}\nafter {}",
            sent.join("\n"),
            before.join("\nor ")
        )
    }

    fn settle(&mut self) -> Result<(), String> {
        for reactor in 0..REACTORS as usize {
            self.stage.pause_reactor(0, reactor, false);
        }
        self.finish()?;
        self.pass(Duration::from_millis(1));
        self.check_events()?;
        self.drain_new()?;
        self.audit()?;
        for member in &mut self.members {
            (member.events, member.is_new) = (0, false);
        }
        let states = std::mem::take(&mut self.states).into_iter();
        self.states = states.map(State::begin_batch).collect();
        self.planted.settled();
        Ok(())
    }

    fn check_events(&mut self) -> Result<(), String> {
        let until = self.stage.now() + EVENT_PATIENCE;
        let mut by = 0;
        while by < self.members.len() {
            let member = &self.members[by];
            let states = self.states.iter();
            let raised: BTreeSet<bool> = states.map(|one| one.told[by].raised).collect();
            let told = member.events > 0 && self.planted.bug != Some(Bug::NoEvent);
            if member.is_new || raised.contains(&told) {
                by += 1;
            } else if !told && self.stage.now() < until {
                // The event may be repeated after a loss.
                self.pass(Duration::from_millis(20));
            } else {
                let why = format!("controller {by} was told of a notification: {told}");
                return Err(self.describe(&why));
            }
        }
        Ok(())
    }

    /// Reads the log pages of new controllers, whose notifications are unknown.
    fn drain_new(&mut self) -> Result<(), String> {
        for by in 0..self.members.len() {
            if !self.members[by].is_new {
                continue;
            }
            let states = std::mem::take(&mut self.states).into_iter();
            self.states = states.map(|one| one.forget(by)).collect();
            let mut reads = 0;
            loop {
                self.members[by].is_new = false;
                self.send(by, 0, 0, Command::Log);
                let expected = self.states.clone();
                let read = self.finish();
                if read.is_ok() && self.sent.is_empty() {
                    break;
                }
                self.states = expected;
                self.sent.clear();
                reads += 1;
                if reads > 32 {
                    return Err(format!("controller {by} has endless notifications"));
                }
            }
        }
        Ok(())
    }

    fn audit(&mut self) -> Result<(), String> {
        let auditor = self.random.below(CONTROLLERS.len() as u64) as usize;
        for nsid in 1..=NAMESPACES as u32 {
            let queue = nsid as usize % 2;
            self.send(auditor, queue, nsid, Command::Report { extended: true });
            self.send(auditor, 0, nsid, Command::GetPersistence);
        }
        let (io, block) = (spec::Io::Read, 0);
        self.send(auditor, 0, 1, Command::Io { io, block });
        let (io, block) = (spec::Io::Write(self.random.below(256) as u8), 1);
        self.send(auditor, 1, 1, Command::Io { io, block });
        self.finish()?;
        let unread = |this: &Self, by: usize| {
            let mut states = this.states.iter();
            states.any(|one| !one.told[by].unread.is_empty())
        };
        for by in 0..CONTROLLERS.len() {
            let mut goes_on = true;
            while goes_on {
                goes_on = unread(self, by);
                self.send(by, 0, 0, Command::Log);
                self.finish()?;
            }
        }
        Ok(())
    }

    fn kill(&mut self, after_us: u64, steps: Option<u32>) -> Result<(), String> {
        SteppedTarget::interrupt_files(steps);
        let run = || self.pass(Duration::from_micros(after_us));
        let run = catch_unwind(AssertUnwindSafe(run));
        SteppedTarget::interrupt_files(None);
        if let Err(panic) = run
            && message_of(&*panic) != SteppedTarget::INTERRUPTED
        {
            resume_unwind(panic);
        }
        self.stage.kill_target(0);
        for member in &mut self.members {
            member.die(&mut self.stage);
            member.forget_lost();
        }
        self.explain()?;
        let states = std::mem::take(&mut self.states).into_iter();
        self.states = states.map(State::lose_power).collect();
        self.planted.killed();
        self.stage.start_target(0);
        self.settle()
    }
}
