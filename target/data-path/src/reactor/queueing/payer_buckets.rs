//! Token buckets for connections and non-I/O commands, one per [`Payer`]: the address of a known
//! host, or the address or IPv6 /64 of a stranger.
//!
//! Each command costs its payer one token. A payer without tokens waits, but only while the reactor
//! has I/O; waiting payers are served round robin. A connection is charged when its peer confirms
//! it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use cairn_base::address::Payer;
use cairn_base::allowance::Allowance;

use crate::fair_queue::{FairQueue, TURN};
use crate::ids::QpairId;
use crate::qpair::Capsule;
use crate::registry::{Admitted, PlaceId};

/// Maximum work of a payer in a round, in commands.
const ROUND: u32 = 4;
/// Maximum burst in commands: enough for a host that connects all its queues.
const BURST: u32 = 256;
/// Time in which a token is refilled: 2000 commands a second.
const EACH: Duration = Duration::from_micros(500);
/// Nanoseconds after an I/O command in which the reactor counts as having I/O.
const IO_LASTS_NS: u64 = 1_000_000;
/// Maximum buckets; further payers share a bucket.
const PAYERS_MAX: usize = 4096;

const COMMAND: u32 = 1;
/// Cost of a connection, in commands: a whole round, because a connection creates and destroys a
/// queue pair.
const CONNECTION: u32 = ROUND;

pub(in crate::reactor) enum AwaitingTokens {
    Capsule(Capsule),
    Connection(Box<Admitted>),
}

impl AwaitingTokens {
    fn cost(&self) -> u32 {
        match self {
            Self::Capsule(_) => COMMAND,
            Self::Connection(_) => CONNECTION,
        }
    }

    fn price(&self) -> u32 {
        match self {
            Self::Capsule(_) => COMMAND,
            Self::Connection(_) => 0,
        }
    }
}

#[derive(Default)]
struct PayerBucket {
    allowance: Allowance<Duration>,
    round: (u64, u32),
}

impl PayerBucket {
    /// Checks that the payer may spend `cost`. The error is the time of the next attempt, in
    /// nanoseconds. If `is_free`, only the limit per round applies.
    fn allows(&self, cost: u32, round: u64, now_ns: u64, is_free: bool) -> Result<(), u64> {
        let (last, taken) = self.round;
        if last == round && taken + cost > ROUND {
            return Err(now_ns);
        }
        let now = Duration::from_nanos(now_ns);
        let wait = self.allowance.wait_for(cost, now, BURST, EACH);
        match is_free || wait.is_zero() {
            true => Ok(()),
            false => Err(now_ns + wait.as_nanos() as u64),
        }
    }

    fn take(&mut self, cost: u32, price: u32, round: u64, now_ns: u64) {
        let (last, taken) = self.round;
        self.round = (round, if last == round { taken + cost } else { cost });
        self.pay(price, now_ns);
    }

    fn pay(&mut self, cost: u32, now_ns: u64) {
        let now = Duration::from_nanos(now_ns);
        self.allowance.charge(cost, now, BURST, EACH);
    }
}

#[derive(Default)]
pub(in crate::reactor) struct PayerBuckets {
    buckets: HashMap<Payer, PayerBucket>,
    waiting: FairQueue<Payer, AwaitingTokens>,
    next_ns: u64,
    /// Earliest time at which a payer skipped by [`Self::next`] may spend.
    skipped_ns: Option<u64>,
    round: u64,
    arrived: u64,
    io_ns: Option<u64>,
}

impl PayerBuckets {
    /// Returns true if queued work must be checked now.
    #[inline(always)]
    pub(in crate::reactor) fn begin_round(&mut self, now_ns: u64) -> bool {
        self.round += 1;
        !self.waiting.is_empty() && now_ns >= self.next_ns
    }

    pub(in crate::reactor) fn arrived(&mut self) {
        self.arrived += 1;
    }

    #[inline(always)]
    pub(in crate::reactor) fn came(&mut self, commands: u64, now_ns: u64) {
        if commands > std::mem::take(&mut self.arrived) {
            self.io_ns = Some(now_ns);
        }
    }

    pub(in crate::reactor) fn next_look(&self) -> u64 {
        match self.waiting.is_empty() {
            true => u64::MAX,
            false => self.next_ns,
        }
    }

    pub(in crate::reactor) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn is_free(&self, now_ns: u64) -> bool {
        self.io_ns.is_none_or(|at| now_ns >= at + IO_LASTS_NS)
    }

