//! Edits of a configuration file that keep its comments and order.

mod ana;
mod groups;
mod hosts;
mod keys;
mod limits;
mod listeners;
mod lost;
mod nsids;
mod present;
mod settings;
mod text;
mod tracked;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use cairn_base::Trid;
use nvme_proto::wire::Nqn;
use toml_edit::{
    Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TomlError, Value, value,
};

use listeners::is_listener;
use lost::LostSettings;
use tracked::Tracked;

use crate::doubt::nearest_name;
use crate::secret::without_secrets;

pub use limits::{LimitsOf, NewLimits};
pub use listeners::NewListener;
pub use present::InForce;
pub use settings::{NamespaceSettings, Only, SubsystemSettings};

/// Reason why an edit failed. The draft stays unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("{0}")]
    Missing(String),
    /// The file already has the object, or conflicts with the edit.
    #[error("{0}")]
    Exists(String),
    #[error("{0}")]
    InUse(String),
    #[error("{0}")]
    Full(String),
    #[error("{0}")]
    Unreadable(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewSubsystem {
    pub nqn: String,
    pub serial: Option<String>,
    pub model: Option<String>,
    /// CNTLID range, such as "1-32767".
    pub controller_ids: Option<String>,
    pub allow_any_host: bool,
    /// NQNs, or "@NAME" for groups.
    pub hosts: Vec<String>,
    /// Addresses of the subsystem's listeners; `None` for all.
    pub listeners: Option<Vec<Trid>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewNamespace {
    /// NSID; the lowest unused if `None`.
    pub nsid: Option<u32>,
    pub name: Option<String>,
    /// Disk, directory, Ceph image, memory or null.
    pub export: String,
    pub uuid: Option<String>,
    /// NGUID: 32 hexadecimal digits, or "from-uuid".
    pub nguid: Option<String>,
    pub block_size: Option<u32>,
    pub read_only: bool,
    pub write_protection: bool,
    pub shared: bool,
    pub ana_group: Option<u32>,
    /// Hosts that can use the namespace; `None` for every host.
    pub hosts: Option<Vec<String>>,
    pub limits: NewLimits,
    pub ceph: NewCeph,
}

/// Ceph client settings; absent settings have Ceph's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewCeph {
    pub conf: Option<String>,
    /// User, without "client.".
    pub id: Option<String>,
    pub keyring: Option<String>,
    pub options: BTreeMap<String, String>,
}

impl NewCeph {
    fn write_to(&self, namespace: &mut Table) {
        let mut table = InlineTable::new();
        for (key, text) in [
            ("conf", &self.conf),
            ("id", &self.id),
            ("keyring", &self.keyring),
        ] {
            if let Some(text) = text {
                table.insert(key, text.into());
            }
        }
        if !self.options.is_empty() {
            table.insert("options", InlineTable::from_iter(&self.options).into());
        }
        if !table.is_empty() {
            namespace["ceph"] = value(table);
        }
    }
}

fn set_given<V: Into<Value>, const N: usize>(table: &mut Table, given: [(&str, Option<V>); N]) {
    for (key, given) in given {
        if let Some(given) = given {
            table[key] = value(given);
        }
    }
}

impl NewSubsystem {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table["nqn"] = value(&self.nqn);
        set_given(
            &mut table,
            [
                ("serial", self.serial.as_ref()),
                ("model", self.model.as_ref()),
                ("controller_ids", self.controller_ids.as_ref()),
            ],
        );
        set_access(&mut table, self.allow_any_host, self.hosts.clone());
        if let Some(own) = &self.listeners {
            listeners::set(&mut table, own);
        }
        table
    }
}

