//! Network in memory, for endpoints isolated from the system's network.
//!
//! A sent packet arrives when the owner delivers it, perhaps delayed, duplicated or corrupted.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_roce_proto::wire::{Bth, Header};

/// Packet in transit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Source address and UDP port.
    pub source: SocketAddr,
    /// Destination address; the port is always RoCE's.
    pub destination: IpAddr,
    /// Type of service (IPv4) or traffic class.
    pub traffic_class: u8,
    /// IPv4 identification.
    pub id: u16,
    /// Bytes from the BTH to the ICRC.
    pub bytes: Vec<u8>,
}

/// Network in memory, shared by its clones.
#[derive(Debug, Clone)]
pub struct Wire {
    payload_max: u32,
    state: Arc<Mutex<WireState>>,
}

#[derive(Debug, Default)]
struct WireState {
    sent: VecDeque<Frame>,
    sockets: BTreeMap<IpAddr, Sockets>,
}

#[derive(Debug)]
struct Sockets {
    qpn_low_bits: u32,
    arrived: Vec<VecDeque<Frame>>,
}

#[derive(Debug)]
pub(crate) struct Tap {
    wire: Wire,
    address: IpAddr,
    turn: usize,
}

impl Wire {
    /// Creates a network for packets of at most `payload_max` payload bytes.
    #[must_use]
    pub fn new(payload_max: u32) -> Self {
        Self {
            payload_max,
            state: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, WireState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[must_use]
    pub(crate) fn payload_max(&self) -> u32 {
        self.payload_max
    }

    /// Removes and returns the oldest sent packet.
    #[must_use]
    pub fn take_sent(&self) -> Option<Frame> {
        self.lock().sent.pop_front()
    }

    /// Delivers a packet, or drops it if no socket receives its address and queue pair number.
    pub fn deliver(&self, frame: Frame) {
        let mut state = self.lock();
        let Some(sockets) = state.sockets.get_mut(&frame.destination) else {
            return;
        };
        let Some((bth, _)) = Bth::parse(&frame.bytes) else {
            return;
        };
        let turn = (bth.dest_qpn >> sockets.qpn_low_bits) as usize;
        if let Some(arrived) = sockets.arrived.get_mut(turn) {
            arrived.push_back(frame);
        }
    }

    /// Adds a socket at `address`. The socket with index `n` receives packets to queue pair numbers
    /// `qpn` with `qpn >> qpn_low_bits == n`.
    ///
    /// # Errors
    /// `is_first` is true for an address with a socket, or false for an address without one.
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
    pub(super) fn receive(&self) -> Option<Frame> {
        let mut state = self.wire.lock();
        let sockets = state.sockets.get_mut(&self.address)?;
        sockets.arrived[self.turn].pop_front()
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if self.turn == 0 {
            self.wire.lock().sockets.remove(&self.address);
        }
    }
}