    fn of(&mut self, payer: Payer, now_ns: u64) -> (Payer, &mut PayerBucket) {
        let mut key = payer;
        if !self.buckets.contains_key(&key) && self.buckets.len() >= PAYERS_MAX {
            let now = Duration::from_nanos(now_ns);
            self.buckets
                .retain(|_, bucket| !bucket.allowance.until_full(now).is_zero());
            if self.buckets.len() >= PAYERS_MAX {
                key = Payer::stranger(IpAddr::from([0, 0, 0, 0]));
            }
        }
        (key, self.buckets.entry(key).or_default())
    }

    pub(in crate::reactor) fn pays(&mut self, payer: Payer, now_ns: u64) -> bool {
        self.takes(payer, COMMAND, COMMAND, now_ns)
    }

    pub(in crate::reactor) fn may_connect(&mut self, payer: Payer, now_ns: u64) -> bool {
        self.takes(payer, CONNECTION, 0, now_ns)
    }

    fn takes(&mut self, payer: Payer, cost: u32, price: u32, now_ns: u64) -> bool {
        let (round, is_free) = (self.round, self.is_free(now_ns));
        let (key, bucket) = self.of(payer, now_ns);
        if bucket.allows(cost, round, now_ns, is_free).is_err() || self.waiting.has(&key) {
            return false;
        }
        self.of(payer, now_ns).1.take(cost, price, round, now_ns);
        true
    }

    pub(in crate::reactor) fn charge(&mut self, payer: Payer, now_ns: u64) {
        let round = self.round;
        let (_, bucket) = self.of(payer, now_ns);
        bucket.take(COMMAND, COMMAND, round, now_ns);
    }

    pub(in crate::reactor) fn pay_connection(&mut self, payer: Payer, now_ns: u64) {
        self.of(payer, now_ns).1.pay(CONNECTION, now_ns);
    }

    pub(in crate::reactor) fn wait(&mut self, payer: Payer, waiting: AwaitingTokens, now_ns: u64) {
        let (key, _) = self.of(payer, now_ns);
        self.waiting.push(key, waiting);
        self.next_ns = self.next_ns.min(now_ns);
    }

    /// Returns the next affordable work, round robin by payer. After `None`, [`Self::next_look`] is
    /// the time of the next attempt.
    pub(in crate::reactor) fn next(
        &mut self,
        now_ns: u64,
        may_go: impl Fn(&Capsule) -> bool,
    ) -> Option<AwaitingTokens> {
        let (round, is_free) = (self.round, self.is_free(now_ns));
        while let Some((&payer, first)) = self.waiting.first() {
            let (cost, price) = (first.cost(), first.price());
            let may_go = !matches!(first, AwaitingTokens::Capsule(capsule) if !may_go(capsule));
            let (_, bucket) = self.of(payer, now_ns);
            let at = match bucket.allows(cost, round, now_ns, is_free) {
                Ok(()) if may_go => {
                    bucket.take(cost, price, round, now_ns);
                    return Some(self.waiting.pop(TURN));
                }
                // No request is free for this capsule. The next attempt may be 1 ms late.
                Ok(()) => now_ns + IO_LASTS_NS,
                Err(at) => at,
            };
            self.waiting.skip();
            self.skipped_ns = Some(self.skipped_ns.map_or(at, |earliest| earliest.min(at)));
        }
        self.waiting.wake();
        let free_ns = self.io_ns.filter(|_| !is_free);
        let free_ns = free_ns.map_or(u64::MAX, |at| at + IO_LASTS_NS);
        self.next_ns = self.skipped_ns.take().map_or(free_ns, |at| at.min(free_ns));
        None
    }

    pub(in crate::reactor) fn take_out(
        &mut self,
        goes: impl Fn(&AwaitingTokens) -> bool,
    ) -> Vec<AwaitingTokens> {
        let mut taken = Vec::new();
        self.waiting.take_out(goes, |one| taken.push(one));
        taken
    }
}

pub(in crate::reactor) fn is_of(waiting: &AwaitingTokens, qpair: QpairId) -> bool {
    matches!(waiting, AwaitingTokens::Capsule(capsule) if capsule.qpair == qpair)
}

pub(in crate::reactor) fn has_place(waiting: &AwaitingTokens, place: PlaceId) -> bool {
    matches!(waiting, AwaitingTokens::Connection(admitted) if admitted.place.id() == place)
}

#[cfg(test)]
mod tests {
    use nvme_proto::wire::{FromZeros as _, Sqe};

    use super::*;

    const START: u64 = 1_000_000_000_000;

    fn address(number: u32) -> Payer {
        Payer::stranger(std::net::Ipv4Addr::from_bits(number).into())
    }

