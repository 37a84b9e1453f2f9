use std::collections::HashMap;

use toml_edit::{Array, Item, Table, value};

use crate::config::GROUP_PREFIX;

use super::{Draft, EditError, Losses, push, remove, tables, text_of};

const KEY: &str = "host_group";

impl Draft {
    /// Adds hosts to a group, which is created if missing. Returns the number of added hosts.
    ///
    /// # Errors
    /// The group's `hosts` value is no list.
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

    /// Removes hosts from a group.
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

    /// Removes a host group. If a list still names the group, the check of the edited text fails.
    pub fn remove_host_group(&mut self, name: &str) -> Result<(), EditError> {
        let removed = remove(self.document.as_table_mut(), KEY, |table| {
            is_it(table, name)
        });
        self.keep(&removed.ok_or_else(|| missing(name))?);
        Ok(())
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
    EditError::Missing(format!("the file has no host group \"{name}\""))
}
