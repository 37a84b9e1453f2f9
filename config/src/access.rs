//! Comparison of host access under two configurations, for reloads that must not widen access.

use cairn_base::Trid;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nvme_proto::wire::Nqn;

use crate::config::{Access, Config, HostList, Subsystem};

/// Host access granted by a new configuration but refused by the former one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Widened {
    /// Host that may now connect without authentication.
    #[error("{host} would connect to {nqn} without authentication")]
    Unauthenticated {
        nqn: Nqn,
        /// NQN of the host, or "a host that is not listed".
        host: String,
    },
    /// Host that was refused and may now connect.
    #[error("{host} would be admitted to {nqn}")]
    Admitted { nqn: Nqn, host: String },
    /// Subsystem that a listener newly leads to.
    #[error("the listener {at} would lead to {nqn}")]
    Reached { nqn: Nqn, at: Trid },
    /// Namespace visible to more hosts than before.
    #[error("more hosts would see namespace {nsid} of {nqn}")]
    Seen { nqn: Nqn, nsid: u32 },
}

impl Widened {
    #[must_use]
    pub fn nqn(&self) -> &Nqn {
        match self {
            Self::Unauthenticated { nqn, .. }
            | Self::Admitted { nqn, .. }
            | Self::Reached { nqn, .. }
            | Self::Seen { nqn, .. } => nqn,
        }
    }
}

/// Access of a host under one configuration, strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Refused,
    Authenticated,
    Free,
}

impl Config {
    /// Returns the first access that this configuration grants and `former` refuses: hosts,
    /// authentication, listeners or visible namespaces of a subsystem.
    #[must_use]
    pub fn widened_from(&self, former: &Self) -> Option<Widened> {
        let mut compared = Compared::default();
        self.subsystems.iter().find_map(|now| {
            let mut all = former.subsystems.iter();
            let before = all.find(|one| one.nqn == now.nqn);
            entry_widened(now, before)
                .or_else(|| self.reach_widened(now, former, before))
                .or_else(|| before.and_then(|before| compared.sight_widened(now, before)))
        })
    }

    fn reach_widened(
        &self,
        now: &Subsystem,
        former: &Self,
        before: Option<&Subsystem>,
    ) -> Option<Widened> {
        let before = before.into_iter().flat_map(|one| former.listeners_of(one));
        let before: HashSet<Trid> = before.map(|one| one.trid()).collect();
        let mut now_at = self.listeners_of(now).map(|one| one.trid());
        let at = now_at.find(|at| !before.contains(at))?;
        Some(Widened::Reached { nqn: now.nqn, at })
    }
}

fn entry(subsystem: Option<&Subsystem>, host: Option<&Nqn>) -> Entry {
    let Some(subsystem) = subsystem else {
        return Entry::Refused;
    };
    let (is_admitted, must_prove) = match host {
        Some(host) => (
            subsystem.allows(host),
            subsystem.authentication.is_asked_of(host),
        ),
        None => {
            let keys = &subsystem.authentication;
            (
                subsystem.allow_any_host,
                keys.is_required || keys.others.is_some(),
            )
        }
    };
    match (is_admitted, must_prove) {
        (false, _) => Entry::Refused,
        (true, true) => Entry::Authenticated,
        (true, false) => Entry::Free,
    }
}

/// Returns the first host that `now` treats less strictly than `before`. All hosts listed in
/// neither subsystem count as one host.
fn entry_widened(now: &Subsystem, before: Option<&Subsystem>) -> Option<Widened> {
    let named = [Some(now), before].into_iter().flatten().flat_map(|one| {
        let keys = one.authentication.hosts.iter().map(|(host, _)| host);
        one.allowed_hosts.hosts.iter().chain(keys)
    });
    let mut hosts = named.map(Some).chain([None]);
    let host = hosts.find(|host| entry(Some(now), *host) > entry(before, *host))?;
    let name = match host {
        Some(host) => format!("the host {host}"),
        None => "a host that is not listed".to_owned(),
    };
    let nqn = now.nqn;
    Some(match entry(before, host) {
        Entry::Refused => Widened::Admitted { nqn, host: name },
        _ => Widened::Unauthenticated { nqn, host: name },
    })
}

/// Results of `is_within` by the memory addresses of both host sets, which thousands of namespaces
/// share.
#[derive(Default)]
struct Compared(HashMap<(usize, usize), bool>);

impl Compared {
    fn sight_widened(&mut self, now: &Subsystem, before: &Subsystem) -> Option<Widened> {
        let mut formers = before.namespaces.iter().peekable();
        for one in &now.namespaces {
            while formers.next_if(|former| former.nsid < one.nsid).is_some() {}
            let Some(former) = formers.peek().filter(|former| former.nsid == one.nsid) else {
                continue;
            };
            let is_wider = match (&one.hosts, &former.hosts) {
                (_, Access::AnyHost) => false,
                (Access::AnyHost, Access::Hosts(_)) => true,
                (Access::Hosts(now), Access::Hosts(before)) => !self.is_within(now, before),
            };
            if is_wider {
                let (nqn, nsid) = (now.nqn, one.nsid);
                return Some(Widened::Seen { nqn, nsid });
            }
        }
        None
    }

    fn is_within(&mut self, now: &HostList, before: &HostList) -> bool {
        let key = [now, before].map(|list| Arc::as_ptr(&list.hosts) as usize);
        let is_within = || now.hosts.is_subset(&before.hosts);
        *self.0.entry((key[0], key[1])).or_insert_with(is_within)
    }
}
