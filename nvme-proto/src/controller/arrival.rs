use core::net::IpAddr;
use core::time::Duration;

use crate::ana::AnaStates;
use crate::discovery::LocalEnd;
use crate::wire::cm::RequestData;

/// Connection on which a Connect arrived.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Time since a fixed origin.
    pub now: Duration,
    /// Private data of the connection request; `None` for transports other than RDMA.
    pub cm: Option<&'a RequestData>,
    /// Local address and P_Key, if known.
    ///
    /// The discovery log lists only listeners of this partition, and shows this address instead of
    /// a wildcard.
    pub local: Option<LocalEnd>,
    /// Host's address, if known.
    pub peer: Option<Peer>,
    /// Port number, for [`Subsystem::set_ana_states`](crate::subsystem::Subsystem::set_ana_states).
    pub port: u64,
    /// Random seed of the controller's CIU and CIRN.
    pub random: u64,
    /// ANA states of the port.
    pub ana: &'a AnaStates,
}

impl<'a> Arrival<'a> {
    /// Creates an arrival at port 0, without addresses, with random number 0.
    #[must_use]
    pub fn new(now: Duration, cm: Option<&'a RequestData>, ana: &'a AnaStates) -> Self {
        Self {
            now,
            cm,
            local: None,
            peer: None,
            port: 0,
            random: 0,
            ana,
        }
    }
}

/// Address of a host, and the address range that shares its limits.
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
