use std::net::IpAddr;

use cairn_config::{Nqn, Traddr, Trid};
use cairn_control::Error;
use serde::Deserialize;

pub(super) fn parse_nqn(text: &str) -> Result<Nqn, Error> {
    Nqn::parse(text).map_err(|error| Error::invalid(error.to_string()))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubsystemAdd {
    pub(super) nqn: String,
    pub(super) serial: Option<String>,
    pub(super) model: Option<String>,
    pub(super) controller_ids: Option<String>,
    #[serde(default)]
    pub(super) allow_any_host: bool,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    pub(super) listeners: Option<Vec<Trid>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubsystemSet {
    pub(super) nqn: String,
    pub(super) serial: Option<String>,
    pub(super) model: Option<String>,
    pub(super) controller_ids: Option<String>,
    pub(super) require_key: Option<bool>,
    pub(super) listeners: Option<Vec<Trid>>,
    /// True if the subsystem uses every listener. Cannot be combined with `listeners`.
    #[serde(default)]
    pub(super) every_listener: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    pub(super) nqn: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubsystemRemove {
    pub(super) nqn: String,
    #[serde(default)]
    pub(super) force: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceAdd {
    pub(super) nqn: String,
    pub(super) export: String,
    pub(super) nsid: Option<u32>,
    pub(super) name: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) nguid: Option<String>,
    pub(super) block_size: Option<u32>,
    #[serde(default)]
    pub(super) read_only: bool,
    #[serde(default)]
    pub(super) write_protection: bool,
    #[serde(default)]
    pub(super) shared: bool,
    pub(super) ana_group: Option<u32>,
    pub(super) hosts: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceSet {
    pub(super) nqn: String,
    pub(super) nsid: u32,
    pub(super) name: Option<String>,
    pub(super) export: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) nguid: Option<String>,
    pub(super) block_size: Option<u32>,
    pub(super) shared: Option<bool>,
    pub(super) read_only: Option<bool>,
    pub(super) write_protection: Option<bool>,
    pub(super) ana_group: Option<u32>,
    pub(super) hosts: Option<Vec<String>>,
    /// True if all hosts see the namespace. Cannot be combined with `hosts`.
    #[serde(default)]
    pub(super) every_host: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReferralTo {
    pub(super) address: IpAddr,
    pub(super) port: Option<u16>,
    pub(super) nqn: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceOf {
    pub(super) nqn: String,
    pub(super) nsid: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NamespaceRemove {
    pub(super) nqn: String,
    pub(super) nsid: u32,
    #[serde(default)]
    pub(super) force: bool,
}

/// Scope of limits: a namespace, each host, one host or, by default, the whole subsystem.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitOf {
    pub(super) nqn: String,
    pub(super) nsid: Option<u32>,
    #[serde(default)]
    pub(super) each_host: bool,
    pub(super) host: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitSet {
    pub(super) nqn: String,
    pub(super) nsid: Option<u32>,
    #[serde(default)]
    pub(super) each_host: bool,
    pub(super) host: Option<String>,
    pub(super) iops: Option<u64>,
    pub(super) read: Option<String>,
    pub(super) write: Option<String>,
    pub(super) total: Option<String>,
    pub(super) outstanding: Option<u64>,
    pub(super) burst_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerAt {
    pub(super) address: Traddr,
    pub(super) port: Option<u16>,
    pub(super) provider: Option<String>,
    pub(super) roce: Option<String>,
    pub(super) vlan: Option<u16>,
    pub(super) ana: Option<String>,
    pub(super) ana_group: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerSet {
    pub(super) address: Traddr,
    pub(super) port: Option<u16>,
    pub(super) nqn: Option<String>,
    pub(super) ana: Option<String>,
    pub(super) ana_group: Option<u32>,
    #[serde(default)]
    pub(super) inherit: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostOf {
    pub(super) nqn: String,
    pub(super) host: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeysOf {
    pub(super) nqn: Option<String>,
    pub(super) host: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostAdd {
    pub(super) nqn: String,
    pub(super) host: String,
    pub(super) dhchap_key: Option<String>,
    pub(super) dhchap_ctrl_key: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostKeys {
    pub(super) nqn: String,
    pub(super) host: String,
    pub(super) dhchap_key: String,
    pub(super) dhchap_ctrl_key: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostGroup {
    pub(super) name: String,
    pub(super) hosts: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnyHost {
    pub(super) nqn: String,
    pub(super) allow: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControllerOf {
    pub(super) nqn: String,
    pub(super) cntlid: u16,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Drain {
    pub(super) address: Option<Traddr>,
    pub(super) port: Option<u16>,
    pub(super) timeout_s: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogSet {
    pub(super) filter: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MethodsOf {
    #[serde(default)]
    pub(super) current: bool,
    #[serde(rename = "include_aliases")]
    pub(super) _include_aliases: Option<bool>,
}
