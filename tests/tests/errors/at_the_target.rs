use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use cairn_config::{Config, Flags};
use cairn_initiator::{Data, Host, HostError, HostOptions, Secret, Secrets, command};
use cairn_target::Target;
use cairn_tests::bad_peer::{self, Setting};
use cairn_tests::harness::{NQN, Scratch, namespace, nqn, subsystem};
use nvme_proto::wire::identify::Cns;

use super::log::{self, assert_in_order};
use super::{PATIENCE, Place};
use cairn_tests::logged;

struct Victim {
    target: Target,
    place: Place,
    _disk: Scratch,
}

impl Victim {
    fn start(place: Place, name: &str) -> Self {
        Self::start_as(place, name, "")
    }

    fn start_as(place: Place, name: &str, more: &str) -> Self {
        logged::listen();
        let disk = Scratch::in_memory(name, 64 << 20);
        let listener = format!("[[listener]]\naddress = \"{}\"\n{more}\n", place.target);
        let text = format!(
            "[target]\nreactors = 1\n{}\n{listener}",
            subsystem(NQN, &[&disk.export(512)])
        );
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let target = Target::start(config, vec![Arc::clone(&place.provider)]).unwrap();
        Self {
            target,
            place,
            _disk: disk,
        }
    }

    fn setting(&self) -> Setting {
        Setting {
            provider: Arc::clone(&self.place.provider),
            remote: self.target.addresses()[0],
            subnqn: nqn(NQN),
            nsid: 1,
            patience: PATIENCE,
            seed: 1,
            random_capsules: 0,
            dials: Arc::default(),
        }
    }

    fn suffer(&self, case: &str) -> u64 {
        let setting = self.setting();
        let all = bad_peer::cases();
        let case = all.iter().find(|known| known.name == case).unwrap();
        bad_peer::run(case, &setting).unwrap_or_else(|error| panic!("{}: {error:#}", case.name));
        setting.dials.load(Ordering::Relaxed)
    }
}

fn assert_logged(case: &str, parts: &[&str]) {
    for place in Place::both() {
        let name = format!("errors-{case}-{}", place.provider.name());
        let victim = Victim::start(place, &name);
        victim.suffer(case);
        log::expect(parts);
        victim.target.stop().unwrap();
    }
}

#[test]
fn a_wrong_key_for_what_is_written_is_a_line_with_host_and_queue() {
    assert_logged(
        "wrong_rkey_on_write",
        &[
            "disconnected unreported=",
            "host=\"nqn.2026-01.org.example:bad-peer\" address=",
            "qid=1 reason=\"fetching a command's data (RDMA READ): remote access error",
            "(IBV_WC_REM_ACCESS_ERR); likely (1) the host gave a wrong or stale key",
            "; next: read the host's log at ",
        ],
    );
}

#[test]
fn a_wrong_key_for_what_is_read_names_the_write() {
    assert_logged(
        "wrong_rkey_on_read",
        &[
            "qid=1 reason=\"writing a command's data (RDMA WRITE): remote access error",
            "(IBV_WC_REM_ACCESS_ERR)",
        ],
    );
}

#[test]
fn a_capsule_that_is_too_long_is_a_local_length_error() {
    assert_logged(
        "oversized_capsule",
        &[
            "reason=\"receiving a capsule: local length error",
            "(IBV_WC_LOC_LEN_ERR); likely (1) the other end sends more in a capsule",
        ],
    );
}

#[test]
fn a_host_of_another_partition_is_a_line_with_both_keys() {
    for (own, other, reason) in [
        (
            "0x8001",
            "0xffff",
            "P_Key 0xffff of the host does not match P_Key 0x8001 of the listener",
        ),
        (
            "0x0002",
            "0x0002",
            "host (P_Key 0x0002) and listener (P_Key 0x0002) are limited members of the \
             partition: one of them must be a full member",
        ),
    ] {
        let name = format!("errors-partition-{own}");
        let victim = Victim::start_as(Place::soft(), &name, &format!("pkey = {own}"));
        let options = HostOptions {
            pkey: other.parse().unwrap(),
            ..victim.place.options(4420)
        };
        let refused = Host::connect(&*victim.place.provider, options);
        assert!(refused.is_err(), "{other} got in at {own}");
        let address = format!("local={}:4420", victim.place.target);
        let refused = "connection request refused unreported=";
        let parts = [refused, &address, reason];
        log::expect(&parts);
        victim.target.stop().unwrap();
    }
}

