use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Global pause (IEEE 802.3x), which stops all traffic of the link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// True if the netdev obeys received pause frames.
    pub rx: bool,
    /// True if the netdev sends pause frames.
    pub tx: bool,
    pub autonegotiated: bool,
}

/// IEEE 802.1Qaz settings that affect RoCE.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dcb {
    /// Priorities with flow control (PFC, IEEE 802.1Qbb).
    pub pfc: Vec<u8>,
    /// Map from DSCP to priority; if empty, the adapter uses the PCP.
    pub dscp: BTreeMap<u8, u8>,
}

/// Ring sizes of a netdev, in entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    pub rx: u32,
    pub rx_max: u32,
    pub tx: u32,
    pub tx_max: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Driver {
    pub driver: String,
    /// Firmware version; empty without firmware.
    pub firmware: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub netdev: String,
    pub address: IpAddr,
    pub prefix: u8,
}

/// Attributes of an RDMA device, as in `ibv_devinfo -v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes {
    pub iwarp: bool,
    pub max_qp: u32,
    /// Maximum work requests of a queue.
    pub max_qp_wr: u32,
    /// Maximum shared receive queues; 0 if the device has none.
    pub max_srq: u32,
    /// Maximum RDMA READs from a peer that a queue pair executes concurrently.
    pub max_qp_rd_atom: u32,
    /// Maximum RDMA READs that a queue pair starts concurrently.
    pub max_qp_init_rd_atom: u32,
    /// True if the device reports to a sender that no receive is posted (RNR NAK).
    pub rnr_nak: bool,
    /// True if the device supports SEND with Invalidate.
    pub invalidate: bool,
}

/// MTU of an RDMA port, in bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortMtu {
    pub active: u32,
    pub max: u32,
}

/// Group of queue pairs with the same port, type and state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueuePairs {
    /// Port number from 1; `None` if not yet assigned.
    pub port: Option<u32>,
    /// Type as in `rdma resource`: GSI, RC, UD, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// State: RESET, INIT, RTR, RTS, SQD, SQE or ERR.
    pub state: String,
    pub count: u32,
}

impl QueuePairs {
    /// True for the connection manager's queue pair (GSI) in state ERR, which the kernel does not
    /// recover.
    #[must_use]
    pub fn is_broken_gsi(&self) -> bool {
        self.kind == "GSI" && self.state == "ERR"
    }
}

/// Connection manager defaults for connections without a RoCE mode or ToS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Defaults {
    /// RoCE mode: "IB/RoCE v1" or "RoCE v2".
    pub mode: String,
    pub tos: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    pub netdev: String,
    /// Source address of packets to the peer, if known.
    pub source: Option<IpAddr>,
    /// Router address; `None` if the peer is on the link.
    pub gateway: Option<IpAddr>,
    /// Path MTU learnt by the kernel, in bytes.
    pub mtu: Option<u32>,
}

/// Entry of the neighbour table (ARP, neighbour discovery).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Neighbour {
    /// State as in `ip neigh`: REACHABLE, STALE, FAILED, ...
    pub state: String,
    pub mac: Option<String>,
}

/// Result of a test packet that must not be fragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Echo {
    Answered,
    /// No answer arrived in time.
    Silent,
    /// A router or the peer reported that the packet was too big.
    TooBig,
}

/// Result of a datagram to a UDP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// No ICMP error arrived: the datagram was accepted or filtered.
    Silent,
    /// The peer reported that no program uses the port (ICMP port unreachable).
    Refused,
    /// A machine on the path reported that the destination is unreachable or prohibited.
    Unreachable,
    /// A filter of this machine stopped the datagram.
    FilteredHere,
}
