//! How many packets may be under way, and how fast.
//!
//! Two things bound a sender. A window of packets, which halves when packets are
//! lost and grows by one for each window that arrives: without a lossless
//! network, the receiver's socket buffer is what overflows. What overflows was full
//! before, so packets that are lost while the round trip is as short as ever were lost by chance, and cost
//! an eighth of the window (as in TCP Veno: Fu and Liew, IEEE JSAC 2003). And once routers
//! have marked congestion, a rate, by DCQCN (Zhu et al., SIGCOMM 2015): cut on
//! a notification, recovered by halves, then added to until it no longer binds.
//!
//! A notification has no key: anyone who knows an address and a queue pair's
//! number can send one. So the rate is cut once a round trip at most, and never
//! below half of what window and round trip allow. Both are measured: a path that
//! is congested shows it by loss, which halves the window, or by queues, which
//! lengthen the round trip, and either lowers that floor.

use super::rtt::RoundTrip;
use crate::time::Instant;
use core::time::Duration;

/// Packets under way at first: what rdma_rxe allows itself.
const INITIAL: u64 = 128;
const MIN: u64 = 8;
/// Well below the 2^23 that sequence numbers distinguish.
const MAX: u64 = 512;
/// A window shrinks once for all that was lost within a round trip, and within this time.
const ONE_LOSS: Duration = Duration::from_millis(2);
/// What part of the window a loss by chance costs.
const CHANCE: u64 = 8;

/// DCQCN's g: how fast the estimate of congestion follows.
const GAIN: f64 = 1.0 / 16.0;
/// How often a rate is raised, and the estimate decays.
const PERIOD: Duration = Duration::from_micros(300);
/// Notifications that come within this time are one, if a round trip is shorter.
const ONE_NOTICE: Duration = Duration::from_micros(50);
/// What notifications leave of the rate that window and round trip allow.
const NOTICED_SHARE: f64 = 0.5;
/// Periods of fast recovery before the target rate itself is raised.
const RECOVERY_PERIODS: u32 = 5;
/// Bytes per second that a raise adds: 40 Mbit/s.
const RAISE: f64 = 5e6;
/// Never slower: 10 Mbit/s.
const MIN_RATE: f64 = 1.25e6;
/// The rate that is assumed when the first notification comes, and at which a
/// limit no longer binds: 100 Gbit/s.
const LINE_RATE: f64 = 12.5e9;
/// How far a paced sender may run ahead, so that packets leave in batches.
const BURST: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(super) struct Window {
    packets: u64,
    /// Packets that arrived since the window last grew.
    arrived: u64,
    lost_at: Option<Instant>,
    rate: Option<Rate>,
}

/// A sender that notifications have slowed down.
#[derive(Debug)]
struct Rate {
    /// Bytes per second now.
    current: f64,
    /// What recovery heads for.
    target: f64,
    /// DCQCN's alpha: how congested the path is, 0 to 1.
    congestion: f64,
    /// When the last notification slowed it down.
    noticed_at: Option<Instant>,
    raised_at: Instant,
    /// Raises since the last notification.
    periods: u32,
    /// When the bytes sent so far will have left at this rate.
    busy_until: Instant,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            packets: INITIAL,
            arrived: 0,
            lost_at: None,
            rate: None,
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

    /// Packets were lost.
    pub(super) fn lost(&mut self, round_trip: &RoundTrip, now: Instant) {
        let together = round_trip.smoothed().unwrap_or_default().max(ONE_LOSS);
        let recent = |at: Instant| now.saturating_duration_since(at) < together;
        if !self.lost_at.is_some_and(recent) {
            self.lost_at = Some(now);
            let part = if round_trip.is_queued() { 2 } else { CHANCE };
            self.packets = (self.packets - self.packets / part).max(MIN);
        }
    }

    pub(super) fn is_paced(&self) -> bool {
        self.rate.is_some()
    }

    /// Until when the rate holds the next packet back; `None`: it may go.
    pub(super) fn holds_until(&mut self, now: Instant) -> Option<Instant> {
        let rate = self.rate.as_mut()?;
        rate.raise(now);
        if rate.current >= LINE_RATE {
            self.rate = None;
            return None;
        }
        let until = rate.busy_until;
        until.checked_sub(BURST).filter(|&until| until > now)
    }