    fn capsule() -> AwaitingTokens {
        AwaitingTokens::Capsule(Capsule {
            qpair: QpairId::NONE,
            slot: None,
            sqe: Sqe::new_zeroed(),
            data_bytes: 0,
            seen_ns: 0,
            first: None,
        })
    }

    fn taken_in(
        buckets: &mut PayerBuckets,
        of: Payer,
        from_ns: u64,
        time_ns: u64,
        io: bool,
    ) -> u64 {
        let mut taken = 0;
        let mut now = from_ns;
        while now < from_ns + time_ns {
            buckets.round += 1;
            if io {
                buckets.io_ns = Some(now);
            }
            let mut in_round = 0;
            while buckets.pays(of, now) {
                in_round += 1;
            }
            assert!(in_round <= u64::from(ROUND));
            taken += in_round;
            now += 10_000;
        }
        taken
    }

    #[test]
    fn an_address_has_its_burst_and_its_rate_while_there_is_io() {
        let mut buckets = PayerBuckets::default();
        let second = 1_000_000_000;
        let first = taken_in(&mut buckets, address(1), START, second, true);
        assert!((2200..=2300).contains(&first), "{first}");
        let then = taken_in(&mut buckets, address(1), START + second, second, true);
        assert!((1990..=2010).contains(&then), "{then}");
        let other = taken_in(&mut buckets, address(2), START + 2 * second, second, true);
        assert_eq!(other, first, "another address has its own");
    }

    #[test]
    fn without_io_only_rounds_have_a_limit() {
        let mut buckets = PayerBuckets::default();
        let taken = taken_in(&mut buckets, address(1), START, 100_000_000, false);
        assert_eq!(taken, 10_000 * u64::from(ROUND));
        let then = taken_in(
            &mut buckets,
            address(1),
            START + 100_000_000,
            1_000_000_000,
            true,
        );
        assert!((1990..=2010).contains(&then), "{then}");
    }

    #[test]
    fn addresses_take_turns_and_each_keeps_its_order() {
        let mut buckets = PayerBuckets::default();
        for _ in 0..3 {
            buckets.wait(address(1), capsule(), START);
        }
        buckets.wait(address(2), capsule(), START);
        buckets.round = 1;
        let mut gone = 0;
        while buckets.next(START, |_| true).is_some() {
            gone += 1;
            if gone == 2 {
                let (next, _) = buckets.waiting.first().unwrap();
                assert_eq!(*next, address(1), "the other one had its turn");
                assert!(!buckets.waiting.has(&address(2)));
            }
        }
        assert_eq!((gone, buckets.waiting()), (4, 0));
    }

    #[test]
    fn what_comes_later_waits_behind_what_waits() {
        let mut buckets = PayerBuckets::default();
        buckets.wait(address(1), capsule(), START);
        buckets.round = 1;
        assert!(!buckets.pays(address(1), START));
        assert!(
            buckets.next(START, |_| false).is_none(),
            "no request is free"
        );
        assert!(buckets.next_ns > START, "a round is not enough");
        assert!(buckets.next(START, |_| true).is_some());
        assert!(buckets.pays(address(1), START));
    }

    #[test]
    fn buckets_have_a_bound_and_what_waits_is_taken_out() {
        let mut buckets = PayerBuckets {
            io_ns: Some(START),
            ..PayerBuckets::default()
        };
        for number in 0..2 * PAYERS_MAX as u32 {
            buckets.charge(address(1 + number), START);
        }
        assert!(buckets.buckets.len() <= PAYERS_MAX + 1);
        buckets.wait(address(1), capsule(), START);
        buckets.wait(address(7_000_000), capsule(), START);
        let gone = buckets.take_out(|one| is_of(one, QpairId::NONE));
        assert_eq!((gone.len(), buckets.waiting()), (2, 0));
        buckets.pays(address(9_000_000), START + 1_000_000_000);
        assert!(buckets.buckets.len() <= 1);
    }

    #[test]
    fn a_connection_is_paid_for_once_it_is_confirmed() {
        let mut buckets = PayerBuckets {
            io_ns: Some(START),
            ..PayerBuckets::default()
        };
        let connect = |buckets: &mut PayerBuckets, confirms: bool| {
            buckets.round += 1;
            let goes = buckets.may_connect(address(1), START);
            if confirms {
                buckets.pay_connection(address(1), START);
            }
            goes
        };
        assert!((0..10_000).all(|_| connect(&mut buckets, false)));
        let confirmed = (0..BURST).filter(|_| connect(&mut buckets, true)).count() as u32;
        assert_eq!(confirmed, BURST / CONNECTION);
    }
}
