//! Faults injected into received packets, determined by a seed.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::receive::Receiver;
use super::{Inlet, Version};

/// Loss of all packets from or to an address, after [`Self::begin`].
#[derive(Debug, Clone, Copy)]
pub struct Blackhole(&'static AtomicU32);

impl Blackhole {
    /// Creates an inactive blackhole, which is never freed.
    #[must_use]
    pub fn inactive() -> Self {
        Self(Box::leak(Box::default()))
    }

    /// Begins the loss.
    pub fn begin(self, address: Ipv4Addr) {
        self.0.store(address.to_bits(), Ordering::Relaxed);
    }

    fn drops(self, packet: &Arrival) -> bool {
        let address = Ipv4Addr::from_bits(self.0.load(Ordering::Relaxed));
        let ends = [packet.source.ip(), packet.local].map(|end| end.to_canonical());
        !address.is_unspecified() && ends.contains(&IpAddr::V4(address))
    }
}

/// Fault rates in packets per thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct FaultOptions {
    /// Rate of lost packets.
    pub loss_per_mille: u16,
    /// Rate of duplicated packets.
    pub duplication_per_mille: u16,
    /// Rate of packets with one flipped bit.
    pub corruption_per_mille: u16,
    /// Rate of packets delivered after their successor.
    pub reordering_per_mille: u16,
    /// Seed of the random faults.
    pub seed: u64,
    /// Loss of all packets of an address, once begun.
    pub blackhole: Option<Blackhole>,
}

#[derive(Debug, Clone)]
pub(super) struct Arrival {
    pub(super) version: Version,
    pub(super) source: SocketAddr,
    pub(super) local: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct BadInlet {
    inlet: Inlet,
    state: Mutex<FaultState>,
}

#[derive(Debug)]
struct FaultState {
    options: FaultOptions,
    random: fastrand::Rng,
    receiver: Receiver,
    arrived: VecDeque<Arrival>,
    held: Option<Arrival>,
}

impl BadInlet {
    #[must_use]
    pub(crate) fn new(inlet: Inlet, options: FaultOptions, turn: u32) -> Self {
        let seed = options.seed ^ u64::from(turn) << 32;
        Self {
            inlet,
            state: Mutex::new(FaultState {
                options,
                random: fastrand::Rng::with_seed(seed),
                receiver: Receiver::new(),
                arrived: VecDeque::new(),
                held: None,
            }),
        }
    }

    #[must_use]
    pub(crate) fn inlet(&self) -> &Inlet {
        &self.inlet
    }

    pub(super) fn take(&self, count: usize) -> io::Result<Vec<Arrival>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.arrived.is_empty() {
            state.receive(&self.inlet)?;
        }
        let count = count.min(state.arrived.len());
        Ok(state.arrived.drain(..count).collect())
    }
}

impl FaultState {
    fn receive(&mut self, inlet: &Inlet) -> io::Result<()> {
        let mut came = Vec::new();
        for datagram in 0..self.receiver.receive(inlet)? {
            came.extend(self.receiver.packets(datagram).map(|received| Arrival {
                version: received.headers.version,
                source: received.headers.source,
                local: received.headers.local,
                traffic_class: received.headers.traffic_class,
                bytes: received.bytes.to_vec(),
            }));
        }
        came.into_iter()
            .for_each(|packet| self.apply_faults(packet));
        Ok(())
    }

    fn apply_faults(&mut self, mut packet: Arrival) {
        let options = self.options;
        if options
            .blackhole
            .is_some_and(|blackhole| blackhole.drops(&packet))
        {
            return;
        }
        let mut at = self.random.u16(..1000);
        let mut is_in = |share: u16| {
            let is_in = at < share;
            at = at.wrapping_sub(share);
            is_in
        };
        if is_in(options.loss_per_mille) {
            return;
        }
        if is_in(options.duplication_per_mille) {
            self.arrived.push_back(packet.clone());
        } else if is_in(options.corruption_per_mille) {
            let bit = self.random.usize(..packet.bytes.len().max(1) * 8);
            if let Some(byte) = packet.bytes.get_mut(bit / 8) {
                *byte ^= 1 << (bit % 8);
            }
        } else if is_in(options.reordering_per_mille) && self.held.is_none() {
            self.held = Some(packet);
            return;
        }
        self.arrived.push_back(packet);
        self.arrived.extend(self.held.take());
    }
}
