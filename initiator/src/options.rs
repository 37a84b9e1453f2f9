use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use cairn_rdma::marking::{Marking, Rules};
use cairn_rdma::{AckTimeout, PKey};
use nvme_auth::Secrets;
use nvme_proto::host::{Recovery, Settings, all_notices};
use nvme_proto::wire::Nqn;
use nvme_proto::wire::feature::AsyncEventConfig;

use crate::identity::Identity;

/// KATO of Linux and nvme-cli.
const KATO_MS: u32 = 5000;

/// Connection options of a host.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// Address of the target's listener.
    pub remote: SocketAddr,
    /// Local address, or `None` for the fabric's choice.
    pub local: Option<IpAddr>,
    /// P_Key, which must be in the P_Key table of an RDMA device.
    pub pkey: PKey,
    /// NQN of the subsystem.
    pub subnqn: Nqn,
    /// NQN of the local host.
    pub hostnqn: Nqn,
    /// Identifier of the local host.
    pub hostid: [u8; 16],
    /// I/O queues to request. With 0, only the admin queue is connected.
    pub io_queues: u16,
    /// Entries of each I/O submission queue. One entry is never used (Base, 3.3.1.5).
    pub queue_entries: u16,
    /// KATO in milliseconds.
    ///
    /// With 0, the target does not notice that a host vanished, and may execute the host's old
    /// writes after newer writes of another connection.
    pub kato_ms: u32,
    /// DH-HMAC-CHAP secrets, if the target requires them. With a controller secret, the target must
    /// authenticate too.
    pub authentication: Option<Secrets>,
    /// Interval of reauthentication, if the target required authentication. With `None`, only
    /// [`reauthenticate`](crate::Controller::reauthenticate) authenticates again.
    pub reauthenticate_every: Option<Duration>,
    /// True to request disabled SQ flow control.
    pub disable_sq_flow_control: bool,
    /// Traffic class (ToS) of sent packets, or `None` for the fabric's default.
    pub traffic_class: Option<u8>,
    /// Hop limit of sent packets, or `None` for the fabric's default.
    pub hop_limit: Option<u8>,
    /// Marking rules, which override `traffic_class` and `hop_limit`.
    pub marking_rules: Arc<Rules>,
    /// Time after which an adapter repeats unacknowledged packets ([`QpOptions::ack_timeout`](cairn_rdma::QpOptions::ack_timeout)).
    pub ack_timeout: Option<AckTimeout>,
    /// Asynchronous events to enable if supported.
    pub events: AsyncEventConfig,
    /// Timeout of each connection step, and of blocking [`Host`](crate::Host) methods.
    pub timeout: Duration,
    /// Time after which a command is aborted, by Cancel if possible. If the command does not end
    /// within the same time again, its controller counts as lost. Each wait may be up to 25 %
    /// longer.
    pub command_timeout: Duration,
    /// Reconnection to a lost controller.
    pub recovery: Recovery,
    /// True if idempotent commands wait for the reconnection of a lost controller, false if they
    /// end when their connection is closed.
    pub requeue: bool,
    /// Delay after a connection closed, before unanswered writes are sent again. Meanwhile, other
    /// writes to the same blocks wait too.
    ///
    /// `None` ends the delay when the lost target can no longer execute the old writes, according
    /// to KATO and CQT. Zero is no delay, as in Linux: a target that was only paused may then
    /// overwrite newer data with the old writes.
    pub write_hold: Option<Duration>,
}

impl HostOptions {
    /// Creates options with defaults: one I/O queue of 128 entries, and a timeout of 10 s. KATO
    /// (5 s), command timeout and recovery are those of Linux.
    #[must_use]
    pub fn new(remote: SocketAddr, subnqn: Nqn, host: Identity) -> Self {
        Self {
            remote,
            local: None,
            pkey: PKey::DEFAULT,
            subnqn,
            hostnqn: host.nqn,
            hostid: host.id,
            io_queues: 1,
            queue_entries: 128,
            kato_ms: KATO_MS,
            authentication: None,
            reauthenticate_every: None,
            disable_sq_flow_control: false,
            traffic_class: None,
            hop_limit: None,
            ack_timeout: None,
            marking_rules: Arc::default(),
            events: all_notices(),
            timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
            recovery: Recovery::default(),
            requeue: true,
            write_hold: None,
        }
    }

