//! Congestion control: a window of unacknowledged packets, and a rate limit.
//!
//! - The window grows by one packet with each acknowledged window, and halves after a loss. A loss
//!   at the minimum round trip is random and shrinks it by an eighth (TCP Veno: Fu and Liew, 2003).
//! - The rate follows DCQCN (Zhu et al., SIGCOMM 2015). A notification cuts the rate, which then
//!   returns to its old value and increases up to [`LINE_RATE`].
//!
//! Attackers can forge notifications. They therefore cut the rate at most once per round trip, and
//! never below half of the rate that the window and the round trip permit. On a lossless network, a
//! notification also shrinks the window if packets queue for more than a millisecond.

use super::rtt::RoundTrip;
use crate::time::Instant;
use core::time::Duration;

/// Initial window in packets, as in rdma_rxe.
const INITIAL: u64 = 128;
const MIN: u64 = 8;
const MAX: u64 = 512;
/// Minimum time between two loss reductions of the window, unless the round trip is longer.
const ONE_LOSS: Duration = Duration::from_millis(2);
/// Divisor: a random loss, or a notification while packets queue, shrinks the window by an eighth.
const CHANCE: u64 = 8;
/// Queueing delay above which a notification shrinks the window.
const QUEUE_MAX: Duration = Duration::from_millis(1);
/// A notification does not shrink the window below this number of packets.
const NOTICED_MIN: u64 = 32;

/// Gain of the congestion estimate (g of DCQCN).
const GAIN: f64 = 1.0 / 16.0;
/// Interval at which the rate increases and the congestion estimate decays.
const PERIOD: Duration = Duration::from_micros(300);
/// Minimum time between two effective notifications, unless the round trip is longer.
const ONE_NOTICE: Duration = Duration::from_micros(50);
/// Lower limit of the rate after a notification, as a fraction of the rate permitted by window and
/// round trip.
const NOTICED_SHARE: f64 = 0.5;
const RECOVERY_PERIODS: u32 = 5;
/// Increase of the target rate per period, in bytes per second: 40 Mbit/s.
const RAISE: f64 = 5e6;
/// Assumed round trip while none is measured: the queue pair only responds.
const UNMEASURED: Duration = Duration::from_millis(1);
const VALID_ROUND_TRIPS: u32 = 4;
/// Lowest rate, in bytes per second: 10 Mbit/s.
const MIN_RATE: f64 = 1.25e6;
/// Rate before the first notification, in bytes per second: 100 Gbit/s. The rate limit ends when
/// the rate is this high again.
const LINE_RATE: f64 = 12.5e9;
/// Time by which a sender may be ahead of its rate, so that packets leave in batches.
const BURST: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(super) struct Window {
    packets: u64,
    arrived: u64,
    lost_at: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct Pacer {
    rate: Option<Rate>,
    ignores: bool,
    sent_at: Option<Instant>,
    held_until: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    pub(super) window: u64,
    pub(super) round_trip: Option<Duration>,
    pub(super) is_under_way: bool,
    pub(super) progress_at: Instant,
}

#[derive(Debug)]
struct Rate {
    current: f64,
    /// Rate to which `current` recovers, in bytes per second.
    target: f64,
    /// Congestion estimate from 0 to 1 (alpha of DCQCN).
    congestion: f64,
    noticed_at: Option<Instant>,
    raised_at: Instant,
    periods: u32,
    /// Time at which all sent bytes would have left at this rate.
    busy_until: Instant,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            packets: INITIAL,
            arrived: 0,
            lost_at: None,
        }
    }
}

impl Window {
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    pub(super) fn acknowledged(&mut self, packets: u64) {
        self.arrived += packets;
        if self.arrived >= self.packets {
            self.arrived = 0;
            self.packets = (self.packets + 1).min(MAX);
        }
    }

    pub(super) fn noticed(&mut self, queue: Duration) {
        if queue > QUEUE_MAX && self.packets > NOTICED_MIN {
            self.packets = (self.packets - self.packets / CHANCE).max(NOTICED_MIN);
        }
    }

    pub(super) fn lost(&mut self, round_trip: &RoundTrip, now: Instant) {
        let together = round_trip.smoothed().unwrap_or_default().max(ONE_LOSS);
        let recent = |at: Instant| now.saturating_duration_since(at) < together;
        if !self.lost_at.is_some_and(recent) {
            self.lost_at = Some(now);
            let part = if round_trip.is_queued() { 2 } else { CHANCE };
            self.packets = (self.packets - self.packets / part).max(MIN);
        }
    }
}

impl Pacer {
    pub(super) fn ignore_notifications(&mut self) {
        self.ignores = true;
    }

    pub(super) fn is_active(&self) -> bool {
        self.rate.is_some()
    }

