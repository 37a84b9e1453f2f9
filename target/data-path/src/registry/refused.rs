use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use cairn_base::address::Payer;
use nvme_auth::controller::Cause;
use nvme_proto::wire::Nqn;

const REFUSED_MAX: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedFor {
    Host,
    Subsystem,
    /// The host, or the target, did not prove its identity.
    Authentication(Cause),
    NoKey,
    /// The connection ended before the host authenticated.
    Unauthenticated,
}

impl fmt::Display for RefusedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "the subsystem does not permit this host",
            Self::Subsystem => "the listener leads to no subsystem of that name",
            Self::Authentication(cause) => return cause.fmt(f),
            Self::NoKey => "the target has no key for this host, and the subsystem requires one",
            Self::Unauthenticated => "the host did not authenticate, and the subsystem requires it",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedHost {
    pub host: Nqn,
    pub subsystem: Nqn,
    pub reason: RefusedFor,
    /// Address of the last attempt.
    pub peer: IpAddr,
    /// Local address of the last attempt.
    pub local: SocketAddr,
    pub first: Instant,
    pub last: Instant,
    pub attempts: u64,
}

/// Last refused hosts, for the control socket: one entry per host and subsystem.
///
/// A full table drops the oldest entry of the address with the most entries, so a stranger that
/// invents names displaces only its own entries.
#[derive(Debug, Default)]
pub struct RefusedHosts {
    /// Ordered by the last attempt. After a panic, at most one entry is missing.
    entries: Mutex<Vec<RefusedHost>>,
}

impl RefusedHosts {
    pub fn note(
        &self,
        (host, subsystem): (Nqn, Nqn),
        reason: RefusedFor,
        peer: IpAddr,
        local: SocketAddr,
        now: Instant,
    ) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |one: &RefusedHost| one.host == host && one.subsystem == subsystem;
        let known = entries.iter().position(is_it);
        let before = known.map(|at| entries.remove(at));
        if entries.len() == REFUSED_MAX {
            let victim = victim(&entries, peer);
            entries.remove(victim);
        }
        entries.push(RefusedHost {
            host,
            subsystem,
            reason,
            peer,
            local,
            first: before.as_ref().map_or(now, |one| one.first),
            last: now,
            attempts: before.map_or(1, |one| one.attempts.saturating_add(1)),
        });
    }

    /// Forgets the refusal of a host that has connected at `local`, unless a listener of another
    /// path does not lead to the subsystem.
    pub fn forget(&self, host: &str, subsystem: &str, local: SocketAddr) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|one| {
            let is_it = one.host.raw() == host && one.subsystem.raw() == subsystem;
            !is_it || one.reason == RefusedFor::Subsystem && one.local != local
        });
    }

    pub fn all(&self) -> Vec<RefusedHost> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().rev().cloned().collect()
    }
}

fn victim(entries: &[RefusedHost], new: IpAddr) -> usize {
    let mut counts = HashMap::from([(Payer::stranger(new), 1)]);
    for one in entries {
        *counts.entry(Payer::stranger(one.peer)).or_insert(0) += 1;
    }
    let most = entries.iter().enumerate().rev();
    most.max_by_key(|(_, one)| counts[&Payer::stranger(one.peer)])
        .map_or(0, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> Nqn {
        Nqn::parse(&format!("nqn.2024-01.com.example:{number}")).unwrap()
    }

    fn at(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 4420).into()
    }

    fn note(hosts: &RefusedHosts, number: usize, peer: [u8; 4]) {
        let (names, now) = ((name(number), name(0)), Instant::now());
        hosts.note(names, RefusedFor::Host, peer.into(), at(1), now);
    }

    #[test]
    fn invented_names_displace_only_those_of_their_address() {
        let hosts = RefusedHosts::default();
        note(&hosts, 1, [192, 0, 2, 1]);
        note(&hosts, 2, [192, 0, 2, 2]);
        for number in 100..10_100 {
            note(&hosts, number, [192, 0, 2, 9]);
        }
        let all = hosts.all();
        assert_eq!(all.len(), REFUSED_MAX);
        assert_eq!(all[0].host, name(10_099), "the latest comes first");
        let has = |number| all.iter().any(|one| one.host == name(number));
        assert!(has(1) && has(2) && has(9_900) && !has(100));
    }

    #[test]
    fn a_host_is_forgotten_at_one_subsystem() {
        let hosts = RefusedHosts::default();
        let reason = RefusedFor::Authentication(Cause::HostSecret);
        for subsystem in [0, 3] {
            let (peer, now) = ([192, 0, 2, 1].into(), Instant::now());
            hosts.note((name(1), name(subsystem)), reason, peer, at(1), now);
        }
        hosts.forget(name(1).raw(), name(3).raw(), at(2));
        let all = hosts.all();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].subsystem, all[0].reason), (name(0), reason));
    }

    #[test]
    fn a_connection_leaves_the_refusal_of_a_listener_on_another_path() {
        let hosts = RefusedHosts::default();
        let (names, peer) = ((name(1), name(0)), [192, 0, 2, 1].into());
        hosts.note(names, RefusedFor::Subsystem, peer, at(1), Instant::now());
        hosts.forget(name(1).raw(), name(0).raw(), at(2));
        assert_eq!(hosts.all().len(), 1);
        hosts.forget(name(1).raw(), name(0).raw(), at(1));
        assert_eq!(hosts.all(), []);
    }

    #[test]
    fn further_attempts_of_a_host_are_counted() {
        let hosts = RefusedHosts::default();
        note(&hosts, 1, [192, 0, 2, 1]);
        note(&hosts, 2, [192, 0, 2, 1]);
        note(&hosts, 1, [192, 0, 2, 3]);
        let all = hosts.all();
        let seen: Vec<_> = all.iter().map(|one| (one.host, one.attempts)).collect();
        assert_eq!(seen, [(name(1), 2), (name(2), 1)]);
        assert!(all[0].first < all[0].last);
        assert_eq!(all[0].peer, IpAddr::from([192, 0, 2, 3]));
    }
}
