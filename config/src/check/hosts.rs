use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use nvme_proto::wire::Nqn;

use super::Check;
use super::subsystem::parse_nqn;
use crate::config::{ALLOWED_HOSTS_MAX, GROUP_PREFIX, HOST_GROUPS_MAX, HostGroup, HostList};
use crate::file::HostGroupTable;
use crate::key_path::KeyPath;
use crate::suggest;

const NAME_MAX: usize = 64;

pub(super) struct Groups {
    all: Vec<HostGroup>,
    sets: HashSet<Arc<BTreeSet<Nqn>>>,
}

impl Groups {
    pub(super) fn check(check: &mut Check<'_>, place: &KeyPath, tables: &[HostGroupTable]) -> Self {
        check.count(place, tables.len(), HOST_GROUPS_MAX);
        let mut firsts: Vec<(&str, usize)> = Vec::new();
        let mut groups = Self {
            all: Vec::new(),
            sets: HashSet::new(),
        };
        for (index, table) in tables.iter().enumerate() {
            let place = place.index(index);
            let hosts = own_hosts(check, &place.key("hosts"), table);
            let Some(name) = name(check, &place, table.name.as_deref()) else {
                continue;
            };
            if let Some((_, first)) = firsts.iter().find(|(other, _)| *other == name) {
                let first = KeyPath::root().key("host_group").index(*first).key("name");
                let what = format!("the host group \"{name}\"");
                check
                    .repeated(&place.key("name"), &first, what)
                    .help("give one of them another name, or put the hosts of both into one");
                continue;
            }
            firsts.push((name, index));
            let hosts = groups.share(hosts);
            groups.all.push(HostGroup {
                name: name.into(),
                hosts,
            });
        }
        groups
    }

    pub(super) fn into_groups(self) -> Vec<HostGroup> {
        self.all
    }

    pub(super) fn list(
        &mut self,
        check: &mut Check<'_>,
        at: &KeyPath,
        names: &[String],
    ) -> HostList {
        check.count(at, names.len(), ALLOWED_HOSTS_MAX);
        let mut hosts = BTreeSet::new();
        let mut found: Vec<&HostGroup> = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let place = at.index(index);
            match name.strip_prefix(GROUP_PREFIX) {
                None => hosts.extend(host(check, &place, name)),
                Some(name) => found.extend(self.named(check, &place, name)),
            }
        }
        let groups = found.iter().map(|group| Arc::clone(&group.name)).collect();
        if let ([only], true) = (&found[..], hosts.is_empty()) {
            let hosts = Arc::clone(&only.hosts);
            return HostList { hosts, groups };
        }
        hosts.extend(found.iter().flat_map(|group| group.hosts.iter().copied()));
        if hosts.len() > ALLOWED_HOSTS_MAX && names.len() <= ALLOWED_HOSTS_MAX {
            let message = format!(
                "with its groups the list has {} hosts: the limit is {ALLOWED_HOSTS_MAX}",
                hosts.len()
            );
            check
                .wrong(at, message)
                .help("name fewer groups, or give the hosts another subsystem");
        }
        let hosts = self.share(hosts);
        HostList { hosts, groups }
    }

    fn named(&self, check: &mut Check<'_>, place: &KeyPath, name: &str) -> Option<&HostGroup> {
        let found = self.all.iter().find(|group| *group.name == *name);
        if found.is_none() {
            let names = || self.all.iter().map(|group| &*group.name);
            let help = match suggest::nearest(name, names()) {
                Some(near) => format!("did you mean \"{GROUP_PREFIX}{near}\"?"),
                None => format!(
                    "add it: [[host_group]] with name = \"{}\" and its hosts",
                    name.escape_debug()
                ),
            };
            let message = format!("no host group has the name \"{}\"", name.escape_debug());
            check.wrong(place, message).help(help);
        }
        found
    }

    fn share(&mut self, hosts: BTreeSet<Nqn>) -> Arc<BTreeSet<Nqn>> {
        if let Some(same) = self.sets.get(&hosts) {
            return Arc::clone(same);
        }
        let hosts = Arc::new(hosts);
        self.sets.insert(Arc::clone(&hosts));
        hosts
    }
}

fn own_hosts(check: &mut Check<'_>, at: &KeyPath, table: &HostGroupTable) -> BTreeSet<Nqn> {
    let names = table.hosts.as_deref().unwrap_or_default();
    check.count(at, names.len(), ALLOWED_HOSTS_MAX);
    let mut hosts = BTreeSet::new();
    for (index, name) in names.iter().enumerate() {
        let place = at.index(index);
        if name.starts_with(GROUP_PREFIX) {
            check
                .wrong(&place, "a host group cannot contain another group")
                .help("list the hosts, or name both groups where they are used");
            continue;
        }
        hosts.extend(host(check, &place, name));
    }
    hosts
}

fn host(check: &mut Check<'_>, place: &KeyPath, name: &str) -> Option<Nqn> {
    let nqn = parse_nqn(check, place, name)?;
    if nqn.is_empty() {
        check
            .wrong(place, "the name of the host is empty")
            .help("write what the host has in /etc/nvme/hostnqn");
    }
    Some(nqn)
}

fn name<'a>(check: &mut Check<'_>, place: &KeyPath, text: Option<&'a str>) -> Option<&'a str> {
    let Some(text) = text else {
        check.missing(place, "name", "name it, such as name = \"databases\"");
        return None;
    };
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if text.bytes().all(is_good) && !text.is_empty() && text.len() <= NAME_MAX {
        return Some(text);
    }
    let message = format!(
        "\"{}\" is not a valid name of a host group",
        text.escape_debug()
    );
    check.wrong(&place.key("name"), message).help(format!(
        "write 1 to {NAME_MAX} letters, digits, \"-\", \"_\" and \".\", without the \
         \"{GROUP_PREFIX}\" that stands before the name in lists of hosts"
    ));
    None
}
