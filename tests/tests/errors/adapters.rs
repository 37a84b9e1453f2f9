//! Targets on adapters that lack features.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_config::{Config, Flags};
use cairn_initiator::{Data, Host, HostError, HostOptions, Identity, Recovery, command};
use cairn_rdma::loopback::Loopback;
use cairn_target::Target;
use cairn_tests::harness::{NQN, host_nqn, nqn, subsystem};
use cairn_tests::logged;
use cairn_tests::saboteur::Saboteur;

struct Rig {
    target: Target,
    network: Arc<Loopback>,
}

impl Rig {
    fn start(settings: &str, prepare: impl FnOnce(&Saboteur)) -> Self {
        let network: Arc<Loopback> = Arc::default();
        let adapter = Saboteur::new(Arc::clone(&network) as _, u64::MAX);
        prepare(&adapter);
        let text = format!(
            "[target]\nreactors = 1\n{settings}{}[[listener]]\naddress = \"192.0.2.1\"\n",
            subsystem(NQN, &["mem:1MiB"])
        );
        let config = Config::parse("test", &text, &Flags::default()).unwrap();
        let target = Target::start(config, vec![Arc::new(adapter)]).unwrap();
        Self { target, network }
    }

    fn connect(&self, name: &str) -> Result<Host, HostError> {
        let options = HostOptions {
            local: Some(IpAddr::from([192, 0, 2, 2])),
            queue_entries: 16,
            recovery: Recovery::NONE,
            ..HostOptions::new(
                self.target.addresses()[0],
                nqn(NQN),
                Identity::named(host_nqn(name)),
            )
        };
        Host::connect(&*self.network, options)
    }
}

#[test]
fn queues_without_a_shared_receive_queue_reserve_receives() {
    logged::listen();
    let rig = Rig::start("receives = 64\n", Saboteur::divide_receives);
    let first = rig.connect("first").unwrap();
    assert!(rig.connect("second").is_err());
    let refusal = ["connection refused", "raise `receives`", "48 of 64"];
    wait_until(|| !logged::lines(&refusal).is_empty());
    drop(first);
    wait_until(|| rig.connect("second").is_ok());
    rig.target.stop().unwrap();
}

#[test]
fn responses_invalidate_keys_unless_the_configuration_forbids_it() {
    for (setting, invalidates) in [("auto", true), ("never", false)] {
        let setting = format!("send_with_invalidate = \"{setting}\"\n");
        let rig = Rig::start(&setting, |_| ());
        let mut host = rig.connect("one").unwrap();
        let mut buffer = host.buffer(512).unwrap();
        let data = Data::once(&mut buffer, 512);
        let response = host.run(command::read(1, 0, 1), data).unwrap();
        assert_eq!(response.invalidated_rkey.is_some(), invalidates);
        drop(host);
        rig.target.stop().unwrap();
    }
}

fn wait_until(mut ready: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(20);
    while !ready() {
        assert!(Instant::now() < give_up, "it does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}