    /// True if the next packet with data may be sent now. Otherwise, [`Self::held_until`] returns
    /// the earliest time.
    pub(super) fn admits(&mut self, now: Instant) -> bool {
        self.held_until = self.hold(now);
        self.held_until.is_none()
    }

    fn hold(&mut self, now: Instant) -> Option<Instant> {
        let rate = self.rate.as_mut()?;
        rate.raise(now);
        if rate.current >= LINE_RATE {
            self.rate = None;
            return None;
        }
        let until = rate.busy_until;
        until.checked_sub(BURST).filter(|&until| until > now)
    }

    pub(super) fn held_until(&self) -> Option<Instant> {
        self.held_until
    }

    pub(super) fn release(&mut self) {
        self.held_until = None;
    }

    pub(super) fn sent(&mut self, bytes: u64, now: Instant) {
        self.sent_at = Some(now);
        if let Some(rate) = &mut self.rate {
            let takes = Duration::from_secs_f64(bytes as f64 / rate.current);
            rate.busy_until = rate.busy_until.max(now) + takes;
        }
    }

    /// Handles a congestion notification (annex A17.9.3). Returns true if it cut the rate.
    ///
    /// The notification has no effect if the queue pair is idle: no packet is unacknowledged, and
    /// nothing was sent or acknowledged in the last [`VALID_ROUND_TRIPS`] round trips.
    pub(super) fn notified(&mut self, path: &Measured, now: Instant) -> bool {
        let Some(sent_at) = self.sent_at.filter(|_| !self.ignores) else {
            return false;
        };
        let round_trip = path.round_trip.unwrap_or(UNMEASURED);
        let idle = now.saturating_duration_since(sent_at.max(path.progress_at));
        if !path.is_under_way && idle >= VALID_ROUND_TRIPS * round_trip {
            return false;
        }
        let interval = path.round_trip.unwrap_or_default().max(ONE_NOTICE);
        let rate = self.rate.get_or_insert(Rate {
            current: LINE_RATE,
            target: LINE_RATE,
            congestion: 1.0,
            noticed_at: None,
            raised_at: now,
            periods: 0,
            busy_until: now,
        });
        let recent = |at| now.saturating_duration_since(at) < interval;
        if rate.noticed_at.is_some_and(recent) {
            return false;
        }
        rate.cut(path.floor(), now);
        true
    }
}

impl Measured {
    fn floor(&self) -> f64 {
        let round_trip = self.round_trip.unwrap_or(UNMEASURED).max(ONE_NOTICE);
        let allowed = self.window as f64 / round_trip.as_secs_f64();
        (allowed * NOTICED_SHARE).max(MIN_RATE)
    }
}

impl Rate {
    fn cut(&mut self, floor: f64, now: Instant) {
        let cut = self.current * (1.0 - self.congestion / 2.0);
        self.target = self.current;
        self.current = cut.max(floor).min(self.current);
        self.congestion = (1.0 - GAIN) * self.congestion + GAIN;
        self.noticed_at = Some(now);
        self.raised_at = now;
        self.periods = 0;
    }

