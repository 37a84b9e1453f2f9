//! The hosts that may connect.

use toml_edit::{Array, Item, Value, value};

use super::{Draft, EditError, allows_any, groups, set_access};

impl Draft {
    /// Lists a host among those that may connect. `false`: it was listed before.
    ///
    /// # Errors
    /// The subsystem is not in the file.
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

    /// Lists a host no longer. It can still connect while every host may.
    ///
    /// # Errors
    /// The host or its subsystem is not in the file.
    pub fn remove_host(&mut self, nqn: &str, host: &str) -> Result<(), EditError> {
        let subsystem = self.subsystem(nqn)?;
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
                    "{nqn} lists the host {host} by the host group \"{group}\": remove it from \
                     the group"
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
        // Keys of a host that is not listed are refused.
        if let Some(tables) = subsystem
            .get_mut("host")
            .and_then(Item::as_array_of_tables_mut)
        {
            tables.retain(|table| table.get("nqn").and_then(Item::as_str) != Some(host));
        }
        self.sweep_keys();
        Ok(())
    }

    /// Sets whether every host may connect. The list and its keys stay: they count when the
    /// others no longer may.
    ///
    /// # Errors
    /// The subsystem is not in the file.
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
}
