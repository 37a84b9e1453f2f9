//! Environment of the simulated hosts: clock, network, and one or two targets.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_base::entropy::Entropy;
use cairn_config::{Config, Flags};
use cairn_rdma::Provider;
use cairn_roce::Network as Phy;
use cairn_roce::Wire;
use cairn_roce::{Soft, SoftOptions};
use cairn_sim::Random;
use cairn_target::{SteppedTarget, Usage};

use crate::weather::{Carried, Network};
use cairn_sim::network::Weather;

const STEPS_MAX: u32 = 20_000;

pub(crate) struct Stage {
    pub(crate) clock: Clock,
    start: Instant,
    wire: Wire,
    pub(crate) network: Network,
    random: Random,
    targets: Vec<Node>,
    trace: bool,
    idle_steps: u32,
}

struct Node {
    soft: Soft,
    target: Option<SteppedTarget>,
    config: String,
    remote: SocketAddr,
    paused: bool,
}

impl Stage {
    pub(crate) fn new(weather: Weather, mut random: Random, trace: bool) -> Self {
        let clock = Clock::simulated();
        Self {
            start: clock.now(),
            clock,
            wire: Wire::new([256, 512, 1024, 2048, 4096, 4160][random.below(6) as usize]),
            network: Network::new(weather, Random::new(random.bits())),
            random,
            targets: Vec::new(),
            trace,
            idle_steps: 0,
        }
    }

    pub(crate) fn soft(&mut self) -> Soft {
        Soft::new(SoftOptions {
            network: Phy::Wire(self.wire.clone()),
            clock: self.clock.clone(),
            entropy: Entropy::seeded(self.random.bits()),
            ..SoftOptions::default()
        })
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) fn note(&self, what: impl FnOnce() -> String) {
        if self.trace {
            let at = self.now().duration_since(self.start).as_secs_f64() * 1e3;
            eprintln!("{at:>14.6} ms  {}", what());
        }
    }

    pub(crate) fn add_target(&mut self, config: &str) {
        let number = self.targets.len() + 1;
        let address = IpAddr::from([10, 0, 0, number as u8]);
        let listener = format!("[[listener]]\naddress = \"{address}\"\nprovider = \"soft\"\n");
        let soft = self.soft();
        self.targets.push(Node {
            soft,
            target: None,
            config: format!("{config}{listener}"),
            remote: SocketAddr::new(address, 0),
            paused: false,
        });
        self.start_target(number - 1);
    }

    pub(crate) fn start_target(&mut self, index: usize) {
        let soft = self.soft();
        let clock = self.clock.clone();
        let node = &mut self.targets[index];
        node.soft = soft;
        let text = &node.config;
        let config = Config::parse("simulation", text, &Flags::default())
            .unwrap_or_else(|error| panic!("the configuration is wrong:\n{error}\n{text}"));
        let provider: Arc<dyn Provider> = Arc::new(node.soft.clone());
        let target = SteppedTarget::start(config, vec![provider], clock)
            .unwrap_or_else(|error| panic!("the target does not start: {error}"));
        node.remote = target.addresses()[0];
        node.target = Some(target);
        self.note(|| format!("target {index} starts"));
    }

    pub(crate) fn kill_target(&mut self, index: usize) {
        self.note(|| format!("target {index} is killed"));
        let soft = self.soft();
        let node = &mut self.targets[index];
        let old = std::mem::replace(&mut node.soft, soft);
        let (target, address) = (node.target.take(), node.remote.ip());
        self.silently(address, || {
            target.expect("a target that is there").kill();
            let _ = old.step();
        });
    }

    pub(crate) fn silently(&mut self, address: IpAddr, job: impl FnOnce()) {
        self.send_all();
        job();
        self.network.cut_off.push(address);
        self.send_all();
        self.network.cut_off.pop();
    }

    pub(crate) fn has_target(&self, index: usize) -> bool {
        self.targets[index].target.is_some()
    }

    pub(crate) fn pause_target(&mut self, index: usize, paused: bool) {
        self.note(|| format!("target {index}: paused = {paused}"));
        self.targets[index].paused = paused;
    }

    pub(crate) fn pause_reactor(&mut self, index: usize, reactor: usize, paused: bool) {
        self.note(|| format!("target {index}, reactor {reactor}: paused = {paused}"));
        if let Some(target) = &mut self.targets[index].target {
            target.pause_reactor(reactor, paused);
        }
    }

    pub(crate) fn remote(&self, index: usize) -> SocketAddr {
        self.targets[index].remote
    }

    pub(crate) fn usage(&self) -> Vec<(Usage, usize)> {
        let there = self.targets.iter();
        there
            .filter_map(|node| Some((node.target.as_ref()?.usage(), node.soft.connections())))
            .collect()
    }

    pub(crate) fn jump(&mut self, gap: Duration) {
        self.note(|| format!("the clock jumps by {gap:?}"));
        self.clock.advance_to(self.now() + gap);
    }

    pub(crate) fn advance(&mut self, latest: Instant) {
        let mut next = latest;
        for node in self.targets.iter_mut().filter(|node| !node.paused) {
            let before = node.soft.step();
            let own = node.target.as_mut().and_then(SteppedTarget::step);
            let after = node.soft.step();
            next = [before, own, after]
                .into_iter()
                .flatten()
                .fold(next, Instant::min);
        }
        self.send_all();
        let now = self.now();
        let next = self
            .network
            .next_arrival()
            .into_iter()
            .fold(next, Instant::min);
        if next <= now {
            self.idle_steps += 1;
            assert!(self.idle_steps < STEPS_MAX, "time stands still");
        } else {
            self.idle_steps = 0;
            self.clock.advance_to(next);
        }
        while let Some(Carried(frame)) = self.network.receive(self.clock.now()) {
            self.wire.deliver(frame);
        }
    }

    fn send_all(&mut self) {
        let now = self.now();
        while let Some(frame) = self.wire.take_sent() {
            self.network.send(now, Carried(frame));
        }
    }
}
