//! Queue of discovery services found by referrals, each read once.

use std::collections::VecDeque;
use std::net::SocketAddr;

use nvme_proto::wire::Nqn;
use nvme_proto::wire::log::SubsystemType;

use super::DiscoveryLog;
use super::entry::Route;

/// Maximum services read by [`discover_all`](super::discover_all), including the first.
pub const SERVICES_MAX: usize = 32;

/// Discovery service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// IP address and port.
    pub address: SocketAddr,
    /// Well-known discovery NQN, or a unique NQN.
    pub subnqn: Nqn,
}

#[derive(Debug)]
pub(super) struct Itinerary {
    known: Vec<Service>,
    ahead: VecDeque<Service>,
    pub(super) left_out: usize,
}

impl Itinerary {
    pub(super) fn from(first: Service) -> Self {
        Self {
            known: vec![first],
            ahead: VecDeque::from([first]),
            left_out: 0,
        }
    }

    pub(super) fn next(&mut self) -> Option<Service> {
        self.ahead.pop_front()
    }

    pub(super) fn learn(&mut self, log: &DiscoveryLog) {
        let referrals = log.routes().filter(|route| {
            // Entries for the service's own ports have another SUBTYPE.
            route.kind == SubsystemType::DISCOVERY_REFERRAL
        });
        for route in referrals {
            let service = Service {
                address: route.address,
                subnqn: route.subnqn,
            };
            if self.known.contains(&service) {
                continue;
            }
            if self.known.len() == SERVICES_MAX {
                self.left_out += 1;
                continue;
            }
            self.known.push(service);
            self.ahead.push_back(service);
        }
    }
}

impl DiscoveryLog {
    /// Routes that this host can use.
    pub fn routes(&self) -> impl Iterator<Item = Route> {
        self.entries.iter().filter_map(Route::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::entry;
    use super::*;

    fn service(port: u16) -> Service {
        Service {
            address: SocketAddr::from(([192, 0, 2, 1], port)),
            subnqn: Nqn::discovery(),
        }
    }

    fn log(ports: impl IntoIterator<Item = u16>) -> DiscoveryLog {
        let to = |port| {
            let service = service(port);
            let kind = SubsystemType::DISCOVERY_REFERRAL;
            entry(kind, &service.subnqn, service.address)
        };
        DiscoveryLog {
            genctr: 1,
            entries: ports.into_iter().map(to).collect(),
        }
    }

    #[test]
    fn services_that_refer_to_each_other_are_asked_once() {
        let mut itinerary = Itinerary::from(service(1));
        let mut asked = Vec::new();
        while let Some(next) = itinerary.next() {
            let port = next.address.port();
            asked.push(port);
            itinerary.learn(&log([1, 2, 3, port]));
        }
        assert_eq!(asked, [1, 2, 3]);
        assert_eq!(itinerary.left_out, 0);
    }

    #[test]
    fn a_chain_without_end_ends() {
        let mut itinerary = Itinerary::from(service(1));
        let mut asked = 0;
        while let Some(next) = itinerary.next() {
            asked += 1;
            itinerary.learn(&log([next.address.port() + 1]));
        }
        assert_eq!(asked, SERVICES_MAX);
        assert_eq!(itinerary.left_out, 1);
    }

    #[test]
    fn subsystems_are_not_asked() {
        let mut itinerary = Itinerary::from(service(1));
        itinerary.next();
        let at = service(2);
        let mut log = log([]);
        for kind in [SubsystemType::NVM, SubsystemType::CURRENT_DISCOVERY] {
            log.entries.push(entry(kind, &at.subnqn, at.address));
        }
        itinerary.learn(&log);
        assert_eq!(itinerary.next(), None);
        assert_eq!(log.routes().count(), 2);
    }
}
