//! What a Connect comes with.

use core::net::IpAddr;
use core::time::Duration;

use crate::ana::AnaStates;
use crate::discovery::LocalEnd;
use crate::wire::cm::RequestData;

/// A Connect, and what the target knows of the connection it came on.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Time since any fixed origin.
    pub now: Duration,
    /// Private data of the RDMA connection request; `None` on a transport without.
    pub cm: Option<&'a RequestData>,
    /// Where the host connected to: what the discovery log shows for a listener
    /// on a wildcard address, and which listeners it shows.
    pub local: Option<LocalEnd>,
    /// Where the host connected from, if that is known.
    pub peer: Option<Peer>,
    /// The target's name for the port that the host came by:
    /// [`Subsystem::set_ana_states`](crate::subsystem::Subsystem::set_ana_states) takes it.
    pub port: u64,
    /// The ANA states at that port.
    pub ana: &'a AnaStates,
}

/// Address of a host, and the addresses whose controllers count against its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The host's address.
    pub address: IpAddr,
    /// The first address that counts.
    pub first: IpAddr,
    /// The last one.
    pub last: IpAddr,
}

impl Peer {
    pub(crate) fn counts(&self, address: IpAddr) -> bool {
        (self.first..=self.last).contains(&address.to_canonical())
    }
}