    pub(super) fn sent(&mut self, bytes: usize, now: Instant) {
        if let Some(rate) = &mut self.rate {
            let takes = Duration::from_secs_f64(bytes as f64 / rate.current);
            rate.busy_until = rate.busy_until.max(now) + takes;
        }
    }

    /// A congestion notification has come (annex A17.9.3) to a sender whose packets have
    /// `mtu` bytes and come back acknowledged after `round_trip`. Whether it was heeded.
    pub(super) fn notified(&mut self, round_trip: Duration, mtu: u32, now: Instant) -> bool {
        let interval = round_trip.max(ONE_NOTICE);
        let allowed = self.packets as f64 * f64::from(mtu) / interval.as_secs_f64();
        let floor = (allowed * NOTICED_SHARE).max(MIN_RATE);
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
        let cut = rate.current * (1.0 - rate.congestion / 2.0);
        rate.target = rate.current.max(floor);
        rate.current = cut.max(floor);
        rate.congestion = (1.0 - GAIN) * rate.congestion + GAIN;
        rate.noticed_at = Some(now);
        rate.raised_at = now;
        rate.periods = 0;
        true
    }
}

impl Rate {
    fn raise(&mut self, now: Instant) {
        while now.saturating_duration_since(self.raised_at) >= PERIOD {
            self.raised_at += PERIOD;
            self.congestion *= 1.0 - GAIN;
            self.periods += 1;
            if self.periods > RECOVERY_PERIODS {
                // Raises themselves grow, or a fast link would take minutes.
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

    #[test]
    fn notifications_slow_and_time_restores() {
        let mut now = Instant::START;
        let mut window = Window::default();
        let packet = 4096;
        let sent_in = |window: &mut Window, now: &mut Instant, length: Duration| {
            let end = *now + length;
            let mut count = 0_u32;
            while *now < end {
                if window.holds_until(*now).is_none() {
                    window.sent(packet, *now);
                    count += 1;
                }
                *now += Duration::from_micros(1);
            }
            count
        };
        let free = sent_in(&mut window, &mut now, Duration::from_millis(5));
        // A long round trip: the path is congested indeed.
        let round_trip = Duration::from_millis(4);
        for _ in 0..12 {
            assert!(window.notified(round_trip, packet as u32, now));
            now += round_trip;
        }
        let slow = sent_in(&mut window, &mut now, Duration::from_millis(1)) * 5;
        assert!(slow * 3 < free, "{slow} of {free}");
        assert!(slow > 0);
        now += Duration::from_secs(2);
        let again = sent_in(&mut window, &mut now, Duration::from_millis(5));
        assert_eq!(again, free);
        assert!(!window.is_paced());
    }

    /// An attacker that knows the queue pair's number, at 20,000 notifications a second.
    #[test]
    fn notifications_alone_leave_half_of_the_rate() {
        let mut now = Instant::START;
        let mut window = Window::default();
        let (packet, round_trip) = (4096, Duration::from_micros(200));
        let allowed = (INITIAL * packet) as f64 / round_trip.as_secs_f64();
        let (mut sent, mut heeded) = (0, 0);
        let start = now;
        while now < start + Duration::from_secs(1) {
            heeded += u32::from(window.notified(round_trip, packet as u32, now));
            for _ in 0..50 {
                while window.holds_until(now).is_none() && (sent as f64) < allowed {
                    window.sent(packet as usize, now);
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
            let mut window = Window::default();
            for _ in 0..losses {
                window.lost(&RoundTrip::new(Duration::from_secs(1)), *now);
                *now += ONE_LOSS;
            }
            for _ in 0..64 {
                window.notified(round_trip, 4096, *now);
                *now += round_trip;
            }
            window.rate.expect("it is paced").current
        };
        let without = floor_after(0, &mut now);
        let with = floor_after(3, &mut now);
        assert!(with * 7.0 < without, "{with} of {without}");
    }
}
