//! Detection of peers to which super-packets cannot be sent.
//!
//! On some paths, the system refuses super-packets (udp(7)), or adapters repeat the IPv4
//! identification, which the ICRC covers. Paths may change, so a later attempt follows.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use cairn_roce_proto::qp::Joined;

const PAUSE: Duration = Duration::from_secs(60);
const LOSSES_MAX: u32 = 8;
const PEERS_MAX: usize = 64;

#[derive(Debug)]
pub(super) struct Offload {
    is_on: bool,
    peers: Vec<Peer>,
}

#[derive(Debug)]
struct Peer {
    address: IpAddr,
    losses: u32,
    until: Option<Instant>,
}

impl Offload {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            peers: Vec::new(),
        }
    }

    pub(super) fn is_for(&mut self, address: IpAddr) -> bool {
        if self.peers.is_empty() {
            return self.is_on;
        }
        let Some(at) = self.peers.iter().position(|peer| peer.address == address) else {
            return self.is_on;
        };
        let until = self.peers[at].until;
        if until.is_some_and(|until| until <= Instant::now()) {
            self.peers.swap_remove(at);
            return self.is_on;
        }
        self.is_on && until.is_none()
    }

    pub(super) fn refuse(&mut self, address: IpAddr) -> bool {
        let until = Some(Instant::now() + PAUSE);
        std::mem::replace(&mut self.peer(address).until, until).is_none()
    }

    pub(super) fn judge(&mut self, address: IpAddr, fate: Joined) -> bool {
        if address.is_ipv6() {
            return false;
        }
        if fate == Joined::Arrived {
            self.peers
                .retain(|peer| peer.address != address || peer.until.is_some());
            return false;
        }
        let peer = self.peer(address);
        peer.losses += 1;
        let is_enough = peer.losses >= LOSSES_MAX && peer.until.is_none();
        if is_enough {
            peer.until = Some(Instant::now() + PAUSE);
        }
        is_enough
    }

    fn peer(&mut self, address: IpAddr) -> &mut Peer {
        let known = self.peers.iter().position(|peer| peer.address == address);
        let at = known.unwrap_or_else(|| {
            if self.peers.len() == PEERS_MAX {
                self.peers.remove(0);
            }
            self.peers.push(Peer {
                address,
                losses: 0,
                until: None,
            });
            self.peers.len() - 1
        });
        &mut self.peers[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn a_refusal_is_of_one_peer_and_ends() {
        let mut offload = Offload::new(true);
        offload.refuse(address(1));
        assert!(!offload.is_for(address(1)));
        assert!(offload.is_for(address(2)));
        offload.peers[0].until = Some(Instant::now());
        assert!(offload.is_for(address(1)), "its time is over");
        assert!(offload.peers.is_empty());
        for number in 0..1000 {
            offload.refuse(address(number));
        }
        assert_eq!(offload.peers.len(), PEERS_MAX);
    }

    #[test]
    fn losses_without_an_arrival_are_the_paths_fault() {
        let mut offload = Offload::new(true);
        for _ in 0..100 {
            for _ in 1..LOSSES_MAX {
                assert!(!offload.judge(address(1), Joined::Lost));
            }
            assert!(!offload.judge(address(1), Joined::Arrived));
        }
        for _ in 1..LOSSES_MAX {
            assert!(!offload.judge(address(1), Joined::Lost));
            assert!(offload.is_for(address(1)));
        }
        assert!(offload.judge(address(1), Joined::Lost));
        assert!(!offload.is_for(address(1)) && offload.is_for(address(2)));
        assert!(!offload.judge(address(1), Joined::Lost));
        assert!(!offload.judge(address(1), Joined::Arrived));
        assert!(!offload.is_for(address(1)));
    }

    #[test]
    fn it_can_be_switched_off() {
        assert!(!Offload::new(false).is_for(address(1)));
    }
}
