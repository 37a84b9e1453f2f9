//! Where an endpoint's queue pairs send from.
//!
//! RoCE v2's flow label is the UDP source port (annex A17.3), by which routers
//! spread flows over their paths, and adapters over their queues. Only a socket
//! of its own gives a queue pair a port of its own: there is no control message
//! for it. Up to 256 of an endpoint's queue pairs have one; what is
//! beyond that shares them, as everything does where descriptors are scarce.
//! They are opened while connecting, and kept for the next queue pair.
//!
//! In RoCE v1 the flow label stands in the GRH. What takes a socket there is
//! the priority.

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
    /// Which of the ports it is.
    place: Option<usize>,
}

/// An endpoint's sockets.
#[derive(Debug)]
pub struct Outlets {
    network: Network,
    address: IpAddr,
    chance: Chance,
    ports: Vec<Port>,
    /// By priority.
    priorities: Vec<(i32, PacketSocket)>,
}

#[derive(Debug)]
struct Port {
    /// None on a wire in memory.
    socket: Option<Socket>,
    number: u16,
    /// Queue pairs that send from it.
    users: u32,
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
            priorities: Vec::new(),
        }
    }

    /// An outlet for a queue pair whose packets have this traffic class.
    ///
    /// # Errors
    /// The system has no socket, and there is none that could be shared.
    pub fn take(&mut self, traffic_class: u8) -> io::Result<Outlet> {
        if matches!(self.network, Network::Ethernet { .. }) {
            let fd = self.of_priority(priority_of(traffic_class))?;
            let flow = self.chance.draw() as u16;
            return Ok(Outlet {
                fd,
                flow,
                place: None,
            });
        }
        let free = self.ports.iter().position(|port| port.users == 0);
        let place = match free {
            Some(place) => place,
            None => match self.open() {
                Ok(place) => place,
                Err(error) => self.least_used().ok_or(error)?,
            },
        };
        let port = &mut self.ports[place];
        port.users += 1;
        Ok(Outlet {
            fd: port.socket.as_ref().map_or(-1, Socket::raw),
            flow: port.number,
            place: Some(place),
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
        if let Some(place) = outlet.place {
            self.ports[place].users -= 1;
        }
    }

    fn least_used(&self) -> Option<usize> {
        let ports = self.ports.iter().enumerate();
        let least = ports.min_by_key(|(_, port)| port.users);
        least.map(|(place, _)| place)
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
        self.ports.push(Port {
            socket,
            number,
            users: 0,
        });
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

    #[test]
    fn each_queue_pair_has_a_port_of_its_own() {
        let mut outlets = outlets();
        let mut taken: Vec<_> = (0..40).map(|_| outlets.take(0).unwrap()).collect();
        taken.sort_by_key(|outlet| outlet.flow);
        taken.dedup_by_key(|outlet| outlet.flow);
        assert_eq!(taken.len(), 40);
        assert!(taken.iter().all(|outlet| outlet.flow >= FIRST_PORT));
        outlets.give_back(taken[7]);
        assert_eq!(outlets.take(0).unwrap(), taken[7], "sockets are kept");
    }

    #[test]
    fn more_queue_pairs_than_sockets_share_them_evenly() {
        let mut outlets = outlets();
        for _ in 0..2 * MAX_SOCKETS {
            outlets.take(0).unwrap();
        }
        assert_eq!(outlets.ports.len(), MAX_SOCKETS);
        assert!(outlets.ports.iter().all(|port| port.users == 2));
    }

    #[test]
    fn priorities_are_the_kernels() {
        // DSCP AF11, CS1, AF31 and EF, as rt_tos2priority() has them.
        let of = |dscp: u8| priority_of(dscp << 2);
        assert_eq!([of(0), of(10), of(8), of(26), of(46)], [0, 2, 0, 2, 4]);
    }
}