impl NewNamespace {
    fn table(&self, nsid: u32) -> Table {
        let mut table = Table::new();
        table["nsid"] = value(i64::from(nsid));
        set_given(
            &mut table,
            [
                ("name", self.name.as_ref()),
                ("export", Some(&self.export)),
                ("uuid", self.uuid.as_ref()),
                ("nguid", self.nguid.as_ref()),
            ],
        );
        set_given(
            &mut table,
            [
                ("block_size", self.block_size.map(i64::from)),
                ("ana_group", self.ana_group.map(i64::from)),
            ],
        );
        for (key, is_so) in [
            ("read_only", self.read_only),
            ("write_protection", self.write_protection),
            ("shared", self.shared),
        ] {
            if is_so {
                table[key] = value(true);
            }
        }
        if let Some(hosts) = &self.hosts {
            table["hosts"] = value(Array::from_iter(hosts));
        }
        self.limits.write_to(&mut table, &LimitsOf::Namespace(nsid));
        self.ceph.write_to(&mut table);
        table
    }
}

/// Warnings about a removal, such as settings that adding the object again does not restore.
pub type Losses = Vec<String>;

/// Editable text of a configuration file.
#[derive(Debug, Clone)]
pub struct Draft {
    document: Tracked,
}

impl Draft {
    pub fn new(text: &str) -> Result<Self, EditError> {
        let mut document: DocumentMut = text.parse().map_err(|error: TomlError| {
            let at = error.span().map_or(0, |span| span.start).min(text.len());
            let line = text.as_bytes()[..at]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count()
                + 1;
            let message = format!("the configuration, line {line}: {}", error.message());
            EditError::Unreadable(without_secrets(&message).into_owned())
        })?;
        for key in ["listener", "referral", "key", "host_group", "subsystem"] {
            make_tables(document.as_table_mut(), key);
        }
        if let Some(subsystems) = document
            .get_mut("subsystem")
            .and_then(Item::as_array_of_tables_mut)
        {
            for subsystem in subsystems.iter_mut() {
                make_tables(subsystem, "ana");
                make_tables(subsystem, "host");
                make_tables(subsystem, "namespace");
            }
        }
        let document = Tracked::new(document);
        Ok(Self { document })
    }

    #[must_use]
    pub fn text(&self) -> String {
        self.document.text()
    }

    pub fn add_subsystem(&mut self, new: &NewSubsystem) -> Result<(), EditError> {
        if self.find_subsystem(&new.nqn).is_ok() {
            return Err(EditError::Exists(format!(
                "the subsystem {} is there already",
                new.nqn
            )));
        }
        push(self.document.as_table_mut(), "subsystem", new.table());
        Ok(())
    }

    /// Returns warnings about lost host keys.
    pub fn remove_subsystem(&mut self, nqn: &str) -> Result<Losses, EditError> {
        let hosts = tables(self.subsystem(nqn)?, "host");
        let losses = hosts.map(|table| keys::loss(nqn, table)).collect();
        let is_it = |table: &Table| text_of(table, "nqn") == Some(nqn);
        let removed = remove(self.document.as_table_mut(), "subsystem", is_it);
        self.keep(&removed.unwrap_or_default());
        self.sweep_keys();
        Ok(losses)
    }

    /// Returns the NSID.
    pub fn add_namespace(&mut self, nqn: &str, new: &NewNamespace) -> Result<u32, EditError> {
        self.find_subsystem(nqn)?;
        let missing = || no_subsystem(nqn, None);
        let (at, taken) = self.document.taken(nqn).ok_or_else(missing)?;
        let nsid = match new.nsid {
            Some(nsid) if taken.includes(nsid) => {
                let message = format!("namespace {nsid} of {nqn} is there already");
                return Err(EditError::Exists(message));
            }
            Some(nsid) => nsid,
            None => taken
                .first_free()
                .ok_or_else(|| EditError::Full(taken.explain_full(nqn)))?,
        };
        self.document.add_namespace(at, nqn, new.table(nsid));
        Ok(nsid)
    }

