use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::verified::{Disk, Transfer, bytes};
use cairn_initiator::{Host, HostError, HostOptions, Secret, Secrets};
use cairn_tests::bad_peer::{HalfDone, Impostors, Renewing, Setting, knock, replay};
use cairn_tests::harness::{METRICS, NQN, TestTarget, host_nqn, namespace, nqn};

pub(crate) struct Keys(tempfile::TempDir);

impl Keys {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, seed: u8) -> Secret {
        let secret = secret(seed);
        let mut options = std::fs::File::options();
        let options = options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(self.path(name)).unwrap();
        std::io::Write::write_all(&mut file, secret.to_text().as_bytes()).unwrap();
        secret
    }
}

pub(crate) fn secret(seed: u8) -> Secret {
    Secret::generate(32, None, &mut |bytes| bytes.fill(seed))
}

fn subsystem(lines: &str) -> String {
    let host = host_nqn("a");
    let table = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallowed_hosts = [\"{host}\"]\n");
    table + lines + &namespace(1, "mem:1MiB")
}

pub(crate) fn key(name: &str, path: &Path) -> String {
    format!("{name} = \"{}\"\n", path.display())
}

pub(crate) fn connect(
    target: &TestTarget,
    host: Option<Secret>,
    controller: Option<Secret>,
) -> Result<Host, HostError> {
    target.try_connect(HostOptions {
        authentication: host.map(|host| Secrets { host, controller }),
        io_queues: 2,
        ..target.options("a")
    })
}

pub(crate) fn check_io(host: &mut Host) {
    let mut disk = Disk::new(host, 1);
    let data = bytes(7, 4096);
    disk.write(0, &data, Transfer::Keyed);
    assert!(disk.read(0, 4096, Transfer::Keyed) == data);
}

