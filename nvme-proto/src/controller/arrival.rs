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
    pub peer: Option<IpAddr>,
    /// The target's name for the port that the host came by:
    /// [`Subsystem::set_ana_states`](crate::subsystem::Subsystem::set_ana_states) takes it.
    pub port: u64,
    /// The ANA states at that port.
    pub ana: &'a AnaStates,
}
