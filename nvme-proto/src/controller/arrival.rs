//! Properties of the connection of a Connect command.

use core::net::IpAddr;
use core::time::Duration;

use crate::ana::AnaStates;
use crate::discovery::LocalEnd;
use crate::wire::cm::RequestData;

/// Properties of the connection that carries a Connect.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Time since a fixed origin.
    pub now: Duration,
    /// Private data of the RDMA connection request, if the transport is RDMA.
    pub cm: Option<&'a RequestData>,
    /// Local end of the connection.
    ///
    /// Selects listeners in the discovery log, and is the address reported for a wildcard listener.
    pub local: Option<LocalEnd>,
    /// Remote end of the connection, if known.
    pub peer: Option<Peer>,
    /// Port number, as used in
    /// [`Subsystem::set_ana_states`](crate::subsystem::Subsystem::set_ana_states).
    pub port: u64,
    /// ANA states at the port.
    pub ana: &'a AnaStates,
}

/// Address of a host, and the range of addresses that share its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Address of the host.
    pub address: IpAddr,
    /// First address of the range.
    pub first: IpAddr,
    /// Last address of the range.
    pub last: IpAddr,
}

impl Peer {
    pub(crate) fn counts(&self, address: IpAddr) -> bool {
        (self.first..=self.last).contains(&address.to_canonical())
    }
}
