//! Sockets from which the queue pairs of an endpoint send.
//!
//! Routers distribute flows by the UDP source port (annex A17.3), and each source port needs a
//! socket. Queue pairs to one endpoint of a peer share a flow, because a super-packet
//! ([`super::batch`]) has one. In RoCE v1, sockets differ only by priority.
//!
//! A flow has one traffic class, because a VLAN interface derives the PCP (802.1Q priority) from
//! the socket's priority. Without a further socket, queue pairs share one of another class.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;

use super::Network;
use super::packet::PacketSocket;
use super::socket::{Socket, service_level};
use cairn_base::ScopedAddr;
use cairn_base::entropy::Entropy;

const MAX_SOCKETS: usize = 256;
const FIRST_PORT: u16 = 0xc000;
const TRIES: u32 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SendSocket {
    pub fd: RawFd,
    pub flow: u16,
    pub is_of_class: bool,
    place: Option<(usize, Destination)>,
}

impl SendSocket {
    pub(crate) const UNDECIDED: Self = Self {
        fd: -1,
        flow: 0,
        is_of_class: false,
        place: None,
    };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Destination {
    pub remote: IpAddr,
    /// Endpoint of the peer: the top bits of its queue pair numbers.
    pub endpoint: u32,
}

#[derive(Debug)]
pub(crate) struct SendSockets {
    network: Network,
    address: ScopedAddr,
    entropy: Entropy,
    ports: Vec<Port>,
    uses: HashMap<(usize, IpAddr), Use>,
    levels: Vec<(u8, PacketSocket)>,
}

#[derive(Debug)]
struct Port {
    socket: Option<Socket>,
    number: u16,
    class: u8,
}

#[derive(Debug)]
struct Use {
    endpoint: u32,
    queue_pairs: u32,
}

impl SendSockets {
    #[must_use]
    pub(crate) fn new(network: Network, address: ScopedAddr, entropy: Entropy) -> Self {
        Self {
            network,
            address,
            entropy,
            ports: Vec::new(),
            uses: HashMap::new(),
            levels: Vec::new(),
        }
    }

    pub(crate) fn take(
        &mut self,
        destination: Destination,
        traffic_class: u8,
    ) -> io::Result<SendSocket> {
        if matches!(self.network.good(), Network::Ethernet { .. }) {
            return Ok(SendSocket {
                fd: self.of_level(traffic_class)?,
                flow: self.entropy.draw() as u16,
                is_of_class: true,
                place: None,
            });
        }
        let place = self.choose(destination, traffic_class)?;
        let begun = self.uses.entry((place, destination.remote)).or_insert(Use {
            endpoint: destination.endpoint,
            queue_pairs: 0,
        });
        begun.queue_pairs += 1;
        let port = &self.ports[place];
        Ok(SendSocket {
            fd: port.socket.as_ref().map_or(-1, Socket::raw),
            flow: port.number,
            is_of_class: port.class == traffic_class,
            place: Some((place, destination)),
        })
    }

    pub(crate) fn retake(
        &mut self,
        send_socket: SendSocket,
        traffic_class: u8,
    ) -> io::Result<SendSocket> {
        match send_socket.place {
            None => Ok(SendSocket {
                fd: self.of_level(traffic_class)?,
                ..send_socket
            }),
            Some((_, destination)) => {
                let other = self.take(destination, traffic_class)?;
                self.give_back(send_socket);
                Ok(other)
            }
        }
    }

    pub(crate) fn give_back(&mut self, send_socket: SendSocket) {
        let Some((place, destination)) = send_socket.place else {
            return;
        };
        let key = (place, destination.remote);
        let used = self.uses.get_mut(&key).expect("it was taken");
        used.queue_pairs -= 1;
        if used.queue_pairs == 0 {
            self.uses.remove(&key);
        }
    }

    fn choose(&mut self, destination: Destination, class: u8) -> io::Result<usize> {
        let of_class = |port: &Port| port.class == class;
        let place = self.leading(destination, of_class);
        if let Some(place) = place.or_else(|| self.unused(destination, of_class)) {
            return Ok(place);
        }
        if let Some(place) = self.idle() {
            self.ports[place].turn_into(class)?;
            return Ok(place);
        }
        self.open(class).or_else(|error| {
            self.unused(destination, |_| true)
                .or_else(|| self.leading(destination, |_| true))
                .ok_or(error)
        })
    }

    fn leading(&self, destination: Destination, of: impl Fn(&Port) -> bool) -> Option<usize> {
        let leads = |place: usize| {
            let flow = self.uses.get(&(place, destination.remote));
            flow.is_some_and(|flow| flow.endpoint == destination.endpoint)
        };
        let mut ports = self.ports.iter().enumerate();
        let found = ports.find(|&(place, port)| of(port) && leads(place));
        found.map(|(place, _)| place)
    }

    fn unused(&self, destination: Destination, of: impl Fn(&Port) -> bool) -> Option<usize> {
        let mut ports = self.ports.iter().enumerate();
        let found = ports.find(|&(place, port)| {
            of(port) && !self.uses.contains_key(&(place, destination.remote))
        });
        found.map(|(place, _)| place)
    }

