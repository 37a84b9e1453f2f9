//! Kernel answers in a network namespace of the test. Without root, the tests print a message and
//! end.

use std::collections::BTreeMap;
use std::process::Command;

use cairn_doctor::source::{
    Address, Driver, Echo, Live, Neighbour, Pause, Question, Reached, Reason, Route, Source,
};

fn leave_the_network() -> bool {
    // SAFETY: the call affects only the calling thread, and passes no pointers.
    let left = unsafe { libc::unshare(libc::CLONE_NEWNET) == 0 };
    if !left {
        eprintln!("not run: making a network namespace takes root");
    }
    left
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split(' ')).output();
    let done = done.expect("the program `ip` is there (package iproute2)");
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "ip {arguments}: {stderr}");
}

fn ask<T: serde::de::DeserializeOwned>(question: &Question) -> Result<T, Reason> {
    let machine: &dyn Source = &Live::machine();
    machine.answer(question).map_err(|unknown| unknown.reason)
}

#[test]
fn packets_of_each_size_come_back_or_are_too_big() {
    if !leave_the_network() {
        return;
    }
    ip("link set lo mtu 4200 up");
    for (peer, limit) in [("127.0.0.1", 4200), ("::1", 4200)] {
        let peer = peer.parse().unwrap();
        for bytes in [84, 1500, limit] {
            assert_eq!(
                ask(&Question::Echo(peer, bytes)),
                Ok(Echo::Answered),
                "{peer} {bytes}"
            );
        }
        let answer = ask(&Question::Echo(peer, limit + 4));
        assert_eq!(answer, Ok(Echo::TooBig), "{peer}");
    }
}

#[test]
fn addresses_ways_and_neighbours_are_those_of_the_namespace() {
    if !leave_the_network() {
        return;
    }
    ip("link add cable0 type veth peer name cable1");
    ip("link set cable1 up");
    ip("address add 10.78.0.1/24 dev cable0");
    ip("link set cable0 mtu 4200 up");
    ip("route add 10.79.0.0/16 via 10.78.0.254 mtu 1400");
    ip("neighbour add 10.78.0.2 lladdr 02:00:00:00:00:07 dev cable0");

    let addresses: Vec<Address> = ask(&Question::Addresses).unwrap();
    let own = addresses.iter().find(|own| own.address.is_ipv4()).unwrap();
    assert_eq!((own.netdev.as_str(), own.prefix), ("cable0", 24));

    let way: Route = ask(&Question::Route("10.79.1.1".parse().unwrap())).unwrap();
    let expected = Route {
        netdev: "cable0".to_owned(),
        source: "10.78.0.1".parse().ok(),
        gateway: "10.78.0.254".parse().ok(),
        mtu: Some(1400),
    };
    assert_eq!(way, expected);
    assert!(ask::<Route>(&Question::Route("192.0.2.1".parse().unwrap())).is_err());

    let question = Question::Neighbour("cable0".to_owned(), "10.78.0.2".parse().unwrap());
    let expected = Neighbour {
        state: "PERMANENT".to_owned(),
        mac: Some("02:00:00:00:00:07".to_owned()),
    };
    assert_eq!(ask(&question), Ok(expected));

    let driver: Driver = ask(&Question::Driver("cable0".to_owned())).unwrap();
    assert_eq!(driver.driver, "veth");
    let statistics: BTreeMap<String, u64> =
        ask(&Question::Statistics("cable0".to_owned())).unwrap();
    assert!(statistics.contains_key("peer_ifindex"), "{statistics:?}");
    assert!(matches!(
        ask::<Pause>(&Question::Pause("cable0".to_owned())),
        Err(Reason::Other(_))
    ));
    assert_eq!(
        ask::<Pause>(&Question::Pause("gone0".to_owned())),
        Err(Reason::Absent)
    );
}

#[test]
fn a_way_that_is_blocked_is_unreachable() {
    if !leave_the_network() {
        return;
    }
    ip("link set lo up");
    ip("route add prohibit 10.79.0.0/16");
    let answer = ask(&Question::Udp("10.79.0.1".parse().unwrap(), 4791));
    assert_eq!(answer, Ok(Reached::Unreachable));
    let answer = ask(&Question::Udp("127.0.0.1".parse().unwrap(), 4791));
    assert_eq!(answer, Ok(Reached::Refused));
}
