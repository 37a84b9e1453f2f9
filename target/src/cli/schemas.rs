//! JSON schemas of the commands' results (docs/control.md, "JSON").

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

use super::check::Report;
use super::key::CheckedKey;
use crate::answers::{
    AtNextStart, ConfigText, Connection, Drained, HostAdded, HostGroup, HostKey, Hosts, HostsAdded,
    Limit, LimitsSet, Listener, Namespace, NamespaceAdded, Referral, Registrations, Reload,
    Removed, Reservation, Status, Subsystem,
};
use crate::top::Rates;

type Describe = fn() -> Schema;

/// Commands that print a result with `-o json`; others print `true`.
const COMMANDS: &[(&str, Describe)] = &[
    ("check", of::<Report<'static>>),
    ("config show", of::<ConfigText>),
    ("connection list", of::<Vec<Connection>>),
    ("drain", of::<Vec<Drained>>),
    ("host add", of::<HostAdded>),
    ("host any", of::<Removed>),
    ("host group add", of::<HostsAdded>),
    ("host group list", of::<Vec<HostGroup>>),
    ("host group remove", of::<Removed>),
    ("host key remove", of::<Removed>),
    ("host key show", of::<Vec<HostKey>>),
    ("host list", of::<Hosts>),
    ("host remove", of::<Removed>),
    ("key check", of::<CheckedKey>),
    ("limit list", of::<Vec<Limit>>),
    ("limit set", of::<LimitsSet>),
    ("listener list", of::<Vec<Listener>>),
    ("listener remove", of::<Removed>),
    ("log", of::<String>),
    ("namespace add", of::<NamespaceAdded>),
    ("namespace list", of::<Vec<Namespace>>),
    ("namespace remove", of::<Removed>),
    ("namespace set", of::<Removed>),
    ("referral list", of::<Vec<Referral>>),
    ("reload", of::<Reload>),
    ("reservation list", of::<Vec<Reservation>>),
    ("reservation show", of::<Registrations>),
    ("status", of::<Status>),
    ("subsystem list", of::<Vec<Subsystem>>),
    ("subsystem remove", of::<Removed>),
    ("subsystem set", of::<AtNextStart>),
    ("top", of::<Rates>),
];

fn of<T: JsonSchema>() -> Schema {
    let generator = SchemaSettings::draft2020_12().for_serialize();
    generator.into_generator().into_root_schema_for::<T>()
}

pub(super) fn schema(command: &str) -> Result<String, String> {
    let found = COMMANDS.iter().find(|(name, _)| *name == command);
    let Some((_, describe)) = found else {
        let names: Vec<&str> = COMMANDS.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "{command:?} has no schema: give one of {}",
            names.join(", ")
        ));
    };
    serde_json::to_string_pretty(&describe()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_with_a_unit_says_so() {
        for (command, describe) in COMMANDS {
            let schema = describe().to_value();
            let defs = schema["$defs"].as_object().into_iter().flatten();
            let types = defs.map(|(_, one)| one).chain([&schema]);
            let members = types.filter_map(|one| one["properties"].as_object());
            for (key, member) in members.flatten().filter(|(key, _)| key.ends_with("_s")) {
                let says = member["description"].as_str().unwrap_or_default();
                let is_rate = key.ends_with("_per_s");
                assert!(is_rate || says.contains("Seconds"), "{command}: {key}");
            }
        }
    }

    #[test]
    fn a_command_without_a_schema_is_refused_with_the_names() {
        let error = schema("stauts").unwrap_err();
        assert!(error.contains("status") && error.contains("top"), "{error}");
    }
}
