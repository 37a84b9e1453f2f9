use std::net::SocketAddr;

use cairn_initiator::{HostError, HostOptions, IoQueue, Recovery, command, discover};
use cairn_rdma::PKey;
use cairn_tests::harness::{METRICS, NQN, TestTarget, host_nqn, nqn, subsystem};
use nvme_proto::wire::fabrics::ConnectInvalidParameter;
use nvme_proto::wire::{Nqn, Status};

use crate::verified::{Disk, Transfer, bytes, status};

#[test]
fn only_allowed_hosts_get_in() {
    let target = TestTarget::start(&format!(
        "[[subsystem]]\nnqn = \"{NQN}\"\nallowed_hosts = [\"{}\"]\n{}",
        host_nqn("friend").raw(),
        cairn_tests::harness::namespace(1, "null:1GiB")
    ));
    let friend = target.connect("friend");
    let stranger = target.try_connect(target.options("stranger"));
    let sent = format!("Connect as {} failed", host_nqn("stranger"));
    let error = stranger.as_ref().unwrap_err().to_string();
    assert!(error.contains(&sent), "{error}");
    assert_eq!(status(stranger).code(), Status::CONNECT_INVALID_HOST);
    friend.shutdown().unwrap();
    target.stop();
}

#[test]
fn hosts_without_a_name_and_subsystems_of_any_name_are_served() {
    let odd = "test nqn\n\u{1b}[2J";
    let target = TestTarget::start(
        &(METRICS.to_owned()
            + &subsystem("testnqn", &["mem:1MiB"])
            + &subsystem("test nqn\\n\\u001b[2J", &["mem:1MiB"])
            + &format!(
                "[[subsystem]]\nnqn = \"{NQN}\"\nallowed_hosts = [\"my-host\"]\n{}",
                cairn_tests::harness::namespace(1, "null:1GiB")
            )),
    );
    let options = |host: &str, subsystem: &str| HostOptions {
        hostnqn: nqn(host),
        subnqn: nqn(subsystem),
        ..target.options("a")
    };
    for (host, subsystem) in [("", "testnqn"), ("db\u{7}1", odd), ("my-host", NQN)] {
        let connected = target.try_connect(options(host, subsystem)).unwrap();
        assert_eq!(nqn_of(&connected.identity().subnqn), subsystem);
        let page = target.scrape();
        let shown = nqn(host).to_string();
        assert!(page.values("host_nqn").contains(shown.as_str()), "{shown}");
        let of_subsystem = [("subsystem", &*nqn(subsystem).to_string())];
        assert_eq!(page.count("cairn_subsystem_controllers", &of_subsystem), 1);
        for value in page
            .values("host_nqn")
            .iter()
            .chain(&page.values("subsystem"))
        {
            assert!(!value.chars().any(char::is_control), "{value:?}");
        }
        connected.shutdown().unwrap();
    }
    let nameless = target.try_connect(options("", NQN));
    assert_eq!(status(nameless).code(), Status::CONNECT_INVALID_HOST);
    let log = discover(&*target.provider(), &options("", NQN)).unwrap();
    let listed: Vec<_> = log
        .entries
        .iter()
        .map(|entry| nqn_of(&entry.subnqn))
        .collect();
    assert!(listed.contains(&"testnqn".to_owned()) && listed.contains(&odd.to_owned()));
    assert!(!listed.contains(&NQN.to_owned()), "{listed:?}");
    target.stop();
}

fn nqn_of(field: &[u8; 256]) -> String {
    Nqn::decode(field).unwrap().raw().to_owned()
}

#[test]
fn only_allowed_addresses_get_in() {
    let disks = subsystem(NQN, &["null:1GiB"]);
    let target = TestTarget::start_as(&disks, "allowed_addresses = [\"198.51.100.0/24\"]");
    let stranger = target.try_connect(target.options("a"));
    assert!(stranger.is_err(), "{stranger:?}");
    let everybody = "allowed_addresses = [\"192.0.2.2\", \"127.0.0.0/8\"]";
    target.reload_as(&disks, everybody);
    target.connect("a").shutdown().unwrap();
    target.stop();
}

#[test]
fn a_listener_accepts_the_members_of_its_partition_alone() {
    let disks = subsystem(NQN, &["mem:1MiB"]);
    let pkey = |bits| PKey::new(bits).unwrap();
    for (own, members, others) in [
        (0x8001, &[0x8001, 0x0001][..], &[0xffff, 0x8002, 0x7fff][..]),
        (0x0001, &[0x8001], &[0x0001, 0xffff]),
        (0xffff, &[0xffff, 0x7fff], &[0x8001, 0x0001]),
    ] {
        let target = TestTarget::start_as(&disks, &format!("pkey = {own}"));
        let options = |bits| HostOptions {
            pkey: pkey(bits),
            ..target.options("a")
        };
        for &member in members {
            let mut host = target.try_connect(options(member)).unwrap();
            let mut disk = Disk::new(&mut host, 1);
            let data = bytes(7, 64 << 10);
            disk.write(0, &data, Transfer::Keyed);
            assert!(disk.read(0, data.len(), Transfer::Keyed) == data);
            host.shutdown().unwrap();
        }
        for &other in others {
            let refused = target.try_connect(options(other)).map(drop).unwrap_err();
            let said = refused.to_string();
            for part in ["CM reject 5", "of another partition than our P_Key"] {
                assert!(said.contains(part), "{other:#06x} at {own:#06x}: {said}");
            }
        }
        target.stop();
    }
}

