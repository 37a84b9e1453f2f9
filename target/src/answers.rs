//! Results of the control socket's `cairn_*` methods. Commands print them with `-o json`
//! (docs/control.md, "JSON").
//!
//! A minor version may add keys, but removes none.

use std::collections::BTreeMap;
use std::net::IpAddr;

use schemars::JsonSchema;
use serde::Serialize;

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Status {
    pub(crate) health: Health,
    pub(crate) problems: Vec<Problem>,
    /// Refused hosts that may be refused again, latest first; at most 256.
    pub(crate) refused: Vec<RefusedHost>,
    pub(crate) version: &'static str,
    pub(crate) commit: &'static str,
    pub(crate) pid: u32,
    /// Seconds since the target started.
    pub(crate) uptime_s: u64,
    pub(crate) reactors: usize,
    pub(crate) config_file: Option<String>,
    /// Whether the control socket refuses changes.
    pub(crate) read_only: bool,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) missing: Vec<Missing>,
    /// Up to 64 sentences about valid settings that are probably mistakes.
    pub(crate) warnings: Vec<String>,
    /// Changed settings that wait for a restart.
    pub(crate) at_next_start: Vec<String>,
    pub(crate) subsystems: usize,
    /// Configured namespaces, even if missing.
    pub(crate) namespaces: usize,
    /// Namespaces whose disk lost data.
    pub(crate) failed_namespaces: usize,
    /// Namespaces whose file was deleted.
    pub(crate) deleted_namespaces: usize,
    /// Connected hosts, counted once for each of their subsystems.
    pub(crate) associations: usize,
    pub(crate) last_reload: Option<LastReload>,
    /// Namespaces with registrants.
    pub(crate) reservations: Vec<Reservation>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Reservation {
    pub(crate) nqn: String,
    pub(crate) nsid: u32,
    /// Type of the reservation (RTYPE, 1 to 6); null if none is held.
    pub(crate) rtype: Option<u8>,
    pub(crate) rtype_name: Option<String>,
    /// NQN of the holder; null unless a host with the holder's HOSTID is connected to the
    /// subsystem.
    pub(crate) holder: Option<String>,
    /// HOSTID of the holder; null for types 5 and 6, whose reservation all registrants hold.
    pub(crate) holder_hostid: Option<String>,
    pub(crate) registrants: usize,
    /// Number of changes to the registrations (GEN).
    pub(crate) generation: u32,
    /// Whether the state persists through power loss (PTPL).
    pub(crate) persistent: bool,
}

/// Result of `reservation show`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Registrations {
    #[serde(flatten)]
    pub(crate) reservation: Reservation,
    pub(crate) hosts: Vec<Registrant>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Registrant {
    /// NQN; null unless a host with this HOSTID is connected to the subsystem.
    pub(crate) host: Option<String>,
    pub(crate) hostid: String,
    /// Key in hexadecimal.
    pub(crate) key: String,
    pub(crate) holder: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Health {
    Ok,
    Degraded,
}

/// Condition that an administrator should correct.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// `missing`, `listener`, `device`, `reload`, `state`, `disk`, `host`, `drained`, `panic`, or
    /// `refused`. More kinds may follow. Only `refused` does not degrade the health.
    pub(crate) kind: &'static str,
    pub(crate) what: String,
    /// Seconds since the problem began; null if unknown.
    pub(crate) for_s: Option<u64>,
    pub(crate) why: String,
    pub(crate) remedy: String,
}

