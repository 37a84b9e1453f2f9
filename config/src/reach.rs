//! Warnings about parts of a configuration that no host can reach. These parts are accepted: other
//! machines may use the file, and the control socket may add the missing part.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use cairn_rdma::Roce;
use nvme_proto::wire::Nqn;

use crate::config::{Config, HostList, Listener, Provider, Subsystem};

impl Config {
    pub(crate) fn unreachable(&self) -> Vec<String> {
        let subsystems = self.subsystems.iter();
        let hidden = subsystems.filter_map(|subsystem| self.hidden_from_hosts(subsystem));
        hidden
            .chain(self.own_referrals())
            .chain(self.rivals())
            .chain(self.impossible_hosts())
            .chain(self.limited_strangers())
            .collect()
    }

    fn own_referrals(&self) -> impl Iterator<Item = String> {
        let is_own = |at: SocketAddr| {
            let mut listeners = self.listeners.iter();
            listeners.any(|listener| listener.trid() == at.into())
        };
        let own = self.referrals.iter().map(|referral| referral.address);
        own.filter(move |at| is_own(*at)).map(|at| {
            format!(
                "the referral to {at} leads to a listener of this target: hosts that follow it ask the same \
                 discovery service again; remove it, unless another target uses this file"
            )
        })
    }

    /// Returns a warning if a wildcard listener and another one may both need the RoCE UDP port.
    fn rivals(&self) -> Option<String> {
        let may_bind_udp =
            |one: &&Listener| one.provider != Provider::Verbs && self.roce_at(one) == Roce::V2;
        let binding = || self.listeners.iter().filter(may_bind_udp);
        let is_rival = |wild: &Listener, one: &Listener| {
            one.address != wild.address && one.address.ip().is_ipv4() == wild.address.ip().is_ipv4()
        };
        let mut wild = binding().filter(|one| one.address.ip().is_unspecified());
        let (wild, one) =
            wild.find_map(|wild| Some((wild, binding().find(|one| is_rival(wild, one))?)))?;
        Some(format!(
            "the listeners {} and {} both need UDP port 4791 if no RDMA device serves them: one of them is then \
             missing; remove one, or give one provider = \"verbs\"",
            wild.trid(),
            one.trid()
        ))
    }

    fn limited_strangers(&self) -> impl Iterator<Item = String> {
        self.subsystems.iter().flat_map(|subsystem| {
            let hosts = subsystem.limits_of_hosts.keys();
            let strangers = hosts.filter(|host| !subsystem.allows(host));
            strangers.map(|host| {
                format!(
                    "{} limits {host}, but does not permit it, so these limits apply to no host: correct the name, \
                     or remove them by cairn-target limit remove",
                    subsystem.nqn
                )
            })
        })
    }

    fn impossible_hosts(&self) -> Vec<String> {
        let subsystems: HashSet<&Nqn> = self.subsystems.iter().map(|one| &one.nqn).collect();
        let discovery = &self.target.discovery_nqn;
        let is_none =
            |host: &&Nqn| host.is_discovery() || *host == discovery || subsystems.contains(*host);
        let sentence = |list: String, host: &Nqn| {
            format!(
                "{list} names {host}, which is a subsystem's name, so no host has it: list what the host has in \
                 /etc/nvme/hostnqn"
            )
        };
        let of_subsystems = self.subsystems.iter().flat_map(|subsystem| {
            let hosts = subsystem.allowed_hosts.single(&self.host_groups);
            let hosts = hosts
                .chain(subsystem.limits_of_hosts.keys())
                .filter(is_none);
            let hosts: BTreeSet<&Nqn> = hosts.collect();
            let list = format!("the list of hosts of {}", subsystem.nqn);
            hosts
                .into_iter()
                .map(move |host| sentence(list.clone(), host))
        });
        let of_groups = self.host_groups.iter().flat_map(|group| {
            let hosts = group.hosts.iter().filter(is_none);
            hosts.map(|host| sentence(format!("the host group \"{}\"", group.name), host))
        });
        of_subsystems.chain(of_groups).collect()
    }

    fn hidden_from_hosts(&self, subsystem: &Subsystem) -> Option<String> {
        if subsystem.allow_any_host {
            return None;
        }
        let mut known = HashMap::new();
        let pools = subsystem.pools.iter().map(|pool| &pool.like);
        let namespaces = subsystem.namespaces.iter().chain(pools);
        let mut all = namespaces.filter_map(|one| {
            let list = one.hosts.list()?;
            let key = (Arc::as_ptr(&list.hosts), &list.groups[..]);
            let find = || self.stranded_host(subsystem, list);
            let (host, is_alone) = (*known.entry(key).or_insert_with(find))?;
            Some((one.nsid, host, is_alone))
        });
        let (nsid, host, is_alone) = all.next()?;
        let others = all.count();
        let nqn = &subsystem.nqn;
        let only = if is_alone { "only " } else { "" };
        let others = match others {
            0 => String::new(),
            more => format!("; the same applies to {more} more of its namespaces"),
        };
        Some(format!(
            "namespace {nsid} of {nqn} is visible {only}to hosts that {nqn} does not admit, such as {host}: add the \
             host to allowed_hosts, or remove it from the hosts of the namespace{others}"
        ))
    }

    /// Returns a host in the namespace's list that the subsystem refuses, and whether the subsystem
    /// refuses the whole list.
    ///
    /// If only a part of the list is refused, members of groups are ignored, because a group may
    /// serve other subsystems too.
    fn stranded_host<'a>(
        &self,
        subsystem: &Subsystem,
        list: &'a HostList,
    ) -> Option<(&'a Nqn, bool)> {
        let first = list.hosts.first()?;
        if !list.hosts.iter().any(|host| subsystem.allows(host)) {
            return Some((first, true));
        }
        let is_refused = |host: &Nqn| !subsystem.allows(host);
        let groups = self.host_groups.iter();
        let groups: Vec<_> = groups
            .filter(|group| list.groups.contains(&group.name))
            .collect();
        let is_single = |host: &Nqn| !groups.iter().any(|group| group.hosts.contains(host));
        let mut hosts = list.hosts.iter();
        let host = hosts.find(|host| is_refused(host) && is_single(host))?;
        Some((host, false))
    }
}
