//! What a service manager is notified of (sd_notify(3)), over the life of a target.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cairn_tests::harness::own_loopback_address;

/// Every wait in this test ends by then.
const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of the next notification.
fn next(manager: &UnixDatagram) -> Vec<String> {
    let mut datagram = [0; 256];
    let length = manager.recv(&mut datagram).expect("a notification");
    let text = str::from_utf8(&datagram[..length]).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn signal(child: &Child, signal: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
    assert!(sent.success());
}

#[test]
fn a_service_manager_follows_start_reload_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let config = folder.path().join("cairn.toml");
    let address = own_loopback_address();
    let toml = format!(
        "[target]\nprovider = \"soft\"\n[[listener]]\naddress = \"{address}\"\n\
                [[subsystem]]\nnqn = \"nqn.2026-01.org.example:notify\"\n\
                allow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n"
    );
    std::fs::write(&config, toml).unwrap();
    let mut target = Command::new(env!("CARGO_BIN_EXE_cairn-target-process"))
        .args(["serve", "--log", "warn", "--config"])
        .arg(&config)
        .env("NOTIFY_SOCKET", &socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(target.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap() == "ready"));
    let ready = [
        "READY=1",
        "STATUS=serving 1 namespace of 1 subsystem at 1 address",
    ];
    assert_eq!(next(&manager), ready);
    signal(&target, "-HUP");
    let reloading = next(&manager);
    let [state, since] = &reloading[..] else {
        panic!("{reloading:?}");
    };
    assert_eq!(state, "RELOADING=1");
    let usec = since.strip_prefix("MONOTONIC_USEC=").expect("the time");
    assert!(usec.parse::<u64>().unwrap() > 0, "{since}");
    assert_eq!(next(&manager), ready);
    signal(&target, "-TERM");
    assert_eq!(next(&manager), ["STOPPING=1"]);
    assert!(target.wait().unwrap().success());
}
