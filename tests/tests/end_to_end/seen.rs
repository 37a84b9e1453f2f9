use cairn_initiator::{Data, Host, HostError, Notice, Response, command};
use cairn_tests::harness::{NQN, TestTarget, host_nqn, namespace, subsystem};
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::{NSID_ALL, Status};

use crate::verified::{Disk, Transfer, bytes, next_notice, status};

fn of(nsid: u32, hosts: &[&str]) -> String {
    let hosts = hosts.iter().map(|name| host_nqn(name).raw().to_owned());
    namespace(
        nsid,
        &format!("mem:1MiB hosts = {:?}", hosts.collect::<Vec<_>>()),
    )
}

fn with(others: &[String]) -> String {
    subsystem(NQN, &["mem:1MiB"]) + &others.concat()
}

fn connect(target: &TestTarget, name: &str) -> Host {
    let mut options = target.options(name);
    options.events = AsyncEventConfig(0).with_namespace_attribute(true);
    target.try_connect(options).unwrap()
}

fn changed(host: &mut Host) -> Vec<u32> {
    assert_eq!(next_notice(host), Notice::NamespacesChanged);
    host.changed_namespaces().unwrap().unwrap()
}

fn read(host: &mut Host, nsid: u32) -> Result<Response, HostError> {
    let mut buffer = host.buffer(4096).unwrap();
    host.run(command::read(nsid, 0, 8), Data::start_of(&mut buffer, 4096))
}

fn sees_nothing(host: &mut Host, nsid: u32) {
    let [mut one, mut two, mut three] = [(); 3].map(|()| host.buffer(4096).unwrap());
    for (sqe, data) in [
        (command::read(nsid, 0, 1), Data::start_of(&mut one, 512)),
        (command::write(nsid, 0, 1), Data::start_of(&mut two, 512)),
        (command::write(nsid, 0, 1), Data::InCapsule(&[0; 512])),
        (
            command::compare(nsid, 0, 1),
            Data::start_of(&mut three, 512),
        ),
        (command::flush(nsid), Data::None),
        (command::write_zeroes(nsid, 0, 1, false), Data::None),
    ] {
        let refused = status(host.run(sqe, data));
        let not_there = status(host.run(command::flush(900), Data::None));
        assert_eq!(refused.code(), Status::INVALID_NAMESPACE_OR_FORMAT);
        assert_eq!(refused, not_there, "{sqe:?}");
    }
    assert_eq!(host.namespace(nsid).unwrap().nsze.get(), 0);
}

