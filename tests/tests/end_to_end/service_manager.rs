use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cairn_initiator::{Data, Host, HostOptions, Identity, command};
use cairn_roce::Soft;
use cairn_tests::harness::{NQN, Scratch, host_nqn, nqn};

use cairn_tests::harness::own_loopback_address;

const PATIENCE: Duration = Duration::from_secs(60);

fn next(manager: &UnixDatagram) -> Vec<String> {
    let mut datagram = [0; 256];
    let length = loop {
        match manager.recv(&mut datagram) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => break received.expect("a notification"),
        }
    };
    let text = str::from_utf8(&datagram[..length]).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn next_but(manager: &UnixDatagram, known: &str) -> Vec<String> {
    loop {
        let lines = next(manager);
        if lines != [known] {
            return lines;
        }
    }
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
        .env("WATCHDOG_USEC", "3000000")
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
    assert_eq!(next(&manager), ["WATCHDOG=1"]);
    signal(&target, "-HUP");
    let reloading = next_but(&manager, "WATCHDOG=1");
    let [state, since] = &reloading[..] else {
        panic!("{reloading:?}");
    };
    assert_eq!(state, "RELOADING=1");
    let usec = since.strip_prefix("MONOTONIC_USEC=").expect("the time");
    assert!(usec.parse::<u64>().unwrap() > 0, "{since}");
    assert_eq!(next_but(&manager, "WATCHDOG=1"), ready);
    signal(&target, "-TERM");
    assert_eq!(next_but(&manager, "WATCHDOG=1"), ["STOPPING=1"]);
    assert!(target.wait().unwrap().success());
}

#[test]
fn an_ordinary_user_s_target_runs_with_eight_mebibytes_of_locked_memory() {
    let address = own_loopback_address();
    let disk = Scratch::new("memlock", 1 << 20);
    let mut target = Command::new("prlimit");
    target.arg("--memlock=8388608:8388608");
    if rustix::process::geteuid().is_root() {
        // The target runs as another user, because root may exceed the limit.
        std::os::unix::fs::chown(disk.path(), Some(65534), Some(65534)).unwrap();
        target.args([
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ]);
        target.args(["--bounding-set=-all", "--inh-caps=-all"]);
    }
    let mut target = target
        .arg(env!("CARGO_BIN_EXE_cairn-target-process"))
        .args([
            "serve",
            "--provider",
            "soft",
            "--control",
            "off",
            "--nqn",
            NQN,
        ])
        .args([
            "--export",
            "mem:1MiB",
            "--listen",
            &address.to_string(),
            "--export",
        ])
        .arg(disk.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(target.stdout.take().unwrap()).lines();
    let is_ready = output.any(|line| line.unwrap() == "ready");
    if is_ready {
        let remote = std::net::SocketAddr::from((address, 4420));
        let options = HostOptions::new(remote, nqn(NQN), Identity::named(host_nqn("ordinary")));
        let mut host = Host::connect(&Soft::default(), options).unwrap();
        for nsid in [1, 2] {
            let mut buffer = host.buffer(64 << 10).unwrap();
            let data = Data::start_of(&mut buffer, 4096);
            host.run(command::write(nsid, 0, 8), data).unwrap();
            let data = Data::start_of(&mut buffer, 4096);
            host.run(command::read(nsid, 0, 8), data).unwrap();
        }
        host.shutdown().unwrap();
        signal(&target, "-TERM");
    }
    let ended = target.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&ended.stderr);
    assert!(is_ready && ended.status.success(), "{log}");
    assert_eq!(log.matches("too low to pin").count(), 1, "{log}");
}
