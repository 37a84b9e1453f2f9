//! Root shell on this machine or, over ssh, on the peer. It runs scripts, and reverts their changes when this process or
//! the connection ends, even by SIGKILL or without a packet (`agent.sh`).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::vm::process::{command, output, tail};

const AGENT: &str = include_str!("agent.sh");
/// Interval of messages to the peer. Without one for `PATIENCE_S` seconds it reverts its changes.
const BEAT: Duration = Duration::from_secs(5);
const PATIENCE_S: u32 = 30;
/// Maximum time of a reply: a script may run for 60 seconds, and the first reply may follow the
/// reversal of an earlier run.
const REPLY: Duration = Duration::from_secs(150);

// Distinct, because the peer may be this machine.
const STATE_HERE: &str = "/run/cairn-hardware.host";
const STATE_OF_PEER: &str = "/run/cairn-hardware.peer";

type Input = Arc<Mutex<Option<ChildStdin>>>;

pub(super) struct Shell {
    name: String,
    peer: Option<String>,
    process: Child,
    input: Input,
    replies: Receiver<String>,
    log: PathBuf,
    folder: String,
    /// Keeps the thread that sends to the peer.
    _beat: Sender<()>,
}

impl Shell {
    pub(super) fn here(out: &Path) -> Result<Self> {
        let mut bash = command("setsid");
        bash.args(["bash", "-s"]);
        Self::start(
            "this machine",
            None,
            bash,
            STATE_HERE,
            &out.join("shell.log"),
            || (),
        )
    }

    /// `lost` runs when the connection ends before the shell is dropped.
    pub(super) fn on_peer(
        peer: &str,
        out: &Path,
        lost: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let log = out.join("ssh.log");
        Self::start(peer, Some(peer), ssh(peer), STATE_OF_PEER, &log, lost)
    }

