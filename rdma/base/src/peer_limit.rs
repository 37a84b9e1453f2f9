//! Rate limit of log lines about one peer.
//!
//! Each [`Payer`] may cause one line per second, within [the limit of the process](crate::log).
//! Lines about a datagram count for [`Payer::stranger`], so that a forged source cannot suppress
//! lines about a host.

use std::time::{Duration, Instant};

use crate::address::Payer;
use crate::log::{LogLine, Topic};

const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum tracked peers; a new peer replaces the peer with the oldest line.
const PEERS_MAX: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Peer {
    payer: Payer,
    last: Instant,
    unreported: u64,
}

/// Peers with recent lines.
#[derive(Debug, Default)]
pub struct PeerLimit {
    peers: Vec<Peer>,
}

impl PeerLimit {
    /// Returns permission to log a line about `payer`, with the number of lines suppressed since
    /// the last permitted line.
    pub fn admit(&mut self, topic: Topic, payer: Payer, now: Instant) -> Option<LogLine> {
        let peer = self.due(payer, now)?;
        let Some(line) = LogLine::about(topic) else {
            peer.unreported += 1;
            return None;
        };
        Some(line.after(std::mem::take(&mut peer.unreported)))
    }

    fn due(&mut self, payer: Payer, now: Instant) -> Option<&mut Peer> {
        let known = self.peers.iter().position(|peer| peer.payer == payer);
        let index = known.unwrap_or_else(|| self.insert(payer, now));
        let peer = &mut self.peers[index];
        if known.is_some() && now < peer.last + INTERVAL {
            peer.unreported += 1;
            return None;
        }
        peer.last = now;
        Some(peer)
    }

    fn insert(&mut self, payer: Payer, now: Instant) -> usize {
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
            payer,
            last: now,
            unreported: 0,
        });
        self.peers.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn peer(number: u32) -> Payer {
        Payer::host(Ipv4Addr::from_bits(0xc000_0200 + number).into())
    }

    fn admit(peer_limit: &mut PeerLimit, payer: Payer, now: Instant) -> Option<u64> {
        let line = peer_limit.admit(Topic::Detail, payer, now)?;
        line.unreported()
    }

    #[test]
    fn one_line_a_second_counts_the_rest() {
        let mut peer_limit = PeerLimit::default();
        let start = Instant::now();
        assert_eq!(admit(&mut peer_limit, peer(1), start), Some(0));
        assert_eq!(admit(&mut peer_limit, peer(1), start), None);
        assert_eq!(admit(&mut peer_limit, peer(1), start + INTERVAL / 2), None);
        assert_eq!(
            admit(&mut peer_limit, peer(2), start),
            Some(0),
            "another peer"
        );
        assert_eq!(admit(&mut peer_limit, peer(1), start + INTERVAL), Some(2));
        assert_eq!(
            admit(&mut peer_limit, peer(1), start + 2 * INTERVAL),
            Some(0)
        );
    }

    #[test]
    fn the_quietest_is_forgotten() {
        let mut peer_limit = PeerLimit::default();
        let start = Instant::now();
        for number in 0..=PEERS_MAX as u32 {
            let at = start + Duration::from_millis(u64::from(number));
            assert_eq!(admit(&mut peer_limit, peer(number), at), Some(0));
        }
        let later = start + Duration::from_millis(100);
        assert_eq!(admit(&mut peer_limit, peer(1), later), None, "it is known");
        assert_eq!(
            admit(&mut peer_limit, peer(0), later),
            Some(0),
            "it was the quietest"
        );
    }
}
