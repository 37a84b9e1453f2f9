//! A target in this process, and hosts that reach it over the loopback, or over
//! user-space RoCE.

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use cairn_config::{Config, Flags};
use cairn_initiator::{Host, HostError, HostOptions, Recovery};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_roce::Soft;
use cairn_target::{ReloadError, Target};
use nvme_proto::wire::Nqn;

use crate::exposition::Exposition;

/// Set to "soft", it has every [`TestTarget`] listen by user-space RoCE on the
/// loopback interface instead of the in-process loopback.
pub const PROVIDER_VARIABLE: &str = "CAIRN_TEST_PROVIDER";

/// Where every host on the in-process loopback is: on another device than the
/// target.
const HOSTS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// The subsystem of [`TestTarget::with_namespaces`].
pub const NQN: &str = "nqn.2026-01.org.example:disks";

/// The configuration's lines for [`TestTarget::scrape`].
pub const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:0\"\n";

/// A running target with one listener.
#[derive(Debug)]
pub struct TestTarget {
    // Before the network, which it uses until it has stopped.
    target: Target,
    network: Network,
}

/// What a test's target and hosts talk over. Each test has one of its own.
#[derive(Debug)]
enum Network {
    Loopback(Arc<Loopback>),
    /// And the target's address, which a reload must not change.
    Soft(Arc<Soft>, Ipv4Addr),
}

impl Network {
    fn chosen() -> Self {
        match std::env::var(PROVIDER_VARIABLE).as_deref() {
            Err(_) | Ok("loopback") => Self::Loopback(Arc::default()),
            Ok("soft") => Self::Soft(Arc::default(), own_loopback_address()),
            Ok(other) => panic!("{PROVIDER_VARIABLE} is {other}, not loopback or soft"),
        }
    }

    fn provider(&self) -> Arc<dyn Provider> {
        match self {
            Self::Loopback(loopback) => Arc::clone(loopback) as _,
            Self::Soft(soft, _) => Arc::clone(soft) as _,
        }
    }

    /// Where hosts connect from.
    fn hosts(&self) -> Option<IpAddr> {
        match self {
            Self::Loopback(_) => Some(HOSTS),
            Self::Soft(..) => None,
        }
    }

    /// The configuration's lines of a listener.
    fn listener(&self) -> String {
        let address = match self {
            Self::Loopback(_) => Ipv4Addr::new(192, 0, 2, 1),
            Self::Soft(_, address) => *address,
        };
        format!("[[listener]]\naddress = \"{address}\"\nprovider = \"auto\"\n")
    }
}

/// An address of the loopback interface that no other test uses, and with it a
/// UDP port for RoCE.
#[must_use]
pub fn own_loopback_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Ordering::Relaxed))
}

impl TestTarget {
    /// Starts a target with this configuration and a listener.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(toml: &str) -> Self {
        Self::start_as(toml, "")
    }

    /// The same, and more lines of the listener.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_as(toml: &str, listener: &str) -> Self {
        Self::start_on(Network::chosen(), toml, listener)
    }

    /// As [`start`](Self::start), over user-space RoCE whatever was chosen for the other tests.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_on_soft(soft: Soft, toml: &str) -> Self {
        Self::start_on_soft_as(soft, toml, "")
    }

    /// The same, and more lines of the listener.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_on_soft_as(soft: Soft, toml: &str, listener: &str) -> Self {
        let network = Network::Soft(Arc::new(soft), own_loopback_address());
        Self::start_on(network, toml, listener)
    }

    fn start_on(network: Network, toml: &str, listener: &str) -> Self {
        let config = config(toml, &network, listener);
        let target = Target::start(config, vec![network.provider()]);
        Self {
            target: target.unwrap_or_else(|error| panic!("the target does not start: {error}")),
            network,
        }
    }

    /// A target with one subsystem, [`NQN`], open to every host, and these
    /// exports as its namespaces 1, 2, ...
    #[must_use]
    pub fn with_namespaces(exports: &[&str]) -> Self {
        Self::start(&subsystem(NQN, exports))
    }

    /// Changes the configuration.
    ///
    /// # Panics
    /// If the target refuses it.
    pub fn reload(&self, toml: &str) {
        self.reload_as(toml, "");
    }

    /// The same, and more lines of the listener.
    ///
    /// # Panics
    /// If the target refuses it.
    pub fn reload_as(&self, toml: &str, listener: &str) {
        self.try_reload_as(toml, listener)
            .unwrap_or_else(|error| panic!("the target does not reload: {error}"));
    }

    /// Changes the configuration, if the target takes it.
    ///
    /// # Errors
    /// Why the old one stays.
    pub fn try_reload_as(&self, toml: &str, listener: &str) -> Result<(), ReloadError> {
        self.target.reload(config(toml, &self.network, listener))
    }

    /// Changes the configuration while `host` is polled, as a program of its own would go on meanwhile.
    ///
    /// # Errors
    /// The target refuses the configuration, or a disk keeps commands from before it.
    ///
    /// # Panics
    /// The thread that changes it panics.
    pub fn try_reload_beside(&self, host: &mut Host, toml: &str) -> Result<(), ReloadError> {
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| self.try_reload_as(toml, ""));
            while !reload.is_finished() {
                host.poll();
                std::thread::yield_now();
            }
            reload.join().unwrap()
        })
    }

    /// The network that the target listens on.
    #[must_use]
    pub fn provider(&self) -> Arc<dyn Provider> {
        self.network.provider()
    }

    /// The in-process loopback, if that is the network: its devices can be
    /// pulled out.
    #[must_use]
    pub fn loopback(&self) -> Option<&Loopback> {
        match &self.network {
            Network::Loopback(loopback) => Some(loopback),
            Network::Soft(..) => None,
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.target.addresses()[0]
    }

    /// Where it serves metrics.
    ///
    /// # Panics
    /// If its configuration has no `[metrics]`.
    #[must_use]
    pub fn metrics_address(&self) -> SocketAddr {
        let address = self.target.metrics_address();
        address.expect("the target serves metrics")
    }

    /// Its metrics as they are now.
    ///
    /// # Panics
    /// If its configuration has no `[metrics]`, or Prometheus would not take them.
    #[must_use]
    pub fn scrape(&self) -> Exposition {
        Exposition::scrape(self.metrics_address())
    }

    /// How the host `name` connects to [`NQN`]. Once it is lost it stays so, lest a
    /// test does not notice.
    #[must_use]
    pub fn options(&self, name: &str) -> HostOptions {
        let patience = Duration::from_secs(20);
        HostOptions {
            local: self.network.hosts(),
            timeout: patience,
            recovery: Recovery::NONE,
            hostid: host_id(name),
            ..HostOptions::new(self.remote(), nqn(NQN), host_nqn(name))
        }
    }

    /// A host of this name, with one I/O queue.
    ///
    /// # Panics
    /// If it cannot connect.
    #[must_use]
    pub fn connect(&self, name: &str) -> Host {
        self.try_connect(self.options(name))
            .unwrap_or_else(|error| panic!("{name} cannot connect: {error}"))
    }

    /// A host, if it may.
    ///
    /// # Errors
    /// It cannot connect.
    pub fn try_connect(&self, options: HostOptions) -> Result<Host, HostError> {
        Host::connect(&*self.provider(), options)
    }

    /// Stops it.
    ///
    /// # Panics
    /// If something does not end as it should.
    pub fn stop(self) {
        self.try_stop()
            .unwrap_or_else(|error| panic!("the target does not stop: {error}"));
    }

    /// Stops it.
    ///
    /// # Errors
    /// What did not end as it should.
    pub fn try_stop(self) -> Result<(), String> {
        self.target.stop()
    }
}

