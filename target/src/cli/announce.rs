//! Commands for connecting a host.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use cairn_config::{Config, Listener};
use cairn_rdma::PKey;

/// Discover, then connect for each subsystem. Linux hosts support only the default partition.
pub(super) fn lines(config: &Config, listening: &[(Listener, SocketAddr)]) -> Vec<String> {
    let mut lines = Vec::new();
    for (listener, address) in listening {
        let ip = reachable(address.ip());
        let port = address.port();
        let local = if ip.is_loopback() {
            "  # from this machine alone"
        } else {
            ""
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
        lines.push(format!("{discover} -a {ip} -s {port}{rest}{local}"));
        let subsystems = config.subsystems.iter();
        for subsystem in subsystems.filter(|one| one.is_behind(listener)) {
            let nqn = &subsystem.nqn;
            lines.push(format!("{connect} -a {ip} -s {port} -n {nqn}{rest}{local}"));
        }
    }
    lines
}

pub(super) fn summary(config: &Config) -> String {
    let namespaces: usize = config.subsystems.iter().map(|s| s.namespaces.len()).sum();
    format!(
        "ok: {}, {}, {}",
        count(config.listeners.len(), "listener"),
        count(config.subsystems.len(), "subsystem"),
        count(namespaces, "namespace"),
    )
}

fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns the address to connect to; for a wildcard, the source address of the default route.
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
    local.map_or(listening, |local| local.ip())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Flags;

    fn listening(config: &Config) -> Vec<(Listener, SocketAddr)> {
        let all = config.listeners.iter();
        all.map(|one| (one.clone(), one.socket_address())).collect()
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
        assert_eq!(
            summary(&config),
            "ok: 2 listeners, 1 subsystem, 1 namespace"
        );
    }
}
