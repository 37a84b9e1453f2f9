use std::net::SocketAddr;
use std::time::Duration;

use nvme_proto::ana::AnaStates;
use nvme_proto::controller::{Action, ConnectRequest, Termination};
use nvme_proto::discovery::{Exported, Listener, LocalEnd, Referral};
use nvme_proto::limits::DISCOVERY_LOG_BYTES;
use nvme_proto::subsystem::{Arrival, HostAccess, Settings, Subsystem};
use nvme_proto::wire::aen::AsyncEvent;
use nvme_proto::wire::identify::{Cns, IdentifyController};
use nvme_proto::wire::log::{DiscoveryEntry, DiscoveryLogHeader, RdmaProvider, SubsystemType};
use nvme_proto::wire::nqn::DISCOVERY_NQN;
use nvme_proto::wire::{AdminOpcode, Status};

use crate::rig::*;

fn listener(portid: u16, address: &str) -> Listener {
    let address: SocketAddr = address.parse().unwrap();
    Listener {
        portid,
        address,
        provider: RdmaProvider::ROCE_V2,
        pkey: 0xffff,
    }
}

fn exported(name: &str, hosts: HostAccess) -> Exported {
    Exported {
        nqn: nqn(name),
        hosts,
        ports: None,
    }
}

fn ready(listeners: Vec<Listener>, subsystems: Vec<Exported>, kato_ms: u32) -> Rig {
    let mut subsystem = Subsystem::discovery(settings());
    subsystem.set_discovery(listeners, subsystems, &mut Vec::new());
    let mut rig = Rig::connected(subsystem, kato_ms);
    rig.enable();
    rig
}

fn small() -> Rig {
    let disks = exported(SUBNQN, HostAccess::Any);
    ready(vec![listener(1, "192.0.2.1:4420")], vec![disks], 0)
}

fn discover(rig: &mut Rig) -> (u64, Vec<DiscoveryEntry>) {
    let header: DiscoveryLogHeader = read(&rig.succeed(with_rae(log(0x70, 1024))).1);
    assert_eq!(header.recfmt.get(), 0);
    let count = header.numrec.get() as usize;
    let page = rig.log(0x70, 1024 * (1 + count));
    let entries = page[1024..].chunks(1024).map(read).collect();
    (header.genctr.get(), entries)
}

fn text(field: &[u8]) -> String {
    let text = std::str::from_utf8(field).unwrap();
    text.trim_end_matches([' ', '\0']).to_string()
}

#[test]
fn linux_requires_a_discovery_controller_to_say_it_is_one() {
    let mut rig = small();
    let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
    assert_eq!(id.cntrltype, IdentifyController::CNTRLTYPE_DISCOVERY);
    assert_eq!(text(&id.subnqn), DISCOVERY_NQN);
    assert_eq!(id.cntlid.get(), rig.cntlid);
    assert_eq!((id.nn.get(), id.cmic, id.oncs.get(), id.vwc), (0, 0, 0, 0));
    assert_eq!(id.oaes.get(), 1 << 31 | 1 << 20);
    assert_ne!(id.maxcmd.get(), 0);
    assert_eq!(id.sgls.get(), 0x0010_0005);
}

#[test]
fn an_entry_says_how_to_connect() {
    let (_, entries) = discover(&mut small());
    let [own, disks] = &entries[..] else {
        panic!("{} entries", entries.len())
    };
    assert_eq!(
        (own.subtype, text(&own.subnqn).as_str()),
        (3, DISCOVERY_NQN)
    );
    assert_eq!(own.eflags.get(), 0b10);
    assert_eq!((disks.subtype, text(&disks.subnqn).as_str()), (2, SUBNQN));
    assert_eq!((disks.trtype, disks.adrfam, disks.treq), (1, 1, 0b110));
    assert_eq!((disks.portid.get(), disks.cntlid.get()), (1, 0xffff));
    assert!(disks.asqsz.get() >= 32);
    assert_eq!(text(&disks.traddr), "192.0.2.1");
    assert_eq!(text(&disks.trsvcid), "4420");
    assert_eq!(disks.tsas[..3], [1, 4, 1]);
}

#[test]
fn a_wildcard_listener_is_shown_by_the_address_the_host_came_by() {
    let disks = exported(SUBNQN, HostAccess::Any);
    let listeners = vec![
        listener(1, "0.0.0.0:4420"),
        listener(2, "[::]:4421"),
        listener(3, "[2001:db8::7]:4422"),
    ];
    let mut rig = ready(listeners, vec![disks], 0);
    let (_, entries) = discover(&mut rig);
    let routes: Vec<_> = entries
        .iter()
        .filter(|entry| entry.subtype == 2)
        .map(|entry| (text(&entry.traddr), text(&entry.trsvcid), entry.adrfam))
        .collect();
    let expected = [("192.0.2.1", "4420", 1), ("2001:db8::7", "4422", 2)];
    let expected = expected.map(|(a, p, family)| (a.to_string(), p.to_string(), family));
    assert_eq!(routes, expected);
}