    fn start(
        name: &str,
        peer: Option<&str>,
        mut command: Command,
        state: &str,
        log: &Path,
        lost: impl FnOnce() + Send + 'static,
    ) -> Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            .spawn()
            .context("cannot run setsid")?;
        let stdin = process.stdin.take().context("stdin is a pipe")?;
        let stdout = process.stdout.take().context("stdout is a pipe")?;
        let input: Input = Arc::new(Mutex::new(Some(stdin)));
        let (sender, replies) = mpsc::channel();
        let kept = Arc::clone(&input);
        thread::spawn(move || {
            listen(stdout, &sender);
            if lock(&kept).is_some() {
                lost();
            }
        });
        let (beat, ended) = mpsc::channel();
        if peer.is_some() {
            let input = Arc::clone(&input);
            thread::spawn(move || send_beats(&input, &ended));
        }
        let mut shell = Self {
            name: name.to_owned(),
            peer: peer.map(str::to_owned),
            process,
            input,
            replies,
            log: log.to_owned(),
            folder: String::new(),
            _beat: beat,
        };
        shell.greet(state)?;
        Ok(shell)
    }

    fn greet(&mut self, state: &str) -> Result<()> {
        let patience = self.peer.as_ref().map(|_| PATIENCE_S.to_string());
        let patience = patience.unwrap_or_default();
        let agent = format!("{{ STATE={state} PATIENCE={patience}\n{AGENT}exit; }}\n");
        self.send(agent.as_bytes())?;
        self.receive()?;
        let (status, said) = self.reply()?;
        ensure!(status == 0, "{}: {said}", self.name);
        let (folder, leftover) = said.split_once(' ').context("an unknown greeting")?;
        folder.clone_into(&mut self.folder);
        if !leftover.is_empty() {
            println!("{}: reverted the changes of an earlier run", self.name);
        }
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Folder for logs and programs on that machine, removed at the end.
    pub(super) fn folder(&self) -> &str {
        &self.folder
    }

    /// Runs a script for at most a minute and returns its output.
    pub(super) fn run(&self, script: &str) -> Result<String> {
        let (status, said) = self.ask("run", script)?;
        match status {
            0 => Ok(said),
            124 => bail!("{}: no end after 60 s: {script}", self.name),
            _ => bail!(
                "{}: {script} ended with {status}: {}",
                self.name,
                said.trim()
            ),
        }
    }

    /// Adds a line of shell that reverts the caller's next step.
    pub(super) fn undo(&self, line: &str) -> Result<()> {
        assert!(!line.contains('\n'), "one step is one line: {line}");
        let (status, _) = self.ask("undo", line)?;
        ensure!(status == 0, "{} cannot write below /run", self.name);
        Ok(())
    }

    /// Starts a process that is killed when the shell ends, and returns its PID.
    pub(super) fn spawn(&self, script: &str) -> Result<u32> {
        let (_, pid) = self.ask("start", script)?;
        pid.parse().context("the shell sent no PID")
    }

    pub(super) fn is_running(&self, pid: u32) -> Result<bool> {
        let state = format!("sed 's/.*) //; s/ .*//' /proc/{pid}/stat 2> /dev/null || true");
        let state = self.run(&state)?;
        Ok(!["", "Z"].contains(&state.as_str()))
    }

    pub(super) fn end(&self, pid: u32, signal: &str) -> Result<i32> {
        self.run(&format!(
            "kill -{signal} {pid} 2> /dev/null || exit 0
             for each in $(seq 500); do kill -0 {pid} 2> /dev/null || exit 0; sleep 0.1; done
             echo 'it did not end' >&2; exit 1"
        ))?;
        let (_, status) = self.ask("wait", &pid.to_string())?;
        status.parse().context("the shell sent no status")
    }

    pub(super) fn copy(&self, program: &Path) -> Result<String> {
        let Some(peer) = &self.peer else {
            return Ok(quote(&program.to_string_lossy()));
        };
        let name = program.file_name().context("a program has a name")?;
        let path = format!("{}/{}", self.folder, name.to_string_lossy());
        let mut file =
            File::open(program).with_context(|| format!("cannot read {}", program.display()))?;
        let mut copy = ssh(peer).stdin(Stdio::piped()).spawn()?;
        let mut stdin = copy.stdin.take().context("stdin is a pipe")?;
        let copied = writeln!(stdin, "{{ cat > {path}; exit; }}")
            .and_then(|()| io::copy(&mut file, &mut stdin));
        drop(stdin);
        let status = copy.wait()?;
        copied.with_context(|| format!("cannot copy {} to {peer}", program.display()))?;
        ensure!(status.success(), "cannot write {path} on {peer}: {status}");
        let started = self.run(&format!("chmod 755 {path}; {path} --version"));
        started.context("the program does not run there: --programs names one that does")?;
        Ok(path)
    }

    pub(super) fn lost(&self) -> Option<String> {
        match self.replies.try_recv() {
            Err(mpsc::TryRecvError::Disconnected) => Some(self.loss()),
            _ => None,
        }
    }

    fn loss(&self) -> String {
        let said = tail(&self.log, 5).unwrap_or_default();
        let said = match said.trim().trim_end_matches('.') {
            "" => "it gave no reason",
            said => said,
        };
        match &self.peer {
            Some(peer) if self.folder.is_empty() => format!(
                "cannot log in to {peer}: {said}: `ssh {peer} sudo -n true` must work without a \
                 question, as with a key and a known host key"
            ),
            Some(peer) => format!(
                "the ssh connection to {peer} ended: {said}: the peer reverts its changes within \
                 {PATIENCE_S} s"
            ),
            None => format!("the shell on this machine ended: {said}"),
        }
    }

    fn ask(&self, kind: &str, body: &str) -> Result<(i32, String)> {
        self.send(format!("{kind}\n{body}\0").as_bytes())?;
        self.reply()
    }

    fn send(&self, message: &[u8]) -> Result<()> {
        let mut input = lock(&self.input);
        let pipe = input.as_mut().context("the shell was closed")?;
        let sent = pipe.write_all(message).and_then(|()| pipe.flush());
        drop(input);
        match sent {
            // The end of the output has the reason.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent.with_context(|| format!("cannot write to {}", self.name)),
        }
    }

    fn reply(&self) -> Result<(i32, String)> {
        let reply = self.receive()?;
        let (status, said) = reply.split_once('\n').context("a reply has two lines")?;
        Ok((status.parse()?, said.to_owned()))
    }

    fn receive(&self) -> Result<String> {
        match self.replies.recv_timeout(REPLY) {
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Disconnected) => bail!("{}", self.loss()),
            Err(RecvTimeoutError::Timeout) => {
                bail!("{} does not answer: no reply in {REPLY:?}", self.name)
            }
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(lock(&self.input).take());
        let _ = self.process.wait();
    }
}

fn lock(input: &Input) -> std::sync::MutexGuard<'_, Option<ChildStdin>> {
    input.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(stdout: ChildStdout, replies: &Sender<String>) {
    let mut stdout = BufReader::new(stdout);
    loop {
        let mut reply = Vec::new();
        let read = stdout.read_until(0, &mut reply);
        if read.is_err() || reply.pop() != Some(0) {
            return;
        }
        let reply = String::from_utf8_lossy(&reply).into_owned();
        if replies.send(reply).is_err() {
            return;
        }
    }
}

