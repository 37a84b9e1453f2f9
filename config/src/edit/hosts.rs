use std::collections::HashSet;

use toml_edit::{Array, Item, Table, Value, value};

use crate::config::GROUP_PREFIX;

use super::{
    Draft, EditError, Losses, allows_any, groups, keys, remove, set_access, tables, text_of,
};

impl Draft {
    /// Adds a host to `allowed_hosts`; returns false if the list contains the host.
    pub fn add_host(&mut self, nqn: &str, host: &str) -> Result<bool, EditError> {
        let subsystem = self.subsystem(nqn)?;
        if let Some(Item::Value(Value::Array(hosts))) = subsystem.get_mut("allowed_hosts") {
            if hosts.iter().any(|known| known.as_str() == Some(host)) {
                return Ok(false);
            }
            hosts.push(host);
            return Ok(true);
        }
        let any = allows_any(subsystem);
        set_access(subsystem, any, vec![host.to_owned()]);
        Ok(true)
    }

    /// Removes a host from `allowed_hosts`. With `allow_any_host` the host can still connect.
    pub fn remove_host(&mut self, nqn: &str, host: &str) -> Result<Losses, EditError> {
        let subsystem = self.subsystem(nqn)?;
        let is_open = allows_any(subsystem);
        let list = subsystem.get_mut("allowed_hosts");
        let mut list = list.and_then(Item::as_array_mut);
        let at = list.as_ref().and_then(|hosts| {
            let mut hosts = hosts.iter();
            hosts.position(|known| known.as_str() == Some(host))
        });
        let (Some(hosts), Some(at)) = (&mut list, at) else {
            let groups = list.map_or_else(Vec::new, |hosts| groups::named(hosts));
            let message = match self.group_with(&groups, host) {
                Some(group) => format!(
                    "{nqn} lists the host {host} by the host group \"{group}\": cairn-target host \
                     group remove {group} {host}"
                ),
                None if is_open => format!(
                    "{nqn} does not list the host {host}, which may connect like every host: \
                     cairn-target host any {nqn} off"
                ),
                None => format!("{nqn} does not list the host {host}"),
            };
            return Err(EditError::Missing(message));
        };
        hosts.remove(at);
        if hosts.is_empty() {
            match allows_any(subsystem) {
                true => drop(subsystem.remove("allowed_hosts")),
                false => subsystem["allow_any_host"] = value(false),
            }
        }
        Ok(self.drop_keys_of_unlisted())
    }

    /// Sets `allow_any_host`. The host list and the keys stay, and apply again when the setting is
    /// false.
    pub fn allow_any_host(&mut self, nqn: &str, allow: bool) -> Result<(), EditError> {
        let subsystem = self.subsystem(nqn)?;
        if allows_any(subsystem) == allow {
            return Ok(());
        }
        let list = subsystem.get("allowed_hosts").and_then(Item::as_array);
        if list.is_none_or(Array::is_empty) {
            set_access(subsystem, allow, Vec::new());
        } else {
            subsystem["allow_any_host"] = value(allow);
        }
        Ok(())
    }

    /// Removes the keys of hosts outside `allowed_hosts`, because such keys make the configuration
    /// invalid.
    pub(super) fn drop_keys_of_unlisted(&mut self) -> Losses {
        let groups = self.host_groups();
        let (mut apart, mut losses) = (String::new(), Losses::new());
        for subsystem in tables(self.document.as_table_mut(), "subsystem") {
            let list = subsystem.get("allowed_hosts").and_then(Item::as_array);
            let names = list
                .into_iter()
                .flat_map(Array::iter)
                .filter_map(Value::as_str);
            let mut listed: HashSet<String> = HashSet::new();
            for name in names {
                match name.strip_prefix(GROUP_PREFIX) {
                    Some(group) => listed.extend(groups.get(group).into_iter().flatten().cloned()),
                    None => drop(listed.insert(name.to_owned())),
                }
            }
            let is_unlisted =
                |table: &Table| text_of(table, "nqn").is_some_and(|nqn| !listed.contains(nqn));
            let nqn = text_of(subsystem, "nqn").unwrap_or_default().to_owned();
            let lost = tables(subsystem, "host").filter(|table| is_unlisted(table));
            losses.extend(lost.map(|table| keys::loss(&nqn, table)));
            while let Some(comments) = remove(subsystem, "host", is_unlisted) {
                apart += &comments;
            }
        }
        self.keep(&apart);
        self.sweep_keys();
        losses
    }
}