#[test]
fn a_host_sees_what_it_may_use() {
    let secret = exported(
        "nqn.2026-01.org.example:secret",
        HostAccess::only([nqn("nqn.2026-01.org.example:other")]),
    );
    let own = exported(
        "nqn.2026-01.org.example:own",
        HostAccess::only([nqn(HOSTNQN)]),
    );
    let open = exported(SUBNQN, HostAccess::Any);
    let listeners = vec![
        listener(1, "192.0.2.1:4420"),
        listener(2, "198.51.100.1:4420"),
    ];
    let mut rig = ready(listeners, vec![secret, own, open], 0);
    let (_, entries) = discover(&mut rig);
    let names: Vec<_> = entries
        .iter()
        .filter(|entry| entry.subtype == 2)
        .map(|entry| (entry.portid.get(), text(&entry.subnqn)))
        .collect();
    let own = "nqn.2026-01.org.example:own".to_string();
    let open = SUBNQN.to_string();
    assert_eq!(
        names,
        [(1, own.clone()), (1, open.clone()), (2, own), (2, open)]
    );
}

#[test]
fn a_subsystem_is_shown_at_its_own_listeners() {
    let [first, second, third] = ["1", "2", "3"].map(|host| format!("192.0.2.{host}:4420"));
    let listeners = || {
        let all = [(1, &first), (2, &second), (3, &third)];
        all.map(|(portid, address)| listener(portid, address))
            .to_vec()
    };
    let of = |ports: Option<&[u16]>| {
        let ports = ports.map(|ports| ports.iter().copied().collect());
        let hosts = HostAccess::Any;
        let nqn = nqn(SUBNQN);
        vec![Exported { nqn, hosts, ports }]
    };
    let mut rig = ready(listeners(), of(Some(&[1, 3])), 0);
    let at = |rig: &mut Rig| {
        let (genctr, entries) = discover(rig);
        let entries = entries.iter();
        let disks = entries.filter(|one| SubsystemType(one.subtype) == SubsystemType::NVM);
        let ports: Vec<u16> = disks.map(|one| one.portid.get()).collect();
        (genctr, ports)
    };
    let (genctr, ports) = at(&mut rig);
    assert_eq!(ports, [1, 3]);
    rig.succeed(set_features(0x0b, 1 << 31));
    for (ports, wanted) in [
        (Some(&[3][..]), vec![3]),
        (Some(&[]), vec![]),
        (None, vec![1, 2, 3]),
    ] {
        rig.park_aer();
        rig.subsystem
            .set_discovery(listeners(), of(ports), &mut rig.actions);
        let actions = rig.take_actions();
        assert!(
            matches!(actions[..], [Action::Complete { .. }]),
            "{actions:?}"
        );
        assert_eq!(at(&mut rig).1, wanted);
    }
    assert_eq!(at(&mut rig).0, genctr + 3);
    // Each listener has one entry for the discovery subsystem itself.
    assert_eq!(discover(&mut rig).1.len(), 6);
}

#[test]
fn a_change_is_a_new_generation_and_an_event_for_who_stays() {
    let mut rig = small();
    rig.succeed(set_features(0x0b, 1 << 31));
    let cid = rig.park_aer();
    let (genctr, entries) = discover(&mut rig);
    let same = vec![exported(SUBNQN, HostAccess::Any)];
    let listeners = vec![listener(1, "192.0.2.1:4420")];
    rig.subsystem
        .set_discovery(listeners.clone(), same, &mut rig.actions);
    assert_eq!(rig.take_actions(), [], "nothing changed");
    rig.subsystem
        .set_discovery(listeners, vec![], &mut rig.actions);
    let [Action::Complete { completion, .. }] = rig.take_actions()[..] else {
        panic!()
    };
    assert_eq!(completion.cid, cid);
    assert_eq!(
        completion.result,
        u64::from(AsyncEvent::NOTICE_DISCOVERY_CHANGED.0)
    );
    let (next_genctr, next_entries) = discover(&mut rig);
    assert_eq!(next_genctr, genctr + 1);
    assert_eq!((entries.len(), next_entries.len()), (2, 1));
}

