use super::Observed;
use super::reporter::Reporter;
use crate::exposition::families;
use cairn_data_path::metrics::reactor::{Doing, ReactorCounters};

pub(super) fn report(reporter: &Reporter<'_>, observed: &Observed) {
    let (mut orderly, mut fault) = (0, 0);
    for (index, counters) in observed.reactors.iter().enumerate() {
        report_reactor(reporter, &index.to_string(), counters);
        orderly += counters.ended_orderly.get();
        fault += counters.ended_by_fault.get();
    }
    for (kind, count) in [("orderly", orderly), ("fault", fault)] {
        reporter.count(&families::DISCONNECTS, &[("kind", kind)], count);
    }
}

fn report_reactor(reporter: &Reporter<'_>, index: &str, counters: &ReactorCounters) {
    let reactor = ("reactor", index);
    for (doing, state) in Doing::ALL {
        let labels = [reactor, ("state", state)];
        let ns = counters.time_ns[doing as usize].get();
        reporter.count_ns(&families::REACTOR_TIME, &labels, ns);
    }
    for (family, counter) in [
        (&families::REACTOR_ROUNDS, &counters.rounds),
        (&families::REACTOR_SLEEPS, &counters.sleeps),
        (&families::REACTOR_CAPSULES, &counters.capsules),
        (&families::REACTOR_PANICS, &counters.panics),
    ] {
        reporter.count(family, &[reactor], counter.get());
    }
    for (family, gauge) in [
        (&families::REACTOR_ORPHANS, &counters.orphans),
        (&families::REACTOR_QUEUE_PAIRS, &counters.queue_pairs),
        (&families::REACTOR_REQUESTS, &counters.requests),
        (&families::REACTOR_REQUESTS_MAX, &counters.requests_max),
        (&families::REACTOR_BUFFER, &counters.buffer_bytes),
        (&families::REACTOR_BUFFER_USED, &counters.buffer_used_bytes),
    ] {
        reporter.gauge(family, &[reactor], gauge.get());
    }
    for (cause, counter) in [
        ("limit", &counters.limit_waits),
        ("share", &counters.share_waits),
        ("pool", &counters.pool_waits),
        ("read", &counters.read_waits),
        ("send", &counters.send_waits),
        ("request", &counters.request_waits),
    ] {
        let labels = [reactor, ("cause", cause)];
        reporter.count(&families::REACTOR_WAITS, &labels, counter.get());
    }
}
