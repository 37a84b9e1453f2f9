use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_initiator::HostError;
use cairn_sim::Random;
use cairn_target::Usage;
use cairn_tests::harness::{NQN, Scratch, subsystem};

use crate::disk::Disk;
use crate::host::{Simulated, Traits};
use crate::world::{self, Plan};
use cairn_sim::network::Weather;
use cairn_sim::seeds::is_replay;

/// Time within which the target must release all resources of a vanished host, including keep alive
/// and idle timeouts.
const LETTING_GO: Duration = Duration::from_secs(300);
const ATTEMPTS: u32 = 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    Leaving,
    Vanishing,
    Partition,
}

pub(crate) struct Scenario {
    seed: u64,
    random: Random,
    trouble: Trouble,
    mdts_bytes: usize,
    disks: Vec<Disk>,
    file: Scratch,
    next_host: u8,
}

impl Scenario {
    pub(crate) fn new(seed: u64, trouble: Trouble) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let mut random = Random::new(seed);
        Self {
            seed,
            trouble,
            mdts_bytes: 8192 << random.below(4),
            disks: vec![Disk::new(1, 512, 200), Disk::new(2, 4096, 24)],
            file: Scratch::in_memory(&format!("simulation-{run}"), 24 * 4096),
            next_host: 1,
            random,
        }
    }

    pub(crate) fn run(mut self, foul: bool) -> u64 {
        let weather = if foul {
            Weather::foul(&mut self.random)
        } else {
            Weather::FAIR
        };
        let plan = self.plan();
        world::begin(&plan, weather, &mut self.random);
        world::note(|| {
            format!(
                "seed {}: {:?} in {weather:?}, {plan:?}",
                self.seed, self.trouble
            )
        });
        let associations = match self.trouble {
            Trouble::None => 1,
            _ => 1 + self.random.below(3),
        };
        for _ in 0..associations {
            let mut host = self.connect();
            let used = self.use_it(&mut host);
            if let Err(error) = used.and_then(|()| self.end(&mut host)) {
                world::note(|| format!("ended: {error}"));
            }
            host.forget(&mut self.disks);
        }
        self.settle();
        self.verify();
        let digest = world::with(|world| world.digest());
        world::end();
        digest
    }

    fn plan(&mut self) -> Plan {
        let random = &mut self.random;
        let mut config = format!(
            "[target]\nreactors = {}\npoll_idle_us = 0\nreceives = {}\nqueue_depth = {}\n\
             io_queues = 4\nmdts = \"{}KiB\"\ndata_buffers = \"1MiB\"\nin_capsule_data = \"{}KiB\"\n",
            1 + random.below(2),
            64 << random.below(2),
            16 << random.below(3),
            self.mdts_bytes / 1024,
            [0, 4, 8][random.below(3) as usize],
        );
        let file = self.file.export(4096);
        config += &subsystem(NQN, &["mem:100KiB block_size = 512", &file]);
        Plan {
            payload_max: [256, 512, 1024, 2048, 4096, 4160][random.below(6) as usize],
            ipv6: random.below(2) == 0,
            config,
            trace: is_replay(),
        }
    }

    fn connect(&mut self) -> Simulated {
        let random = &mut self.random;
        let traits = Traits {
            number: self.next_host,
            io_queues: 1 + random.below(4) as u16,
            queue_entries: 2 + random.below(31) as u16,
            kato_ms: 5000 << random.below(4),
            flow_control: random.below(2) == 0,
            mdts_bytes: self.mdts_bytes,
            recovers: random.below(2) == 0,
        };
        self.next_host += 1;
        world::note(|| format!("{traits:?}"));
        let excused = world::with(|world| world.network.weather.may_break_connections());
        for _ in 0..ATTEMPTS {
            match Simulated::connect(&traits, excused) {
                Ok(host) => return host,
                Err(error) => world::note(|| format!("not connected: {error}")),
            }
        }
        panic!("no connection in {ATTEMPTS} attempts");
    }

    fn use_it(&mut self, host: &mut Simulated) -> Result<(), HostError> {
        let commands = 10 + self.random.below(40);
        let trouble_at = self.random.below(commands);
        for count in 0..commands {
            host.begin(&mut self.disks, &mut self.random)?;
            if self.random.below(3) == 0 {
                let latest = world::now() + Duration::from_micros(self.random.below(5000));
                host.step(&mut self.disks, latest)?;
            }
            match self.random.below(40) {
                0 => host.abort(&mut self.random),
                1 => {
                    host.finish(&mut self.disks)?;
                    let minutes = Duration::from_secs(self.random.below(180));
                    host.idle(&mut self.disks, minutes)?;
                }
                _ => {}
            }
            if count != trouble_at {
                continue;
            }
            match self.trouble {
                Trouble::None => {}
                Trouble::Leaving if self.random.below(2) == 0 => {
                    world::note(|| "reset".to_owned());
                    host.reset(&mut self.disks)?;
                }
                Trouble::Leaving | Trouble::Vanishing => return Ok(()),
                Trouble::Partition => self.cut(host)?,
            }
        }
        host.finish(&mut self.disks)
    }

    fn cut(&mut self, host: &mut Simulated) -> Result<(), HostError> {
        let time_ms = match self.random.below(3) {
            0 => self.random.below(60_000),
            _ => self.random.below(400),
        };
        let time = Duration::from_millis(time_ms);
        let address = self.address();
        world::note(|| format!("cut off for {time:?}"));
        world::with(|world| world.network.cut_off.push(address));
        host.excused = true;
        let until = world::now() + time;
        let mut result = Ok(());
        while result.is_ok() && world::now() < until {
            result = host.step(&mut self.disks, until);
        }
        while world::now() < until {
            world::with(|world| world.advance(until));
        }
        world::with(|world| world.network.cut_off.clear());
        world::note(|| "healed".to_owned());
        result
    }

    fn address(&self) -> IpAddr {
        world::with(|world| world.host_address(self.next_host - 1))
    }

    fn end(&mut self, host: &mut Simulated) -> Result<(), HostError> {
        match (self.trouble, self.random.below(3)) {
            (Trouble::Vanishing, _) => {
                let address = self.address();
                world::note(|| "vanishes".to_owned());
                world::with(|world| world.network.cut_off.push(address));
            }
            (Trouble::Leaving, 0) => world::note(|| "leaves without a shutdown".to_owned()),
            _ => {
                host.finish(&mut self.disks)?;
                world::note(|| "shuts down".to_owned());
                host.shutdown(&mut self.disks)?;
            }
        }
        Ok(())
    }

    fn settle(&mut self) {
        let until = world::now() + LETTING_GO;
        let usage = || world::with(|world| world.usage());
        while usage() != (Usage::default(), [0, 0]) {
            let held = usage();
            assert!(
                world::now() < until,
                "after {LETTING_GO:?} there still are {held:?}"
            );
            world::with(|world| world.advance(until));
        }
    }

    fn verify(&mut self) {
        world::with(|world| world.network.weather = Weather::FAIR);
        world::note(|| "at last, everything is read".to_owned());
        let mut host = self.connect();
        let read = host.read_all(&self.disks);
        read.expect("nothing ails it");
        host.forget(&mut self.disks);
        self.settle();
    }
}