impl Problem {
    /// Refusals do not degrade the health, because any stranger on the network can cause them.
    pub(crate) const REFUSED: &str = "refused";
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RefusedHost {
    /// NQN sent by the host.
    pub(crate) host: String,
    /// NQN of the subsystem that the host requested.
    pub(crate) nqn: String,
    /// Address of the last attempt.
    pub(crate) peer: IpAddr,
    /// Address and port of the listener of the last attempt.
    pub(crate) local: String,
    /// Whether the host is connected to the subsystem on another path.
    pub(crate) connected: bool,
    /// `host`, `subsystem` or `authentication`; more may follow.
    pub(crate) kind: &'static str,
    pub(crate) reason: String,
    /// Entry for the subsystem's `allowed_hosts` that would admit the host. Null if the refusal has
    /// another reason, or if the host's NQN is invalid.
    pub(crate) admit: Option<String>,
    /// Setting of the wrong or missing key: `dhchap_key` or `dhchap_ctrl_key`. Null if unknown.
    pub(crate) key: Option<&'static str>,
    /// Whether the host must authenticate, and the target has no key for it.
    pub(crate) lacks_key: bool,
    #[serde(skip)]
    pub(crate) is_listed: bool,
    #[serde(skip)]
    pub(crate) has_tried: bool,
    pub(crate) attempts: u64,
    /// Seconds since the first attempt.
    pub(crate) first_s: u64,
    /// Seconds since the last attempt.
    pub(crate) last_s: u64,
}

impl RefusedHost {
    pub(crate) const KEY: &str = "authentication";
}

/// Unavailable configured object.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Missing {
    /// `namespace`, `directory`, `listener`, `metrics` or `audit`.
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) reason: String,
    /// Seconds since the first failure.
    pub(crate) for_s: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LastReload {
    /// Seconds since 1970.
    pub(crate) at: u64,
    /// Reason of a failure. The previous configuration is in force, unless the reason denies it.
    pub(crate) error: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Reload {
    /// Sentences about the changes, one for each object.
    pub(crate) changes: Vec<String>,
    #[serde(flatten)]
    pub(crate) status: Status,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listener {
    pub(crate) address: String,
    pub(crate) port: u16,
    /// `verbs`, `soft` or `loopback`.
    pub(crate) provider: &'static str,
    /// RoCE version of a listener in user space.
    pub(crate) roce: Option<&'static str>,
    /// VLAN ID of the tag that RoCE v1 writes.
    pub(crate) vlan: Option<u16>,
    /// ANA state of all groups that are not in `ana_groups`.
    pub(crate) ana: &'static str,
    /// ANA states by group.
    pub(crate) ana_groups: BTreeMap<String, &'static str>,
    pub(crate) drained: bool,
    /// Reason why the listener does not listen.
    pub(crate) down: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Subsystem {
    pub(crate) nqn: String,
    pub(crate) serial: String,
    pub(crate) model: String,
    /// Listeners through which hosts reach the subsystem; null for all.
    pub(crate) listeners: Option<Vec<String>>,
    /// ANA states by listener and group that differ from the listener's.
    pub(crate) ana: BTreeMap<String, BTreeMap<String, &'static str>>,
    pub(crate) allow_any_host: bool,
    pub(crate) require_key: bool,
    pub(crate) hosts: Vec<String>,
    pub(crate) host_groups: Vec<String>,
    pub(crate) namespaces: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Namespace {
    pub(crate) nqn: String,
    pub(crate) nsid: u32,
    pub(crate) state: NamespaceState,
    /// Reason why the state is not `ok`.
    pub(crate) reason: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) export: String,
    /// Size in bytes; null if the namespace is missing.
    pub(crate) bytes: Option<u64>,
    /// Size of a block in bytes; null if the namespace is missing.
    pub(crate) block_bytes: Option<u64>,
    /// UUID; null if the namespace is missing and has no configured UUID.
    pub(crate) uuid: Option<String>,
    pub(crate) read_only: bool,
    pub(crate) protected_by_host: bool,
    pub(crate) ana_group: u32,
    /// Hosts that see the namespace; null if all hosts of the subsystem do.
    pub(crate) hosts: Option<Vec<String>>,
    pub(crate) host_groups: Vec<String>,
    /// Whether the disk lost data.
    pub(crate) failed: bool,
    pub(crate) deleted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NamespaceState {
    Ok,
    Missing,
    Failed,
    Deleted,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Connection {
    /// NQN of the subsystem.
    pub(crate) nqn: String,
    pub(crate) cntlid: u16,
    pub(crate) host: String,
    pub(crate) peer: Option<IpAddr>,
    pub(crate) local: Option<String>,
    pub(crate) provider: Option<&'static str>,
    pub(crate) queues: usize,
    /// Commands in progress.
    pub(crate) outstanding: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Hosts {
    pub(crate) allow_any_host: bool,
    pub(crate) hosts: Vec<Host>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Host {
    pub(crate) host: String,
    /// Host group that permits the host; null if `allowed_hosts` names the host.
    pub(crate) group: Option<String>,
    pub(crate) authenticates: bool,
    /// Whether the host must authenticate, and the target has no key for it.
    pub(crate) lacks_key: bool,
    pub(crate) controllers: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostGroup {
    pub(crate) name: String,
    /// Number of host lists of subsystems and namespaces that name the group.
    pub(crate) lists: usize,
    pub(crate) hosts: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostAdded {
    pub(crate) added: bool,
    /// Sentences about a probably mistyped NQN.
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct NamespaceAdded {
    /// NSID of the new namespace, or of the existing one.
    pub(crate) nsid: u32,
    pub(crate) added: bool,
    /// Sentence about a disk that is a copy of another, if any.
    pub(crate) warnings: Vec<String>,
}

/// Result of a removal, of `host any`, and of `namespace set`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Removed {
    /// Sentences about settings and reservations also removed, unreachable subsystems, and hosts
    /// that lost a connection or can still connect.
    pub(crate) warnings: Vec<String>,
}

impl Removed {
    const WARNINGS_MAX: usize = 32;

    pub(crate) fn of(mut warnings: Vec<String>) -> Self {
        let more = warnings.len().saturating_sub(Self::WARNINGS_MAX);
        if more > 0 {
            warnings.truncate(Self::WARNINGS_MAX - 1);
            warnings.push(format!("the same applies to {} more", more + 1));
        }
        Self { warnings }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct LimitsSet {
    pub(crate) changed: bool,
    /// Sentence about a limited host that the subsystem does not permit.
    pub(crate) warnings: Vec<String>,
}

/// Result of `host group add`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostsAdded {
    pub(crate) added: u64,
    pub(crate) created: bool,
    /// Sentences about probably mistyped NQNs, and about a group that no list names.
    pub(crate) warnings: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct HostKey {
    /// NQN of the subsystem.
    pub(crate) nqn: String,
    pub(crate) host: String,
    /// File or name of the host's key.
    pub(crate) dhchap_key: String,
    /// File or name of the target's key.
    pub(crate) dhchap_ctrl_key: Option<String>,
    /// Whether the key was removed. The host then cannot authenticate.
    pub(crate) removed: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Limit {
    /// NQN of the subsystem.
    pub(crate) nqn: String,
    pub(crate) nsid: Option<u32>,
    pub(crate) each_host: bool,
    pub(crate) host: Option<String>,
    pub(crate) iops: Option<u64>,
    /// Bytes per second.
    pub(crate) read: Option<u64>,
    /// Bytes per second.
    pub(crate) write: Option<u64>,
    /// Bytes per second.
    pub(crate) total: Option<u64>,
    /// Maximum outstanding commands at the disk.
    pub(crate) outstanding: Option<u64>,
    /// Milliseconds of unused rate that accumulate for a burst.
    pub(crate) burst_ms: u64,
    /// Hosts share the disk in proportion to their weights.
    pub(crate) weight: Option<u64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Referral {
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    pub(crate) nqn: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Drained {
    pub(crate) address: String,
    pub(crate) port: u16,
    /// Hosts that left or were disconnected.
    pub(crate) disconnected: usize,
    pub(crate) connected: usize,
    /// Commands without a response when their host was disconnected.
    pub(crate) cut_off: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ConfigText {
    pub(crate) file: Option<String>,
    /// Configuration in force, in TOML, without secrets.
    pub(crate) text: String,
}

/// Result of `subsystem set`.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AtNextStart {
    /// Changed settings that wait for a restart.
    pub(crate) at_next_start: Vec<String>,
    /// Up to 32 sentences about connected hosts that cannot connect again.
    pub(crate) warnings: Vec<String>,
}
