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
//! lengthen the round trip, and either lowers that floor. A network that loses nothing would leave
//! all windows as long as they can be, and half of the windows of many queue pairs in a queue. So a
//! notification shrinks the window, too, while the round trip shows a queue of a millisecond.
//!
//! The rate is that of a queue pair's data in both roles: its SENDs and WRITEs, the READ
//! responses that it returns, and the READ data that it requests.

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
/// Part of the window that a loss by chance costs, or a notification with a queue.
const CHANCE: u64 = 8;
/// Queueing delay from which on notifications shrink the window, and the least that they leave.
const QUEUE_MAX: Duration = Duration::from_millis(1);
const NOTICED_MIN: u64 = 32;

/// DCQCN's g: how fast the estimate of congestion follows.
const GAIN: f64 = 1.0 / 16.0;
/// How often a rate is raised, and the estimate decays.
const PERIOD: Duration = Duration::from_micros(300);
/// Notifications that come within this time are one, if a round trip is shorter or unknown.
const ONE_NOTICE: Duration = Duration::from_micros(50);
/// What notifications leave of the rate that window and round trip allow.
const NOTICED_SHARE: f64 = 0.5;
/// Periods of fast recovery before the target rate itself is raised.
const RECOVERY_PERIODS: u32 = 5;
/// Bytes per second that a raise adds: 40 Mbit/s.
const RAISE: f64 = 5e6;
/// Round trip that is assumed where none was measured: a queue pair that only answers.
const UNMEASURED: Duration = Duration::from_millis(1);
/// Round trips for which a notification may be of packets that have arrived since.
const VALID_ROUND_TRIPS: u32 = 4;
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
}

/// The rate of a queue pair's data, once notifications limit it.
#[derive(Debug, Default)]
pub(super) struct Pacer {
    rate: Option<Rate>,
    /// Notifications change nothing.
    ignores: bool,
    /// When data left last.
    sent_at: Option<Instant>,
    /// Until when data that was asked for is held back.
    held_until: Option<Instant>,
}

/// Measurements of a requester's path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measured {
    /// Bytes that may be under way.
    pub(super) window: u64,
    /// Smoothed round trip.
    pub(super) round_trip: Option<Duration>,
    /// Requests are not acknowledged yet.
    pub(super) is_under_way: bool,
    /// When requests were acknowledged last.
    pub(super) progress_at: Instant,
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

    /// A notification was heeded, of a path with so long a queue.
    pub(super) fn noticed(&mut self, queue: Duration) {
        if queue > QUEUE_MAX && self.packets > NOTICED_MIN {
            self.packets = (self.packets - self.packets / CHANCE).max(NOTICED_MIN);
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
}

impl Pacer {
    /// From now on notifications change nothing.
    pub(super) fn ignore_notifications(&mut self) {
        self.ignores = true;
    }

    /// Whether notifications limit the rate.
    pub(super) fn is_active(&self) -> bool {
        self.rate.is_some()
    }

    /// Whether the next packet with data may go. If not, [`Self::held_until`] says when.
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

    /// Nothing waits for the rate before the next [`Self::admits`].
    pub(super) fn release(&mut self) {
        self.held_until = None;
    }

    /// Data has left, or was requested.
    pub(super) fn sent(&mut self, bytes: u64, now: Instant) {
        self.sent_at = Some(now);
        if let Some(rate) = &mut self.rate {
            let takes = Duration::from_secs_f64(bytes as f64 / rate.current);
            rate.busy_until = rate.busy_until.max(now) + takes;
        }
    }

    /// A congestion notification has come (annex A17.9.3). Returns whether it was heeded: it can
    /// only be of packets that were under way within the last round trips.
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
    /// Lowest rate that notifications cause, in bytes per second.
    fn floor(&self) -> f64 {
        let round_trip = self.round_trip.unwrap_or(UNMEASURED).max(ONE_NOTICE);
        let allowed = self.window as f64 / round_trip.as_secs_f64();
        (allowed * NOTICED_SHARE).max(MIN_RATE)
    }
}

impl Rate {
    fn cut(&mut self, floor: f64, now: Instant) {
        let cut = self.current * (1.0 - self.congestion / 2.0);
        self.target = self.current.max(floor);
        self.current = cut.max(floor);
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

    /// A path without a queue, for packets of `mtu` bytes.
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
        // A long round trip: the path is congested indeed.
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

    /// An attacker that knows the queue pair's number, at 20,000 notifications a second.
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

    /// 64 queue pairs, whose windows nothing has shrunk, into one link of 100 Gbit/s that loses
    /// nothing and marks whatever waits longer than 100 us: the queue drains.
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
            // Packets under way stand in the queue.
            queue = (rate * round_trip.as_secs_f64()).min(full);
            now += round_trip;
            turn += 1;
        }
        assert!(turn > 100);
        assert!(queue < 16e6, "{queue:.0} bytes stand in the queue");
    }
}