    fn raise(&mut self, now: Instant) {
        while now.saturating_duration_since(self.raised_at) >= PERIOD {
            self.raised_at += PERIOD;
            self.congestion *= 1.0 - GAIN;
            self.periods += 1;
            if self.periods > RECOVERY_PERIODS {
                // The steps grow (hyper increase), because equal steps would take minutes on a fast
                // link.
                let growth = f64::from((self.periods - RECOVERY_PERIODS).min(1000));
                self.target += RAISE * growth;
            }
            self.current = f64::midpoint(self.current, self.target);
            if self.current >= LINE_RATE {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_halves_and_arrivals_restore() {
        let now = Instant::START;
        let mut window = Window::default();
        let unmeasured = RoundTrip::new(Duration::from_secs(1));
        window.lost(&unmeasured, now);
        window.lost(&unmeasured, now);
        assert_eq!(window.packets(), INITIAL / 2);
        for _ in 0..INITIAL * INITIAL {
            window.acknowledged(1);
        }
        assert!(window.packets() >= INITIAL);
    }

    fn path(window: &Window, mtu: u64, round_trip: Duration, now: Instant) -> Measured {
        Measured {
            window: window.packets() * mtu,
            round_trip: Some(round_trip),
            is_under_way: true,
            progress_at: now,
        }
    }

    #[test]
    fn notifications_slow_and_time_restores() {
        let mut now = Instant::START;
        let (window, mut pacer) = (Window::default(), Pacer::default());
        let packet = 4096;
        let sent_in = |pacer: &mut Pacer, now: &mut Instant, length: Duration| {
            let end = *now + length;
            let mut count = 0_u32;
            while *now < end {
                if pacer.admits(*now) {
                    pacer.sent(packet, *now);
                    count += 1;
                }
                *now += Duration::from_micros(1);
            }
            count
        };
        let free = sent_in(&mut pacer, &mut now, Duration::from_millis(5));
        let round_trip = Duration::from_millis(4);
        for _ in 0..12 {
            assert!(pacer.notified(&path(&window, packet, round_trip, now), now));
            now += round_trip;
        }
        let slow = sent_in(&mut pacer, &mut now, Duration::from_millis(1)) * 5;
        assert!(slow * 3 < free, "{slow} of {free}");
        assert!(slow > 0);
        now += Duration::from_secs(2);
        let again = sent_in(&mut pacer, &mut now, Duration::from_millis(5));
        assert_eq!(again, free);
        assert!(!pacer.is_active());
    }

    #[test]
    fn notifications_alone_leave_half_of_the_rate() {
        let mut now = Instant::START;
        let (window, mut pacer) = (Window::default(), Pacer::default());
        let (packet, round_trip) = (4096, Duration::from_micros(200));
        let allowed = (INITIAL * packet) as f64 / round_trip.as_secs_f64();
        let (mut sent, mut heeded) = (0, 0);
        let start = now;
        while now < start + Duration::from_secs(1) {
            let path = path(&window, packet, round_trip, now);
            heeded += u32::from(pacer.notified(&path, now));
            for _ in 0..50 {
                while pacer.admits(now) && (sent as f64) < allowed {
                    pacer.sent(packet, now);
                    sent += packet;
                }
                now += Duration::from_micros(1);
            }
        }
        assert!(heeded <= 5000, "{heeded} cuts in 5,000 round trips");
        let share = sent as f64 / allowed;
        assert!(share >= NOTICED_SHARE * 0.95, "{share}");
    }

    #[test]
    fn loss_lowers_what_notifications_leave() {
        let mut now = Instant::START;
        let round_trip = Duration::from_micros(200);
        let floor_after = |losses: u32, now: &mut Instant| {
            let (mut window, mut pacer) = (Window::default(), Pacer::default());
            for _ in 0..losses {
                window.lost(&RoundTrip::new(Duration::from_secs(1)), *now);
                *now += ONE_LOSS;
            }
            for _ in 0..64 {
                pacer.sent(4096, *now);
                pacer.notified(&path(&window, 4096, round_trip, *now), *now);
                *now += round_trip;
            }
            pacer.rate.expect("it is paced").current
        };
        let without = floor_after(0, &mut now);
        let with = floor_after(3, &mut now);
        assert!(with * 7.0 < without, "{with} of {without}");
    }

    #[test]
    fn a_notification_raises_no_rate_below_the_floor() {
        let mut now = Instant::START;
        let round_trip = Duration::from_micros(200);
        let (mut window, mut pacer) = (Window::default(), Pacer::default());
        let mut before = f64::INFINITY;
        for notice in 0..100 {
            window.packets = if notice < 99 { 1 } else { MAX };
            pacer.sent(4096, now);
            pacer.notified(&path(&window, 4096, round_trip, now), now);
            let rate = pacer.rate.as_ref().expect("it is paced");
            assert!(rate.current <= before, "notice {notice}");
            before = rate.current;
            now += round_trip;
        }
    }

    #[test]
    fn many_queue_pairs_keep_no_standing_queue_without_loss() {
        const QUEUE_PAIRS: usize = 64;
        let window = Window {
            packets: MAX,
            ..Window::default()
        };
        let mut senders: [(Window, Pacer); QUEUE_PAIRS] =
            core::array::from_fn(|_| (Window { ..window }, Pacer::default()));
        let full = MAX as f64 * 4096.0 * QUEUE_PAIRS as f64;
        let (mut now, mut queue) = (Instant::START, full);
        let mut turn = 0;
        while now < Instant::START + Duration::from_secs(2) {
            let delay = Duration::from_secs_f64(queue / LINE_RATE);
            let round_trip = Duration::from_micros(20) + delay;
            let mut rate = 0.0;
            for (window, pacer) in &mut senders {
                pacer.sent(0, now);
                let path = path(window, 4096, round_trip, now);
                if delay > Duration::from_micros(100) && pacer.notified(&path, now) {
                    window.noticed(delay);
                }
                window.acknowledged(window.packets());
                pacer.admits(now);
                let allowed = (window.packets() * 4096) as f64 / round_trip.as_secs_f64();
                rate += allowed.min(pacer.rate.as_ref().map_or(LINE_RATE, |rate| rate.current));
            }
            queue = (rate * round_trip.as_secs_f64()).min(full);
            now += round_trip;
            turn += 1;
        }
        assert!(turn > 100);
        assert!(queue < 16e6, "{queue:.0} bytes stand in the queue");
    }
}
