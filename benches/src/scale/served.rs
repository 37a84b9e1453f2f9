//! Target process, with its memory and processor time.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

pub(crate) const NQN: &str = "nqn.2026-01.org.example:scale";
pub(crate) const NAMESPACE_BYTES: u64 = 4 << 20;
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 71, 0, 1);
const PORT: u16 = 4420;

#[derive(Debug)]
pub(crate) struct Program(PathBuf);

impl Program {
    pub(crate) fn new(path: Option<PathBuf>) -> Result<Self> {
        let path = match path {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("cairn-target"),
        };
        ensure!(
            path.is_file(),
            "{} is not there: build it (cargo build --release -p cairn-target) or say where it is \
             by --target",
            path.display()
        );
        Ok(Self(path))
    }
}

#[derive(Debug)]
pub(crate) struct Served {
    child: Child,
    config: tempfile::NamedTempFile,
    pub(crate) started_in: Duration,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) cpu: Duration,
    pub(crate) sleeps: u64,
}

impl Served {
    pub(crate) fn start(program: &Program, more: &str) -> Result<Self> {
        let mut config = tempfile::NamedTempFile::new()?;
        write!(
            config,
            "[target]\nprovider = \"soft\"\nlog = \"warn\"\nreactors = 1\n{more}\n\
             [[listener]]\naddress = \"{ADDRESS}\"\nport = {PORT}\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:{NAMESPACE_BYTES}\"\n\
             block_size = 4096\n"
        )?;
        config.flush()?;
        let begun = Instant::now();
        let child = on_core(Core::Last, || {
            Command::new(&program.0)
                .arg("serve")
                .arg("--config")
                .arg(config.path())
                .stdout(Stdio::piped())
                .spawn()
        })?;
        let mut served = Self {
            child,
            config,
            started_in: Duration::ZERO,
        };
        let stdout = served.child.stdout.take().expect("it is piped");
        for line in BufReader::new(stdout).lines() {
            if line? == "ready" {
                served.started_in = begun.elapsed();
                return Ok(served);
            }
        }
        let why = served.child.wait()?;
        let config = served.config.path().display();
        Err(anyhow!(
            "the target ended before it was ready ({why}); its configuration: {config}"
        ))
    }

    pub(crate) fn remote() -> SocketAddr {
        SocketAddr::new(ADDRESS.into(), PORT)
    }

    pub(crate) fn memory(&self) -> Result<u64> {
        self.status("VmRSS:").map(|kib| kib * 1024)
    }

    pub(crate) fn pinned(&self) -> Result<u64> {
        self.status("VmPin:").map(|kib| kib * 1024)
    }

    fn status(&self, key: &str) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        number(&fs::read_to_string(path)?, key)
    }

    pub(crate) fn usage(&self) -> Result<Usage> {
        Usage::of(self.child.id())
    }
}

impl Usage {
    pub(crate) fn of(process: u32) -> Result<Self> {
        let mut usage = Self {
            cpu: Duration::ZERO,
            sleeps: 0,
        };
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let folder = thread?.path();
            let stat = fs::read_to_string(folder.join("schedstat"))?;
            let on_core = stat.split_ascii_whitespace().next();
            let nanos = on_core.and_then(|text| text.parse().ok());
            usage.cpu += Duration::from_nanos(nanos.context("schedstat is not as expected")?);
            let status = fs::read_to_string(folder.join("status"))?;
            usage.sleeps += number(&status, "\nvoluntary_ctxt_switches:")?;
        }
        Ok(usage)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn number(text: &str, key: &str) -> Result<u64> {
    let rest = text.split_once(key).with_context(|| format!("no {key}"))?.1;
    let word = rest.split_ascii_whitespace().next();
    word.and_then(|word| word.parse().ok())
        .with_context(|| format!("no number behind {key}"))
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Core {
    First,
    Last,
}

/// Runs `work`, with its new threads and child processes, on one core.
pub(crate) fn on_core<T, E>(core: Core, work: impl FnOnce() -> Result<T, E>) -> Result<T>
where
    E: Into<anyhow::Error>,
{
    let all = sched_getaffinity(None)?;
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|&core| all.is_set(core));
    let chosen = match core {
        Core::First => allowed.next(),
        Core::Last => allowed.next_back(),
    };
    let mut one = CpuSet::new();
    one.set(chosen.context("no core is allowed")?);
    sched_setaffinity(None, &one)?;
    let done = work();
    sched_setaffinity(None, &all)?;
    done.map_err(Into::into)
}
