//! Clock, network and target of the simulation on the calling thread. Waiting code advances the
//! simulated clock.

use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_base::entropy::Entropy;
use cairn_config::{Config, Flags};
use cairn_rdma::Provider;
use cairn_roce::Network as Phy;
use cairn_roce::{Frame, Wire};
use cairn_roce::{Soft, SoftOptions};
use cairn_roce_proto::wire::Packet;
use cairn_sim::Random;
use cairn_target::{SteppedTarget, Usage};

use crate::weather::{Carried, Network};
use cairn_sim::network::{Fate, Weather};

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// Maximum steps at the same simulated time; more indicate an endless loop.
const STEPS_MAX: u32 = 10_000;

#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) payload_max: u32,
    pub(crate) ipv6: bool,
    pub(crate) config: String,
    pub(crate) trace: bool,
}

pub(crate) struct World {
    clock: Clock,
    start: Instant,
    wire: Wire,
    pub(crate) network: Network,
    target_side: Soft,
    host_side: Soft,
    target: SteppedTarget,
    target_address: IpAddr,
    digest: DefaultHasher,
    trace: bool,
    idle_steps: u32,
    pub(crate) stopped: Stopped,
    /// Whether the target loses cancellations of writes returned by workers, a planted bug.
    pub(crate) loses_cancellations: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stopped {
    pub(crate) manager: bool,
    pub(crate) target: bool,
    pub(crate) workers: bool,
}

pub(crate) fn begin(plan: &Plan, weather: Weather, random: &mut Random) {
    end();
    let world = World::new(plan, weather, random);
    WORLD.with(|slot| *slot.borrow_mut() = Some(world));
}

pub(crate) fn end() {
    drop(WORLD.with(|slot| slot.borrow_mut().take()));
}

/// Leaks the world of this thread. Dropped after a failed run, the world would report unanswered
/// commands too.
pub(crate) fn abandon() {
    std::mem::forget(WORLD.with(|slot| slot.borrow_mut().take()));
}

pub(crate) fn with<T>(job: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with(|slot| job(slot.borrow_mut().as_mut().expect("the world has begun")))
}

pub(crate) fn now() -> Instant {
    with(|world| world.clock.now())
}

pub(crate) fn note(what: impl FnOnce() -> String) {
    with(|world| world.note(what));
}

impl World {
    fn new(plan: &Plan, weather: Weather, random: &mut Random) -> Self {
        let clock = Clock::simulated();
        let wire = Wire::new(plan.payload_max);
        let mut soft = || {
            Soft::new(SoftOptions {
                network: Phy::Wire(wire.clone()),
                clock: clock.clone(),
                entropy: Entropy::seeded(random.bits()),
                ..SoftOptions::default()
            })
        };
        let (target_side, host_side) = (soft(), soft());
        let target_address: IpAddr = if plan.ipv6 {
            "fd00::1".parse().expect("an address")
        } else {
            "10.0.0.1".parse().expect("an address")
        };
        let listener =
            format!("[[listener]]\naddress = \"{target_address}\"\nprovider = \"soft\"\n");
        let text = format!("{}{listener}", plan.config);
        let config = Config::parse("simulation", &text, &Flags::default())
            .unwrap_or_else(|error| panic!("the configuration is wrong:\n{error}\n{text}"));
        let provider: Arc<dyn Provider> = Arc::new(target_side.clone());
        let mut target = SteppedTarget::start(config, vec![provider], clock.clone())
            .unwrap_or_else(|error| panic!("the target does not start: {error}"));
        target.replace_workers();
        Self {
            start: clock.now(),
            clock,
            wire,
            network: Network::new(weather, Random::new(random.bits())),
            target_side,
            host_side,
            target,
            target_address,
            digest: DefaultHasher::new(),
            trace: plan.trace,
            idle_steps: 0,
            stopped: Stopped::default(),
            loses_cancellations: false,
        }
    }

