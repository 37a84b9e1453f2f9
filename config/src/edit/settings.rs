use cairn_base::Trid;

use toml_edit::{Array, Item, Table, value};

use super::{Draft, EditError, ana, has_nsid, listeners, tables, text_of};
use crate::config::DIRECTORY_PREFIX;

/// Every object, or the listed objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Only<T> {
    Every,
    These(Vec<T>),
}

/// Subsystem settings to change; `None` keeps a setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubsystemSettings {
    pub serial: Option<String>,
    pub model: Option<String>,
    pub controller_ids: Option<String>,
    pub require_key: Option<bool>,
    pub listeners: Option<Only<Trid>>,
}

/// Namespace settings to change; `None` keeps a setting.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamespaceSettings {
    pub name: Option<String>,
    pub export: Option<String>,
    pub uuid: Option<String>,
    pub nguid: Option<String>,
    /// Logical block size in bytes.
    pub block_size: Option<u32>,
    pub shared: Option<bool>,
    pub read_only: Option<bool>,
    pub write_protection: Option<bool>,
    pub ana_group: Option<u32>,
    pub hosts: Option<Only<String>>,
}

impl Draft {
    /// Changes a subsystem, and removes its ANA overrides at listeners that no longer lead to it.
    pub fn set_subsystem(&mut self, nqn: &str, new: &SubsystemSettings) -> Result<(), EditError> {
        let subsystem = self.subsystem(nqn)?;
        for (key, text) in [
            ("serial", &new.serial),
            ("model", &new.model),
            ("controller_ids", &new.controller_ids),
        ] {
            set_text(subsystem, key, text.as_deref());
        }
        match new.require_key {
            Some(true) => subsystem["require_key"] = value(true),
            Some(false) => drop(subsystem.remove("require_key")),
            None => {}
        }
        match &new.listeners {
            Some(Only::Every) => listeners::set_every(subsystem),
            Some(Only::These(own)) => {
                listeners::set(subsystem, own);
                let apart = ana::forget(subsystem, |at, _| !own.contains(&at));
                self.keep(&apart);
            }
            None => {}
        }
        Ok(())
    }

    /// Sets the target's DH-HMAC-CHAP hash functions and groups; `None` keeps them.
    pub fn set_dhchap(&mut self, hashes: Option<&[&str]>, groups: Option<&[&str]>) {
        for (key, words) in [("dhchap_hashes", hashes), ("dhchap_groups", groups)] {
            if let Some(words) = words {
                self.set_target(key, value(Array::from_iter(words.iter().copied())));
            }
        }
    }

    pub fn set_in_capsule_data(&mut self, bytes: u32) {
        self.set_target("in_capsule_data", value(bytes.to_string()));
    }

    fn set_target(&mut self, key: &str, item: Item) {
        let target = self.document.as_table_mut().entry("target");
        let target = target.or_insert(Item::Table(Table::new()));
        if let Some(target) = target.as_table_like_mut() {
            target.insert(key, item);
        }
    }

    /// Refuses changes to or from a pool directory.
    pub fn set_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        new: &NamespaceSettings,
    ) -> Result<(), EditError> {
        let namespace = self.namespace(nqn, nsid)?;
        let is_directory = |export: &str| export.starts_with(DIRECTORY_PREFIX);
        let former = text_of(namespace, "export").unwrap_or_default();
        if let Some(export) = new.export.as_deref()
            && export != former
            && (is_directory(former) || is_directory(export))
        {
            return Err(EditError::Exists(format!(
                "namespace {nsid} of {nqn} is {former}, and each file of a directory is a \
                 namespace: remove it, then add {export}"
            )));
        }
        for (key, text) in [
            ("name", &new.name),
            ("export", &new.export),
            ("uuid", &new.uuid),
            ("nguid", &new.nguid),
        ] {
            set_text(namespace, key, text.as_deref());
        }
        for (key, is_so) in [
            ("read_only", new.read_only),
            ("write_protection", new.write_protection),
            ("shared", new.shared),
        ] {
            match is_so {
                Some(true) => namespace[key] = value(true),
                Some(false) => drop(namespace.remove(key)),
                None => {}
            }
        }
        for (key, number) in [("block_size", new.block_size), ("ana_group", new.ana_group)] {
            if let Some(number) = number {
                namespace[key] = value(i64::from(number));
            }
        }
        match &new.hosts {
            Some(Only::Every) => drop(namespace.remove("hosts")),
            Some(Only::These(hosts)) => namespace["hosts"] = value(Array::from_iter(hosts)),
            None => {}
        }
        Ok(())
    }

    /// Sets `export` without checking the value.
    pub fn set_export(&mut self, nqn: &str, nsid: u32, export: &str) -> Result<(), EditError> {
        self.namespace(nqn, nsid)?["export"] = value(export);
        Ok(())
    }

    pub(super) fn namespace(&mut self, nqn: &str, nsid: u32) -> Result<&mut Table, EditError> {
        let mut namespaces = tables(self.subsystem(nqn)?, "namespace");
        let found = namespaces.find(|table| has_nsid(table, nsid));
        found.ok_or_else(|| {
            EditError::Missing(format!(
                "the configuration has no namespace {nsid} of {nqn}"
            ))
        })
    }
}

fn set_text(table: &mut Table, key: &str, text: Option<&str>) {
    if let Some(text) = text {
        table[key] = value(text);
    }
}
