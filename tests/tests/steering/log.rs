use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr;

use cairn_tests::harness::own_loopback_address;
use cairn_tests::process::program;
use rustix::io::{FdFlags, fcntl_setfd};
use serde_json::json;

use crate::target::Steered;

#[test]
fn the_filter_changes_without_a_restart() {
    let target = Steered::start_logged(None);
    let say = |args: &[&str]| {
        let output = target.command(args);
        assert!(output.status.success(), "{args:?} {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(say(&["log"]), "warn\n");
    say(&["reload"]);
    assert!(!target.log().contains("configuration reloaded"));
    say(&["log", "info,cairn_target::reactor=debug"]);
    assert_eq!(say(&["log"]), "info,cairn_target::reactor=debug\n");
    say(&["reload"]);
    assert!(
        target.log().contains("configuration reloaded"),
        "{}",
        target.log()
    );
    let text = target.text();
    for filter in ["a=b=c", "nonsense", "info,hyper=debug"] {
        let filter = json!({"filter": filter});
        assert_eq!(target.refused("cairn_log_set", filter), -32602);
    }
    assert_eq!(say(&["log"]), "info,cairn_target::reactor=debug\n");
    assert_eq!(target.text(), text);
}

#[test]
fn lines_for_the_journal_have_priorities() {
    let target = Steered::start_logged(Some(true));
    assert!(target.command(&["log", "info"]).status.success());
    assert!(target.command(&["reload"]).status.success());
    std::fs::write(target.config(), "[[").unwrap();
    assert!(!target.command(&["reload"]).status.success());
    let log = target.log();
    let has = |start: &str, part: &str| {
        let mut lines = log.lines();
        lines.any(|line| line.starts_with(start) && line.contains(part))
    };
    assert!(has("<6>", "configuration reloaded"), "{log}");
    assert!(has("<3>", "the new configuration is invalid"), "{log}");
    assert!(log.lines().all(|line| line.starts_with('<')), "{log}");
}

#[test]
fn a_stream_that_is_not_the_journals_has_none() {
    let target = Steered::start_logged(Some(false));
    std::fs::write(target.config(), "[[").unwrap();
    assert!(!target.command(&["reload"]).status.success());
    let log = target.log();
    assert!(log.contains("the new configuration is invalid"), "{log}");
    assert!(!log.contains('<'), "{log}");
}

#[test]
fn a_terminal_has_colors_unless_they_are_refused() {
    let log = logged_to_a_terminal("");
    assert!(log.contains("there is no subsystem"), "{log}");
    assert!(log.contains('\x1b'), "{log}");
    let log = logged_to_a_terminal("1");
    assert!(log.contains("there is no subsystem"), "{log}");
    assert!(!log.contains('\x1b'), "{log:?}");
}

fn logged_to_a_terminal(no_color: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("target.toml");
    let listener = format!("[[listener]]\naddress = \"{}\"\n", own_loopback_address());
    std::fs::write(
        &config,
        format!("[target]\nreactors = 1\nprovider = \"soft\"\n\n{listener}"),
    )
    .unwrap();
    let (mut screen, terminal) = terminal();
    let mut child = Command::new(program("cairn-target-process"))
        .args(["serve", "--log", "warn", "--config"])
        .arg(&config)
        .env("NO_COLOR", no_color)
        .stdout(Stdio::piped())
        .stderr(terminal)
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    let is_ready = stdout
        .lines()
        .map_while(Result::ok)
        .any(|line| line == "ready");
    child.kill().unwrap();
    child.wait().unwrap();
    let mut log = Vec::new();
    let _ = screen.read_to_end(&mut log);
    let log = String::from_utf8(log).unwrap();
    assert!(is_ready, "{log}");
    log
}

fn terminal() -> (File, OwnedFd) {
    let (mut screen, mut terminal) = (-1, -1);
    let failed = {
        let (name, settings, size) = (ptr::null_mut(), ptr::null(), ptr::null());
        // SAFETY: openpty writes both descriptors before it returns; the null arguments are optional.
        unsafe { libc::openpty(&raw mut screen, &raw mut terminal, name, settings, size) }
    };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: the new descriptors have no other owner.
    let (screen, terminal) = unsafe { (File::from_raw_fd(screen), OwnedFd::from_raw_fd(terminal)) };
    for end in [screen.as_fd(), terminal.as_fd()] {
        fcntl_setfd(end, FdFlags::CLOEXEC).unwrap();
    }
    (screen, terminal)
}
