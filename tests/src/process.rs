//! Targets and other programs in child processes.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cairn_initiator::{HostOptions, Identity, Recovery};
use rustix::process::{Pid, Signal, kill_process};

use crate::exposition::Exposition;
use crate::harness::{NQN, host_nqn, nqn, own_loopback_address};

const PATIENCE: Duration = Duration::from_secs(60);

#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().expect("it is in a folder");
    let folder = folder.parent().filter(|_| folder.ends_with("deps"));
    folder
        .unwrap_or(test.parent().expect("it is in a folder"))
        .join(name)
}

pub fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_child(child);
    kill_process(pid, signal).expect("the process is there until it is waited for");
}

/// Child process that runs cairn-target over user-space RoCE.
#[derive(Debug)]
pub struct TargetProcess {
    address: Ipv4Addr,
    keys: String,
    port_id: u16,
    controller_ids: Option<(u16, u16)>,
    namespaces: String,
    config: PathBuf,
    child: Option<Child>,
}

impl TargetProcess {
    /// Starts one of several targets of the subsystem [`NQN`]. Each port ID has a separate range of
    /// CNTLIDs.
    ///
    /// `namespaces` is TOML from [`namespace`](crate::harness::namespace).
    #[must_use]
    pub fn start(port_id: u16, namespaces: &str) -> Self {
        let controller_ids = (100 * port_id, 100 * port_id + 99);
        Self::start_as("", port_id, Some(controller_ids), namespaces)
    }

    /// Starts a single target, with the default range of CNTLIDs.
    #[must_use]
    pub fn start_alone(namespaces: &str) -> Self {
        Self::start_with("", namespaces)
    }

    /// Starts a single target; `keys` are more TOML lines for the table `[target]`.
    #[must_use]
    pub fn start_with(keys: &str, namespaces: &str) -> Self {
        Self::start_as(keys, 1, None, namespaces)
    }

    fn start_as(
        keys: &str,
        port_id: u16,
        controller_ids: Option<(u16, u16)>,
        namespaces: &str,
    ) -> Self {
        let address = own_loopback_address();
        let config = std::env::temp_dir().join(format!("cairn-{address}.toml"));
        let mut process = Self {
            address,
            keys: keys.to_owned(),
            port_id,
            controller_ids,
            namespaces: namespaces.to_owned(),
            config,
            child: None,
        };
        process.write_config();
        process.restart();
        process
    }

    fn write_config(&self) {
        let Self {
            address, port_id, ..
        } = self;
        let controller_ids = self.controller_ids.map_or(String::new(), |(first, last)| {
            format!("controller_ids = \"{first}-{last}\"")
        });
        let mut toml = format!(
            "[target]\nreactors = 1\nprovider = \"soft\"\n{}\n",
            self.keys
        );
        let socket = self.config.with_extension("sock");
        writeln!(
            toml,
            "[control]\nsocket = \"{}\"\n[metrics]\nlisten = \"{address}:9464\"\n\
             [[listener]]\naddress = \"{address}\"\nport_id = {port_id}\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             {controller_ids}\n{}",
            socket.display(),
            self.namespaces
        )
        .expect("a string takes all");
        std::fs::write(&self.config, toml).expect("there is a place for temporary files");
    }

    /// Starts the target again, and waits until hosts can connect.
    pub fn restart(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let mut child = Command::new(program("cairn-target-process"))
            .args(["serve", "--log", "warn", "--config"])
            .arg(&self.config)
            .stdout(Stdio::piped())
            .spawn()
            .expect("cairn-target-process is beside the test");
        let stdout = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let (said, ready) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        self.child = Some(child);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let line = ready.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            match line {
                Ok(line) if line == "ready" => break,
                Ok(_) => {}
                Err(_) => panic!("the target at {} does not start", self.address),
            }
        }
    }

    pub fn reload(&mut self, namespaces: &str) {
        namespaces.clone_into(&mut self.namespaces);
        self.write_config();
        self.reload_unchanged();
    }

    pub fn reload_unchanged(&self) {
        signal(self.child(), Signal::HUP);
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it was not waited for");
        child.wait().expect("it was not waited for");
    }

    pub fn pause(&self) {
        signal(self.child(), Signal::STOP);
    }

    /// True if each thread is stopped, in uninterruptible sleep, or ended.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid()));
        threads.expect("it runs").flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat"));
            let stat = stat.unwrap_or_default();
            let state = stat
                .rsplit(") ")
                .next()
                .and_then(|rest| rest.chars().next());
            matches!(state, None | Some('T' | 'D' | 'Z'))
        })
    }

    pub fn go_on(&self) {
        signal(self.child(), Signal::CONT);
    }

    /// Sends SIGTERM and waits for the end of the process; `None` if it still runs after
    /// `patience`.
    pub fn terminate(&mut self, patience: Duration) -> Option<ExitStatus> {
        signal(self.child(), Signal::TERM);
        let deadline = Instant::now() + patience;
        let child = self.child.as_mut().expect("it runs");
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait().expect("it was not waited for") {
                self.child = None;
                return Some(status);
            }
            thread::sleep(Duration::from_millis(20));
        }
        None
    }

    pub fn runs(&mut self) -> bool {
        let child = self.child.as_mut().expect("it was started");
        child.try_wait().expect("it was not waited for").is_none()
    }

    fn child(&self) -> &Child {
        self.child.as_ref().expect("it runs")
    }

    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    #[must_use]
    pub fn scrape(&self) -> Exposition {
        Exposition::scrape(SocketAddr::from((self.address, 9464)))
    }

    /// Returns options for the host `name`, with a short KATO and reconnect delay.
    #[must_use]
    pub fn options(&self, name: &str) -> HostOptions {
        let remote = SocketAddr::from((self.address, 4420));
        HostOptions {
            timeout: Duration::from_secs(20),
            kato_ms: 1000,
            recovery: Recovery {
                ctrl_loss_tmo: Some(Duration::from_secs(100)),
                reconnect_delay: Duration::from_millis(200),
                fast_io_fail_tmo: None,
            },
            ..HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn(name)))
        }
    }
}

impl Drop for TargetProcess {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.config);
        let Some(mut child) = self.child.take() else {
            return;
        };
        let _ = child.kill();
        let deadline = Instant::now() + Duration::from_secs(2);
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
