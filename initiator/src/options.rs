//! Whom to connect to, as whom, and how.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

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
    /// Whether to ask for SQ flow control to be disabled.
    pub disable_sq_flow_control: bool,
    /// Traffic class (ToS) of our packets. `None`: the fabric's default.
    pub traffic_class: Option<u8>,
    /// Events to hear of, as far as the controller offers them.
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
    /// end at once, for somebody else to send.
    pub requeue: bool,
}

impl HostOptions {
    /// One I/O queue of 128 entries, no keep alive, ten seconds of patience;
    /// timeout and recovery as in Linux.
    #[must_use]
    pub fn new(remote: SocketAddr, subnqn: Nqn, hostnqn: Nqn) -> Self {
        Self {
            remote,
            local: None,
            subnqn,
            hostnqn,
            hostid: *b"cairn-initiator!",
            io_queues: 1,
            queue_entries: 128,
            kato_ms: 0,
            disable_sq_flow_control: false,
            traffic_class: None,
            events: all_notices(),
            timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
            recovery: Recovery::default(),
            requeue: true,
        }
    }

    /// What of it concerns the association, not its driver.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            subnqn: self.subnqn,
            hostnqn: self.hostnqn,
            hostid: self.hostid,
            io_queues: self.io_queues,
            queue_entries: self.queue_entries,
            kato_ms: self.kato_ms,
            disable_sq_flow_control: self.disable_sq_flow_control,
            events: self.events,
            step_timeout: self.timeout,
            recovery: self.recovery,
        }
    }
}
