//! Fixtures for tests with an in-process target.

use std::fs::File;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use cairn_config::{Config, Flags};
use cairn_initiator::{Host, HostError, HostOptions, Identity, Recovery};
use cairn_rdma::Provider;
use cairn_rdma::loopback::Loopback;
use cairn_roce::Soft;
use cairn_target::{ReloadError, Target};
use nvme_proto::wire::Nqn;

use crate::exposition::Exposition;

/// Environment variable; if "soft", targets use user-space RoCE instead of loopback.
pub const PROVIDER_VARIABLE: &str = "CAIRN_TEST_PROVIDER";

const HOSTS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));

/// NQN of the subsystem of [`TestTarget::with_namespaces`].
pub const NQN: &str = "nqn.2026-01.org.example:disks";

/// TOML that enables the metrics server for [`TestTarget::scrape`].
pub const METRICS: &str = "[metrics]\nlisten = \"127.0.0.1:0\"\n";

#[derive(Debug)]
pub struct TestTarget {
    target: Target,
    network: Network,
}

#[derive(Debug)]
enum Network {
    Loopback(Arc<Loopback>),
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

    fn hosts(&self) -> Option<IpAddr> {
        match self {
            Self::Loopback(_) => Some(HOSTS),
            Self::Soft(..) => None,
        }
    }

    fn listener(&self) -> String {
        let address = match self {
            Self::Loopback(_) => Ipv4Addr::new(192, 0, 2, 1),
            Self::Soft(_, address) => *address,
        };
        format!("[[listener]]\naddress = \"{address}\"\nprovider = \"auto\"\n")
    }
}

/// Returns a loopback address unused by other tests, so that its RoCE port is free.
#[must_use]
pub fn own_loopback_address() -> Ipv4Addr {
    static NEXT: AtomicU8 = AtomicU8::new(2);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, high, low, NEXT.fetch_add(1, Ordering::Relaxed))
}

impl TestTarget {
    #[must_use]
    pub fn start(toml: &str) -> Self {
        Self::start_as(toml, "")
    }

    #[must_use]
    pub fn start_as(toml: &str, listener: &str) -> Self {
        Self::start_on(Network::chosen(), toml, listener)
    }

    #[must_use]
    pub fn start_on_soft(soft: Soft, toml: &str) -> Self {
        Self::start_on_soft_as(soft, toml, "")
    }

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

    /// Starts a target with the subsystem [`NQN`], open to all hosts, and namespaces 1, 2, ...
    #[must_use]
    pub fn with_namespaces(exports: &[&str]) -> Self {
        Self::start(&subsystem(NQN, exports))
    }

    pub fn reload(&self, toml: &str) {
        self.reload_as(toml, "");
    }

    pub fn reload_as(&self, toml: &str, listener: &str) {
        self.try_reload_as(toml, listener)
            .unwrap_or_else(|error| panic!("the target does not reload: {error}"));
    }

    pub fn try_reload_as(&self, toml: &str, listener: &str) -> Result<(), ReloadError> {
        self.target.reload(config(toml, &self.network, listener))
    }

    /// Reloads the configuration while polling `host`.
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

    #[must_use]
    pub fn provider(&self) -> Arc<dyn Provider> {
        self.network.provider()
    }

    /// Returns the loopback provider, unless targets use user-space RoCE.
    #[must_use]
    pub fn loopback(&self) -> Option<&Loopback> {
        match &self.network {
            Network::Loopback(loopback) => Some(loopback),
            Network::Soft(..) => None,
        }
    }

    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        self.target.addresses()[0]
    }

    #[must_use]
    pub fn metrics_address(&self) -> SocketAddr {
        let address = self.target.metrics_address();
        address.expect("the target serves metrics")
    }

    #[must_use]
    pub fn scrape(&self) -> Exposition {
        Exposition::scrape(self.metrics_address())
    }

    /// Returns options for the host `name`, without reconnects, so that a test notices a lost
    /// connection.
    #[must_use]
    pub fn options(&self, name: &str) -> HostOptions {
        let patience = Duration::from_secs(20);
        HostOptions {
            local: self.network.hosts(),
            timeout: patience,
            recovery: Recovery::NONE,
            hostid: host_id(name),
            kato_ms: 0,
            ..HostOptions::new(self.remote(), nqn(NQN), Identity::named(host_nqn(name)))
        }
    }

    /// Connects a host with one I/O queue.
    #[must_use]
    pub fn connect(&self, name: &str) -> Host {
        self.try_connect(self.options(name))
            .unwrap_or_else(|error| panic!("{name} cannot connect: {error}"))
    }

    pub fn try_connect(&self, options: HostOptions) -> Result<Host, HostError> {
        Host::connect(&*self.provider(), options)
    }

    pub fn stop(self) {
        self.try_stop()
            .unwrap_or_else(|error| panic!("the target does not stop: {error}"));
    }

    pub fn try_stop(self) -> Result<(), String> {
        self.target.stop()
    }
}

/// Temporary file, initially zero, deleted on drop.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates the file in the temporary folder; `name` must be unique within the process.
    #[must_use]
    pub fn new(name: &str, length: u64) -> Self {
        Self::in_folder(&std::env::temp_dir(), name, length)
    }

    /// Creates the file in /dev/shm if present, else in the temporary folder.
    #[must_use]
    pub fn in_memory(name: &str, length: u64) -> Self {
        let shared_memory = Path::new("/dev/shm");
        if shared_memory.is_dir() {
            Self::in_folder(shared_memory, name, length)
        } else {
            Self::new(name, length)
        }
    }

    /// Creates the file and writes all blocks, so that later writes allocate none.
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

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

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

/// Returns the TOML of a subsystem open to all hosts.
#[must_use]
pub fn subsystem(nqn: &str, exports: &[&str]) -> String {
    let mut toml = format!("[[subsystem]]\nnqn = \"{nqn}\"\nallow_any_host = true\n");
    for (index, export) in exports.iter().enumerate() {
        toml += &namespace(index as u32 + 1, export);
    }
    toml
}

/// Returns the TOML of a namespace for the preceding subsystem. `export` may contain further keys:
/// `"mem:1MiB block_size = 4096"`.
#[must_use]
pub fn namespace(nsid: u32, export: &str) -> String {
    let (export, more) = export.split_once(' ').unwrap_or((export, ""));
    format!("[[subsystem.namespace]]\nnsid = {nsid}\nexport = \"{export}\"\n{more}\n")
}

#[must_use]
pub fn host_nqn(name: &str) -> Nqn {
    nqn(&format!("nqn.2026-01.org.example:host-{name}"))
}

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
    let target = if toml.contains("[target]") {
        ""
    } else {
        "[target]\nreactors = 1\n"
    };
    let text = format!("{target}{toml}\n{}{listener}\n", network.listener());
    Config::parse("test", &text, &Flags::default())
        .unwrap_or_else(|error| panic!("the test's configuration is wrong:\n{error}"))
}