    /// Fails if a group in the host list prevents hiding.
    pub fn show_namespace(
        &mut self,
        nqn: &str,
        nsid: u32,
        host: &str,
        is_shown: bool,
    ) -> Result<(), EditError> {
        let namespace = self.namespace(nqn, nsid)?;
        let hosts = namespace.get_mut("hosts").and_then(Item::as_array_mut);
        let Some(hosts) = hosts else {
            let message = format!(
                "every host of {nqn} sees namespace {nsid}: give it the list `hosts` in the file \
                 first"
            );
            return Err(EditError::Exists(message));
        };
        let at = hosts.iter().position(|known| known.as_str() == Some(host));
        match at {
            None if is_shown => hosts.push(host),
            Some(at) if !is_shown => {
                hosts.remove(at);
            }
            None => {
                let groups = groups::named(hosts);
                if let Some(group) = self.group_with(&groups, host) {
                    let message = format!(
                        "{host} sees namespace {nsid} of {nqn} by the host group \"{group}\": \
                         remove it from the group, or the group from the list `hosts`"
                    );
                    return Err(EditError::Exists(message));
                }
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Returns warnings about lost restrictions, and about removed namespaces of a pool directory.
    pub fn remove_namespace(&mut self, nqn: &str, nsid: u32) -> Result<Losses, EditError> {
        let (at, _) = self.find_subsystem(nqn)?;
        let Some((apart, lost)) = self.document.remove_namespace(at, nqn, nsid) else {
            let message = format!("the configuration has no namespace {nsid} of {nqn}");
            return Err(EditError::Missing(message));
        };
        self.keep(&apart);
        let LostSettings {
            restrictions,
            directory,
        } = lost;
        let restricted = (!restrictions.is_empty()).then(|| {
            format!(
                "namespace {nsid} of {nqn} loses its restrictions: if you add it again, give them \
                 again: {restrictions}"
            )
        });
        let of_files = directory.map(|directory| {
            format!("all namespaces of {nqn} that are files of {directory} are removed, too")
        });
        Ok(restricted.into_iter().chain(of_files).collect())
    }

    /// Adds a referral; returns false if the file has it.
    pub fn add_referral(&mut self, address: SocketAddr, nqn: Option<&str>) -> bool {
        let root = self.document.as_table_mut();
        if tables(root, "referral").any(|table| is_referral(table, address, nqn)) {
            return false;
        }
        let mut table = Table::new();
        table["address"] = value(address.ip().to_string());
        if address.port() != crate::PORT_DEFAULT {
            table["port"] = value(i64::from(address.port()));
        }
        if let Some(nqn) = nqn {
            table["nqn"] = value(nqn);
        }
        push(root, "referral", table);
        true
    }

    pub fn remove_referral(
        &mut self,
        address: SocketAddr,
        nqn: Option<&str>,
    ) -> Result<(), EditError> {
        let is_it = |table: &Table| is_referral(table, address, nqn);
        let Some(apart) = remove(self.document.as_table_mut(), "referral", is_it) else {
            let message = format!("the configuration has no referral to {address}");
            return Err(EditError::Missing(message));
        };
        self.keep(&apart);
        Ok(())
    }

    /// Returns subsystem NQN and NSID of each namespace with this bdev name.
    #[must_use]
    pub fn named(&self, name: &str) -> Vec<(String, u32)> {
        let subsystems = self
            .document
            .as_document()
            .get("subsystem")
            .and_then(Item::as_array_of_tables);
        let mut places = Vec::new();
        for subsystem in subsystems.into_iter().flat_map(ArrayOfTables::iter) {
            let namespaces = subsystem
                .get("namespace")
                .and_then(Item::as_array_of_tables);
            for table in namespaces.into_iter().flat_map(ArrayOfTables::iter) {
                let nsid = table.get("nsid").and_then(Item::as_integer);
                let nsid = nsid.and_then(|nsid| u32::try_from(nsid).ok());
                if let (Some(name_of), Some(nqn), Some(nsid)) =
                    (text_of(table, "name"), text_of(subsystem, "nqn"), nsid)
                    && name_of == name
                {
                    places.push((nqn.to_owned(), nsid));
                }
            }
        }
        places
    }

    fn keep(&mut self, comments: &str) {
        if !comments.is_empty() {
            let end = self
                .document
                .as_document()
                .trailing()
                .as_str()
                .unwrap_or("");
            let both = format!("{comments}{end}");
            self.document.set_trailing(both);
        }
    }

    fn find_subsystem(&self, nqn: &str) -> Result<(usize, &Table), EditError> {
        let found = self.document.subsystem(nqn);
        found.ok_or_else(|| no_subsystem(nqn, nearest_name(nqn, self.document.nqns())))
    }

    fn subsystem(&mut self, nqn: &str) -> Result<&mut Table, EditError> {
        self.find_subsystem(nqn)?;
        tables(self.document.as_table_mut(), "subsystem")
            .find(|table| text_of(table, "nqn") == Some(nqn))
            .ok_or_else(|| no_subsystem(nqn, None))
    }
}

fn no_subsystem(nqn: &str, near: Option<&str>) -> EditError {
    let near = near.map(|near| format!(": did you mean {near}?"));
    let near = near.unwrap_or_default();
    EditError::Missing(format!("the configuration has no subsystem {nqn}{near}"))
}

fn make_tables(table: &mut Table, key: &str) {
    let Some(item) = table.get_mut(key) else {
        return;
    };
    if item.is_array_of_tables() {
        return;
    }
    match std::mem::take(item).into_array_of_tables() {
        Ok(tables) => {
            *item = Item::ArrayOfTables(tables);
            if let Some(mut key) = table.key_mut(key) {
                key.leaf_decor_mut().clear();
            }
        }
        Err(other) => *item = other,
    }
}

fn tables<'t>(table: &'t mut Table, key: &str) -> impl Iterator<Item = &'t mut Table> {
    let tables = table.get_mut(key).and_then(Item::as_array_of_tables_mut);
    tables.into_iter().flat_map(ArrayOfTables::iter_mut)
}

fn push(table: &mut Table, key: &str, new: Table) {
    let tables = table
        .entry(key)
        .or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    if let Some(tables) = tables.as_array_of_tables_mut() {
        tables.push(new);
    }
}

/// Removes the first table that `is_it` matches; `None` without a match.
///
/// A comment that a blank line separates from the table moves to the next table, or is returned if
/// no table follows.
fn remove(table: &mut Table, key: &str, is_it: impl Fn(&Table) -> bool) -> Option<String> {
    let tables = table.get_mut(key)?.as_array_of_tables_mut()?;
    let at = tables.iter().position(is_it)?;
    let mut apart = comments_apart(tables.get(at)?).to_owned();
    tables.remove(at);
    if !apart.is_empty()
        && let Some(next) = tables.get_mut(at)
    {
        let own = next.decor().prefix().and_then(|own| own.as_str());
        // `toml_edit` writes a newline before a table without decoration, such as a new table.
        let own = own.unwrap_or("\n");
        let both = format!("{apart}{own}");
        next.decor_mut().set_prefix(both);
        apart.clear();
    }
    if tables.is_empty() {
        table.remove(key);
    }
    Some(apart)
}

fn comments_apart(table: &Table) -> &str {
    let before = table.decor().prefix();
    let before = before.and_then(|before| before.as_str()).unwrap_or("");
    let apart = before.rfind("\n\n").map_or(0, |end| end + 2);
    Some(&before[..apart])
        .filter(|apart| !apart.trim().is_empty())
        .unwrap_or("")
}

fn text_of<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    table.get(key)?.as_str()
}

fn has_nsid(table: &Table, nsid: u32) -> bool {
    table.get("nsid").and_then(Item::as_integer) == Some(i64::from(nsid))
}

fn is_referral(table: &Table, address: SocketAddr, nqn: Option<&str>) -> bool {
    let discovery = Nqn::discovery();
    let nqn_of = |nqn: Option<&str>| nqn.unwrap_or(discovery.raw()).to_owned();
    is_listener(table, address.ip().into(), address.port())
        && nqn_of(text_of(table, "nqn")) == nqn_of(nqn)
}

fn allows_any(subsystem: &Table) -> bool {
    subsystem.get("allow_any_host").and_then(Item::as_bool) == Some(true)
}

fn set_access(table: &mut Table, any: bool, hosts: Vec<String>) {
    if any {
        table["allow_any_host"] = value(true);
    } else if hosts.is_empty() {
        table["allow_any_host"] = value(false);
    } else {
        table.remove("allow_any_host");
    }
    if any && hosts.is_empty() {
        table.remove("allowed_hosts");
    } else {
        table["allowed_hosts"] = value(Array::from_iter(hosts));
    }
}