#[test]
fn each_refused_request_says_why_and_what_to_do_at_the_host() {
    for (case, name, next) in [
        (
            "wrong_recfmt",
            "Invalid RECFMT",
            "next: read the host's log at ",
        ),
        (
            "qid_too_large",
            "Invalid QID",
            "next: at the host: nvme connect",
        ),
        ("hsqsize_games", "Invalid HSQSIZE", "--queue-size=32"),
        ("hrqsize_games", "Invalid HRQSIZE", "--queue-size=32"),
        (
            "no_reads_answered",
            "Invalid IRD",
            "next: read the host's log at ",
        ),
    ] {
        let refused = "connection request refused unreported=";
        assert_logged(case, &[refused, &format!("({name}); likely (1) "), next]);
    }
}

#[test]
fn a_peer_that_is_refused_over_and_over_gets_a_line_a_second() {
    let victim = Victim::start(Place::loopback(), "errors-flood");
    let begun = Instant::now();
    let mut dials = 0;
    for _ in 0..20 {
        dials += victim.suffer("hrqsize_games");
    }
    let seconds = begun.elapsed().as_secs() + 2;
    let lines = logged::lines(&["connection request refused", "Invalid HRQSIZE"]);
    assert!(dials > 2 * seconds, "{dials} in {seconds} s prove nothing");
    assert!(lines.len() as u64 <= seconds, "{} lines", lines.len());
    victim.target.stop().unwrap();
}

#[test]
fn a_host_that_vanishes_is_a_retry_counter_exceeded() {
    let victim = Victim::start(Place::soft(), "errors-vanish");
    let port = victim.target.addresses()[0].port();
    let options = victim.place.options(port);
    let mut host = Host::connect(&*victim.place.provider, options).unwrap();
    let buffer = host.buffer(4096).unwrap();
    let identify = command::identify(Cns::CONTROLLER, 0);
    let data = Data::whole(buffer);
    host.submit_admin(identify, data).unwrap();
    host.poll();
    let line = log::expect(&["disconnected", "transport retry counter exceeded"]);
    let parts = [
        "host=\"nqn.2026-01.org.example:host-errors\"",
        "qid=0",
        "(RDMA WRITE): transport retry counter exceeded",
        "(IBV_WC_RETRY_EXC_ERR); likely (1) the peer is down",
        "; next: cairn-target doctor --peer 127.",
    ];
    assert_in_order(&line, &parts);
    drop(host);
    victim.target.stop().unwrap();
}

#[test]
fn a_failed_authentication_is_the_reason_of_the_disconnect() {
    logged::listen();
    let secret = |seed| Secret::generate(32, None, &mut |bytes| bytes.fill(seed));
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    let mut file = std::fs::File::options();
    let mut file = file
        .write(true)
        .create(true)
        .mode(0o600)
        .open(&key)
        .unwrap();
    std::io::Write::write_all(&mut file, secret(1).to_text().as_bytes()).unwrap();
    let place = Place::loopback();
    let text = format!(
        "[target]\nreactors = 1\n[[listener]]\naddress = \"{}\"\n[[subsystem]]\nnqn = \"{NQN}\"\n\
         allow_any_host = true\ndhchap_key = {key:?}\n{}",
        place.target,
        namespace(1, "mem:1MiB")
    );
    let config = Config::parse("test", &text, &Flags::default()).unwrap();
    let target = Target::start(config, vec![Arc::clone(&place.provider)]).unwrap();
    let options = HostOptions {
        authentication: Some(Secrets {
            host: secret(2),
            controller: None,
        }),
        ..place.options(target.addresses()[0].port())
    };
    let refused = Host::connect(&*place.provider, options).map(drop);
    assert!(
        matches!(refused, Err(HostError::NotAuthenticated { .. })),
        "{refused:?}"
    );
    log::expect(&["disconnected", "host-errors", "its authentication failed"]);
    let wrong = logged::lines(&["disconnected", "its Connect was refused"]);
    assert!(wrong.is_empty(), "{wrong:?}");
    target.stop().unwrap();
}
