//! Whom to connect to, as whom, and how.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use cairn_rdma::PKey;
use cairn_rdma::marking::{Marking, Rules};
use nvme_auth::Secrets;
use nvme_proto::host::{Recovery, Settings, all_notices};
use nvme_proto::wire::Nqn;
use nvme_proto::wire::feature::AsyncEventConfig;

/// How a host connects, and what it does when that ends.
#[derive(Debug, Clone)]
pub struct HostOptions {
    /// The target's listener.
    pub remote: SocketAddr,
    /// The address to connect from. `None`: the fabric chooses.
    pub local: Option<IpAddr>,
    /// Our membership in the partition that the target's listener is of. Over RDMA
    /// adapters, it has to be in their tables.
    pub pkey: PKey,
    /// SUBNQN: the subsystem.
    pub subnqn: Nqn,
    /// HOSTNQN: who we are.
    pub hostnqn: Nqn,
    /// HOSTID: which machine we are.
    pub hostid: [u8; 16],
    /// I/O queues to ask for; 0 makes an association that only administrates.
    pub io_queues: u16,
    /// Entries of each I/O submission queue. A queue that is full is one entry
    /// short of that many commands (Base, 3.3.1.5).
    pub queue_entries: u16,
    /// KATO: keep alive timeout in milliseconds; 0 for none. Polling sends the
    /// Keep Alives.
    pub kato_ms: u32,
    /// The secrets for DH-HMAC-CHAP, where the target requires it on every queue. With one of
    /// the controller, the target has to prove that it has that.
    pub authentication: Option<Secrets>,
    /// How often each queue of a connected controller authenticates again, if the target required
    /// that when it was connected. `None`: only when
    /// [`reauthenticate`](crate::Controller::reauthenticate) asks for it.
    pub reauthenticate_every: Option<Duration>,
    /// Whether to ask for SQ flow control to be disabled.
    pub disable_sq_flow_control: bool,
    /// Traffic class (ToS) of our packets. `None`: the fabric's default.
    pub traffic_class: Option<u8>,
    /// Hop limit of our packets. `None`: the fabric's default.
    pub hop_limit: Option<u8>,
    /// Rules for both; what none of them says, `traffic_class` and `hop_limit` do.
    pub marking_rules: Arc<Rules>,
    /// Events to enable, as far as the controller offers them.
    pub events: AsyncEventConfig,
    /// Patience with connections, with each step on the way up, and of the
    /// methods of [`Host`](crate::Host) that block.
    pub timeout: Duration,
    /// How long a command may take before it is aborted, and how long after that
    /// before the controller counts as lost. It takes up to a quarter longer.
    pub command_timeout: Duration,
    /// Whether to connect again once the controller is lost, and for how long.
    pub recovery: Recovery,
    /// What becomes of the commands of a lost controller that can safely be sent
    /// again: if set, they wait until it is back, and so do new ones; if not, they
    /// end at once, for another path to send.
    pub requeue: bool,
    /// How long a write whose connection was lost waits before it is sent again, and other
    /// writes of its blocks with it, from the close of that connection on. `None`: until
    /// the lost target cannot carry it out any more, by KATO and CQT. Zero: not at all, as
    /// Linux does; then a target that was only paused may carry it out over newer data.
    pub write_hold: Option<Duration>,
}

impl HostOptions {
    /// One I/O queue of 128 entries, no keep alive, ten seconds of patience;
    /// timeout and recovery as in Linux.
    #[must_use]
    pub fn new(remote: SocketAddr, subnqn: Nqn, hostnqn: Nqn) -> Self {
        Self {
            remote,
            local: None,
            pkey: PKey::DEFAULT,
            subnqn,
            hostnqn,
            hostid: *b"cairn-initiator!",
            io_queues: 1,
            queue_entries: 128,
            kato_ms: 0,
            authentication: None,
            reauthenticate_every: None,
            disable_sq_flow_control: false,
            traffic_class: None,
            hop_limit: None,
            marking_rules: Arc::default(),
            events: all_notices(),
            timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
            recovery: Recovery::default(),
            requeue: true,
            write_hold: None,
        }
    }

    /// What our packets are to carry.
    pub(crate) fn marking(&self) -> Marking {
        let otherwise = Marking {
            traffic_class: self.traffic_class,
            hop_limit: self.hop_limit,
        };
        if self.marking_rules.iter().next().is_none() {
            return otherwise;
        }
        let remote = self.remote.ip();
        // Without a way there, connecting fails anyhow, and says so.
        let local = self.local.or_else(|| local_for(self.remote));
        let local = local.unwrap_or(remote);
        let host_nqn = Some(self.hostnqn.raw());
        self.marking_rules
            .choose(local, remote, host_nqn)
            .or(otherwise)
    }

    /// Entries of each I/O queue: as many as were asked for, and with secrets one more, for the
    /// commands of an authentication. A queue has two at least.
    pub(crate) fn entries(&self) -> u16 {
        let spare = u16::from(self.authentication.is_some());
        self.queue_entries.max(2).saturating_add(spare)
    }

    /// What of it concerns the association, not its driver.
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

/// The address from which this machine reaches another. Connecting a UDP socket
/// sends nothing: it only looks up the route.
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
        let host = name("nqn.2024-01.com.example:a-host");
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
}
