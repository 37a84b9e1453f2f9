//! Target process with a control socket, and a temporary folder for its files.

use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use cairn_control::{CallError, Client};
use cairn_initiator::{Host, HostOptions, Identity};
use cairn_roce::Soft;
use cairn_tests::harness::{host_nqn, nqn, own_loopback_address};
use cairn_tests::process::program;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !reached() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        thread::sleep(Duration::from_millis(10));
    }
}

const LOGGED: [&str; 3] = [
    "sh",
    "-c",
    "for last; do log=$last.log; done; exec 2>\"$log\"; exec \"$0\" \"$@\"",
];

pub(crate) const NQN: &str = "nqn.2024-01.com.example:steered";

pub(crate) struct Steered {
    pub(crate) address: Ipv4Addr,
    pub(crate) folder: TempDir,
    child: Child,
}

impl Steered {
    pub(crate) fn start() -> Self {
        Self::start_with("")
    }

    pub(crate) fn start_with(more: &str) -> Self {
        Self::start_as(more, &[], |_, _| String::new())
    }

    pub(crate) fn start_after(last: impl FnOnce(&Path, Ipv4Addr) -> String) -> Self {
        Self::start_as("", &[], last)
    }

    pub(crate) fn start_apart(last: impl FnOnce(&Path, Ipv4Addr) -> String) -> Self {
        let up = "ip link set lo up && exec \"$0\" \"$@\"";
        Self::start_as("", &["unshare", "--net", "sh", "-c", up], last)
    }

    pub(crate) fn start_by(wrapper: &[&str]) -> Self {
        Self::start_as("", wrapper, |_, _| String::new())
    }

    /// Starts a target that logs to a file. `JOURNAL_STREAM` identifies this file if `journal` is
    /// `Some(true)`, and another file if `Some(false)`.
    pub(crate) fn start_logged(journal: Option<bool>) -> Self {
        let stream = match journal {
            None => "",
            Some(true) => "export JOURNAL_STREAM=$(stat -c %d:%i \"$log\");",
            Some(false) => "export JOURNAL_STREAM=1:1;",
        };
        let script = format!(
            "for last; do log=$last.log; done; exec 2>\"$log\"; {stream} exec \"$0\" \"$@\""
        );
        Self::start_as("", &["sh", "-c", &script], |_, _| String::new())
    }

    pub(crate) fn start_logged_after(last: impl FnOnce(&Path, Ipv4Addr) -> String) -> Self {
        Self::start_as("", &LOGGED, last)
    }

    pub(crate) fn start_limited_after(
        files: u32,
        last: impl FnOnce(&Path, Ipv4Addr) -> String,
    ) -> Self {
        let script = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        Self::start_as("", &["sh", "-c", &script], last)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("target.toml.log")).unwrap()
    }

    fn start_as(
        more: &str,
        wrapper: &[&str],
        last: impl FnOnce(&Path, Ipv4Addr) -> String,
    ) -> Self {
        let address = own_loopback_address();
        let folder = tempfile::tempdir().unwrap();
        let toml = format!(
            "# By hand.\n[target]\nreactors = 1\nprovider = \"soft\" # no device\n\n\
             [control]\nsocket = \"{}\"\n{more}\n\
             # The way in.\n[[listener]]\naddress = \"{address}\"\n\n\
             [[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\n\
             [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:4MiB\" # the first\n{}",
            folder.path().join("target.sock").display(),
            last(folder.path(), address),
        );
        let path = folder.path().join("target.toml");
        std::fs::write(&path, toml).unwrap();
        let child = Self::serve(&path, wrapper);
        Self {
            address,
            folder,
            child,
        }
    }

    fn serve(config: &PathBuf, wrapper: &[&str]) -> Child {
        let program = program("cairn-target-process");
        let mut command = match wrapper {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        let mut child = command
            .args(["serve", "--log", "warn", "--config"])
            .arg(config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (said, ready) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        while !ready
            .recv_timeout(PATIENCE)
            .expect("it starts")
            .contains("ready")
        {}
        child
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("target.toml")
    }

    pub(crate) fn text(&self) -> String {
        std::fs::read_to_string(self.config()).unwrap()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("target.sock")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket(), PATIENCE).unwrap()
    }

    #[expect(clippy::needless_pass_by_value, reason = "json! stands in the call")]
    pub(crate) fn call(&self, method: &str, params: Value) -> Result<Value, CallError> {
        self.client().call(method, &params)
    }

    #[expect(clippy::needless_pass_by_value, reason = "json! stands in the call")]
    pub(crate) fn done(&self, method: &str, params: Value) -> Value {
        match self.call(method, params.clone()) {
            Ok(result) => result,
            Err(error) => panic!("{method} {params}: {error}"),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "json! stands in the call")]
    pub(crate) fn refused(&self, method: &str, params: Value) -> i64 {
        match self.call(method, params.clone()) {
            Err(CallError::Refused(error)) => error.code,
            other => panic!("{method} {params}: {other:?}"),
        }
    }

    pub(crate) fn command(&self, args: &[&str]) -> Output {
        Command::new(program("cairn-target-process"))
            .args(args)
            .env("CAIRN_CONTROL", self.socket())
            .output()
            .unwrap()
    }

    pub(crate) fn options(&self, name: &str) -> HostOptions {
        let address = std::net::SocketAddr::from((self.address, 4420));
        HostOptions {
            kato_ms: 0,
            ..HostOptions::new(address, nqn(NQN), Identity::named(host_nqn(name)))
        }
    }

    pub(crate) fn connect(&self, name: &str) -> Host {
        Host::connect(&Soft::default(), self.options(name)).unwrap()
    }

    pub(crate) fn crash(&mut self) {
        self.crash_by(&[]);
    }

    pub(crate) fn crash_logged(&mut self) {
        self.crash_by(&LOGGED);
    }

    /// Calls `change` between the crash and the next start.
    pub(crate) fn crash_logged_around(&mut self, change: impl FnOnce()) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        change();
        self.child = Self::serve(&self.config(), &LOGGED);
    }

    fn crash_by(&mut self, wrapper: &[&str]) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::serve(&self.config(), wrapper);
    }
}

impl Drop for Steered {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
