use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use cairn_config::{Config, Listener};
use cairn_doctor::source::{Address, Live, Question, Source};
use cairn_rdma::PKey;

use crate::nouns::count;

/// Returns the commands that discover this target and connect to each subsystem. They use nvme-cli
/// in the default partition, and cairn-initiator in other partitions.
pub(super) fn lines(config: &Config, listening: &[(Listener, SocketAddr)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (listener, address) in listening {
        let ip = reachable(address.ip());
        let port = address.port();
        let is_scoped = listener.trid().unscoped().is_none();
        let (ip, note) = if ip.is_loopback() {
            (ip.to_string(), "  # from this machine alone")
        } else if is_scoped {
            (
                format!("{ip}%INTERFACE"),
                "  # by that INTERFACE of the host",
            )
        } else {
            (ip.to_string(), "")
        };
        let pkey = listener.pkey;
        let (discover, connect, rest) = if pkey.is_same_partition_as(PKey::DEFAULT) {
            (
                "nvme discover -t rdma",
                "nvme connect -t rdma",
                String::new(),
            )
        } else {
            let rest = format!(" --pkey {}", pkey.to_full());
            (
                "cairn-initiator discover",
                "cairn-initiator connect-check",
                rest,
            )
        };
        lines.push(format!("{discover} -a {ip} -s {port}{rest}{note}"));
        let subsystems = config.subsystems.iter();
        for subsystem in subsystems.filter(|one| one.is_behind(listener)) {
            let nqn = &subsystem.nqn;
            lines.push(format!("{connect} -a {ip} -s {port} -n {nqn}{rest}{note}"));
        }
    }
    lines
}

pub(super) fn summary(config: &Config) -> String {
    let namespaces: usize = config.subsystems.iter().map(|s| s.namespaces.len()).sum();
    format!(
        "{}, {}, {}",
        count(config.listeners.len() as u64, "listener"),
        count(config.subsystems.len() as u64, "subsystem"),
        count(namespaces as u64, "namespace"),
    )
}

/// Returns `listening` or, for a wildcard, the source address of the default route.
fn reachable(listening: IpAddr) -> IpAddr {
    if !listening.is_unspecified() {
        return listening;
    }
    let world = if listening.is_ipv4() {
        "192.0.2.1:9"
    } else {
        "[2001:db8::1]:9"
    };
    let local = UdpSocket::bind((listening, 0)).and_then(|socket| {
        socket.connect(world)?;
        socket.local_addr()
    });
    if let Ok(local) = local {
        return local.ip();
    }
    let machine: &dyn Source = &Live::machine();
    let known: Vec<Address> = machine.answer(&Question::Addresses).unwrap_or_default();
    let known: Vec<IpAddr> = known.into_iter().map(|one| one.address).collect();
    without_route(listening, &known)
}

/// Returns the address of an interface, else loopback, for a wildcard on a machine without a
/// default route.
fn without_route(listening: IpAddr, known: &[IpAddr]) -> IpAddr {
    let is_scoped = |one: &IpAddr| matches!(one, IpAddr::V6(v6) if v6.is_unicast_link_local());
    let mut known = known
        .iter()
        .filter(|one| one.is_ipv4() == listening.is_ipv4());
    let found = known.find(|one| !one.is_loopback() && !is_scoped(one));
    found.copied().unwrap_or(match listening {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Flags;

    const SCOPED: SocketAddr =
        SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)), 4420);

    fn listening(config: &Config) -> Vec<(Listener, SocketAddr)> {
        let all = config.listeners.iter();
        all.map(|one| (one.clone(), one.trid().unscoped().unwrap_or(SCOPED)))
            .collect()
    }

    #[test]
    fn listeners_of_other_partitions_are_for_hosts_that_know_partitions() {
        let flags = Flags {
            listen: vec!["192.0.2.1".into()],
            export: vec!["mem:1MiB".into()],
            nqn: Some("nqn.2024-01.com.example:disk".into()),
            pkey: PKey::new(0x0001),
            ..Flags::default()
        };
        let config = Config::from_flags(&flags).unwrap();
        assert_eq!(
            lines(&config, &listening(&config)),
            [
                "cairn-initiator discover -a 192.0.2.1 -s 4420 --pkey 0x8001",
                "cairn-initiator connect-check -a 192.0.2.1 -s 4420 \
                 -n nqn.2024-01.com.example:disk --pkey 0x8001",
            ]
        );
    }

    #[test]
    fn a_wildcard_is_never_an_address_to_connect_to() {
        let [any, any6] = ["0.0.0.0", "::"].map(|text| text.parse().unwrap());
        for listening in [any, any6] {
            let shown = reachable(listening);
            assert!(!shown.is_unspecified(), "{listening}: {shown}");
        }
        let known = ["127.0.0.1", "::1", "fe80::1", "192.0.2.9", "2001:db8::9"];
        let known = known.map(|text| text.parse().unwrap());
        let shown = |listening, known: &[IpAddr]| without_route(listening, known).to_string();
        assert_eq!(shown(any, &known), "192.0.2.9");
        assert_eq!(shown(any6, &known), "2001:db8::9");
        assert_eq!(shown(any, &known[..3]), "127.0.0.1");
        assert_eq!(shown(any6, &known[..3]), "::1");
        assert_eq!(shown(any6, &[]), "::1");
    }

    #[test]
    fn hosts_have_interfaces_of_their_own() {
        let flags = Flags {
            listen: vec!["[fe80::1%eth7]".into()],
            export: vec!["mem:1MiB".into()],
            nqn: Some("nqn.2024-01.com.example:disk".into()),
            ..Flags::default()
        };
        let config = Config::from_flags(&flags).unwrap();
        let discover = &lines(&config, &listening(&config))[0];
        let expected =
            "nvme discover -t rdma -a fe80::1%INTERFACE -s 4420  # by that INTERFACE of the host";
        assert_eq!(discover, expected);
    }

    #[test]
    fn lines_for_this_machine_alone_are_marked() {
        let flags = Flags {
            listen: vec!["127.0.0.2".into(), "[::1]".into(), "192.0.2.1".into()],
            export: vec!["mem:1MiB".into()],
            nqn: Some("nqn.2024-01.com.example:disk".into()),
            ..Flags::default()
        };
        let config = Config::from_flags(&flags).unwrap();
        let lines = lines(&config, &listening(&config));
        let is_marked = |line: &String| line.ends_with("  # from this machine alone");
        assert_eq!(lines.len(), 6);
        assert!(lines[..4].iter().all(is_marked), "{lines:?}");
        assert!(!lines[4..].iter().any(is_marked), "{lines:?}");
    }

    #[test]
    fn a_line_for_each_subsystem_of_each_listener() {
        let flags = Flags {
            listen: vec!["192.0.2.1".into(), "[2001:db8::1]".into()],
            export: vec!["mem:1MiB".into()],
            nqn: Some("nqn.2024-01.com.example:disk".into()),
            ..Flags::default()
        };
        let config = Config::from_flags(&flags).unwrap();
        assert_eq!(
            lines(&config, &listening(&config)),
            [
                "nvme discover -t rdma -a 192.0.2.1 -s 4420",
                "nvme connect -t rdma -a 192.0.2.1 -s 4420 -n nqn.2024-01.com.example:disk",
                "nvme discover -t rdma -a 2001:db8::1 -s 4420",
                "nvme connect -t rdma -a 2001:db8::1 -s 4420 -n nqn.2024-01.com.example:disk",
            ]
        );
        assert_eq!(summary(&config), "2 listeners, 1 subsystem, 1 namespace");
    }
}
