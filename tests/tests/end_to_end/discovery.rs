use std::time::Duration;

use cairn_initiator::{Discovery, HostOptions, discover, discover_all};
use cairn_tests::harness::{NQN, TestTarget, host_nqn, nqn, subsystem};
use nvme_proto::wire::FromBytes;
use nvme_proto::wire::Nqn;
use nvme_proto::wire::fabrics::CNTLID_DYNAMIC;
use nvme_proto::wire::identify::{Cns, IdentifyController};
use nvme_proto::wire::log::{
    AddressFamily, DiscoveryEntry, RdmaTsas, SubsystemType, TransportType,
};

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(20);

const OTHER: &str = "nqn.2026-01.org.example:other";

fn two_subsystems() -> String {
    let private = format!(
        "[[subsystem]]\nnqn = \"{OTHER}\"\nallowed_hosts = [\"{}\"]\n",
        host_nqn("friend").raw()
    );
    subsystem(NQN, &["null:1GiB"]) + &private
}

fn names(entries: &[DiscoveryEntry]) -> Vec<String> {
    entries
        .iter()
        .filter(|entry| SubsystemType(entry.subtype) == SubsystemType::NVM)
        .map(|entry| Nqn::decode(&entry.subnqn).unwrap().raw().to_owned())
        .collect()
}

#[test]
fn a_log_longer_than_a_command_is_read_in_pieces() {
    let all: Vec<_> = (10..30).map(|number| format!("{NQN}-{number}")).collect();
    let subsystems: String = all.iter().map(|name| subsystem(name, &[])).collect();
    let mdts = "[target]\nreactors = 1\nmdts = \"8KiB\"\n";
    let target = TestTarget::start(&format!("{mdts}{subsystems}"));
    let log = discover(&*target.provider(), &target.options("a")).unwrap();
    let mut found = names(&log.entries);
    found.sort();
    assert_eq!(found, all);
    target.stop();
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
    let mut host = Discovery::connect(&*target.provider(), &target.options("a")).unwrap();
    let before = host.log().unwrap();
    assert!(!host.wait_for_change(SHORT).unwrap());

    let more = subsystem(NQN, &["null:1GiB"]) + &subsystem(OTHER, &["null:1GiB"]);
    target.reload(&more);
    assert!(host.wait_for_change(LONG).unwrap());
    let after = host.log().unwrap();
    assert_ne!(after.genctr, before.genctr);
    let mut found = names(&after.entries);
    found.sort();
    assert_eq!(found, [NQN, OTHER]);

    target.reload(&subsystem(NQN, &["null:1GiB"]));
    assert!(host.wait_for_change(LONG).unwrap());
    assert_eq!(names(&host.log().unwrap().entries), [NQN]);
    assert!(!host.wait_for_change(SHORT).unwrap());
    host.leave().unwrap();
    target.stop();
}

#[test]
fn a_service_without_referrals_is_the_only_one_asked() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    let found = discover_all(&*target.provider(), &target.options("a")).unwrap();
    assert_eq!(found.logs.len(), 1);
    assert!(found.failures.is_empty() && found.left_out == 0);
    let (service, log) = &found.logs[0];
    assert_eq!(service.address, target.remote());
    let ways = log.routes().filter(|route| route.subnqn == nqn(NQN));
    let addresses: Vec<_> = ways.map(|route| route.address).collect();
    assert_eq!(addresses, [target.remote()]);
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

#[test]
fn a_service_with_a_name_of_its_own_is_found_by_both() {
    const OWN: &str = "nqn.2026-01.org.example:discovery";
    let toml = format!("[target]\nreactors = 1\ndiscovery_nqn = \"{OWN}\"\n");
    let target = TestTarget::start(&(toml + &subsystem(NQN, &["null:1GiB"])));
    let log = discover(&*target.provider(), &target.options("a")).unwrap();
    assert_eq!(names(&log.entries), [NQN]);
    let of_itself =
        |entry: &&DiscoveryEntry| SubsystemType(entry.subtype) == SubsystemType::CURRENT_DISCOVERY;
    let itself = log.entries.iter().find(of_itself).unwrap();
    assert_eq!(itself.subnqn, nqn(OWN).encode());
    for name in [nqn(OWN), Nqn::discovery()] {
        let options = HostOptions {
            subnqn: name,
            io_queues: 0,
            kato_ms: 0,
            ..target.options("b")
        };
        let mut host = target.try_connect(options).unwrap();
        let id: Box<IdentifyController> = host.identify(Cns::CONTROLLER, 0).unwrap();
        assert_eq!(id.subnqn, nqn(OWN).encode());
        host.shutdown().unwrap();
    }
    let stranger = HostOptions {
        subnqn: nqn("nqn.2026-01.org.example:no-discovery"),
        ..target.options("c")
    };
    assert!(target.try_connect(stranger).is_err());
    target.stop();
}
