use std::path::Path;

use cairn_base::shell::shell_word;
use toml_edit::{ArrayOfTables, Item, Table, value};

use crate::config::KEY_PREFIX;

use super::{Draft, EditError, groups, push, remove, tables, text_of};
use crate::secret::InlineKey;

const KEY: &str = "key";

impl Draft {
    /// Adds a key to the keyring, or restores a removed key.
    pub fn add_key(&mut self, name: &str, path: &Path) -> Result<(), EditError> {
        let root = self.document.as_table_mut();
        let path = value(path.display().to_string());
        if let Some(known) = tables(root, KEY).find(|table| is_it(table, name)) {
            if known.remove("removed").is_none() {
                let message = format!("the key \"{name}\" is there already");
                return Err(EditError::Exists(message));
            }
            known["path"] = path;
            return Ok(());
        }
        let mut table = Table::new();
        table["name"] = value(name);
        table["path"] = path;
        push(root, KEY, table);
        Ok(())
    }

    /// Removes a key from the keyring.
    ///
    /// A key in use is only marked as removed. If it were missing, its hosts would connect without
    /// authentication.
    pub fn remove_key(&mut self, name: &str) -> Result<(), EditError> {
        let missing = || EditError::Missing(format!("the configuration has no key \"{name}\""));
        let is_used = self.key_uses(name) > 0;
        let root = self.document.as_table_mut();
        let known = tables(root, KEY).find(|table| is_it(table, name) && !is_removed(table));
        let known = known.ok_or_else(missing)?;
        if is_used {
            known["removed"] = value(true);
            return Ok(());
        }
        let removed = remove(root, KEY, |table| is_it(table, name));
        self.keep(&removed.unwrap_or_default());
        Ok(())
    }

    /// Replaces the keys of a host, or removes them for `None`. Returns whether the host had keys.
    /// `keys` are the values of `dhchap_key` and `dhchap_ctrl_key`.
    pub fn set_host_keys(
        &mut self,
        nqn: &str,
        host: &str,
        keys: Option<(&str, Option<&str>)>,
    ) -> Result<bool, EditError> {
        let given = keys.into_iter().flat_map(|(key, other)| [Some(key), other]);
        for name in given
            .flatten()
            .filter_map(|key| key.strip_prefix(KEY_PREFIX))
        {
            if !self.has_key(name) {
                return Err(EditError::Missing(format!(
                    "the configuration has no key \"{}\"",
                    name.escape_debug()
                )));
            }
        }
        let subsystem = self.subsystem(nqn)?;
        let list = subsystem.get("allowed_hosts").and_then(Item::as_array);
        let is_listed =
            list.is_some_and(|list| list.iter().any(|known| known.as_str() == Some(host)));
        let named = list.map(groups::named).unwrap_or_default();
        if !is_listed && self.group_with(&named, host).is_none() {
            let message = format!(
                "{nqn} does not list the host {host}: add it with its key: cairn-target host add --key"
            );
            return Err(EditError::Missing(message));
        }
        let subsystem = self.subsystem(nqn)?;
        let is_host = |table: &Table| text_of(table, "nqn") == Some(host);
        let known = tables(subsystem, "host").find(|table| is_host(table));
        let had = known.is_some();
        match (known, keys) {
            (Some(table), Some((key, controller))) => put(table, key, controller),
            (None, Some((key, controller))) => {
                let mut table = Table::new();
                table["nqn"] = value(host);
                put(&mut table, key, controller);
                push(subsystem, "host", table);
            }
            (Some(_), None) => {
                let removed = remove(subsystem, "host", is_host);
                self.keep(&removed.unwrap_or_default());
            }
            (None, None) => {}
        }
        self.sweep_keys();
        Ok(had)
    }

    /// Returns a host's `dhchap_key` and `dhchap_ctrl_key` at a subsystem.
    pub fn host_keys(&self, nqn: &str, host: &str) -> Result<[Option<String>; 2], EditError> {
        let (_, subsystem) = self.find_subsystem(nqn)?;
        let hosts = subsystem.get("host").and_then(Item::as_array_of_tables);
        let mut hosts = hosts.into_iter().flat_map(ArrayOfTables::iter);
        let host = hosts.find(|table| text_of(table, "nqn") == Some(host));
        let keys = ["dhchap_key", "dhchap_ctrl_key"];
        Ok(keys.map(|key| text_of(host?, key).map(str::to_owned)))
    }

    /// True if the keyring has this key, not marked as removed.
    pub fn has_key(&mut self, name: &str) -> bool {
        let mut keys = tables(self.document.as_table_mut(), KEY);
        keys.any(|table| is_it(table, name) && !is_removed(table))
    }

    fn key_uses(&mut self, name: &str) -> usize {
        let named = |table: &Table| {
            let keys = ["dhchap_key", "dhchap_ctrl_key"].map(|key| text_of(table, key));
            let names = keys.into_iter().flatten();
            let names = names.filter_map(|text| text.strip_prefix(KEY_PREFIX));
            names.filter(|other| *other == name).count()
        };
        let subsystems = tables(self.document.as_table_mut(), "subsystem");
        let uses = subsystems.map(|subsystem| {
            let own = named(subsystem);
            own + tables(subsystem, "host")
                .map(|host| named(host))
                .sum::<usize>()
        });
        uses.sum()
    }

    pub(super) fn sweep_keys(&mut self) {
        let removed = tables(self.document.as_table_mut(), KEY).filter(|table| is_removed(table));
        let names = removed.filter_map(|table| text_of(table, "name").map(str::to_owned));
        let names: Vec<String> = names.collect();
        for name in names {
            if self.key_uses(&name) == 0 {
                let root = self.document.as_table_mut();
                let removed = remove(root, KEY, |table| is_it(table, &name));
                self.keep(&removed.unwrap_or_default());
            }
        }
    }
}

/// Returns a warning about removed keys of a host, with the command that sets the keys again.
/// `FILE` replaces inline keys.
pub(super) fn loss(nqn: &str, table: &Table) -> String {
    let file = |key| {
        let text = text_of(table, key)?;
        let is_shown = InlineKey::of(text).is_none();
        Some(if is_shown {
            shell_word(text, "FILE")
        } else {
            "FILE".to_owned()
        })
    };
    let host = text_of(table, "nqn").unwrap_or_default();
    let key = file("dhchap_key").unwrap_or_else(|| "FILE".to_owned());
    let controller = file("dhchap_ctrl_key").map(|file| format!(" --ctrl-key {file}"));
    format!(
        "{host} loses its key at {nqn}: to add the host again: cairn-target host add \
         {} {} --key {key}{}",
        shell_word(nqn, "NQN"),
        shell_word(host, "HOST"),
        controller.unwrap_or_default()
    )
}

fn put(table: &mut Table, key: &str, controller: Option<&str>) {
    table["dhchap_key"] = value(key);
    match controller {
        Some(controller) => table["dhchap_ctrl_key"] = value(controller),
        None => {
            table.remove("dhchap_ctrl_key");
        }
    }
}

fn is_it(table: &Table, name: &str) -> bool {
    text_of(table, "name") == Some(name)
}

fn is_removed(table: &Table) -> bool {
    table.get("removed").and_then(Item::as_bool) == Some(true)
}
