//! What hosts do in one run.

use std::time::Duration;

use cairn_initiator::HostError;
use cairn_target::Holdings;
use cairn_tests::harness::{NQN, Scratch, subsystem};
use cairn_tests::random::Random;

use crate::disk::Disk;
use crate::host::{Simulated, Traits, check_loss};
use crate::seeds::is_replay;
use crate::weather::Weather;
use crate::world::{self, Plan};

/// Time in which everything that ended has been let go of: the keep alive and the
/// idle limit of a host that vanished, and what connections take to give up.
const LETTING_GO: Duration = Duration::from_secs(300);
/// Attempts to connect, where the weather may break connections.
const ATTEMPTS: u32 = 20;

/// What happens beside I/O and weather.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    /// Controllers are reset, and hosts leave in the middle of it.
    Leaving,
    /// A host is never heard of again.
    Vanishing,
    /// The network is cut for a while.
    Partition,
}

/// One run.
pub(crate) struct Scenario {
    seed: u64,
    random: Random,
    trouble: Trouble,
    mdts_bytes: usize,
    disks: Vec<Disk>,
    file: Scratch,
    next_host: u8,
    /// Whether the network was cut between the present host and the target.
    was_cut_off: bool,
}

impl Scenario {
    pub(crate) fn new(seed: u64, trouble: Trouble) -> Self {
        let mut random = Random::new(seed);
        Self {
            seed,
            trouble,
            mdts_bytes: 8192 << random.below(4),
            disks: vec![Disk::new(1, 512, 200), Disk::new(2, 4096, 24)],
            file: Scratch::in_memory(&format!("simulation-{seed}"), 24 * 4096),
            next_host: 1,
            was_cut_off: false,
            random,
        }
    }

    /// Runs it, and gives a number that tells runs apart.
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
            let Some(mut host) = self.connect() else {
                continue;
            };
            let result = self.use_it(&mut host);
            self.end(host, &result);
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
        // A disk of memory is reached without a buffer between, one of a file by one.
        let file = self.file.export(4096);
        config += &subsystem(NQN, &["mem:100KiB block_size = 512", &file]);
        Plan {
            path_mtu: 1 + random.below(5) as u8,
            ipv6: random.below(2) == 0,
            config,
            trace: is_replay(),
        }
    }

    /// A new host, unless the weather is so bad that it cannot connect.
    fn connect(&mut self) -> Option<Simulated> {
        let random = &mut self.random;
        let traits = Traits {
            number: self.next_host,
            io_queues: 1 + random.below(4) as u16,
            queue_entries: 2 + random.below(31) as u16,
            kato_ms: 5000 << random.below(4),
            flow_control: random.below(2) == 0,
            mdts_bytes: self.mdts_bytes,
        };
        self.next_host += 1;
        self.was_cut_off = false;
        world::note(|| format!("{traits:?}"));
        for _ in 0..ATTEMPTS {
            match Simulated::connect(&traits) {
                Ok(host) => return Some(host),
                Err(error) => self.excuse(&error),
            }
        }
        panic!("no connection in {ATTEMPTS} attempts");
    }

    /// A connection has ended. That may be, but not without a reason.
    fn excuse(&self, error: &HostError) {
        world::note(|| format!("failed: {error}"));
        check_loss(error);
        let weather = world::with(|world| world.network.weather);
        let excused = self.was_cut_off || weather.may_break_connections();
        assert!(excused, "{error}, though the weather is not that bad");
    }

    /// I/O, and what else is to happen.
    fn use_it(&mut self, host: &mut Simulated) -> Result<(), HostError> {
        let commands = 10 + self.random.below(40);
        let mut trouble_at = self.random.below(commands);
        if self.trouble == Trouble::None {
            trouble_at = u64::MAX;
        }
        for count in 0..commands {
            let busy = self.random.below(4) > 0;
            host.begin(&mut self.disks, &mut self.random)?;
            if !busy {
                let latest = world::now() + Duration::from_millis(self.random.below(5));
                host.step(&mut self.disks, latest)?;
            }
            match self.random.below(40) {
                0 => host.abort(&mut self.random)?,
                1 => {
                    host.finish(&mut self.disks)?;
                    let minutes = Duration::from_secs(self.random.below(180));
                    host.idle(&mut self.disks, minutes)?;
                }
                _ => {}
            }
            if count == trouble_at {
                match self.trouble {
                    Trouble::None => {}
                    // Whatever is under way.
                    Trouble::Leaving | Trouble::Vanishing => return Ok(()),
                    Trouble::Partition => self.cut(host)?,
                }
            }
        }
        host.finish(&mut self.disks)
    }

    /// The network is cut for a while, mostly not for long.
    fn cut(&mut self, host: &mut Simulated) -> Result<(), HostError> {
        let long = self.random.below(3) == 0;
        let time = Duration::from_millis(if long {
            self.random.below(60_000)
        } else {
            self.random.below(400)
        });
        let address = world::with(|world| world.host_address(self.next_host - 1));
        world::note(|| format!("cut off for {time:?}"));
        host.was_cut_off = true;
        self.was_cut_off = true;
        world::with(|world| world.network.cut_off.push(address));
        let until = world::now() + time;
        let mut result = Ok(());
        while result.is_ok() && world::now() < until {
            result = host.step(&mut self.disks, until);
        }
        // One that gave up connects again when the network is back.
        while world::now() < until {
            host.host.poll();
            world::with(|world| world.advance(until));
        }
        world::with(|world| world.network.cut_off.clear());
        world::note(|| "healed".to_owned());
        result
    }

    /// The end of an association, one way or another.
    fn end(&mut self, mut host: Simulated, result: &Result<(), HostError>) {
        if let Err(error) = result {
            self.excuse(error);
        }
        if result.is_err() {
            return host.forget(&mut self.disks);
        }
        match (self.trouble, self.random.below(3)) {
            (Trouble::Vanishing, _) => {
                // Nothing from or to it, ever.
                let address = world::with(|world| world.host_address(self.next_host - 1));
                world::note(|| "vanishes".to_owned());
                world::with(|world| world.network.cut_off.push(address));
                host.forget(&mut self.disks);
            }
            (Trouble::Leaving, 0) => {
                world::note(|| "reset".to_owned());
                if let Err(error) = host.host.reset() {
                    self.excuse(&error);
                }
                host.forget(&mut self.disks);
            }
            (Trouble::Leaving, 1) => {
                world::note(|| "leaves".to_owned());
                host.forget(&mut self.disks);
            }
            _ => {
                if let Err(error) = host.finish(&mut self.disks) {
                    self.excuse(&error);
                    return host.forget(&mut self.disks);
                }
                world::note(|| "shuts down".to_owned());
                if let Err(error) = host.host.shut_down_controller() {
                    self.excuse(&error);
                }
                host.forget(&mut self.disks);
            }
        }
    }

    /// Everything that was held comes back, in bounded time.
    fn settle(&mut self) {
        let until = world::now() + LETTING_GO;
        let holdings = || world::with(|world| world.holdings());
        while holdings() != Holdings::default() {
            assert!(
                world::now() < until,
                "after {LETTING_GO:?} the target still holds {:?}",
                holdings()
            );
            world::with(|world| world.advance(until));
        }
    }

    /// The disks contain what they must, seen by a host that nothing troubles.
    fn verify(&mut self) {
        world::with(|world| world.network.weather = Weather::FAIR);
        world::note(|| "at last, everything is read".to_owned());
        let mut host = self.connect().expect("it connects, or has panicked");
        let read = host.read_all(&self.disks);
        read.expect("nothing ails it");
        host.forget(&mut self.disks);
        self.settle();
    }
}
