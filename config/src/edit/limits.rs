use toml_edit::{InlineTable, Item, Table, TableLike, value};

use super::{Draft, EditError, allows_any, groups, push, remove, tables, text_of};

const LIMITED_HOST: &str = "limited_host";

/// Scope of limits. `Namespace` (NSID) and `Subsystem` limit all hosts together; `Host` (NQN)
/// replaces `EachHost`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitsOf {
    Namespace(u32),
    Subsystem,
    EachHost,
    Host(String),
}

/// Changes of limits: `None` keeps a limit, 0 removes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewLimits {
    pub iops: Option<u64>,
    /// Bytes read per second, such as "100MiB".
    pub read: Option<String>,
    pub write: Option<String>,
    pub total: Option<String>,
    /// Maximum outstanding commands of the disk, for a namespace only.
    pub outstanding: Option<u64>,
    /// Burst of the token bucket in milliseconds; 0 restores the default.
    pub burst_ms: Option<u64>,
}

impl Draft {
    /// Sets the limits of a scope. Returns false if the file already has these limits.
    pub fn set_limits(
        &mut self,
        nqn: &str,
        of: &LimitsOf,
        new: &NewLimits,
    ) -> Result<bool, EditError> {
        if let LimitsOf::Host(host) = of {
            let subsystem = self.subsystem(nqn)?;
            if tables(subsystem, LIMITED_HOST).all(|table| !is_host(table, host)) {
                let mut table = Table::new();
                table["nqn"] = value(host);
                push(subsystem, LIMITED_HOST, table);
            }
        }
        let owner = self.limited(nqn, of)?;
        let text = |owner: &Table| owner.get(of.key()).map(Item::to_string);
        let before = text(owner);
        new.write_to(owner, of);
        Ok(before != text(owner))
    }

    /// True if the host may connect: by `allow_any_host`, `allowed_hosts` or a group.
    pub fn permits(&mut self, nqn: &str, host: &str) -> Result<bool, EditError> {
        let subsystem = self.subsystem(nqn)?;
        let list = subsystem.get("allowed_hosts").and_then(Item::as_array);
        let is_listed = list.is_some_and(|list| list.iter().any(|one| one.as_str() == Some(host)));
        let groups = list.map(groups::named).unwrap_or_default();
        let is_any = allows_any(subsystem);
        Ok(is_any || is_listed || self.group_with(&groups, host).is_some())
    }

    pub fn remove_limits(&mut self, nqn: &str, of: &LimitsOf) -> Result<(), EditError> {
        if let LimitsOf::Host(host) = of {
            self.limited(nqn, of)?;
            let subsystem = self.subsystem(nqn)?;
            let removed = remove(subsystem, LIMITED_HOST, |table| is_host(table, host));
            self.keep(&removed.unwrap_or_default());
            return Ok(());
        }
        let removed = self.limited(nqn, of)?.remove(of.key());
        removed.map(|_| ()).ok_or_else(|| {
            EditError::Missing(match of {
                LimitsOf::Namespace(nsid) => format!("namespace {nsid} of {nqn} has no limits"),
                LimitsOf::Subsystem => format!("{nqn} has no limits"),
                LimitsOf::EachHost => format!("{nqn} has no limits_per_host"),
                LimitsOf::Host(host) => no_limits_of(nqn, host),
            })
        })
    }

    fn limited(&mut self, nqn: &str, of: &LimitsOf) -> Result<&mut Table, EditError> {
        if let LimitsOf::Namespace(nsid) = of {
            return self.namespace(nqn, *nsid);
        }
        let subsystem = self.subsystem(nqn)?;
        let LimitsOf::Host(host) = of else {
            return Ok(subsystem);
        };
        let mut hosts = tables(subsystem, LIMITED_HOST);
        let known = hosts.find(|table| is_host(table, host));
        known.ok_or_else(|| EditError::Missing(no_limits_of(nqn, host)))
    }
}

fn is_host(table: &Table, host: &str) -> bool {
    text_of(table, "nqn") == Some(host)
}

fn no_limits_of(nqn: &str, host: &str) -> String {
    format!("{nqn} has no limits of the host {host}")
}

impl LimitsOf {
    fn key(&self) -> &'static str {
        match self {
            Self::Namespace(_) | Self::Subsystem | Self::Host(_) => "limits",
            Self::EachHost => "limits_per_host",
        }
    }
}

impl NewLimits {
    pub(super) fn write_to(&self, owner: &mut Table, of: &LimitsOf) {
        let item = owner
            .entry(of.key())
            .or_insert_with(|| value(InlineTable::new()));
        let Some(table) = item.as_table_like_mut() else {
            return;
        };
        set(table, "iops", self.iops.map(number));
        set(table, "read", self.read.as_deref().map(size));
        set(table, "write", self.write.as_deref().map(size));
        set(table, "total", self.total.as_deref().map(size));
        set(table, "burst_ms", self.burst_ms.map(number));
        set(table, "outstanding", self.outstanding.map(number));
        let rates = ["iops", "read", "write", "total"];
        let no_rate = rates.iter().all(|key| !table.contains_key(key));
        // The burst is removed with the last rate, because it is invalid without a rate.
        if no_rate && self.burst_ms.is_none_or(|burst_ms| burst_ms == 0) {
            table.remove("burst_ms");
        }
        if table.is_empty() {
            owner.remove(of.key());
        }
    }
}

fn set(table: &mut dyn TableLike, key: &str, new: Option<Option<Item>>) {
    match new {
        None => {}
        Some(None) => {
            table.remove(key);
        }
        Some(Some(item)) => {
            table.insert(key, item);
        }
    }
}

fn number(number: u64) -> Option<Item> {
    (number != 0).then(|| value(i64::try_from(number).unwrap_or(i64::MAX)))
}

fn size(text: &str) -> Option<Item> {
    (crate::parse_size(text) != Ok(0)).then(|| value(text))
}