fn send_beats(input: &Input, ended: &Receiver<()>) {
    while ended.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
        let sent = lock(input).as_mut().map(|pipe| pipe.write_all(&[0]));
        if !matches!(sent, Some(Ok(()))) {
            return;
        }
    }
}

/// Returns ssh to a root shell that reads its script from stdin. It asks no question, and ends
/// when the peer is silent.
fn ssh(peer: &str) -> Command {
    let mut ssh = command("setsid");
    ssh.args(["ssh", "-T"]);
    for option in [
        "BatchMode=yes",
        "ConnectTimeout=10",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
        "ControlMaster=no",
        "ControlPath=none",
    ] {
        ssh.args(["-o", option]);
    }
    ssh.args(["--", peer]);
    ssh.arg("if [ \"$(id -u)\" = 0 ]; then exec bash -s; else exec sudo -n bash -s; fi");
    ssh
}

pub(super) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

pub(super) fn sh(script: &str) -> Result<String> {
    output(command("sh").args(["-ec", script]))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Instant;

    use super::*;

    const PATIENT: Duration = Duration::from_secs(60);

    fn start(folder: &Path) -> Result<Shell> {
        let state = folder.join("state").to_string_lossy().into_owned();
        let mut bash = command("bash");
        bash.arg("-s");
        Shell::start("it", None, bash, &state, &folder.join("log"), || ())
    }

    fn await_it(mut done: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENT;
        while !done() {
            assert!(Instant::now() < deadline, "it did not happen");
            thread::sleep(Duration::from_millis(50));
        }
    }

    #[test]
    fn scripts_have_output_and_errors() {
        let folder = tempfile::tempdir().unwrap();
        let shell = start(folder.path()).unwrap();
        assert_eq!(shell.run("echo a; echo b").unwrap(), "a\nb");
        let error = shell.run("echo why >&2; exit 3").unwrap_err().to_string();
        assert!(
            error.starts_with("it: ") && error.ends_with("ended with 3: why"),
            "{error}"
        );
        let pid = shell
            .spawn("trap 'exit 7' TERM; while :; do sleep 0.1; done")
            .unwrap();
        assert!(shell.is_running(pid).unwrap());
        thread::sleep(Duration::from_millis(300));
        assert_eq!(shell.end(pid, "TERM").unwrap(), 7);
        assert!(!shell.is_running(pid).unwrap());
        let error = start(folder.path()).err().unwrap().to_string();
        assert!(error.contains("another measurement"), "{error}");
    }

    #[test]
    fn steps_are_undone_in_reverse_order_even_if_one_fails() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("undone");
        let shell = start(folder.path()).unwrap();
        for line in ["echo first", "exit 3", "echo 'second  \\n'"] {
            let line = format!("({line}) >> '{}'", file.display());
            shell.undo(&line).unwrap();
        }
        assert!(!file.exists());
        let own = shell.folder().to_owned();
        assert!(Path::new(&own).exists());
        drop(shell);
        let undone = fs::read_to_string(file).unwrap();
        assert!(
            undone.starts_with("second") && undone.ends_with("first\n"),
            "{undone}"
        );
        assert!(!Path::new(&own).exists());
    }

    #[test]
    fn a_killed_shell_is_reverted_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("undone");
        let mut shell = start(folder.path()).unwrap();
        shell.undo(&format!("touch '{}'", file.display())).unwrap();
        let pid = shell.spawn("exec sleep 1000").unwrap();
        shell.process.kill().unwrap();
        let error = shell.run("true").unwrap_err().to_string();
        assert!(error.contains("ended"), "{error}");
        assert!(shell.lost().is_some() && !file.exists());
        drop(shell);
        let shell = start(folder.path()).unwrap();
        assert!(file.exists());
        await_it(|| !shell.is_running(pid).unwrap());
    }

    #[test]
    fn a_silent_connection_is_reverted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("undone");
        let mut bash = command("bash")
            .arg("-s")
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let state = folder.path().join("state");
        let stdin = bash.stdin.as_mut().unwrap();
        write!(
            stdin,
            "{{ STATE='{}' PATIENCE=1\n{AGENT}exit; }}\n",
            state.display()
        )
        .unwrap();
        write!(stdin, "undo\ntouch '{}'\0", file.display()).unwrap();
        await_it(|| file.exists());
        bash.wait().unwrap();
    }
}
