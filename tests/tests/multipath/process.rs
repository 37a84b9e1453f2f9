use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cairn_initiator::{HostOptions, Identity, Recovery};
use cairn_tests::harness::{NQN, host_nqn, nqn, own_loopback_address};

#[derive(Debug)]
pub(crate) struct Process {
    address: Ipv4Addr,
    port_id: u16,
    namespace: String,
    config: PathBuf,
    child: Option<Child>,
}

impl Process {
    pub(crate) fn start(port_id: u16, namespace: &str) -> Self {
        let address = own_loopback_address();
        let config = std::env::temp_dir().join(format!("cairn-{address}.toml"));
        let mut process = Self {
            address,
            port_id,
            namespace: namespace.to_owned(),
            config,
            child: None,
        };
        process.configure("optimized");
        process.resume();
        process
    }

    fn configure(&self, ana: &str) {
        let Self {
            address,
            port_id,
            namespace,
            ..
        } = self;
        let (first, last) = (100 * port_id, 100 * port_id + 99);
        let mut toml = String::from("[target]\nreactors = 1\nprovider = \"soft\"\n");
        writeln!(
            toml,
            "[[listener]]\naddress = \"{address}\"\nport_id = {port_id}\nana = \"{ana}\"\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             controller_ids = \"{first}-{last}\"\n\
             [[subsystem.namespace]]\nnsid = 1\n{namespace}"
        )
        .unwrap();
        std::fs::write(&self.config, toml).unwrap();
    }

    pub(crate) fn resume(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let mut child = Command::new(env!("CARGO_BIN_EXE_cairn-target-process"))
            .args(["serve", "--log", "warn", "--config"])
            .arg(&self.config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut lines = stdout.lines().map(Result::unwrap);
        assert!(
            lines.any(|line| line == "ready"),
            "the target at {} does not start",
            self.address
        );
        self.child = Some(child);
    }

    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub(crate) fn set_ana(&self, state: &str) {
        self.configure(state);
        self.signal("-HUP");
    }

    pub(crate) fn pause(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn unpause(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("it runs").id();
        let sent = Command::new("kill")
            .args([signal, &pid.to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    pub(crate) fn options(&self) -> HostOptions {
        let remote = SocketAddr::from((self.address, 4420));
        HostOptions {
            timeout: Duration::from_secs(5),
            kato_ms: 1000,
            recovery: Recovery {
                ctrl_loss_tmo: Some(Duration::from_secs(100)),
                reconnect_delay: Duration::from_millis(200),
                fast_io_fail_tmo: None,
            },
            ..HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn("multipath")))
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
        let _ = std::fs::remove_file(&self.config);
    }
}
