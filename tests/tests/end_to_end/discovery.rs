//! Hosts find what they may connect to.

use cairn_initiator::{Host, HostOptions, Notice, discover};
use cairn_tests::harness::{NQN, TestTarget, host_nqn, nqn, subsystem};
use nvme_proto::wire::FromBytes;
use nvme_proto::wire::Nqn;
use nvme_proto::wire::fabrics::CNTLID_DYNAMIC;
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::log::{
    AddressFamily, DiscoveryEntry, RdmaTsas, SubsystemType, TransportType,
};

use crate::verified::next_notice;

const OTHER: &str = "nqn.2026-01.org.example:other";

/// Two subsystems, one of which is for one host alone.
fn two_subsystems() -> String {
    let private = format!(
        "[[subsystem]]\nnqn = \"{OTHER}\"\nallowed_hosts = [\"{}\"]\n",
        host_nqn("friend").as_str()
    );
    subsystem(NQN, &["null:1GiB"]) + &private
}

fn names(entries: &[DiscoveryEntry]) -> Vec<String> {
    entries
        .iter()
        .filter(|entry| SubsystemType(entry.subtype) == SubsystemType::NVM)
        .map(|entry| Nqn::decode(&entry.subnqn).unwrap().as_str().to_owned())
        .collect()
}

#[test]
fn an_entry_says_how_to_connect() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    let log = discover(&*target.provider(), &target.options("a")).unwrap();
    assert_eq!(names(&log.entries), [NQN]);
    let entry = log
        .entries
        .iter()
        .find(|entry| SubsystemType(entry.subtype) == SubsystemType::NVM)
        .unwrap();
    assert_eq!(TransportType(entry.trtype), TransportType::RDMA);
    assert_eq!(AddressFamily(entry.adrfam), AddressFamily::IPV4);
    assert_eq!(entry.cntlid.get(), CNTLID_DYNAMIC);
    assert!(entry.asqsz.get() >= 32);
    let text = |field: &[u8]| {
        std::str::from_utf8(field)
            .unwrap()
            .trim_end_matches(['\0', ' '])
            .to_owned()
    };
    assert_eq!(text(&entry.traddr), target.remote().ip().to_string());
    assert_eq!(text(&entry.trsvcid), target.remote().port().to_string());
    let tsas = RdmaTsas::read_from_bytes(&entry.tsas).unwrap();
    assert_eq!(tsas.qptype, RdmaTsas::QPTYPE_CONNECTED);
    assert_eq!(tsas.cms, RdmaTsas::CMS_RDMA_IP_CM);
    target.stop();
}

#[test]
fn hosts_see_what_is_for_them() {
    let target = TestTarget::start(&two_subsystems());
    let seen = |name: &str| {
        let log = discover(&*target.provider(), &target.options(name)).unwrap();
        let mut names = names(&log.entries);
        names.sort();
        names
    };
    assert_eq!(seen("friend"), [NQN, OTHER]);
    assert_eq!(seen("stranger"), [NQN]);
    target.stop();
}

#[test]
fn a_change_is_announced_to_persistent_discovery_controllers() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    let options = HostOptions {
        subnqn: Nqn::discovery(),
        io_queues: 0,
        kato_ms: 5000,
        ..target.options("a")
    };
    let mut host = Host::connect(&*target.provider(), options).unwrap();
    let offered = AsyncEventConfig(host.identity().oaes.get());
    assert!(offered.discovery_change());
    let before = host.discovery_log().unwrap();
    assert!(host.take_event().is_none());

    let more = subsystem(NQN, &["null:1GiB"]) + &subsystem(OTHER, &["null:1GiB"]);
    target.reload(&more);
    assert_eq!(next_notice(&mut host), Notice::DiscoveryChanged);
    let after = host.discovery_log().unwrap();
    assert_ne!(after.genctr, before.genctr);
    let mut found = names(&after.entries);
    found.sort();
    assert_eq!(found, [NQN, OTHER]);

    // Once read, it is armed again.
    target.reload(&subsystem(NQN, &["null:1GiB"]));
    assert_eq!(next_notice(&mut host), Notice::DiscoveryChanged);
    assert_eq!(names(&host.discovery_log().unwrap().entries), [NQN]);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_subsystem_that_was_found_can_be_connected_to() {
    let target = TestTarget::start(&two_subsystems());
    let log = discover(&*target.provider(), &target.options("friend")).unwrap();
    for name in names(&log.entries) {
        let options = HostOptions {
            subnqn: nqn(&name),
            ..target.options("friend")
        };
        let host = target.try_connect(options).unwrap();
        assert_eq!(Nqn::decode(&host.identity().subnqn).unwrap(), nqn(&name));
        host.shutdown().unwrap();
    }
    target.stop();
}
