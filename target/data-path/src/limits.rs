//! Rate limits, as token buckets shared by all reactors.
//!
//! A token is one nanosecond: at 1000 commands per second, a command costs a million tokens. A
//! bucket stores the time up to which its tokens are taken. This time is at most one burst behind
//! the clock, and may be ahead by the cost of waiting commands. Reactors move slices of at least
//! `SLICE_NS` from the buckets into `Tokens`, from which commands are charged.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use cairn_config::{BURST_DEFAULT, Limits};

pub(crate) const SLICE_NS: u64 = 2_000_000;

/// Cost units per nanosecond, because whole nanoseconds are too coarse for small commands.
const PARTS: u64 = 64;

const RATES: usize = 4;

#[derive(Debug, Default)]
struct Bucket {
    /// Commands or bytes per second; 0 means no limit.
    per_second: AtomicU64,
    /// `now - taken_ns` tokens, at most the burst, are available.
    taken_ns: AtomicU64,
}

impl Bucket {
    /// Takes up to `wanted_ns` available tokens, but at least a slice, possibly in advance. Returns
    /// the number of tokens, and the time from which they are usable.
    fn take(&self, wanted_ns: u64, burst_ns: u64, now_ns: u64) -> (u64, u64) {
        let mut taken = self.taken_ns.load(Ordering::Relaxed);
        loop {
            let from = taken.max(now_ns.saturating_sub(burst_ns));
            let there = now_ns.saturating_sub(from);
            let got = wanted_ns.min(there).max(SLICE_NS);
            let until = from.saturating_add(got);
            let swapped = self.taken_ns.compare_exchange_weak(
                taken,
                until,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match swapped {
                Ok(_) => return (got, until),
                Err(other) => taken = other,
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Limiter {
    /// Whether commands must leave the fast path. If not, the fast path reads no other field.
    stops: AtomicBool,
    limited: AtomicBool,
    ordered: AtomicBool,
    changes: AtomicU32,
    burst_ns: AtomicU64,
    weight: AtomicU32,
    buckets: [Bucket; RATES],
}

impl Limiter {
    pub(crate) fn new(limits: &Limits) -> Self {
        let limiter = Self::default();
        limiter.set(limits);
        limiter
    }

    pub fn set(&self, limits: &Limits) {
        let rates = [limits.iops, limits.read, limits.write, limits.total];
        for (bucket, rate) in self.buckets.iter().zip(rates) {
            bucket
                .per_second
                .store(rate.unwrap_or(0), Ordering::Relaxed);
        }
        let burst = limits.burst.unwrap_or(BURST_DEFAULT).as_nanos() as u64;
        self.burst_ns.store(burst, Ordering::Relaxed);
        let weight = limits.weight.unwrap_or(1);
        self.weight.store(weight, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Relaxed);
        // Commands with a limit on `outstanding` leave the fast path, so that [`crate::depth`]
        // counts them.
        let limited = rates.iter().any(Option::is_some) || limits.outstanding.is_some();
        self.limited.store(limited, Ordering::Release);
        self.set_stops();
    }

    pub(crate) fn set_ordered(&self, ordered: bool) {
        self.ordered.store(ordered, Ordering::Release);
        self.set_stops();
    }

    /// The caller holds the subsystem's lock or is the control plane.
    fn set_stops(&self) {
        let stops = self.is_limited() | self.is_ordered();
        self.stops.store(stops, Ordering::Release);
    }

    pub(crate) fn is_ordered(&self) -> bool {
        self.ordered.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn stops(&self) -> bool {
        self.stops.load(Ordering::Relaxed)
    }

    pub(crate) fn weight(&self) -> u32 {
        self.weight.load(Ordering::Relaxed).max(1)
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Bill {
    /// Amount for each bucket of [`Limiter`]: commands, bytes read, bytes written, all bytes.
    shares: [u64; RATES],
}

impl Bill {
    pub(crate) fn new(bytes_read: u64, bytes_written: u64) -> Self {
        let bytes = bytes_read + bytes_written;
        Self {
            shares: [1, bytes_read, bytes_written, bytes],
        }
    }
}

/// Returns the cost in units of 1/[`PARTS`] ns, rounded up so that no rate is exceeded.
fn price(share: u64, per_second: u64) -> u64 {
    match per_second {
        0 => 0,
        rate => share.saturating_mul(1_000_000_000 * PARTS).div_ceil(rate),
    }
}

#[derive(Debug, Default)]
pub(crate) struct Tokens {
    changes: u32,
    /// Unused tokens in units of 1/[`PARTS`] ns.
    left: [u64; RATES],
    from_ns: [u64; RATES],
    /// Buckets for which a queued command waits; other commands must not overtake it.
    awaited: [bool; RATES],
}

impl Tokens {
    /// Takes tokens from the shared buckets until `self` covers a command's cost. The error is the
    /// time of the next attempt, in nanoseconds.
    pub(crate) fn provide(
        &mut self,
        limiter: &Limiter,
        bill: &Bill,
        now_ns: u64,
    ) -> Result<(), u64> {
        let changes = limiter.changes.load(Ordering::Relaxed);
        if self.changes != changes {
            self.changes = changes;
            self.clip();
        }
        let burst_ns = limiter.burst_ns.load(Ordering::Relaxed);
        let mut at = 0;
        for (index, bucket) in limiter.buckets.iter().enumerate() {
            let price = price(
                bill.shares[index],
                bucket.per_second.load(Ordering::Relaxed),
            );
            while self.from_ns[index] <= now_ns && self.left[index] < price {
                let lacks_ns = (price - self.left[index]).div_ceil(PARTS);
                let (bought_ns, from_ns) = bucket.take(lacks_ns, burst_ns, now_ns);
                self.left[index] += bought_ns * PARTS;
                self.from_ns[index] = from_ns;
            }
            if price > 0 && self.from_ns[index] > now_ns {
                self.awaited[index] = true;
                at = at.max(self.from_ns[index]);
            }
        }
        if at > 0 { Err(at) } else { Ok(()) }
    }

    /// Charges a command after [`Self::provide`]. Returns its largest cost in any bucket, in
    /// nanoseconds.
    pub(crate) fn pay(&mut self, limiter: &Limiter, bill: &Bill) -> u64 {
        let mut most = 0;
        for (index, bucket) in limiter.buckets.iter().enumerate() {
            let price = price(
                bill.shares[index],
                bucket.per_second.load(Ordering::Relaxed),
            );
            self.left[index] = self.left[index].saturating_sub(price);
            most = most.max(price);
        }
        most / PARTS
    }

    pub(crate) fn is_awaited(&self, limiter: &Limiter, bill: &Bill) -> bool {
        let mut all = limiter.buckets.iter().zip(bill.shares).zip(self.awaited);
        all.any(|((bucket, share), awaited)| {
            awaited && share > 0 && bucket.per_second.load(Ordering::Relaxed) > 0
        })
    }

    pub(crate) fn forget_awaited(&mut self) {
        self.awaited = [false; RATES];
    }

    pub(crate) fn clip(&mut self) {
        for left in &mut self.left {
            *left = (*left).min(SLICE_NS * PARTS);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limits(iops: Option<u64>, total: Option<u64>, burst: Duration) -> Limits {
        Limits {
            iops,
            total,
            burst: Some(burst),
            ..Limits::default()
        }
    }

    struct Hungry {
        tokens: Tokens,
        next: usize,
        at_ns: u64,
        done: Vec<(u64, u64)>,
    }

    fn run(limiter: &Limiter, reactors: &mut [Hungry], sizes: &[u64], until_ns: u64, late_ns: u64) {
        loop {
            let next = reactors.iter_mut().min_by_key(|one| one.at_ns).unwrap();
            let now = next.at_ns;
            if now >= until_ns {
                return;
            }
            let bytes = sizes[next.next % sizes.len()];
            let bill = Bill::new(bytes, 0);
            match next.tokens.provide(limiter, &bill, now) {
                Ok(()) => {
                    next.tokens.pay(limiter, &bill);
                    next.done.push((now, bytes));
                    next.next += 1;
                }
                Err(at) => {
                    assert!(at > now, "to look again at once is to look for ever");
                    next.at_ns = at + (next.next as u64 * 7919) % (late_ns + 1);
                }
            }
        }
    }

    fn hungry(count: usize, at_ns: u64) -> Vec<Hungry> {
        let one = |number: usize| Hungry {
            tokens: Tokens::default(),
            next: number,
            at_ns,
            done: Vec::new(),
        };
        (0..count).map(one).collect()
    }

    fn most_in(reactors: &[Hungry], stretch_ns: u64, of: impl Fn(u64) -> u64) -> u64 {
        let mut all: Vec<(u64, u64)> = reactors.iter().flat_map(|one| one.done.clone()).collect();
        all.sort_unstable();
        let (mut first, mut sum, mut most) = (0, 0, 0);
        for (at, bytes) in all.iter().copied() {
            sum += of(bytes);
            while at - all[first].0 >= stretch_ns {
                sum -= of(all[first].1);
                first += 1;
            }
            most = most.max(sum);
        }
        most
    }

    fn sum(reactors: &[Hungry], of: impl Fn(u64) -> u64) -> u64 {
        let done = reactors.iter().flat_map(|one| &one.done);
        done.map(|(_, bytes)| of(*bytes)).sum()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn no_more_than_the_rate_and_no_less(
            rate in (64 << 10..1u64 << 30),
            burst_ms in 4..200u64,
            count in 1..5usize,
            sizes in proptest::collection::vec(512..256u64 << 10, 1..8),
            idle_s in 0..20u64,
        ) {
            let burst = Duration::from_millis(burst_ms);
            let limiter = Limiter::new(&limits(None, Some(rate), burst));
            let mean = sizes.iter().sum::<u64>() / sizes.len() as u64;
            let stretch = (mean * 4000 * SECOND / rate).clamp(SECOND / 4, 4000 * SECOND);
            let begin = idle_s * SECOND + 7;
            let mut reactors = hungry(count, begin);
            let burst_ns = burst.as_nanos() as u64;
            let late_ns = burst_ns / 2;
            run(&limiter, &mut reactors, &sizes, begin + stretch, late_ns);
            let allowed = |ns: u64| (u128::from(rate) * u128::from(ns) / u128::from(SECOND)) as u64;
            let largest = *sizes.iter().max().unwrap();
            let beside = count as u64 * (allowed(SLICE_NS) + largest + 1);
            let burst_bytes = allowed(burst_ns);
            for part in [stretch, stretch / 7, stretch / 100] {
                let most = most_in(&reactors, part, |bytes| bytes);
                prop_assert!(most <= allowed(part) + burst_bytes + beside, "{most} in {part} ns");
            }
            let all = sum(&reactors, |bytes| bytes);
            let owed = allowed(stretch + begin.min(burst_ns) - late_ns);
            prop_assert!(all + beside >= owed * 95 / 100, "{all} of {owed}");
        }
    }

    #[test]
    fn a_second_is_exact_to_five_in_a_hundred() {
        for (iops, reactors) in [(100, 1), (10_000, 1), (10_000, 4), (1_000_000, 2)] {
            let limiter = Limiter::new(&limits(Some(iops), None, BURST_DEFAULT));
            let mut reactors = hungry(reactors, 50 * SECOND);
            run(&limiter, &mut reactors, &[4096], 51 * SECOND, SLICE_NS / 2);
            let done = sum(&reactors, |_| 1);
            assert!(
                done * 100 >= iops * 95 && done * 100 <= iops * 105,
                "{done} of {iops}"
            );
        }
    }

    #[test]
    fn reactors_share_a_limit_evenly_whatever_they_do() {
        let limiter = Limiter::new(&limits(None, Some(16 << 20), BURST_DEFAULT));
        let mut reactors = hungry(2, SECOND);
        let mut at = SECOND;
        while at < 11 * SECOND {
            at += SLICE_NS;
            let (small, large) = reactors.split_at_mut(1);
            run(&limiter, small, &[4096], at, 0);
            run(&limiter, large, &[1 << 20], at, 0);
        }
        let [small, large] = [0, 1].map(|one| sum(&reactors[one..=one], |bytes| bytes));
        let all = small + large;
        assert!(
            small * 10 >= all * 4 && large * 10 >= all * 4,
            "{small} {large}"
        );
    }

    #[test]
    fn a_large_command_at_a_low_rate_is_done_in_its_time() {
        let limiter = Limiter::new(&limits(None, Some(64 << 10), Duration::from_millis(1)));
        let mut reactors = hungry(1, SECOND);
        run(&limiter, &mut reactors, &[1 << 20], 40 * SECOND, 0);
        assert_eq!(reactors[0].done.len(), 2, "16 seconds each");
    }

    #[test]
    fn what_was_saved_for_a_command_that_is_gone_is_no_burst() {
        let limiter = Limiter::new(&limits(None, Some(1 << 20), BURST_DEFAULT));
        let (mut tokens, mut now) = (Tokens::default(), SECOND);
        let bill = Bill::new(0, 8 << 20);
        while now < 8 * SECOND {
            now = tokens.provide(&limiter, &bill, now).unwrap_err();
        }
        tokens.clip();
        let small = Bill::new(4096, 0);
        let mut done = 0;
        while tokens.provide(&limiter, &small, now).is_ok() {
            tokens.pay(&limiter, &small);
            done += 1;
        }
        assert!(done <= 8, "{done} commands of 4 ms each at once");
    }

    #[test]
    fn a_change_takes_effect_at_once() {
        let limiter = Limiter::new(&limits(Some(1), None, BURST_DEFAULT));
        let (mut tokens, bill) = (Tokens::default(), Bill::new(512, 0));
        let mut now = SECOND;
        while now < SECOND * 3 / 2 {
            now = tokens.provide(&limiter, &bill, now).unwrap_err();
        }
        limiter.set(&limits(Some(1_000_000), None, BURST_DEFAULT));
        let mut done = 0;
        while tokens.provide(&limiter, &bill, now).is_ok() {
            tokens.pay(&limiter, &bill);
            done += 1;
        }
        assert!(
            (1..=2 * SLICE_NS / 1000).contains(&done),
            "half a second was not saved: {done}"
        );
        limiter.set(&Limits::default());
        assert!(!limiter.is_limited());
        assert_eq!(tokens.provide(&limiter, &bill, now), Ok(()));
    }

    #[test]
    fn prices_fit_and_are_rounded_up() {
        assert_eq!(price(256 << 20, 1), (256 << 20) * SECOND * PARTS);
        assert_eq!(price(1, 3 * SECOND * PARTS), 1);
        assert_eq!(price(1, 0), 0);
    }
}
