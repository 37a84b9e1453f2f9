//! Addresses whose requests for connections are not answered for a while: each fault costs an address
//! time, and beyond a credit it waits until that has passed.
//!
//! A packet that names a key that its peer was not given ends its queue pair, and an attacker that
//! guesses keys would request the next one. A request that is refused has cost this machine the way
//! to its owner and back, and an attacker would send the next one: beyond its credit a request ends
//! where it is read.

use crate::time::Instant;
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use core::time::Duration;

use cairn_rdma::address::host_of;

/// What a fault costs, and what an address may owe.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tariff {
    /// Who owes for an address.
    debtor: fn(IpAddr) -> IpAddr,
    cost: Duration,
    /// What an address may owe and still connect.
    credit: Duration,
    /// The most that an address owes.
    debt_max: Duration,
}

/// Of a wrong key. A peer with a bug can be examined for some of them.
pub(super) const WRONG_KEY: Tariff = Tariff {
    debtor: host_of,
    cost: Duration::from_secs(10),
    credit: Duration::from_secs(80),
    debt_max: Duration::from_secs(600),
};
/// Of a request that is refused: a thousand at once, and 500 a second. By address, not by IPv6
/// network: others of its network are no attackers, and an address must be proven first.
pub(super) const REFUSED: Tariff = Tariff {
    debtor: |address| address,
    cost: Duration::from_millis(2),
    credit: Duration::from_secs(2),
    debt_max: Duration::from_secs(3),
};

/// Addresses that are remembered. Beyond them, the one that owes least is forgotten.
const ADDRESSES_MAX: usize = 1024;

/// Addresses with faults, and until when each owes.
#[derive(Debug)]
pub(super) struct Penalties {
    tariff: Tariff,
    until: BTreeMap<IpAddr, Instant>,
}

impl Penalties {
    /// None owes anything.
    pub(super) fn new(tariff: Tariff) -> Self {
        Self {
            tariff,
            until: BTreeMap::new(),
        }
    }

    /// A fault of `address`. Returns whether that spent the rest of its credit.
    pub(super) fn penalize(&mut self, now: Instant, address: IpAddr) -> bool {
        let key = (self.tariff.debtor)(address);
        if self.until.len() == ADDRESSES_MAX && !self.until.contains_key(&key) {
            let least = self.until.iter().min_by_key(|(_, until)| **until);
            let least = least.map(|(address, _)| *address);
            least.and_then(|address| self.until.remove(&address));
        }
        let held = self.holds(now, address);
        let until = self.until.entry(key).or_insert(now);
        let Tariff { cost, debt_max, .. } = self.tariff;
        *until = ((*until).max(now) + cost).min(now + debt_max);
        !held && self.holds(now, address)
    }

    /// Whether requests of `address` are to wait.
    pub(super) fn holds(&self, now: Instant, address: IpAddr) -> bool {
        let until = self.until.get(&(self.tariff.debtor)(address));
        until.is_some_and(|until| until.saturating_duration_since(now) > self.tariff.credit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: u32 = (WRONG_KEY.credit.as_secs() / WRONG_KEY.cost.as_secs()) as u32;

    #[test]
    fn beyond_its_credit_an_address_waits() {
        let mut penalties = Penalties::new(WRONG_KEY);
        let now = Instant::START;
        let guilty: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        let other: IpAddr = "2001:db8:0:1::1".parse().unwrap();
        for _ in 0..FREE {
            assert!(!penalties.penalize(now, guilty));
            assert!(!penalties.holds(now, guilty));
        }
        assert!(penalties.penalize(now, guilty), "the credit is spent");
        assert!(!penalties.penalize(now, guilty), "it was before");
        assert!(penalties.holds(now, guilty) && penalties.holds(now, neighbour));
        assert!(!penalties.holds(now, other));
        let later = now + 2 * WRONG_KEY.cost;
        assert!(!penalties.holds(later, guilty));
        assert!(penalties.penalize(later, guilty));
    }

    #[test]
    fn debts_and_debtors_are_bounded() {
        let mut penalties = Penalties::new(WRONG_KEY);
        let now = Instant::START;
        let address = |number: u32| IpAddr::from(core::net::Ipv4Addr::from_bits(number));
        for _ in 0..10_000 {
            penalties.penalize(now, address(0));
        }
        for number in 1..2 * ADDRESSES_MAX as u32 {
            penalties.penalize(now, address(number));
        }
        assert_eq!(penalties.until.len(), ADDRESSES_MAX);
        assert!(
            penalties.holds(now, address(0)),
            "who owes most is remembered"
        );
        assert!(!penalties.holds(now + (WRONG_KEY.debt_max - WRONG_KEY.credit), address(0)));
    }

    #[test]
    fn so_many_are_refused_at_once_and_so_many_a_second() {
        let mut penalties = Penalties::new(REFUSED);
        let address: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        let mut refused = [0; 3];
        for ms in 0..3000_u64 {
            let now = Instant::START + Duration::from_millis(ms);
            for _ in 0..10 {
                if !penalties.holds(now, address) {
                    penalties.penalize(now, address);
                    refused[ms as usize / 1000] += 1;
                }
            }
            assert!(!penalties.holds(now, neighbour));
        }
        assert!((1500..=1502).contains(&refused[0]), "{refused:?}");
        assert!(
            refused[1..].iter().all(|n| (499..=501).contains(n)),
            "{refused:?}"
        );
    }
}
