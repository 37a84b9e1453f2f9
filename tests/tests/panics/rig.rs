//! Target with two reactors, which panic at reads of [`FATAL_BLOCKS`].
//!
//! Hosts already connected determine the reactors of a new host's queues.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_base::entropy::Entropy;
use cairn_config::{Config, Flags};
use cairn_disk::SimulatedDisk;
use cairn_initiator::{Host, HostError, HostOptions, Identity, Recovery};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_roce::{Soft, SoftOptions};
use cairn_target::Target;
use cairn_tests::exposition::Exposition;
use cairn_tests::harness::{METRICS, NQN, Scratch, host_nqn, nqn, own_loopback_address, subsystem};
use cairn_tests::saboteur::{Saboteur, blow};

pub(crate) const BLOCK: usize = 4096;
pub(crate) const FATAL_BLOCKS: u32 = 3;
const DISK_BLOCKS: usize = 128;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) type Network = (Arc<dyn Provider>, IpAddr, Option<IpAddr>);

pub(crate) fn on_loopback() -> Network {
    let hosts = Some(IpAddr::from([192, 0, 2, 2]));
    let network: Arc<Loopback> = Arc::default();
    (network, IpAddr::from([192, 0, 2, 1]), hosts)
}

pub(crate) fn on_soft() -> Network {
    let network: Arc<Soft> = Arc::default();
    (network, own_loopback_address().into(), None)
}

/// Returns a network and a counter. Unless the counter is 0, the target decrements it and panics
/// when it requests random numbers for a connection.
pub(crate) fn on_soft_that_panics() -> (Network, Arc<AtomicUsize>) {
    let panics: Arc<AtomicUsize> = Arc::default();
    let left = Arc::clone(&panics);
    let draw = move || {
        if thread::current()
            .name()
            .is_some_and(|name| name.starts_with("roce-cm"))
        {
            blow(&left);
        }
        cairn_base::entropy::draw()
    };
    let options = SoftOptions {
        entropy: Entropy::of(draw),
        ..SoftOptions::default()
    };
    let network = Arc::new(Soft::new(options));
    ((network, own_loopback_address().into(), None), panics)
}

pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn lone_host(remote: SocketAddr) -> HostOptions {
    HostOptions {
        timeout: Duration::from_secs(10),
        recovery: Recovery::NONE,
        requeue: false,
        kato_ms: 0,
        ..HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn("lone")))
    }
}

pub(crate) struct Rig {
    pub(crate) target: Target,
    pub(crate) saboteur: Saboteur,
    disk: Option<SimulatedDisk>,
    network: Arc<dyn Provider>,
    hosts_at: Option<IpAddr>,
    _file: Scratch,
}

impl Rig {
    pub(crate) fn start(name: &str, network: Network) -> Self {
        let file = Scratch::in_memory(name, (DISK_BLOCKS * BLOCK) as u64);
        let disk = SimulatedDisk::register(file.path(), &Clock::default(), 1).unwrap();
        Self::start_with(file, Some(disk), network)
    }

    pub(crate) fn start_on_file(name: &str, network: Network) -> Self {
        let file = Scratch::new(name, (DISK_BLOCKS * BLOCK) as u64);
        Self::start_with(file, None, network)
    }

    fn start_with(
        file: Scratch,
        disk: Option<SimulatedDisk>,
        (network, address, hosts_at): Network,
    ) -> Self {
        let exports = [&*file.export(BLOCK as u32), "mem:1MiB block_size = 4096"];
        let text = format!(
            "[target]\nreactors = 2\n{METRICS}{}[[listener]]\naddress = \"{address}\"\n",
            subsystem(NQN, &exports)
        );
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let length = u64::from(FATAL_BLOCKS) * BLOCK as u64;
        let saboteur = Saboteur::new(Arc::clone(&network), length);
        let target = Target::start(config, vec![Arc::new(saboteur.clone())]).unwrap();
        Self {
            target,
            saboteur,
            disk,
            network,
            hosts_at,
            _file: file,
        }
    }

    fn options(&self, name: &str, io_queues: u16) -> HostOptions {
        let mut hostid = [b'.'; 16];
        hostid
            .iter_mut()
            .zip(name.bytes())
            .for_each(|(to, from)| *to = from);
        HostOptions {
            local: self.hosts_at,
            io_queues,
            hostid,
            timeout: PATIENCE,
            recovery: Recovery::NONE,
            requeue: false,
            kato_ms: 0,
            ..HostOptions::new(
                self.target.addresses()[0],
                nqn(NQN),
                Identity::named(host_nqn(name)),
            )
        }
    }

    fn connect(&self, options: HostOptions) -> Host {
        Host::connect(&*self.network, options).unwrap()
    }

