//! Comparison of an object that a command adds with the object in the file.
//!
//! Only the command's settings are compared. The file's lists must contain the command's lists.

use std::collections::BTreeMap;

use cairn_base::Trid;
use cairn_base::shell::shell_word;
use toml_edit::{ArrayOfTables, Item, Table, Value};
use uuid::Uuid;

use super::listeners::{address_of, is_listener};
use super::{Draft, EditError, NewListener, NewNamespace, NewSubsystem, has_nsid, text_of};
use crate::size;

/// An object's settings in force by key, defaults included.
pub type InForce = BTreeMap<&'static str, Vec<String>>;

const IDENTITY: [&str; 4] = ["nqn", "nsid", "address", "port"];

/// Values that let the target choose. `compare` then also accepts the chosen value.
const CHOICES: [&str; 2] = ["auto", "from-uuid"];

const SHOWN_MAX: usize = 8;

impl Draft {
    /// True if the file has this subsystem. Fails if a given setting differs.
    pub fn has_subsystem(&self, new: &NewSubsystem, in_force: &InForce) -> Result<bool, EditError> {
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
        compare(&Object::Subsystem(&new.nqn), known, &given, in_force)
    }

    /// Returns the NSID if the file has this namespace.
    ///
    /// If `new` has no NSID, finds a namespace with the same export and all given settings. Memory
    /// and null disks then never match, because each is a new disk. `in_force` contains the
    /// settings in force by NSID; `None` if unknown.
    ///
    /// # Errors
    /// The namespace with this NSID differs in a given setting; or, without NSID and `in_force`,
    /// the namespace with the same export does.
    pub fn has_namespace(
        &self,
        nqn: &str,
        new: &NewNamespace,
        in_force: Option<&BTreeMap<u32, InForce>>,
    ) -> Result<Option<u32>, EditError> {
        let Some(subsystem) = self.find_subsystem(nqn).ok().map(|(_, table)| table) else {
            return Ok(None);
        };
        let known = subsystem
            .get("namespace")
            .and_then(Item::as_array_of_tables);
        let mut known = known.into_iter().flat_map(ArrayOfTables::iter);
        let given = new.table(new.nsid.unwrap_or_default());
        let none = InForce::new();
        let in_force_of = |nsid| in_force.and_then(|all| all.get(&nsid)).unwrap_or(&none);
        let same = |nsid: u32, known| {
            let object = Object::Namespace(nqn, nsid);
            compare(&object, known, &given, in_force_of(nsid)).map(|_| Some(nsid))
        };
        if let Some(nsid) = new.nsid {
            let known = known.find(|known| has_nsid(known, nsid));
            return known.map_or(Ok(None), |known| same(nsid, known));
        }
        let is_new_each_time = ["mem:", "null:"]
            .iter()
            .any(|kind| new.export.starts_with(kind));
        if is_new_each_time {
            return Ok(None);
        }
        let mut refused = None;
        for known in known.filter(|known| text_of(known, "export") == Some(new.export.as_str())) {
            let nsid = known.get("nsid").and_then(Item::as_integer);
            let Some(nsid) = nsid.and_then(|nsid| u32::try_from(nsid).ok()) else {
                continue;
            };
            match same(nsid, known) {
                Ok(found) => return Ok(found),
                Err(error) => refused = Some(error),
            }
        }
        refused.filter(|_| in_force.is_none()).map_or(Ok(None), Err)
    }

    /// True if the file has this listener. Fails if a given setting differs.
    pub fn has_listener(&self, new: &NewListener, in_force: &InForce) -> Result<bool, EditError> {
        let known = self.document.as_document().get("listener");
        let known = known.and_then(Item::as_array_of_tables);
        let mut known = known.into_iter().flat_map(ArrayOfTables::iter);
        let Some(known) = known.find(|known| is_listener(known, new.address, new.port)) else {
            return Ok(false);
        };
        let object = Object::Listener(Trid::new(new.address, new.port));
        compare(&object, known, &new.table(), in_force)
    }
}

enum Object<'a> {
    Subsystem(&'a str),
    Namespace(&'a str, u32),
    Listener(Trid),
}

impl std::fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Subsystem(nqn) => write!(f, "subsystem {nqn}"),
            Self::Namespace(nqn, nsid) => write!(f, "namespace {nsid} of {nqn}"),
            Self::Listener(at) => write!(f, "listener {at}"),
        }
    }
}

