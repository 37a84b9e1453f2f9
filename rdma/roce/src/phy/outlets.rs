//! Where an endpoint's queue pairs send from.
//!
//! RoCE v2's flow label is the UDP source port (annex A17.3), by which routers
//! spread flows over their paths, and adapters over their queues. Only a socket
//! of its own gives a flow a port of its own: there is no control message for it.
//! But packets of one flow travel together at the price of one ([`super::batch`]),
//! whichever queue pairs they belong to. So the queue pairs towards one endpoint of
//! a peer share a flow. It is one thread at either end that sends and receives what
//! is in it; hosts and reactors are what spreads over paths.
//!
//! What comes back together is handed to one of the peer's endpoints, by the first
//! packet's queue pair. So a flow leads to no other endpoint of that peer; towards
//! other peers, other flows may have the same port.
//!
//! Sockets are opened while connecting, and kept for the next queue pair.
//!
//! In RoCE v1 the flow label stands in the GRH. What takes a socket there is
//! the priority.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use super::Network;
use super::packet::PacketSocket;
use super::socket::Socket;
use crate::chance::Chance;

/// Sockets that an endpoint's queue pairs send from.
const MAX_SOCKETS: usize = 256;
/// Source ports begin here, as rdma_rxe's and most adapters' do.
const FIRST_PORT: u16 = 0xc000;
/// Ports that are tried before an endpoint is content with those that it has.
const TRIES: u32 = 100;

/// Where a queue pair sends from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlet {
    /// The socket; -1 on a wire in memory.
    pub fd: RawFd,
    /// The flow label: the UDP source port, where there is UDP.
    pub flow: u16,
    /// Which of the ports it is, and for whom.
    place: Option<(usize, Toward)>,
}

impl Outlet {
    /// Of a queue pair that does not send yet.
    pub const UNDECIDED: Self = Self {
        fd: -1,
        flow: 0,
        place: None,
    };
}

/// Whom a flow is for: an endpoint of a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Toward {
    /// The peer's address.
    pub remote: IpAddr,
    /// Which of the peer's endpoints: the top bits of its queue pairs' numbers.
    pub endpoint: u32,
}

/// An endpoint's sockets.
#[derive(Debug)]
pub struct Outlets {
    network: Network,
    address: IpAddr,
    chance: Chance,
    ports: Vec<Port>,
    /// What the ports are used for: queue pairs that send so.
    uses: HashMap<(usize, IpAddr), Use>,
    /// By priority.
    priorities: Vec<(i32, PacketSocket)>,
}

#[derive(Debug)]
struct Port {
    /// None on a wire in memory.
    socket: Option<Socket>,
    number: u16,
}

/// The flow from one port to one peer.
#[derive(Debug)]
struct Use {
    endpoint: u32,
    queue_pairs: u32,
}

impl Outlets {
    /// None yet.
    #[must_use]
    pub fn new(network: Network, address: IpAddr, chance: Chance) -> Self {
        Self {
            network,
            address,
            chance,
            ports: Vec::new(),
            uses: HashMap::new(),
            priorities: Vec::new(),
        }
    }

    /// An outlet for a queue pair whose packets go there and have this traffic class.
    ///
    /// # Errors
    /// The system has no socket, and there is none that could be shared.
    pub fn take(&mut self, toward: Toward, traffic_class: u8) -> io::Result<Outlet> {
        if matches!(self.network, Network::Ethernet { .. }) {
            let fd = self.of_priority(priority_of(traffic_class))?;
            let flow = self.chance.draw() as u16;
            return Ok(Outlet {
                fd,
                flow,
                place: None,
            });
        }
        let place = self.choose(toward)?;
        let begun = self.uses.entry((place, toward.remote)).or_insert(Use {
            endpoint: toward.endpoint,
            queue_pairs: 0,
        });
        begun.queue_pairs += 1;
        let port = &self.ports[place];
        Ok(Outlet {
            fd: port.socket.as_ref().map_or(-1, Socket::raw),
            flow: port.number,
            place: Some((place, toward)),
        })
    }

    /// The outlet of a queue pair whose packets have another traffic class from now on.
    ///
    /// # Errors
    /// As [`Outlets::take`]; then it keeps what it has.
    pub fn retake(&mut self, outlet: Outlet, traffic_class: u8) -> io::Result<Outlet> {
        Ok(match self.network {
            Network::Ethernet { .. } => Outlet {
                fd: self.of_priority(priority_of(traffic_class))?,
                ..outlet
            },
            _ => outlet,
        })
    }