    pub(crate) fn try_connect_once(&self, name: &str) -> Result<Host, HostError> {
        Host::connect(&*self.network, self.options(name, 1))
    }

    pub(crate) fn connect_apart(&self, name: &str) -> Host {
        let admin = |n: usize| self.connect(self.options(&format!("filler-{n}"), 0));
        let mut fillers: Vec<_> = (0..5).map(|n| Some(admin(n))).collect();
        for n in [1, 3] {
            fillers[n].take().unwrap().shutdown().unwrap();
        }
        self.until_controllers(3);
        let host = self.connect(self.options(name, 1));
        for filler in fillers.into_iter().flatten() {
            filler.shutdown().unwrap();
        }
        self.until_controllers(1);
        host
    }

    pub(crate) fn connect_once(&self, name: &str) -> Host {
        self.connect(self.options(name, 1))
    }

    /// Connects a host like `connect_once`, but this host reconnects after a loss.
    pub(crate) fn connect_back(&self, name: &str) -> Host {
        self.connect(self.coming_back(name, 1))
    }

    /// Connects a host that reconnects and has a queue on each reactor, if the hosts of
    /// `connect_apart` and `connect_back` are connected.
    pub(crate) fn connect_torn(&self, name: &str) -> Host {
        self.connect(self.coming_back(name, 2))
    }

    fn coming_back(&self, name: &str, io_queues: u16) -> HostOptions {
        HostOptions {
            recovery: Recovery {
                reconnect_delay: Duration::from_millis(50),
                ..Recovery::default()
            },
            requeue: true,
            ..self.options(name, io_queues)
        }
    }

    pub(crate) fn until_controllers(&self, count: u64) {
        let name = "cairn_subsystem_controllers";
        self.until("fewer controllers", || {
            self.scrape().count(name, &[("subsystem", NQN)]) == count
        });
    }

    pub(crate) fn disk(&self) -> &SimulatedDisk {
        self.disk.as_ref().unwrap()
    }

    pub(crate) fn reactors_of(&self, name: &str) -> Vec<u64> {
        let page = self.scrape();
        let host = host_nqn(name).to_string();
        let mut queues: Vec<(u64, u64)> = page
            .labels()
            .filter(|(metric, labels)| {
                *metric == "cairn_connection_info" && labels.get("host_nqn") == Some(&host)
            })
            .map(|(_, labels)| {
                (
                    labels["qid"].parse().unwrap(),
                    labels["reactor"].parse().unwrap(),
                )
            })
            .collect();
        queues.sort_unstable();
        queues.into_iter().map(|(_, reactor)| reactor).collect()
    }

    fn scrape(&self) -> Exposition {
        Exposition::scrape(self.target.metrics_address().unwrap())
    }

    fn of_reactor(&self, metric: &str, reactor: usize) -> u64 {
        let reactor = reactor.to_string();
        self.scrape().count(metric, &[("reactor", &reactor)])
    }

    pub(crate) fn panics(&self, reactor: usize) -> u64 {
        self.of_reactor("cairn_reactor_panics_total", reactor)
    }

    pub(crate) fn device_faults(&self) -> u64 {
        let labels = [("event", "device_fault")];
        self.scrape().count("cairn_rdma_qp_events_total", &labels)
    }

    pub(crate) fn separate_hosts(&mut self) {
        self.network = Arc::new(Soft::default());
    }

    pub(crate) fn control_panics(&self, part: &str) -> u64 {
        self.scrape().count("cairn_panics_total", &[("part", part)])
    }

    pub(crate) fn orphans(&self, reactor: usize) -> u64 {
        self.of_reactor("cairn_reactor_orphaned_commands", reactor)
    }

    pub(crate) fn queue_pairs(&self) -> u64 {
        let of = |reactor| self.of_reactor("cairn_reactor_queue_pairs", reactor);
        of(0) + of(1)
    }

    pub(crate) fn is_at_rest(&self, reactor: usize) -> bool {
        let gauges = [
            "cairn_reactor_requests",
            "cairn_reactor_buffer_used_bytes",
            "cairn_reactor_orphaned_commands",
        ];
        gauges
            .iter()
            .all(|gauge| self.of_reactor(gauge, reactor) == 0)
    }

    pub(crate) fn in_progress(&self, nsid: u32) -> u64 {
        let labels = [("subsystem", NQN), ("nsid", &*nsid.to_string())];
        self.scrape().count("cairn_namespace_in_progress", &labels)
    }

    pub(crate) fn until(&self, what: &str, mut reached: impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !reached() {
            assert!(Instant::now() < end, "{what} did not come about");
            thread::sleep(Duration::from_millis(5));
        }
    }
}