#[test]
fn the_partition_of_a_listener_that_listens_stays() {
    let disks = subsystem(NQN, &["null:1GiB"]);
    let target = TestTarget::start_as(&disks, "pkey = 0x8001");
    let refused = target.try_reload_as(&disks, "pkey = 0x8002").unwrap_err();
    let said = refused.to_string();
    assert!(
        said.contains("remove the listener, reload, then add it again"),
        "{said}"
    );
    target.reload_as(&disks, "pkey = 0x8001\ntos = 96");
    target.stop();
}

#[test]
fn a_subsystem_that_is_not_there_is_named() {
    let target = TestTarget::with_namespaces(&["null:1GiB"]);
    let mut options = target.options("a");
    options.subnqn = nqn("nqn.2026-01.org.example:nowhere");
    match target.try_connect(options) {
        Err(HostError::Status { status, result, .. }) => {
            assert_eq!(status.code(), Status::CONNECT_INVALID_PARAMETERS);
            assert_eq!(result as u32, ConnectInvalidParameter::SUBNQN.0);
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
    target.stop();
}

#[test]
fn a_read_only_namespace_refuses_every_change() {
    let target = TestTarget::with_namespaces(&["mem:1MiB read_only = true", "mem:1MiB"]);
    let mut host = target.connect("a");
    let mut disk = Disk::new(&mut host, 1);
    let refused = [
        disk.send_data(
            command::write(1, 0, 1),
            &bytes(1, disk.block_bytes as usize),
            Transfer::Keyed,
        ),
        disk.send_data(
            command::write(1, 0, 1),
            &bytes(1, disk.block_bytes as usize),
            Transfer::InCapsule,
        ),
        disk.run(command::write_zeroes(1, 0, 1, true)),
    ];
    for result in refused {
        assert_eq!(status(result).code(), Status::NAMESPACE_WRITE_PROTECTED);
    }
    let block = disk.block_bytes as usize;
    assert!(disk.read(0, block, Transfer::Keyed) == vec![0; block]);
    disk.run(command::flush(1)).unwrap();
    Disk::new(&mut host, 2).write(0, &bytes(1, block), Transfer::Keyed);
    host.shutdown().unwrap();
    target.stop();
}

#[test]
fn a_host_that_loses_its_leave_is_thrown_out() {
    let allowed = |names: &[&str]| {
        let hosts: Vec<String> = names
            .iter()
            .map(|name| format!("\"{}\"", host_nqn(name).raw()))
            .collect();
        format!(
            "[[subsystem]]\nnqn = \"{NQN}\"\nallowed_hosts = [{}]\n{}",
            hosts.join(", "),
            cairn_tests::harness::namespace(1, "null:1GiB")
        )
    };
    let target = TestTarget::start(&allowed(&["a", "b"]));
    let (mut a, mut b) = (target.connect("a"), target.connect("b"));
    target.reload(&allowed(&["a"]));
    b.wait_until("b to be thrown out", |b| {
        (!b.controller().is_admin_up() && !b.controller().is_up(IoQueue::FIRST)).then_some(())
    })
    .unwrap();
    a.run(command::flush(1), cairn_initiator::Data::None)
        .unwrap();
    a.shutdown().unwrap();
    target.stop();
}

#[test]
fn hosts_of_a_listener_that_is_removed_are_disconnected() {
    let disks = subsystem(NQN, &["mem:1MiB"]);
    let network = SocketAddr::from(([192, 0, 2, 3], 4420));
    let second = format!("[[listener]]\naddress = \"{}\"\n", network.ip());
    let target = TestTarget::start(&disks);
    if target.loopback().is_none() {
        return;
    }
    target.reload_as(&disks, &second);
    let options = |name, remote| HostOptions {
        remote,
        recovery: Recovery::NONE,
        ..target.options(name)
    };
    let mut stays = target.connect("stays");
    let mut goes = target.try_connect(options("goes", network)).unwrap();
    let discovery = HostOptions {
        subnqn: Nqn::discovery(),
        io_queues: 0,
        ..options("looks", network)
    };
    let mut looks = target.try_connect(discovery).unwrap();
    Disk::new(&mut goes, 1).write(0, &bytes(1, 4096), Transfer::Keyed);

    target.reload(&disks);
    for host in [&mut goes, &mut looks] {
        host.wait_until("the end", |host| (!host.is_live()).then_some(()))
            .unwrap();
    }
    assert!(target.try_connect(options("goes", network)).is_err());
    let mut disk = Disk::new(&mut stays, 1);
    assert!(disk.read(0, 4096, Transfer::Keyed) == bytes(1, 4096));
    assert!(stays.take_event().is_none(), "it noticed");

    target.reload_as(&disks, &second);
    let back = target.try_connect(options("goes", network)).unwrap();
    back.shutdown().unwrap();
    stays.shutdown().unwrap();
    target.stop();
}