fn refused(result: Result<Host, HostError>) -> String {
    match result {
        Err(error @ HostError::NotAuthenticated { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_hash_and_group_authenticates_both_ends() {
    let keys = Keys::new();
    let (host, controller) = (keys.write("host", 1), keys.write("controller", 2));
    let config = |hash: &str, group: &str| {
        subsystem(
            &(key("dhchap_key", &keys.path("host"))
                + &key("dhchap_ctrl_key", &keys.path("controller"))
                + &format!("dhchap_hashes = [\"{hash}\"]\ndhchap_groups = [\"{group}\"]\n")),
        )
    };
    let target = TestTarget::start(&config("sha256", "null"));
    for hash in cairn_config::DHCHAP_HASHES {
        for group in cairn_config::DHCHAP_GROUPS {
            target.reload(&config(hash, group));
            for expected in [None, Some(controller.clone())] {
                let connected = connect(&target, Some(host.clone()), expected);
                let mut connected =
                    connected.unwrap_or_else(|error| panic!("{hash}, {group}: {error}"));
                check_io(&mut connected);
                connected.shutdown().unwrap();
            }
        }
    }
    target.stop();
}

#[test]
fn whoever_has_another_secret_or_none_is_refused() {
    let keys = Keys::new();
    let (host, controller) = (keys.write("host", 1), keys.write("controller", 2));
    let of_host = format!("[[subsystem.host]]\nnqn = \"{}\"\n", host_nqn("a"));
    let one_way = subsystem(&(of_host.clone() + &key("dhchap_key", &keys.path("host"))));
    let target = TestTarget::start(&one_way);
    let error = refused(connect(&target, None, None));
    assert!(error.contains("--dhchap-secret"), "{error}");
    let error = refused(connect(&target, Some(secret(9)), None));
    assert!(error.contains("dhchap-secret"), "{error}");
    let error = refused(connect(
        &target,
        Some(host.clone()),
        Some(controller.clone()),
    ));
    assert!(error.contains("controller's key"), "{error}");
    let both = key("dhchap_ctrl_key", &keys.path("controller"));
    let both = of_host + &key("dhchap_key", &keys.path("host")) + &both;
    target.reload(&subsystem(&both));
    let error = refused(connect(&target, Some(host.clone()), Some(secret(9))));
    assert!(error.contains("dhchap-ctrl-secret"), "{error}");
    let mut connected = connect(&target, Some(host.clone()), Some(controller.clone())).unwrap();
    check_io(&mut connected);
    connected.shutdown().unwrap();
    target.reload(&subsystem(""));
    let error = refused(connect(&target, Some(host.clone()), Some(controller)));
    assert!(error.contains("does not ask"), "{error}");
    connect(&target, Some(host), None)
        .unwrap()
        .shutdown()
        .unwrap();
    target.stop();
}

#[test]
fn another_key_counts_for_the_next_connect_and_ends_no_association() {
    let keys = Keys::new();
    let old = keys.write("host", 1);
    let config = subsystem(&key("dhchap_key", &keys.path("host")));
    let target = TestTarget::start(&config);
    let mut first = connect(&target, Some(old.clone()), None).unwrap();
    let new = keys.write("host", 2);
    target.reload(&config);
    check_io(&mut first);
    refused(connect(&target, Some(old), None));
    let mut second = connect(&target, Some(new.clone()), None).unwrap();
    check_io(&mut second);
    let path = keys.path("host");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    target.reload(&config);
    let third = connect(&target, Some(new), None).unwrap();
    check_io(&mut first);
    for host in [first, second, third] {
        host.shutdown().unwrap();
    }
    target.stop();
}

pub(crate) fn setting(target: &TestTarget) -> Setting {
    Setting {
        provider: target.provider(),
        remote: target.remote(),
        subnqn: nqn(NQN),
        nsid: 1,
        patience: Duration::from_secs(60),
        seed: 1,
        random_capsules: 0,
        dials: Arc::default(),
    }
}

pub(crate) fn for_everyone(keys: &Keys) -> String {
    let path = keys.path("host");
    let table = format!("[[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
    table + &key("dhchap_key", &path) + &namespace(1, "mem:1MiB")
}

#[test]
fn an_unauthenticated_queue_takes_no_command() {
    let keys = Keys::new();
    keys.write("host", 1);
    let target = TestTarget::start(&for_everyone(&keys));
    knock(&setting(&target)).unwrap();
    target.stop();
}

#[test]
fn half_done_authentications_hold_up_nobody() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let target = TestTarget::start(&for_everyone(&keys));
    let mut first = connect(&target, Some(host.clone()), None).unwrap();
    let setting = setting(&target);
    let half_done: Vec<HalfDone> = (0..6).map(|_| HalfDone::new(&setting).unwrap()).collect();
    check_io(&mut first);
    let mut second = connect(&target, Some(host), None).unwrap();
    check_io(&mut second);
    drop(half_done);
    for host in [first, second] {
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_stranger_holds_nothing_of_the_host_that_it_names() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let target = TestTarget::start(&(METRICS.to_owned() + &for_everyone(&keys)));
    let setting = setting(&target);
    let mut own = Renewing::new(&setting, Some(&host)).unwrap();
    let before = shown(&target);
    let impostors = [vec![0; 30], (2..=8).collect(), vec![0; 5]].concat();
    let impostors = Impostors::new(&setting, own.cntlid(), &impostors).unwrap();
    assert_eq!(shown(&target), before);
    for qid in 2..=8 {
        own.add_queue(qid, &host).unwrap();
    }
    let mut second = Renewing::new(&setting, Some(&host)).unwrap();
    second.check().unwrap();
    drop(impostors);
    own.check().unwrap();
    target.stop();
}

fn shown(target: &TestTarget) -> Vec<String> {
    let page = target.scrape();
    let of = |label| page.values(label).into_iter().map(str::to_owned);
    of("host_nqn")
        .chain(of("cntlid"))
        .chain(of("qid"))
        .collect()
}

#[test]
fn a_recorded_reply_is_refused() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let target = TestTarget::start(&for_everyone(&keys));
    replay(&setting(&target), &host).unwrap();
    target.stop();
}

#[test]
fn a_flood_from_one_address_refuses_no_host_of_another() {
    let keys = Keys::new();
    let host = keys.write("host", 1);
    let target = TestTarget::start(&for_everyone(&keys));
    let mut first = connect(&target, Some(host.clone()), None).unwrap();
    let (stop, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let setting = setting(&target);
            let (stop, begun) = (&stop, &begun);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let _ = HalfDone::new(&setting);
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let connected = (0..4).map(|_| {
            check_io(&mut first);
            let mut second = connect(&target, Some(host.clone()), None)?;
            check_io(&mut second);
            second.shutdown()
        });
        let connected: Result<Vec<()>, HostError> = connected.collect();
        stop.store(true, Ordering::Relaxed);
        connected.unwrap();
    });
    assert!(begun.into_inner() > 0);
    first.shutdown().unwrap();
    target.stop();
}

#[test]
fn the_audit_log_has_how_each_host_authenticated_and_why_it_was_refused() {
    let keys = Keys::new();
    let (host, controller) = (keys.write("host", 1), keys.write("controller", 2));
    let path = keys.path("audit.json");
    let lines = key("dhchap_key", &keys.path("host"))
        + &key("dhchap_ctrl_key", &keys.path("controller"))
        + "dhchap_hashes = [\"sha384\"]\ndhchap_groups = [\"ffdhe2048\"]\n";
    let audit = format!("[audit]\nfile = \"{}\"\n", path.display());
    let target = TestTarget::start(&(audit + &subsystem(&lines)));
    drop(connect(&target, Some(host.clone()), Some(controller)).unwrap());
    drop(connect(&target, Some(host), None).unwrap());
    refused(connect(&target, Some(secret(9)), None));
    target.stop();
    let text = std::fs::read_to_string(&path).unwrap();
    let of = |event: &str| {
        let event = format!("\"event\":\"{event}\"");
        text.lines().filter(move |line| line.contains(&event))
    };
    let proof = |mutual: bool| {
        format!(
            "\"authentication\":\"dh-hmac-chap\",\"hash\":\"sha384\",\"group\":\"ffdhe2048\",\
             \"mutual\":{mutual}"
        )
    };
    for mutual in [true, false] {
        let connects = of("connect").filter(|line| line.contains(&proof(mutual)));
        assert_eq!(connects.count(), 3, "{text}");
    }
    let refusals: Vec<&str> = of("refuse").collect();
    assert_eq!(refusals.len(), 1, "{text}");
    let name = format!("\"host\":\"{}\"", host_nqn("a"));
    for part in [name.as_str(), "\"at\":\"authentication\"", "\"reason\":"] {
        assert!(refusals[0].contains(part), "{}", refusals[0]);
    }
    assert!(!text.contains("DHHC"), "{text}");
}