#[test]
fn referrals_follow_the_routes_and_are_events() {
    let mut rig = small();
    rig.succeed(set_features(0x0b, 1 << 31));
    rig.park_aer();
    let (genctr, routes) = discover(&mut rig);
    let referral = |address: &str, name: &str| Referral {
        address: address.parse().unwrap(),
        nqn: nqn(name),
    };
    let referrals = vec![
        referral("192.0.2.9:8009", DISCOVERY_NQN),
        referral("[2001:db8::9]:4420", "nqn.2026-01.org.example:discovery"),
    ];
    rig.subsystem
        .set_referrals(referrals.clone(), &mut rig.actions);
    assert_eq!(rig.take_actions().len(), 1, "an event");
    rig.subsystem.set_referrals(referrals, &mut rig.actions);
    assert_eq!(rig.take_actions(), [], "nothing changed");
    let (next_genctr, entries) = discover(&mut rig);
    assert_eq!(next_genctr, genctr + 1);
    let shown: Vec<_> = entries[routes.len()..]
        .iter()
        .map(|entry| {
            assert_eq!((entry.subtype, entry.trtype), (1, 1));
            assert_eq!((entry.cntlid.get(), entry.eflags.get()), (0xffff, 0));
            let at = (text(&entry.traddr), text(&entry.trsvcid));
            (entry.adrfam, at, text(&entry.subnqn))
        })
        .collect();
    let at = |address: &str, port: &str| (address.to_string(), port.to_string());
    assert_eq!(
        shown,
        [
            (1, at("192.0.2.9", "8009"), DISCOVERY_NQN.to_string()),
            (
                2,
                at("2001:db8::9", "4420"),
                "nqn.2026-01.org.example:discovery".to_string()
            ),
        ]
    );
}

#[test]
fn a_window_shows_the_entries_that_are_in_it() {
    let many = (0..20)
        .map(|i| exported(&format!("{SUBNQN}{i}"), HostAccess::Any))
        .collect();
    let mut rig = ready(vec![listener(1, "192.0.2.1:4420")], many, 0);
    let whole = rig.log(0x70, 1024 * 22);
    for start in [0, 4, 1020, 1024, 5000, 1024 * 21, 1024 * 22] {
        let part = rig.succeed(log_at(0x70, 4096, start as u64)).1;
        let mut expected = whole[start..(start + 4096).min(whole.len())].to_vec();
        expected.resize(4096, 0);
        assert_eq!(part, expected, "from {start}");
    }
    let past_the_end = rig.succeed(log_at(0x70, 4096, 1024 * 40)).1;
    assert_eq!(past_the_end, [0; 4096]);
    assert_eq!(
        rig.fail(log_at(0x70, 4, DISCOVERY_LOG_BYTES + 4)),
        Status::INVALID_FIELD
    );
}

#[test]
fn discovery_has_no_io_queues_and_no_namespaces() {
    let mut rig = small();
    let mut io = Connect::io(rig.cntlid, 1);
    io.data.subnqn = nqn(DISCOVERY_NQN).encode();
    assert_eq!(io.send(&mut rig.subsystem, rig.now).unwrap_err().result, 42);
    for cns in [
        Cns::NAMESPACE,
        Cns::ACTIVE_NAMESPACES,
        Cns::NAMESPACE_INDEPENDENT,
    ] {
        assert_eq!(rig.fail(identify(cns, 1)), Status::INVALID_FIELD);
    }
    for lid in [0x02, 0x03, 0x04, 0x0c] {
        assert_eq!(rig.fail(log(lid, 512)), Status::INVALID_LOG_PAGE);
    }
    for fid in [0x01, 0x06, 0x07, 0x81] {
        assert_eq!(rig.fail(get_features(fid, 0, 1)), Status::INVALID_FIELD);
    }
    assert_eq!(rig.succeed(get_features(0x0f, 0, 0)).0, 0);
    rig.set_cc(CC_SHUT_DOWN);
    assert_eq!(rig.csts() & 0b1100, 0b1000, "there is nothing to flush");
}

#[test]
fn the_log_of_an_nvm_subsystem_is_not_the_discovery_log() {
    assert_eq!(Rig::ready().fail(log(0x70, 1024)), Status::INVALID_LOG_PAGE);
}

#[test]
fn without_kato_an_association_lasts_two_idle_minutes() {
    let mut rig = small();
    rig.now += Duration::from_secs(119);
    rig.identify(Cns::CONTROLLER, 0);
    rig.now += Duration::from_secs(119);
    rig.subsystem
        .poll(rig.now, |_| Duration::ZERO, &mut rig.actions);
    assert_eq!(rig.take_actions(), [], "it was used");
    rig.now += Duration::from_secs(1);
    rig.subsystem
        .poll(rig.now, |_| Duration::ZERO, &mut rig.actions);
    let (cntlid, reason) = (rig.cntlid, Termination::KeepAliveExpired);
    assert_eq!(rig.take_actions(), [Action::Terminate { cntlid, reason }]);
}

