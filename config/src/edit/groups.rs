use std::collections::HashMap;

use toml_edit::{Array, Item, Table, value};

use crate::config::GROUP_PREFIX;

use super::{Draft, EditError, Losses, push, remove, tables, text_of};

const KEY: &str = "host_group";

impl Draft {
    /// Adds hosts to a group, created if missing. Returns the number of added hosts.
    pub fn add_to_host_group(&mut self, name: &str, hosts: &[String]) -> Result<usize, EditError> {
        let root = self.document.as_table_mut();
        if !tables(root, KEY).any(|table| is_it(table, name)) {
            let mut table = Table::new();
            table["name"] = value(name);
            table["hosts"] = value(Array::new());
            push(root, KEY, table);
        }
        let group = tables(root, KEY).find(|table| is_it(table, name));
        let list = group.map(|group| group.entry("hosts").or_insert(value(Array::new())));
        let Some(list) = list.and_then(Item::as_array_mut) else {
            let message = format!("the key \"hosts\" of the group \"{name}\" is not a list");
            return Err(EditError::Unreadable(message));
        };
        let before = list.len();
        for host in hosts {
            if !list.iter().any(|known| known.as_str() == Some(host)) {
                list.push(host);
            }
        }
        Ok(list.len() - before)
    }

    /// Removes hosts from a group, and keys of hosts that become unlisted.
    pub fn remove_from_host_group(
        &mut self,
        name: &str,
        hosts: &[String],
    ) -> Result<Losses, EditError> {
        let root = self.document.as_table_mut();
        let Some(group) = tables(root, KEY).find(|table| is_it(table, name)) else {
            return Err(missing(name));
        };
        let mut list = group.get_mut("hosts").and_then(Item::as_array_mut);
        let place_of =
            |list: &Array, host: &str| list.iter().position(|known| known.as_str() == Some(host));
        for host in hosts {
            if list
                .as_ref()
                .and_then(|list| place_of(list, host))
                .is_none()
            {
                let message = format!("the host group \"{name}\" does not have the host {host}");
                return Err(EditError::Missing(message));
            }
        }
        for host in hosts {
            if let Some(list) = &mut list
                && let Some(at) = place_of(list, host)
            {
                list.remove(at);
            }
        }
        Ok(self.drop_keys_of_unlisted())
    }

    pub(super) fn host_groups(&mut self) -> HashMap<String, Vec<String>> {
        let groups = tables(self.document.as_table_mut(), KEY);
        let groups = groups.filter_map(|table| {
            let hosts = table.get("hosts").and_then(Item::as_array);
            let hosts = hosts.into_iter().flat_map(Array::iter);
            let hosts = hosts.filter_map(|host| host.as_str().map(str::to_owned));
            Some((text_of(table, "name")?.to_owned(), hosts.collect()))
        });
        groups.collect()
    }

    /// # Errors
    /// A host list names the group, or the group is not in the file.
    pub fn remove_host_group(&mut self, name: &str) -> Result<(), EditError> {
        if let Some(message) = self.first_use(name) {
            return Err(EditError::InUse(message));
        }
        let removed = remove(self.document.as_table_mut(), KEY, |table| {
            is_it(table, name)
        });
        self.keep(&removed.ok_or_else(|| missing(name))?);
        Ok(())
    }

    fn first_use(&mut self, name: &str) -> Option<String> {
        let names = |table: &Table, key: &str| {
            let list = table.get(key).and_then(Item::as_array);
            list.is_some_and(|list| named(list).iter().any(|one| one == name))
        };
        for subsystem in tables(self.document.as_table_mut(), "subsystem") {
            let nqn = text_of(subsystem, "nqn").unwrap_or_default().to_owned();
            let (what, remedy) = if names(subsystem, "allowed_hosts") {
                let remedy = format!("cairn-target host remove {nqn} @{name}");
                (format!("the list of {nqn} names"), remedy)
            } else {
                let mut namespaces = tables(subsystem, "namespace");
                let Some(one) = namespaces.find(|one| names(one, "hosts")) else {
                    continue;
                };
                let nsid = one.get("nsid").and_then(Item::as_integer)?;
                let remedy = format!(
                    "give the namespace other hosts: cairn-target namespace set {nqn} {nsid} \
                     --host HOST"
                );
                (
                    format!("the list of namespace {nsid} of {nqn} names"),
                    remedy,
                )
            };
            return Some(format!(
                "{what} the host group \"{name}\", which therefore stays: first, {remedy}"
            ));
        }
        None
    }

    pub(super) fn group_with(&mut self, names: &[String], host: &str) -> Option<String> {
        let has_it = |table: &Table| {
            let hosts = table.get("hosts").and_then(Item::as_array);
            let mut hosts = hosts.into_iter().flat_map(Array::iter);
            hosts.any(|known| known.as_str() == Some(host))
        };
        let mut names = names.iter();
        let group = names.find(|name| {
            let mut groups = tables(self.document.as_table_mut(), KEY);
            groups.any(|table| is_it(table, name) && has_it(table))
        });
        group.cloned()
    }
}

pub(super) fn named(list: &Array) -> Vec<String> {
    let names = list.iter().filter_map(|name| name.as_str());
    let names = names.filter_map(|name| name.strip_prefix(GROUP_PREFIX));
    names.map(str::to_owned).collect()
}

fn is_it(table: &Table, name: &str) -> bool {
    text_of(table, "name") == Some(name)
}

fn missing(name: &str) -> EditError {
    EditError::Missing(format!("the configuration has no host group \"{name}\""))
}
