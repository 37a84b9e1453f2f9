use std::collections::BTreeMap;

use cairn_config::{DHCHAP_GROUPS, DHCHAP_HASHES, SUBSYSTEMS_MAX};
use cairn_control::{Error, Kind, Nothing, read};
use serde_json::json;

use super::parameters::{ConfigOf, ConfigSet, LogLevel, MaxSubsystems};
use super::{Answer, Params, edit, reactors, saved};
use crate::{Control, Snapshot};

type LevelFilter = tracing::level_filters::LevelFilter;

pub(super) fn set_max_subsystems(params: Params) -> Answer {
    let MaxSubsystems { max_subsystems } = read(params)?;
    let most = SUBSYSTEMS_MAX as u32;
    if max_subsystems > most {
        let message = format!("Invalid parameters: Cairn has {most} subsystems at most");
        return Err(Error::invalid(message));
    }
    Ok(json!(true))
}

pub(crate) fn listed(
    key: &str,
    list: Option<&[String]>,
    all: &'static [&'static str],
) -> Result<Option<Vec<&'static str>>, String> {
    let Some(list) = list else { return Ok(None) };
    if let Some(unknown) = list.iter().find(|word| !all.contains(&word.as_str())) {
        return Err(format!(
            "{key}: \"{}\" is not known",
            unknown.escape_debug()
        ));
    }
    if list.is_empty() {
        return Err(format!("{key}: an empty list lets no host authenticate"));
    }
    let known = all.iter().copied();
    let known = known.filter(|word| list.iter().any(|other| other == word));
    Ok(Some(known.collect()))
}

fn refuse_restrictions(set: &ConfigSet) -> Result<(), Error> {
    let refused = |why: &str| Err(Error::invalid(format!("Invalid parameters: {why}")));
    let mut passes = set.admin_cmd_passthru.iter().flat_map(BTreeMap::values);
    if passes.any(|is_on| *is_on) {
        return refused("Cairn answers admin commands itself");
    }
    let old = set.discovery_filter.iter().flat_map(|list| list.split(','));
    let new = set.discovery_filters.iter().flatten().map(String::as_str);
    if old.chain(new).any(|filter| filter != "match_any") {
        return refused(
            "discovery_filter: Cairn's discovery shows the listeners of each subsystem, whichever the \
             host asks: only match_any is accepted",
        );
    }
    if set
        .dup_host_policy
        .as_deref()
        .is_some_and(|policy| policy != "allow")
    {
        return refused(
            "dup_host_policy: a host may connect by each listener: only allow is accepted",
        );
    }
    Ok(())
}

pub(super) async fn set_config(control: &impl Control, params: Params) -> Answer {
    let set: ConfigSet = read(params)?;
    refuse_restrictions(&set)?;
    let wrong = |message| Error::invalid(format!("Invalid parameters: {message}"));
    let (digests, groups) = (
        set.dhchap_digests.as_deref(),
        set.dhchap_dhgroups.as_deref(),
    );
    let digests = listed("dhchap_digests", digests, &DHCHAP_HASHES).map_err(wrong)?;
    let groups = listed("dhchap_dhgroups", groups, &DHCHAP_GROUPS).map_err(wrong)?;
    let now = control.snapshot().await?.config().dhchap.clone();
    let digests = digests.filter(|digests| *digests != now.hashes);
    let groups = groups.filter(|groups| *groups != now.groups);
    if digests.is_none() && groups.is_none() {
        return Ok(json!(true));
    }
    edit(control, Kind::Alone, move |draft| {
        draft.set_dhchap(digests.as_deref(), groups.as_deref());
        Ok(())
    })
    .await
}

pub(super) async fn framework(control: &impl Control, method: &str, params: Params) -> Answer {
    match method {
        "framework_start_init" | "framework_wait_init" => Ok(json!(true)),
        "framework_get_pci_devices" => {
            read::<Nothing>(params)?;
            // The list is empty, because kernel drivers own all PCI devices.
            Ok(json!([]))
        }
        "framework_get_reactors" => {
            read::<Nothing>(params)?;
            Ok(reactors::shown(&control.snapshot().await?))
        }
        "framework_get_scheduler" => {
            read::<Nothing>(params)?;
            Ok(reactors::scheduler())
        }
        "framework_get_subsystems" => {
            read::<Nothing>(params)?;
            Ok(saved::subsystems())
        }
        "framework_get_config" => {
            let ConfigOf { name, .. } = read(params)?;
            let snapshot = control.snapshot().await?;
            saved::config(&name, &snapshot, &control.disks())
                .ok_or_else(|| Error::invalid(format!("Subsystem '{name}' not found")))
        }
        _ => Err(Error::no_method()),
    }
}

pub(super) fn log(control: &impl Control, method: &str, params: Params) -> Answer {
    match method {
        "log_get_level" => {
            read::<Nothing>(params)?;
            Ok(json!(match control.log_level() {
                LevelFilter::OFF => "DISABLED",
                LevelFilter::ERROR => "ERROR",
                LevelFilter::WARN => "WARNING",
                LevelFilter::INFO => "INFO",
                _ => "DEBUG",
            }))
        }
        "log_set_level" => {
            let LogLevel { level } = read(params)?;
            let filter = match level.as_str() {
                "DISABLED" => "off",
                "ERROR" => "error",
                "WARNING" => "warn",
                "NOTICE" | "INFO" => "info",
                "DEBUG" => "debug",
                _ => return Err(Error::invalid("invalid log level")),
            };
            control.set_log_filter(filter).map_err(Error::invalid)?;
            Ok(json!(true))
        }
        _ => Err(Error::no_method()),
    }
}