#[test]
fn a_host_sees_and_uses_its_namespaces_alone() {
    let toml = with(&[of(2, &["a"]), of(3, &["a", "b"]), of(4, &[])]);
    let target = TestTarget::start(&toml);
    let (mut a, mut b, mut c) = (
        connect(&target, "a"),
        connect(&target, "b"),
        connect(&target, "c"),
    );
    for (host, own) in [
        (&mut a, &[1, 2, 3][..]),
        (&mut b, &[1, 3]),
        (&mut c, &[1][..]),
    ] {
        assert_eq!(host.active_namespaces().unwrap(), own);
        for nsid in 1..=4 {
            if own.contains(&nsid) {
                let mut disk = Disk::new(host, nsid);
                disk.write(0, &bytes(u64::from(nsid), 4096), Transfer::Keyed);
                let found = disk.read(0, 4096, Transfer::Keyed);
                assert_eq!(found, bytes(u64::from(nsid), 4096));
            } else {
                sees_nothing(host, nsid);
            }
        }
        host.run(command::flush(NSID_ALL), Data::None).unwrap();
    }
    for host in [a, b, c] {
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_host_gains_and_loses_a_namespace_while_others_use_it() {
    let target = TestTarget::start(&with(&[of(2, &["a"])]));
    let (mut a, mut b, mut c) = (
        connect(&target, "a"),
        connect(&target, "b"),
        connect(&target, "c"),
    );
    Disk::new(&mut a, 2).write(0, &bytes(2, 4096), Transfer::Keyed);
    target.reload(&with(&[of(2, &["a", "b"])]));
    assert_eq!(changed(&mut b), [2]);
    assert_eq!(b.active_namespaces().unwrap(), [1, 2]);
    let found = Disk::new(&mut b, 2).read(0, 4096, Transfer::Keyed);
    assert_eq!(found, bytes(2, 4096));
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| target.reload(&with(&[of(2, &["b"])])));
        loop {
            if let Err(error) = read(&mut a, 2) {
                break error;
            }
        }
    });
    let lost = status::<()>(Err(lost));
    assert_eq!(lost.code(), Status::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(changed(&mut a), [2]);
    assert_eq!(a.active_namespaces().unwrap(), [1]);
    sees_nothing(&mut a, 2);
    Disk::new(&mut b, 2).write(0, &bytes(3, 4096), Transfer::Keyed);
    target.reload(&with(&[namespace(2, "mem:1MiB")]));
    for host in [&mut a, &mut c] {
        assert_eq!(changed(host), [2]);
        let found = Disk::new(host, 2).read(0, 4096, Transfer::Keyed);
        assert_eq!(found, bytes(3, 4096));
    }
    assert_eq!(b.active_namespaces().unwrap(), [1, 2]);
    assert!(b.take_event().is_none());
    target.reload(&with(&[of(2, &[])]));
    for mut host in [a, b, c] {
        assert_eq!(changed(&mut host), [2]);
        sees_nothing(&mut host, 2);
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_namespace_that_is_added_for_some_hosts_is_an_event_to_them_alone() {
    let target = TestTarget::start(&with(&[]));
    let (mut a, mut b) = (connect(&target, "a"), connect(&target, "b"));
    target.reload(&with(&[of(2, &["b"])]));
    assert_eq!(changed(&mut b), [2]);
    read(&mut b, 2).unwrap();
    sees_nothing(&mut a, 2);
    target.reload(&with(&[]));
    assert_eq!(changed(&mut b), [2]);
    sees_nothing(&mut b, 2);
    assert!(a.take_event().is_none());
    for host in [a, b] {
        host.shutdown().unwrap();
    }
    target.stop();
}

fn of_groups(first: &[&str], second: &[&str]) -> String {
    let names = |hosts: &[&str]| -> Vec<String> {
        let hosts = hosts.iter().map(|name| host_nqn(name).raw().to_owned());
        hosts.collect()
    };
    let both = namespace(2, r#"mem:1MiB hosts = ["@first", "@second"]"#);
    let list = [vec!["@first".to_owned()], names(&["c"])].concat();
    let other = namespace(3, &format!("mem:1MiB hosts = {list:?}"));
    let groups = format!(
        "[[host_group]]\nname = \"first\"\nhosts = {:?}\n\
         [[host_group]]\nname = \"second\"\nhosts = {:?}\n",
        names(first),
        names(second)
    );
    with(&[both, other]) + &groups
}

#[test]
fn a_group_that_changes_shows_and_hides_the_namespaces_that_name_it() {
    let target = TestTarget::start(&of_groups(&["a"], &[]));
    let (mut a, mut b, mut c) = (
        connect(&target, "a"),
        connect(&target, "b"),
        connect(&target, "c"),
    );
    assert_eq!(a.active_namespaces().unwrap(), [1, 2, 3]);
    assert_eq!(b.active_namespaces().unwrap(), [1]);
    assert_eq!(c.active_namespaces().unwrap(), [1, 3]);
    Disk::new(&mut a, 2).write(0, &bytes(2, 4096), Transfer::Keyed);
    target.reload(&of_groups(&["a"], &["b"]));
    assert_eq!(changed(&mut b), [2]);
    let found = Disk::new(&mut b, 2).read(0, 4096, Transfer::Keyed);
    assert_eq!(found, bytes(2, 4096));
    sees_nothing(&mut b, 3);
    target.reload(&of_groups(&[], &["a", "b"]));
    assert_eq!(changed(&mut a), [3]);
    assert_eq!(a.active_namespaces().unwrap(), [1, 2]);
    sees_nothing(&mut a, 3);
    for host in [&mut b, &mut c] {
        assert!(host.take_event().is_none());
    }
    for host in [a, b, c] {
        host.shutdown().unwrap();
    }
    target.stop();
}

#[test]
fn a_host_that_leaves_a_group_leaves_the_subsystem_that_names_it() {
    let with_hosts = |names: &[&str]| {
        let names: Vec<String> = names
            .iter()
            .map(|name| host_nqn(name).raw().to_owned())
            .collect();
        let subsystem = subsystem(NQN, &["mem:1MiB"]);
        let subsystem = subsystem.replace("allow_any_host = true", "allowed_hosts = [\"@team\"]");
        assert!(subsystem.contains("@team"));
        format!("{subsystem}[[host_group]]\nname = \"team\"\nhosts = {names:?}\n")
    };
    let target = TestTarget::start(&with_hosts(&["a", "b"]));
    let (mut a, mut b) = (connect(&target, "a"), connect(&target, "b"));
    target.reload(&with_hosts(&["a"]));
    target.try_connect(target.options("b")).unwrap_err();
    assert!(read(&mut b, 1).is_err());
    read(&mut a, 1).unwrap();
    a.shutdown().unwrap();
    target.stop();
}
