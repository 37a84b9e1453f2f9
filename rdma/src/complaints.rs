//! How often the log complains about one peer.
//!
//! Whoever can reach a listener can misbehave as often as it likes; that must
//! not fill a disk. So each address gets one line a second, which says how many
//! were passed over.

use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Between two lines about one peer.
const INTERVAL: Duration = Duration::from_secs(1);

/// Peers that are told apart. Beyond them, the one that was quiet for longest
/// is forgotten.
const PEERS_MAX: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Peer {
    address: IpAddr,
    last: Instant,
    unreported: u64,
}

/// Who was complained about lately.
#[derive(Debug, Default)]
pub struct Complaints {
    peers: Vec<Peer>,
}

impl Complaints {
    /// Whether to complain about `address` now; if so, how many complaints were
    /// passed over since the last.
    #[must_use]
    pub fn admit(&mut self, address: IpAddr, now: Instant) -> Option<u64> {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == address) {
            if now < peer.last + INTERVAL {
                peer.unreported += 1;
                return None;
            }
            peer.last = now;
            return Some(std::mem::take(&mut peer.unreported));
        }
        if self.peers.len() == PEERS_MAX {
            let quietest = self
                .peers
                .iter()
                .enumerate()
                .min_by_key(|(_, peer)| peer.last);
            let index = quietest.map(|(index, _)| index).expect("there are peers");
            self.peers.swap_remove(index);
        }
        self.peers.push(Peer {
            address,
            last: now,
            unreported: 0,
        });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(number: u32) -> IpAddr {
        Ipv4Addr::from_bits(0xc000_0200 + number).into()
    }

    #[test]
    fn one_line_a_second_counts_the_rest() {
        let mut complaints = Complaints::default();
        let start = Instant::now();
        assert_eq!(complaints.admit(peer(1), start), Some(0));
        assert_eq!(complaints.admit(peer(1), start), None);
        assert_eq!(complaints.admit(peer(1), start + INTERVAL / 2), None);
        assert_eq!(complaints.admit(peer(2), start), Some(0), "another peer");
        assert_eq!(complaints.admit(peer(1), start + INTERVAL), Some(2));
        assert_eq!(complaints.admit(peer(1), start + 2 * INTERVAL), Some(0));
    }

    #[test]
    fn the_quietest_is_forgotten() {
        let mut complaints = Complaints::default();
        let start = Instant::now();
        for number in 0..=PEERS_MAX as u32 {
            let at = start + Duration::from_millis(u64::from(number));
            assert_eq!(complaints.admit(peer(number), at), Some(0));
        }
        let later = start + Duration::from_millis(100);
        assert_eq!(complaints.admit(peer(1), later), None, "it is known");
        assert_eq!(
            complaints.admit(peer(0), later),
            Some(0),
            "it was the quietest"
        );
    }
}