#[test]
fn with_kato_it_stays_as_long_as_it_is_kept_alive() {
    let disks = exported(SUBNQN, HostAccess::Any);
    let mut rig = ready(vec![listener(1, "192.0.2.1:4420")], vec![disks], 30_000);
    for _ in 0..10 {
        rig.now += Duration::from_secs(29);
        rig.succeed(sqe(AdminOpcode::KEEP_ALIVE));
        rig.subsystem
            .poll(rig.now, |_| Duration::ZERO, &mut rig.actions);
        assert_eq!(rig.take_actions(), []);
    }
}

#[test]
fn a_host_receives_the_listeners_of_its_partition() {
    let of = |portid, pkey| Listener {
        pkey,
        ..listener(portid, "192.0.2.1:4420")
    };
    let listeners = [of(1, 0xffff), of(2, 0x8001), of(3, 0x0001), of(4, 0x8002)];
    for (pkey, expected) in [
        (0xffff, vec![(1, 0)]),
        (0x7fff, vec![(1, 0)]),
        (0x8001, vec![(2, 0x8001), (3, 0x0001)]),
        (0x8003, vec![]),
    ] {
        let mut subsystem = Subsystem::discovery(settings());
        subsystem.set_discovery(listeners.to_vec(), vec![], &mut Vec::new());
        let mut rig = Rig::connected(subsystem, 0);
        let address = "192.0.2.1".parse().unwrap();
        let connect = Connect::admin(DISCOVERY_NQN, 0);
        let request = ConnectRequest::parse(&connect.command.into(), &connect.data).unwrap();
        let arrival = Arrival {
            now: rig.now,
            cm: None,
            peer: None,
            local: Some(LocalEnd { address, pkey }),
            port: 0,
            random: 7,
            ana: &AnaStates::default(),
        };
        rig.cntlid = rig.subsystem.connect(&request, &arrival).unwrap().cntlid;
        rig.enable();
        let (_, entries) = discover(&mut rig);
        // RDMA_PKEY, in bytes 8 and 9 of TSAS (RDMA, figure 9).
        let shown: Vec<_> = entries
            .iter()
            .map(|entry| {
                let key = u16::from_le_bytes([entry.tsas[8], entry.tsas[9]]);
                (entry.portid.get(), key)
            })
            .collect();
        assert_eq!(shown, expected, "by {pkey:#06x}");
    }
}

fn connect_from_nowhere(rig: &mut Rig, name: &str) -> Option<u16> {
    let connect = Connect::admin(name, 0);
    let request = ConnectRequest::parse(&connect.command.into(), &connect.data).unwrap();
    let arrival = Arrival {
        now: rig.now,
        cm: None,
        peer: None,
        local: None,
        port: 0,
        random: 7,
        ana: &AnaStates::default(),
    };
    let connected = rig.subsystem.connect(&request, &arrival);
    connected.ok().map(|connected| connected.cntlid)
}

#[test]
fn without_a_local_address_wildcards_are_left_out() {
    let mut subsystem = Subsystem::discovery(settings());
    let listeners = vec![listener(1, "0.0.0.0:4420")];
    subsystem.set_discovery(listeners, vec![], &mut Vec::new());
    let mut rig = Rig::connected(subsystem, 0);
    rig.cntlid = connect_from_nowhere(&mut rig, DISCOVERY_NQN).unwrap();
    rig.enable();
    assert_eq!(discover(&mut rig).1.len(), 0);
}

#[test]
fn a_service_with_a_name_of_its_own_reports_it_and_has_two() {
    const OWN: &str = "nqn.2026-01.org.example:discovery";
    for name in [DISCOVERY_NQN, OWN] {
        let own = Settings {
            nqn: nqn(OWN),
            ..settings()
        };
        let mut subsystem = Subsystem::discovery_named(own);
        let disks = exported(SUBNQN, HostAccess::Any);
        let listeners = vec![listener(1, "192.0.2.1:4420")];
        subsystem.set_discovery(listeners, vec![disks], &mut Vec::new());
        let mut rig = Rig::connected(subsystem, 0);
        rig.cntlid = connect_from_nowhere(&mut rig, name).unwrap();
        rig.enable();
        let id: IdentifyController = rig.identify_as(Cns::CONTROLLER, 0);
        assert_eq!(id.subnqn, nqn(OWN).encode());
        let (_, entries) = discover(&mut rig);
        let names = entries.iter().map(|entry| (entry.subtype, entry.subnqn));
        let expected = [
            (SubsystemType::CURRENT_DISCOVERY.0, nqn(OWN).encode()),
            (SubsystemType::NVM.0, nqn(SUBNQN).encode()),
        ];
        assert_eq!(names.collect::<Vec<_>>(), expected);
        assert!(connect_from_nowhere(&mut rig, SUBNQN).is_none());
    }
}
