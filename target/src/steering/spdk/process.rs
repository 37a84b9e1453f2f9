//! What concerns the process as a whole.

use cairn_config::SUBSYSTEMS_MAX;
use cairn_control::Error;
use serde_json::{Value, json};
use tracing_subscriber::filter::LevelFilter;

use super::super::methods::Methods;
use super::super::parameters::{Nothing, read};
use super::parameters::{ConfigOf, LogLevel, MaxSubsystems};
use super::{Answer, Params, invalid, reactors, saved};

/// What a target of SPDK accepts before it starts, and Cairn always.
pub(super) fn set(method: &str, params: Params) -> Answer {
    if method == "nvmf_set_max_subsystems" {
        let MaxSubsystems { max_subsystems } = read(params)?;
        let most = SUBSYSTEMS_MAX as u32;
        if max_subsystems > most {
            let message = format!("Invalid parameters: Cairn has {most} subsystems at most");
            return Err(Error::invalid(message));
        }
        return Ok(json!(true));
    }
    const KNOWN: [&str; 8] = [
        "acceptor_poll_rate",
        "admin_cmd_passthru",
        "poll_groups_mask",
        "discovery_filter",
        "discovery_filters",
        "dhchap_digests",
        "dhchap_dhgroups",
        "dup_host_policy",
    ];
    let is_known = |key: &String| KNOWN.contains(&key.as_str());
    if !params.keys().all(is_known) {
        return Err(invalid());
    }
    let passes = params.get("admin_cmd_passthru").and_then(Value::as_object);
    if passes.is_some_and(|passes| passes.values().any(|value| *value == json!(true))) {
        return Err(Error::invalid(
            "Invalid parameters: Cairn answers admin commands itself",
        ));
    }
    Ok(json!(true))
}

impl Methods {
    pub(super) async fn framework(&self, method: &str, params: Params) -> Answer {
        match method {
            "framework_start_init" | "framework_wait_init" => Ok(json!(true)),
            "framework_get_pci_devices" => {
                read::<Nothing>(params)?;
                // Drivers of the kernel have them all.
                Ok(json!([]))
            }
            "framework_get_reactors" => {
                read::<Nothing>(params)?;
                Ok(reactors::shown(&self.picture().await?))
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
                let (picture, facts) = (self.picture().await?, self.facts());
                saved::config(&name, &picture, &facts.disks)
                    .ok_or_else(|| Error::invalid(format!("Subsystem '{name}' not found")))
            }
            _ => Err(Error::no_method()),
        }
    }

    pub(super) fn log_level(&self, method: &str, params: Params) -> Answer {
        match method {
            "log_get_level" => {
                read::<Nothing>(params)?;
                Ok(json!(match self.log.most() {
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
                    // Between warnings and what is of interest to developers.
                    "NOTICE" | "INFO" => "info",
                    "DEBUG" => "debug",
                    _ => return Err(Error::invalid("invalid log level")),
                };
                self.log.set(filter).map_err(Error::invalid)?;
                Ok(json!(true))
            }
            _ => Err(Error::no_method()),
        }
    }
}