/// A file of so many bytes, all zero, that goes away with its owner.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it, in the place for temporary files. Within a process no two have
    /// one name.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(name: &str, length: u64) -> Self {
        Self::in_folder(&std::env::temp_dir(), name, length)
    }

    /// As [`new`](Self::new), but where the system has a file system in memory,
    /// there: for tests that are about everything but the disk.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn in_memory(name: &str, length: u64) -> Self {
        let shared_memory = Path::new("/dev/shm");
        if shared_memory.is_dir() {
            Self::in_folder(shared_memory, name, length)
        } else {
            Self::new(name, length)
        }
    }

    /// As [`new`](Self::new), and every block is written: later writes allocate nothing.
    ///
    /// # Panics
    /// As [`new`](Self::new).
    #[must_use]
    pub fn written(name: &str, length: u64) -> Self {
        let scratch = Self::new(name, length);
        let file = File::options().write(true).open(scratch.path());
        let written = file.and_then(|mut file| {
            file.write_all(&vec![0; length as usize])?;
            file.sync_all()
        });
        written.unwrap_or_else(|error| panic!("{}: {error}", scratch.path().display()));
        scratch
    }

    fn in_folder(folder: &Path, name: &str, length: u64) -> Self {
        let file_name = format!("cairn-{}-{name}", std::process::id());
        let path = folder.join(file_name);
        let file = File::create(&path).and_then(|file| file.set_len(length));
        file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// It as an export, for [`namespace`].
    #[must_use]
    pub fn export(&self, block_size: u32) -> String {
        format!("{} block_size = {block_size}", self.0.display())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The lines of a subsystem that is open to every host.
#[must_use]
pub fn subsystem(nqn: &str, exports: &[&str]) -> String {
    let mut toml = format!("[[subsystem]]\nnqn = \"{nqn}\"\nallow_any_host = true\n");
    for (index, export) in exports.iter().enumerate() {
        toml += &namespace(index as u32 + 1, export);
    }
    toml
}

/// The lines of a namespace, as a part of the subsystem before. An export may
/// bring more lines, as in `"mem:1MiB block_size = 4096"`.
#[must_use]
pub fn namespace(nsid: u32, export: &str) -> String {
    let (export, more) = export.split_once(' ').unwrap_or((export, ""));
    format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"{export}\"\n{more}\n")
}

/// A host's name.
#[must_use]
pub fn host_nqn(name: &str) -> Nqn {
    nqn(&format!("nqn.2026-01.org.example:host-{name}"))
}

/// A name that is known to be right.
///
/// # Panics
/// If it is not.
#[must_use]
pub fn nqn(name: &str) -> Nqn {
    Nqn::parse(name).unwrap_or_else(|error| panic!("{name} is no NQN: {error:?}"))
}

fn host_id(name: &str) -> [u8; 16] {
    let mut id = *b"................";
    for (to, from) in id.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    id
}

fn config(toml: &str, network: &Network, listener: &str) -> Config {
    // One reactor is enough unless a test is about several, and keeps a run of
    // all tests on a small machine quick.
    let target = if toml.contains("[target]") {
        ""
    } else {
        "[target]\nreactors = 1\n"
    };
    let text = format!("{target}{toml}\n{}{listener}\n", network.listener());
    Config::parse("test", &text, &Flags::default())
        .unwrap_or_else(|error| panic!("the test's configuration is wrong:\n{error}"))
}