    pub(crate) fn step_workers(&mut self) -> bool {
        self.target.step_workers(self.loses_cancellations)
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        self.target.addresses()[0]
    }

    pub(crate) fn host_address(&self, number: u8) -> IpAddr {
        match self.target_address {
            IpAddr::V4(_) => IpAddr::from([10, 0, 1, number]),
            IpAddr::V6(_) => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 1, u16::from(number)]),
        }
    }

    pub(crate) fn host_side(&self) -> Soft {
        self.host_side.clone()
    }

    pub(crate) fn usage(&self) -> (Usage, [usize; 2]) {
        let connections = [&self.target_side, &self.host_side].map(Soft::connections);
        (self.target.usage(), connections)
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.clock.now().duration_since(self.start)
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            eprintln!(
                "{:>14.6} ms  {}",
                self.elapsed().as_secs_f64() * 1e3,
                what()
            );
        }
    }

    pub(crate) fn advance(&mut self, latest: Instant) {
        let managers = self.step_managers();
        let target = match self.stopped.target {
            true => None,
            false => self.target.step(),
        };
        let now = self.clock.now();
        let workers = (!self.stopped.workers && self.step_workers()).then_some(now);
        let deadlines = [managers, target, workers, self.step_managers()];
        while let Some(frame) = self.wire.take_sent() {
            self.send(now, frame);
        }
        let next = deadlines
            .into_iter()
            .flatten()
            .chain(self.network.next_arrival())
            .fold(latest, Instant::min)
            .max(now);
        if next == now {
            self.idle_steps += 1;
            assert!(self.idle_steps < STEPS_MAX, "time stands still");
        } else {
            self.idle_steps = 0;
            self.clock.advance_to(next);
        }
        while let Some(Carried(frame)) = self.network.receive(next) {
            self.wire.deliver(frame);
        }
    }

    fn step_managers(&self) -> Option<Instant> {
        let of_target = match self.stopped.manager {
            true => None,
            false => self.target_side.step(),
        };
        let deadlines = [of_target, self.host_side.step()];
        deadlines.into_iter().flatten().min()
    }

    fn send(&mut self, now: Instant, frame: Frame) {
        let from_target = frame.source.ip() == self.target_address;
        let trace = self.trace.then(|| describe(&frame));
        let length = frame.bytes.len();
        // The digest includes only the BTH (12 bytes): later bytes differ between runs.
        let start = frame.bytes.first_chunk::<12>().copied();
        let fate = self.network.send(now, Carried(frame));
        let at_ns = now.duration_since(self.start).as_nanos();
        (at_ns, from_target, start, length, fate as u8).hash(&mut self.digest);
        if let Some(what) = trace {
            let arrow = if from_target {
                "target > host"
            } else {
                "host > target"
            };
            let fate = match fate {
                Fate::Arrives => "",
                Fate::Late => ", late",
                Fate::Twice => ", twice",
                Fate::Damaged => ", damaged",
                Fate::Lost => ", lost",
                Fate::Cut => ", cut off",
            };
            self.note(|| format!("{arrow}: {what}{fate}"));
        }
    }
}

fn describe(frame: &Frame) -> String {
    let end = frame.bytes.len() - cairn_roce_proto::wire::packet::ICRC_LEN;
    match Packet::parse(&frame.bytes[..end]) {
        Ok(packet) => {
            let aeth = packet
                .aeth
                .map(|aeth| format!(" {:?} msn {}", aeth.syndrome, aeth.msn));
            format!(
                "{:?} qp {:#x} psn {:#x} {} bytes{}{}",
                packet.opcode,
                packet.bth.dest_qpn,
                packet.bth.psn,
                packet.payload.len(),
                if packet.bth.ack_req { " ackreq" } else { "" },
                aeth.unwrap_or_default(),
            )
        }
        Err(error) => format!("{} bytes ({error:?})", frame.bytes.len()),
    }
}
