//! `attach --socket`, with fio's NBD engine as the client.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use libtest_mimic::Failed;

use super::{Bench, EXAMPLE_ADDRESS, NQN, texts};

pub(super) const SOCKET: &str = "disk.sock";

pub(super) struct Attached(Child);

impl Attached {
    pub(super) fn start(bench: &Bench, line: &str) -> Self {
        let mut child = bench
            .command(&format!("exec {line}"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = child.stdout.take().expect("stdout is a pipe");
        let mut said = String::new();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        assert!(
            said.starts_with(&format!("{SOCKET}: namespace 1 of {NQN}")),
            "{said}"
        );
        Self(child)
    }

    pub(super) fn signal(&mut self, signal: &str) -> std::process::ExitStatus {
        let killed = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status();
        assert!(killed.unwrap().success());
        self.0.wait().unwrap()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) fn attach_line() -> String {
    format!(
        "cairn-initiator attach -a {EXAMPLE_ADDRESS} -n {NQN} --provider soft -k 1 --socket {SOCKET}"
    )
}

fn fio(options: &str) -> String {
    format!(
        "fio --name=nbd --ioengine=nbd --uri='nbd+unix:///?socket={SOCKET}' --size=16m --iodepth=16 \
         --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=7 {options}"
    )
}

pub(crate) fn verified() -> Result<(), Failed> {
    if !cairn_skips::can(Command::new("fio").arg("--enghelp=nbd")) {
        return Ok(());
    }
    let bench = Bench::new();
    let mut attached = Attached::start(&bench, &attach_line());
    bench.succeed(&fio("--rw=randrw --bsrange=512-1m"))?;
    bench.succeed(&fio("--rw=write --bs=64k --do_verify=0"))?;

    let second = bench.run(&attach_line());
    let (_, why) = texts(&second);
    assert!(
        !second.status.success() && why.contains("another process serves"),
        "{why}"
    );

    attached.signal("-KILL");
    let mut next = Attached::start(&bench, &attach_line());
    bench.succeed(&fio("--rw=read --bs=64k"))?;
    bench.succeed(&fio("--rw=randrw --bs=4k --number_ios=500"))?;
    assert!(next.signal("-TERM").success());
    assert!(!bench.folder.path().join(SOCKET).exists());
    bench.stop()
}