    pub(crate) fn marking(&self) -> Marking {
        let otherwise = Marking {
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        };
        if self.marking_rules.iter().next().is_none() {
            return otherwise;
        }
        let remote = self.remote.ip();
        let local = self.local.or_else(|| local_for(self.remote));
        let local = local.unwrap_or(remote);
        let host_nqn = Some(self.hostnqn.raw());
        self.marking_rules
            .choose(local, remote, host_nqn)
            .or(otherwise)
    }

    /// Entries of each I/O queue, at least 2. With secrets, one more entry is reserved for
    /// authentication.
    pub(crate) fn entries(&self) -> u16 {
        let spare = u16::from(self.authentication.is_some());
        self.queue_entries.max(2).saturating_add(spare)
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            subnqn: self.subnqn,
            hostnqn: self.hostnqn,
            hostid: self.hostid,
            io_queues: self.io_queues,
            queue_entries: self.entries(),
            spare_entry: self.authentication.is_some(),
            kato_ms: self.kato_ms,
            disable_sq_flow_control: self.disable_sq_flow_control,
            expects_proof: self
                .authentication
                .as_ref()
                .is_some_and(|secrets| secrets.controller.is_some()),
            reauthenticate_every: self.reauthenticate_every,
            events: self.events,
            step_timeout: self.timeout,
            recovery: self.recovery,
        }
    }
}

fn local_for(remote: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(remote).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_know_both_ends_and_who_we_are() {
        let remote = "127.0.0.9:4420".parse().unwrap();
        let name = |text: &str| Nqn::parse(text).unwrap();
        let host = Identity::named(name("nqn.2024-01.com.example:a-host"));
        let lines = [
            "tclass=8,src_ip=127.0.0.0/8,dst_ip=127.0.0.0/8",
            "tclass=16,dst_ip=127.0.0.10",
            "tclass=24,host_nqn=nqn.2024-01.com.example:b-host",
            "hop_limit=3,src_ip=192.0.2.0/24",
        ];
        let mut options = HostOptions {
            traffic_class: Some(96),
            hop_limit: Some(64),
            marking_rules: Arc::new(Rules::parse(lines).unwrap()),
            ..HostOptions::new(remote, name("nqn.2024-01.com.example:disks"), host)
        };
        let class = |options: &HostOptions| options.marking().traffic_class;
        assert_eq!(
            class(&options),
            Some(8),
            "the route says which address is ours"
        );
        assert_eq!(options.marking().hop_limit, Some(64));
        options.local = Some([192, 0, 2, 1].into());
        assert_eq!(class(&options), Some(96), "no rule is about that");
        assert_eq!(options.marking().hop_limit, Some(3));
        options.remote = "127.0.0.10:4420".parse().unwrap();
        assert_eq!(class(&options), Some(16));
        options.hostnqn = name("nqn.2024-01.com.example:b-host");
        assert_eq!(class(&options), Some(24));
    }

    #[test]
    fn each_host_has_its_own_identity_and_a_keep_alive() {
        let remote = "127.0.0.9:4420".parse().unwrap();
        let name = |text: &str| Nqn::parse(text).unwrap();
        let subsystem = name("nqn.2024-01.com.example:disks");
        let [one, other] = [
            "nqn.2024-01.com.example:one",
            "nqn.2024-01.com.example:other",
        ]
        .map(|host| HostOptions::new(remote, subsystem, Identity::named(name(host))));
        assert_ne!(one.hostid, other.hostid);
        assert_eq!(one.kato_ms, 5000);
    }
}