impl Object<'_> {
    /// Returns the commands, or advice, to set `key`. For a list, `new` has the values to add, and
    /// `all` the final list.
    fn remedy(&self, key: &str, new: &[String], all: &[String]) -> String {
        let option = format!("--{}", key.replace('_', "-"));
        let word = |text: &String| shell_word(text, "VALUE");
        let first = new.first().map(word).unwrap_or_default();
        let each = |option: &str| {
            let words = all.iter().map(|one| format!(" {option} {}", word(one)));
            words.collect::<String>()
        };
        let nqn = match self {
            Self::Subsystem(nqn) | Self::Namespace(nqn, _) => shell_word(nqn, "NQN"),
            Self::Listener(_) => String::new(),
        };
        match (self, key) {
            (Self::Subsystem(_), "allow_any_host") => {
                let value = if first == "true" { "on" } else { "off" };
                format!("cairn-target host any {nqn} {value}")
            }
            (Self::Subsystem(_), "allowed_hosts") => {
                let add = |host| format!("cairn-target host add {nqn} {}", word(host));
                let all: Vec<String> = new.iter().map(add).collect();
                all.join("; ")
            }
            (Self::Subsystem(_), "listeners") => {
                format!("cairn-target subsystem set {nqn}{}", each("--listener"))
            }
            (Self::Subsystem(_), _) => {
                format!("cairn-target subsystem set {nqn} {option} {first}")
            }
            (Self::Namespace(_, nsid), "hosts") => {
                format!("cairn-target namespace set {nqn} {nsid}{}", each("--host"))
            }
            (Self::Namespace(_, nsid), _) => {
                let value = if first == "true" { "on" } else { &first };
                let set = format!("cairn-target namespace set {nqn} {nsid} {option} {value}");
                match key {
                    "name" | "ana_group" | "write_protection" => set,
                    _ => format!("{set} (connected hosts lose the present namespace first)"),
                }
            }
            (Self::Listener(at), "ana") => format!("cairn-target listener set {at} --ana {first}"),
            (Self::Listener(at), _) => format!(
                "an open listener cannot change it: write it into the file and restart the target, \
                 or remove {at} and add it again, which also removes it from lists of listeners"
            ),
        }
    }
}

fn compare(
    object: &Object<'_>,
    known: &Table,
    given: &Table,
    in_force: &InForce,
) -> Result<bool, EditError> {
    for (key, item) in given.iter().filter(|(key, _)| !IDENTITY.contains(key)) {
        let Some(new) = item.as_value() else {
            continue;
        };
        let (is_list, new) = (new.is_array(), values(key, new));
        let written = known.get(key).and_then(Item::as_value);
        let written = written.map(|written| values(key, written));
        let is_chosen = |one: &Vec<String>| one.iter().all(|one| CHOICES.contains(&one.as_str()));
        let mut old = written.clone().unwrap_or_default();
        if is_list || written.as_ref().is_none_or(is_chosen) {
            old.extend(in_force.get(key).into_iter().flatten().cloned());
        }
        let lacking: Vec<String> = new
            .iter()
            .filter(|one| !old.contains(one))
            .cloned()
            .collect();
        let is_set = written.is_some() || in_force.contains_key(key);
        if lacking.is_empty() && is_set {
            continue;
        }
        old.retain(|one| !is_list || !new.contains(one));
        let mut all = old.clone();
        all.extend(new.iter().cloned());
        let is_it = match (is_set, is_list) {
            (false, _) => format!("{key} is not set"),
            (true, true) => format!("{key} does not have {}", shown(&lacking)),
            (true, false) => {
                let old = old.last().map(String::as_str).unwrap_or_default();
                format!("{key} is \"{old}\", not {}", shown(&new))
            }
        };
        let remedy = object.remedy(key, if is_list { &lacking } else { &new }, &all);
        return Err(EditError::Exists(format!(
            "the {object} is there already, and its {is_it}: {remedy}"
        )));
    }
    Ok(true)
}

fn values(key: &str, value: &Value) -> Vec<String> {
    let Some(array) = value.as_array() else {
        return vec![plain(key, value)];
    };
    array.iter().map(|one| plain(key, one)).collect()
}

fn plain(key: &str, value: &Value) -> String {
    let Some(text) = value.as_str() else {
        let mut value = value.clone();
        value.decor_mut().clear();
        return value.to_string();
    };
    let other = match key {
        "uuid" => Uuid::try_parse(text).ok().map(|uuid| uuid.to_string()),
        "nguid" => Some(text.to_lowercase()),
        "listeners" => address_of(text).map(|at| at.to_string()),
        "export" => text.split_once(':').and_then(|(kind, size)| {
            let is_sized = ["mem", "null"].contains(&kind);
            let bytes = is_sized.then(|| size::parse(size))?.ok()?;
            Some(format!("{kind}:{bytes}"))
        }),
        _ => None,
    };
    other.unwrap_or_else(|| text.to_owned())
}

fn shown(all: &[String]) -> String {
    let shown = all.iter().take(SHOWN_MAX);
    let shown: Vec<String> = shown.map(|one| format!("\"{one}\"")).collect();
    let more = all.len().saturating_sub(SHOWN_MAX);
    let rest = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    shown.join(", ") + &rest
}