    /// A queue pair needs its outlet no more.
    pub fn give_back(&mut self, outlet: Outlet) {
        let Some((place, toward)) = outlet.place else {
            return;
        };
        let key = (place, toward.remote);
        let used = self.uses.get_mut(&key).expect("it was taken");
        used.queue_pairs -= 1;
        if used.queue_pairs == 0 {
            self.uses.remove(&key);
        }
    }

    /// The port of the flow that is to have one queue pair more: the one that leads
    /// there, or else one that leads to nobody at that address.
    fn choose(&mut self, toward: Toward) -> io::Result<usize> {
        let endpoint_of = |place: usize| {
            let flow = self.uses.get(&(place, toward.remote));
            flow.map(|flow| flow.endpoint)
        };
        let mut places = 0..self.ports.len();
        let leads_there = |place: &usize| endpoint_of(*place) == Some(toward.endpoint);
        let is_free = |place: &usize| endpoint_of(*place).is_none();
        let place = places.clone().find(leads_there);
        match place.or_else(|| places.find(is_free)) {
            Some(place) => Ok(place),
            None => self.open(),
        }
    }

    fn open(&mut self) -> io::Result<usize> {
        if self.ports.len() == MAX_SOCKETS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let mut tries = 0;
        let (socket, number) = loop {
            let number = FIRST_PORT | self.chance.draw() as u16;
            if matches!(self.network, Network::Wire(_)) {
                break (None, number);
            }
            match Socket::bind_sender(SocketAddr::new(self.address, number)) {
                Ok(socket) => break (Some(socket), number),
                // Somebody has that port.
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        };
        self.ports.push(Port { socket, number });
        Ok(self.ports.len() - 1)
    }

    fn of_priority(&mut self, priority: i32) -> io::Result<RawFd> {
        let open = self.priorities.iter().find(|(of, _)| *of == priority);
        if let Some((_, socket)) = open {
            return Ok(socket.raw());
        }
        let socket = PacketSocket::sender(priority)?;
        let fd = socket.raw();
        self.priorities.push((priority, socket));
        Ok(fd)
    }
}

/// The priority that Linux gives a packet by its type of service (ip(7),
/// tc-prio(8)), and by which a VLAN's `egress-qos-map` chooses the PCP.
const fn priority_of(traffic_class: u8) -> i32 {
    // Best effort, bulk, interactive, interactive bulk.
    [0, 2, 6, 4][(traffic_class >> 3 & 3) as usize]
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn outlets() -> Outlets {
        let address = Ipv4Addr::LOCALHOST.into();
        Outlets::new(Network::System, address, Chance::default())
    }

    fn toward(host: u8, endpoint: u32) -> Toward {
        Toward {
            remote: Ipv4Addr::new(192, 0, 2, host).into(),
            endpoint,
        }
    }

    #[test]
    fn queue_pairs_towards_an_endpoint_share_its_flow() {
        let mut outlets = outlets();
        let mut taken: Vec<_> = (0..10)
            .map(|_| outlets.take(toward(1, 1), 0).unwrap())
            .collect();
        assert!(taken[0].flow >= FIRST_PORT);
        assert!(taken.iter().all(|outlet| outlet.flow == taken[0].flow));
        taken.drain(..).for_each(|outlet| outlets.give_back(outlet));
        assert!(outlets.uses.is_empty());
        outlets.take(toward(1, 2), 0).unwrap();
        assert_eq!(outlets.ports.len(), 1, "sockets are kept");
    }

    #[test]
    fn a_port_leads_to_one_endpoint_of_a_peer_and_to_many_peers() {
        let mut outlets = outlets();
        let mut port_to = |host, endpoint| outlets.take(toward(host, endpoint), 0).unwrap().flow;
        let (one, other) = (port_to(1, 1), port_to(1, 2));
        assert_ne!(one, other);
        assert_eq!(port_to(2, 1), one);
    }

    #[test]
    fn without_another_port_no_endpoint_takes_that_of_its_neighbour() {
        let mut outlets = outlets();
        let endpoints = MAX_SOCKETS as u32;
        for endpoint in 0..endpoints {
            outlets.take(toward(1, endpoint), 0).unwrap();
        }
        assert_eq!(outlets.ports.len(), MAX_SOCKETS);
        assert!(outlets.take(toward(1, endpoints), 0).is_err());
        assert!(outlets.take(toward(2, endpoints), 0).is_ok());
        assert!(outlets.take(toward(1, 0), 0).is_ok());
    }

    #[test]
    fn priorities_are_the_kernels() {
        // DSCP AF11, CS1, AF31 and EF, as rt_tos2priority() has them.
        let of = |dscp: u8| priority_of(dscp << 2);
        assert_eq!([of(0), of(10), of(8), of(26), of(46)], [0, 2, 0, 2, 4]);
    }
}
