//! Penalties for addresses that send wrong memory keys.
//!
//! Each wrong key adds [`COST`] to the penalty of the address, which decreases with time. While it
//! exceeds [`CREDIT`], connection requests of the address are ignored.

use crate::time::Instant;
use alloc::collections::BTreeMap;
use core::net::IpAddr;
use core::time::Duration;

const COST: Duration = Duration::from_secs(10);
/// Maximum penalty with which an address may connect: eight wrong keys, so that a faulty host can
/// be diagnosed.
const CREDIT: Duration = Duration::from_secs(80);
const DEBT_MAX: Duration = Duration::from_secs(600);

/// Maximum addresses with a penalty. A new address replaces the address with the smallest penalty.
const ADDRESSES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Penalties {
    until: BTreeMap<IpAddr, Instant>,
}

impl Penalties {
    pub(super) fn penalize(&mut self, now: Instant, address: IpAddr) -> bool {
        let key = address.to_canonical();
        if self.until.len() == ADDRESSES_MAX && !self.until.contains_key(&key) {
            let least = self.until.iter().min_by_key(|(_, until)| **until);
            let least = least.map(|(address, _)| *address);
            least.and_then(|address| self.until.remove(&address));
        }
        let held = self.holds(now, address);
        let until = self.until.entry(key).or_insert(now);
        *until = ((*until).max(now) + COST).min(now + DEBT_MAX);
        !held && self.holds(now, address)
    }

    pub(super) fn holds(&self, now: Instant, address: IpAddr) -> bool {
        let until = self.until.get(&address.to_canonical());
        until.is_some_and(|until| until.saturating_duration_since(now) > CREDIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: u32 = (CREDIT.as_secs() / COST.as_secs()) as u32;

    #[test]
    fn beyond_its_credit_an_address_waits() {
        let mut penalties = Penalties::default();
        let now = Instant::START;
        let guilty: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        for _ in 0..FREE {
            assert!(!penalties.penalize(now, guilty));
            assert!(!penalties.holds(now, guilty));
        }
        assert!(penalties.penalize(now, guilty), "the credit is spent");
        assert!(!penalties.penalize(now, guilty), "it was before");
        assert!(penalties.holds(now, guilty) && !penalties.holds(now, neighbour));
        let later = now + 2 * COST;
        assert!(!penalties.holds(later, guilty));
        assert!(penalties.penalize(later, guilty));
    }

    #[test]
    fn debts_and_debtors_are_bounded() {
        let mut penalties = Penalties::default();
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
        assert!(!penalties.holds(now + (DEBT_MAX - CREDIT), address(0)));
    }
}
