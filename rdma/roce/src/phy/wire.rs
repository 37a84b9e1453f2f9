//! A wire in memory, for endpoints that must not use the system's network.
//!
//! What is sent stays on the wire until its owner takes it, and arrives when the
//! owner says so: late, twice, damaged, or never. So a simulation decides what the network does.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_roce_proto::wire::{Bth, Header};

/// A packet on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Source address and UDP port.
    pub source: SocketAddr,
    /// Destination address; the port is RoCE's.
    pub destination: IpAddr,
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// IPv4's identification.
    pub id: u16,
    /// BTH to ICRC.
    pub bytes: Vec<u8>,
}

/// The wire. Clones are the same.
#[derive(Debug, Clone)]
pub struct Wire {
    path_mtu: u8,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    sent: VecDeque<Frame>,
    /// By address: the bits of a queue pair number that select its socket, and
    /// what has arrived at each.
    sockets: BTreeMap<IpAddr, Sockets>,
}

/// What a device has, as [`spread`](super::socket::Socket::spread)
/// has it.
#[derive(Debug)]
struct Sockets {
    qpn_low_bits: u32,
    arrived: Vec<VecDeque<Frame>>,
}

/// One socket's hold on a wire.
#[derive(Debug)]
pub struct Tap {
    wire: Wire,
    address: IpAddr,
    turn: usize,
}

impl Wire {
    /// A wire with this path MTU, as a code (1 is 256, 5 is 4096).
    #[must_use]
    pub fn new(path_mtu: u8) -> Self {
        Self {
            path_mtu,
            state: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path MTU, as a code.
    #[must_use]
    pub fn path_mtu(&self) -> u8 {
        self.path_mtu
    }

    /// Takes the oldest packet that was sent.
    #[must_use]
    pub fn take_sent(&self) -> Option<Frame> {
        self.lock().sent.pop_front()
    }

    /// Delivers a packet, if its destination has joined.
    pub fn deliver(&self, frame: Frame) {
        let mut state = self.lock();
        let Some(sockets) = state.sockets.get_mut(&frame.destination) else {
            return;
        };
        // As the filter on reuseport sockets does it.
        let Some((bth, _)) = Bth::parse(&frame.bytes) else {
            return;
        };
        let turn = (bth.dest_qpn >> sockets.qpn_low_bits) as usize;
        if let Some(arrived) = sockets.arrived.get_mut(turn) {
            arrived.push_back(frame);
        }
    }

    /// Joins the sockets of an address; the first one says by which bits of a
    /// queue pair number its packets are spread over all that follow.
    ///
    /// # Errors
    /// It is to be the first one of an address, and the address has one.
    pub(crate) fn join(
        &self,
        address: IpAddr,
        is_first: bool,
        qpn_low_bits: u32,
    ) -> io::Result<Tap> {
        let mut state = self.lock();
        if is_first == state.sockets.contains_key(&address) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let sockets = state.sockets.entry(address).or_insert_with(|| Sockets {
            qpn_low_bits,
            arrived: Vec::new(),
        });
        sockets.arrived.push(VecDeque::new());
        Ok(Tap {
            wire: self.clone(),
            address,
            turn: sockets.arrived.len() - 1,
        })
    }

    pub(super) fn send(&self, frame: Frame) {
        self.lock().sent.push_back(frame);
    }
}

impl Tap {
    /// The oldest packet that has arrived.
    pub(super) fn receive(&self) -> Option<Frame> {
        let mut state = self.wire.lock();
        let sockets = state.sockets.get_mut(&self.address)?;
        sockets.arrived[self.turn].pop_front()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // A device's first socket outlives the others: with it the address is free.
        if self.turn == 0 {
            self.wire.lock().sockets.remove(&self.address);
        }
    }
}