    fn idle(&self) -> Option<usize> {
        (0..self.ports.len()).find(|place| self.uses.keys().all(|(used, _)| used != place))
    }

    fn open(&mut self, class: u8) -> io::Result<usize> {
        if self.ports.len() == MAX_SOCKETS {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let mut tries = 0;
        let (socket, number) = loop {
            let number = FIRST_PORT | self.entropy.draw() as u16;
            if matches!(self.network.good(), Network::Wire(_)) {
                break (None, number);
            }
            match Socket::bind_sender(self.address.at(number)) {
                Ok(socket) => break (Some(socket), number),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries < TRIES => {
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        };
        let mut port = Port {
            socket,
            number,
            class,
        };
        port.turn_into(class)?;
        self.ports.push(port);
        Ok(self.ports.len() - 1)
    }

    fn of_level(&mut self, traffic_class: u8) -> io::Result<RawFd> {
        let level = service_level(traffic_class);
        let open = self.levels.iter().find(|(of, _)| *of == level);
        if let Some((_, socket)) = open {
            return Ok(socket.raw());
        }
        let socket = PacketSocket::sender(traffic_class)?;
        let fd = socket.raw();
        self.levels.push((level, socket));
        Ok(fd)
    }
}

impl Port {
    fn turn_into(&mut self, class: u8) -> io::Result<()> {
        if let Some(socket) = &self.socket {
            socket.set_class(class)?;
        }
        self.class = class;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn send_sockets() -> SendSockets {
        let address = IpAddr::from(Ipv4Addr::LOCALHOST).into();
        SendSockets::new(Network::System, address, Entropy::default())
    }

    fn destination(host: u8, endpoint: u32) -> Destination {
        Destination {
            remote: Ipv4Addr::new(192, 0, 2, host).into(),
            endpoint,
        }
    }

    #[test]
    fn queue_pairs_towards_an_endpoint_share_its_flow() {
        let mut send_sockets = send_sockets();
        let taken: Vec<_> = (0..10)
            .map(|_| send_sockets.take(destination(1, 1), 0).unwrap())
            .collect();
        assert!(taken[0].flow >= FIRST_PORT);
        assert!(
            taken
                .iter()
                .all(|send_socket| send_socket.flow == taken[0].flow)
        );
        taken
            .iter()
            .for_each(|&send_socket| send_sockets.give_back(send_socket));
        assert!(send_sockets.uses.is_empty());
        send_sockets.take(destination(1, 2), 0).unwrap();
        assert_eq!(send_sockets.ports.len(), 1, "sockets are kept");
    }

    #[test]
    fn a_port_leads_to_one_endpoint_of_a_peer_and_to_many_peers() {
        let mut send_sockets = send_sockets();
        let mut port_to = |host, endpoint| {
            send_sockets
                .take(destination(host, endpoint), 0)
                .unwrap()
                .flow
        };
        let (one, other) = (port_to(1, 1), port_to(1, 2));
        assert_ne!(one, other);
        assert_eq!(port_to(2, 1), one);
    }

    #[test]
    fn without_another_port_no_endpoint_takes_that_of_its_neighbour() {
        let mut send_sockets = send_sockets();
        let endpoints = MAX_SOCKETS as u32;
        for endpoint in 0..endpoints {
            send_sockets.take(destination(1, endpoint), 0).unwrap();
        }
        assert_eq!(send_sockets.ports.len(), MAX_SOCKETS);
        assert!(send_sockets.take(destination(1, endpoints), 0).is_err());
        assert!(send_sockets.take(destination(2, endpoints), 0).is_ok());
        assert!(send_sockets.take(destination(1, 0), 0).is_ok());
    }

    #[test]
    fn a_flow_is_of_one_class() {
        let mut send_sockets = send_sockets();
        let mut port_of = |class| {
            let send_socket = send_sockets.take(destination(1, 1), class).unwrap();
            assert!(send_socket.is_of_class);
            send_socket.flow
        };
        let one = port_of(96);
        assert_ne!(port_of(104), one);
        assert_eq!(port_of(96), one);
    }

    #[test]
    fn a_queue_pair_of_another_class_moves_and_leaves_its_port_to_others() {
        let mut send_sockets = send_sockets();
        let before = send_sockets.take(destination(1, 1), 0).unwrap();
        let after = send_sockets.retake(before, 96).unwrap();
        assert_ne!(after.flow, before.flow);
        assert!(after.is_of_class);
        let next = send_sockets.take(destination(2, 1), 32).unwrap();
        assert_eq!((next.flow, next.is_of_class), (before.flow, true));
        assert_eq!(send_sockets.ports.len(), 2);
    }

    #[test]
    fn without_another_port_classes_share_those_there_are() {
        let mut send_sockets = send_sockets();
        for endpoint in 0..MAX_SOCKETS as u32 / 64 {
            for dscp in 0..64 {
                send_sockets
                    .take(destination(1, endpoint), dscp << 2)
                    .unwrap();
            }
        }
        assert_eq!(send_sockets.ports.len(), MAX_SOCKETS);
        for host in [1, 2] {
            let send_socket = send_sockets.take(destination(host, 1), 1).unwrap();
            assert!(!send_socket.is_of_class);
        }
    }
}
