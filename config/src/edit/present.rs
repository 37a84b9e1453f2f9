//! Comparison of an object to add with the one in the file. Settings that are not given are not
//! compared, and each entry of a given list must be in the file's list.

use toml_edit::{Array, ArrayOfTables, Item, Table, Value};

use super::listeners::{address_of, is_listener};
use super::{Draft, EditError, NewListener, NewNamespace, NewSubsystem, has_nsid};

/// Keys that are not compared, because they identify the object.
const IDENTITY: [&str; 4] = ["nqn", "nsid", "address", "port"];

impl Draft {
    /// Returns true if the file has this subsystem.
    ///
    /// # Errors
    /// The file's subsystem differs in a given setting.
    pub fn has_subsystem(&self, new: &NewSubsystem) -> Result<bool, EditError> {
        let Ok((_, known)) = self.find_subsystem(&new.nqn) else {
            return Ok(false);
        };
        let mut given = new.table();
        if !new.allow_any_host {
            given.remove("allow_any_host");
        }
        if new.hosts.is_empty() {
            given.remove("allowed_hosts");
        }
        compare(&format!("the subsystem {}", new.nqn), known, &given)
    }

    /// Returns the NSID of this namespace if the file has it. If no NSID is given, a namespace of
    /// the same disk with all given settings counts as this one. Memory and null disks never do,
    /// because each is a new disk.
    ///
    /// # Errors
    /// The namespace with the given NSID differs in a given setting.
    pub fn has_namespace(&self, nqn: &str, new: &NewNamespace) -> Result<Option<u32>, EditError> {
        let is_new_each_time = ["mem:", "null:"]
            .iter()
            .any(|kind| new.export.starts_with(kind));
        let Some(subsystem) = self.find_subsystem(nqn).ok().map(|(_, table)| table) else {
            return Ok(None);
        };
        let mut known = array(subsystem, "namespace");
        let given = new.table(new.nsid.unwrap_or_default());
        let Some(nsid) = new.nsid else {
            if is_new_each_time {
                return Ok(None);
            }
            let same = known.find(|known| compare("", known, &given).is_ok());
            let nsid = same.and_then(|known| known.get("nsid")?.as_integer());
            return Ok(nsid.and_then(|nsid| u32::try_from(nsid).ok()));
        };
        let Some(known) = known.find(|known| has_nsid(known, nsid)) else {
            return Ok(None);
        };
        compare(&format!("namespace {nsid} of {nqn}"), known, &given)?;
        Ok(Some(nsid))
    }

    /// Returns true if the file has this listener.
    ///
    /// # Errors
    /// The file's listener differs in a given setting.
    pub fn has_listener(&self, new: &NewListener) -> Result<bool, EditError> {
        let mut known = array(self.document.as_document(), "listener");
        let Some(known) = known.find(|known| is_listener(known, new.address, new.port)) else {
            return Ok(false);
        };
        let what = format!("{} port {}", new.address, new.port);
        compare(&what, known, &new.table())
    }
}

fn array<'t>(table: &'t Table, key: &str) -> impl Iterator<Item = &'t Table> {
    let tables = table.get(key).and_then(Item::as_array_of_tables);
    tables.into_iter().flat_map(ArrayOfTables::iter)
}

fn compare(what: &str, known: &Table, given: &Table) -> Result<bool, EditError> {
    for (key, item) in given.iter().filter(|(key, _)| !IDENTITY.contains(key)) {
        let Some(new) = item.as_value() else {
            continue;
        };
        let old = known.get(key).and_then(Item::as_value);
        if !old.is_some_and(|old| is_same(old, new)) {
            let old = old.map_or("not set".to_owned(), shown);
            let new = shown(new);
            return Err(EditError::Exists(format!(
                "{what} is there already, and its {key} is {old}, not {new}: change it by `set`, or \
                 remove it first"
            )));
        }
    }
    Ok(true)
}

fn is_same(old: &Value, new: &Value) -> bool {
    if let (Some(old), Some(new)) = (old.as_array(), new.as_array()) {
        let has = |one: &Value| old.iter().any(|old| is_same(old, one));
        return Array::iter(new).all(has);
    }
    let is_same_place = || {
        let (old, new) = (old.as_str()?, new.as_str()?);
        Some(address_of(old)? == address_of(new)?)
    };
    shown(old) == shown(new) || is_same_place() == Some(true)
}

fn shown(value: &Value) -> String {
    let mut value = value.clone();
    value.decor_mut().clear();
    value.to_string()
}
