//! Combines equal events that a peer can cause cheaply, so that they cannot fill a disk.
//!
//! In each second, the first event of a kind gets a line. Later events that differ only in the port
//! share a line at the end of the second. Kinds beyond the limits share one line.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::event::Event;

const PERIOD: Duration = Duration::from_secs(1);

const KINDS_OF_ADDRESS_MAX: usize = 4;

const KINDS_MAX: usize = 32;

#[derive(Default)]
pub(super) struct Folding {
    ends: Option<Instant>,
    kinds: HashMap<Kind, Held>,
    of_address: HashMap<IpAddr, usize>,
    others: u64,
}

#[derive(PartialEq, Eq, Hash)]
struct Kind(Option<IpAddr>, String);

struct Held {
    first: Arc<Event>,
    more: u64,
    last: SystemTime,
}

impl Folding {
    pub(super) fn ends(&self) -> Option<Instant> {
        self.ends
    }

    pub(super) fn take(&mut self, event: &Arc<Event>, now: Instant) -> Option<String> {
        let line = event.line();
        if !event.is_cheap {
            return Some(line);
        }
        self.ends.get_or_insert(now + PERIOD);
        let address = event.peer.map(|peer| peer.ip());
        let kind = Kind(address, event.fields.clone());
        if let Some(held) = self.kinds.get_mut(&kind) {
            held.more += 1;
            held.last = event.at;
            return None;
        }
        let own = address.and_then(|address| self.of_address.get(&address));
        if self.kinds.len() >= KINDS_MAX || own.is_some_and(|own| *own >= KINDS_OF_ADDRESS_MAX) {
            self.others += 1;
            return None;
        }
        if let Some(address) = address {
            *self.of_address.entry(address).or_default() += 1;
        }
        let held = Held {
            first: Arc::clone(event),
            more: 0,
            last: event.at,
        };
        self.kinds.insert(kind, held);
        Some(line)
    }

    pub(super) fn end(&mut self, mut write: impl FnMut(String)) {
        self.ends = None;
        self.of_address.clear();
        for (_, held) in self.kinds.drain() {
            if held.more > 0 {
                write(held.first.line_of_more(held.last, held.more));
            }
        }
        let others = std::mem::take(&mut self.others);
        if others > 0 {
            let reason = "refusals, and connections without namespaces, that differ too much for lines of their own";
            let event = Event::new("others").text("reason", reason);
            write(event.line_of_more(event.at, others));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn fold(events: impl Iterator<Item = Event>) -> (usize, u64) {
        let mut folding = Folding::default();
        let now = Instant::now();
        let mut lines: Vec<String> = Vec::new();
        for event in events {
            lines.extend(folding.take(&Arc::new(event), now));
        }
        folding.end(|line| lines.push(line));
        let count = |line: &String| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["count"].as_u64().unwrap_or(1)
        };
        (lines.len(), lines.iter().map(count).sum())
    }

    fn refusal(address: [u8; 4], port: u16, reason: &str) -> Event {
        let refused = Event::new("refuse").of_peer((address, port).into());
        refused.cheap(true).text("reason", reason)
    }

    #[test]
    fn a_flood_of_one_address_is_two_lines_and_all_of_it_is_counted() {
        let flood = (0..10_000).map(|port| refusal([192, 0, 2, 1], port, "no"));
        assert_eq!(fold(flood), (2, 10_000));
    }

    #[test]
    fn an_address_that_varies_its_name_takes_no_lines_of_others() {
        let flood = (0..10_000_u16).map(|at| refusal([192, 0, 2, 1], at, &at.to_string()));
        let other = std::iter::once(refusal([192, 0, 2, 2], 1, "no"));
        let lines = KINDS_OF_ADDRESS_MAX + 2;
        assert_eq!(fold(flood.chain(other)), (lines, 10_001));
    }

    #[test]
    fn a_flood_of_many_addresses_has_a_bound_and_all_of_it_is_counted() {
        let flood = (0..10_000_u16).map(|at| {
            let [high, low] = at.to_be_bytes();
            refusal([10, 0, high, low], 1, "no")
        });
        assert_eq!(fold(flood), (KINDS_MAX + 1, 10_000));
    }

    #[test]
    fn connections_with_namespaces_have_a_line_each() {
        let connects = (0..100).map(|_| Event::new("connect"));
        assert_eq!(fold(connects), (100, 100));
    }
}
