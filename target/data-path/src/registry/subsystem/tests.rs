use std::net::Ipv4Addr;

use cairn_base::address::Payer;
use cairn_rdma::PKey;
use nvme_auth::{Secret, Secrets};
use nvme_proto::ana::AnaStates;
use nvme_proto::controller::ConnectRequest;
use nvme_proto::subsystem::{CNTLIDS_ALL, Claim, HostAccess, Settings};
use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::fabrics::{CNTLID_DYNAMIC, PropertySize};
use nvme_proto::wire::property::offset;

use super::*;
use crate::ana::{AnaShared, ListenerShared};
use crate::registry::HostKeys;

const SUBNQN: &str = "nqn.2026-01.org.example:disks";
const HOSTNQN: &str = "nqn.2026-01.org.example:host";
const CC: u64 = 0x0046_0061;

fn subsystem(hosts: HostAccess) -> SubsystemShared {
    let settings = Settings {
        nqn: SUBNQN.parse().unwrap(),
        serial: String::new(),
        model: String::new(),
        firmware: String::new(),
        hosts,
        volatile_write_cache: false,
        cntlids: CNTLIDS_ALL,
        limits: nvme_proto::limits::Limits::default(),
    };
    let (mailbox, _inbox) = Mailbox::new().unwrap();
    let (control, _messages) = tokio::sync::mpsc::unbounded_channel();
    let clock = Clock::simulated();
    let started = clock.now();
    let subsystem = Subsystem::new(settings);
    let reactors = Arc::from([mailbox]);
    let shared = SubsystemShared::new(
        1,
        subsystem,
        clock,
        started,
        reactors,
        Authenticator::default(),
        control,
    );
    let host = Secret::generate(32, None, &mut |bytes| bytes.fill(1));
    shared.set_keys(HostKeys {
        others: Some(Secrets {
            host,
            controller: None,
        }),
        ..HostKeys::default()
    });
    shared
}

fn request(cntlid: u16, qid: u16) -> ConnectRequest {
    ConnectRequest {
        cid: 1,
        qid,
        sqsize: 31,
        flow_control: true,
        kato_ms: 5000,
        hostid: [7; 16],
        cntlid: if qid == 0 { CNTLID_DYNAMIC } else { cntlid },
        subnqn: SUBNQN.parse().unwrap(),
        hostnqn: HOSTNQN.parse().unwrap(),
    }
}

fn from<T>(address: u8, qid: u16, job: impl FnOnce(&Origin<'_>) -> T) -> T {
    let peer = Ipv4Addr::new(192, 0, 2, address).into();
    let listener = Arc::new(ListenerShared {
        id: 0,
        address: "192.0.2.1:4420".parse().unwrap(),
        provider: "none",
        pkey: PKey::DEFAULT,
        ana: AnaShared::new(&AnaStates::default()),
        removed: false.into(),
    });
    job(&Origin {
        address: QueueAddress {
            reactor: 0,
            qpair: QpairId::NONE,
        },
        cm: &RequestData::new(qid, 32, 31, 0),
        local: listener.address.address.ip(),
        peer,
        payer: Payer::stranger(peer),
        listener: &listener,
    })
}

fn claim(shared: &SubsystemShared, address: u8, request: &ConnectRequest) -> Claim {
    let entry = from(address, request.qid, |origin| {
        shared.connect(request, origin)
    });
    match entry.unwrap() {
        Entry::Claimed(claim, _) => *claim,
        Entry::Joined(_) => panic!("its host has a key"),
    }
}

fn state(shared: &SubsystemShared) -> String {
    let state = shared.lock();
    let mut controllers: Vec<String> = state
        .controllers
        .iter()
        .map(|(cntlid, own)| format!("{cntlid}: {:?}, {:?}", own.queues, own.shared))
        .collect();
    controllers.sort();
    format!("{:?}, {controllers:?}, {:?}", state.subsystem, state.armed)
}

#[test]
fn nobody_who_has_proven_nothing_changes_a_subsystem() {
    let shared = subsystem(HostAccess::Any);
    let admin = claim(&shared, 1, &request(0, 0));
    let (connected, _) = from(1, 0, |origin| shared.join(&admin, origin)).unwrap();
    let cntlid = connected.cntlid;
    let enable = AdminCommand::PropertySet {
        ofst: offset::CC,
        size: PropertySize::Four,
        value: CC,
    };
    shared.execute(cntlid, 1, &enable, &[], &mut []);
    let before = state(&shared);
    let mut random = 7_u64;
    let mut claims = Vec::new();
    for round in 0..5000 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(round);
        let (qid, address) = ((random >> 40) as u16 % 9, (random >> 33) as u8);
        claims.push(claim(&shared, address, &request(cntlid, qid)));
    }
    assert_eq!(state(&shared), before);
    for qid in 1..9 {
        let own = claim(&shared, 1, &request(cntlid, qid));
        from(1, qid, |origin| shared.join(&own, origin)).unwrap();
    }
    for _ in 0..63 {
        let own = claim(&shared, 1, &request(0, 0));
        from(1, 0, |origin| shared.join(&own, origin)).unwrap();
    }
}

#[test]
fn a_host_that_was_removed_while_it_authenticated_does_not_get_in() {
    let shared = subsystem(HostAccess::only([HOSTNQN.parse().unwrap()]));
    let own = claim(&shared, 1, &request(0, 0));
    let nobody = HostAccess::only([]);
    shared.administer(|subsystem, actions| subsystem.set_hosts(nobody, actions));
    let before = state(&shared);
    let late = from(1, 0, |origin| shared.join(&own, origin)).unwrap_err();
    assert_eq!(late.status, Status::CONNECT_INVALID_HOST.with_dnr());
    assert_eq!(state(&shared), before);
}
