use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubsystemCreate {
    pub(super) nqn: String,
    pub(super) serial_number: Option<String>,
    pub(super) model_number: Option<String>,
    #[serde(default)]
    pub(super) allow_any_host: bool,
    pub(super) min_cntlid: Option<u16>,
    pub(super) max_cntlid: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubsystemOf {
    pub(super) nqn: String,
}

pub(super) type ControllersOf = SubsystemOf;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    pub(super) nqn: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NsAdd {
    pub(super) nqn: String,
    pub(super) namespace: NsParams,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NsParams {
    pub(super) bdev_name: String,
    pub(super) nsid: Option<u32>,
    pub(super) nguid: Option<String>,
    pub(super) uuid: Option<String>,
    pub(super) anagrpid: Option<u32>,
    #[serde(default)]
    pub(super) no_auto_visible: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NsRemove {
    pub(super) nqn: String,
    pub(super) nsid: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NsHost {
    pub(super) nqn: String,
    pub(super) nsid: u32,
    pub(super) host: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostOf {
    pub(super) nqn: String,
    pub(super) host: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostKeys {
    pub(super) nqn: String,
    pub(super) host: String,
    pub(super) dhchap_key: Option<String>,
    pub(super) dhchap_ctrlr_key: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyAdd {
    pub(super) name: String,
    pub(super) path: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyOf {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NoticesOf {
    #[serde(default)]
    pub(super) id: u64,
    pub(super) max: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NullResize {
    pub(super) name: String,
    pub(super) new_size: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Allow {
    pub(super) nqn: String,
    pub(super) allow_any_host: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerOf {
    pub(super) nqn: String,
    pub(super) listen_address: ListenAddress,
    pub(super) ana_state: Option<String>,
    pub(super) anagrpid: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenAddress {
    pub(super) trtype: String,
    pub(super) adrfam: Option<String>,
    pub(super) traddr: String,
    pub(super) trsvcid: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BdevOf {
    pub(super) name: Option<String>,
    #[serde(rename = "timeout")]
    pub(super) _timeout: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QosLimit {
    pub(super) name: String,
    pub(super) rw_ios_per_sec: Option<u64>,
    pub(super) rw_mbytes_per_sec: Option<u64>,
    pub(super) r_mbytes_per_sec: Option<u64>,
    pub(super) w_mbytes_per_sec: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SizedBdev {
    pub(super) name: Option<String>,
    pub(super) block_size: u32,
    pub(super) num_blocks: u64,
    pub(super) uuid: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileBdev {
    pub(super) name: String,
    pub(super) filename: String,
    pub(super) block_size: Option<u32>,
    #[serde(default)]
    pub(super) readonly: bool,
    pub(super) uuid: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReferralOf {
    pub(super) address: ListenAddress,
    #[serde(default)]
    pub(super) secure_channel: bool,
    #[serde(default)]
    pub(super) subnqn: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportsOf {
    pub(super) trtype: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IostatOf {
    pub(super) name: Option<String>,
    pub(super) names: Option<Vec<String>>,
    #[serde(default)]
    pub(super) per_channel: bool,
    pub(super) reset_mode: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigOf {
    pub(super) name: String,
    #[serde(rename = "with_batches")]
    pub(super) _with_batches: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MaxSubsystems {
    pub(super) max_subsystems: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogLevel {
    pub(super) level: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConfigSet {
    #[serde(rename = "acceptor_poll_rate")]
    pub(super) _acceptor_poll_rate: Option<u64>,
    #[serde(rename = "poll_groups_mask")]
    pub(super) _poll_groups_mask: Option<String>,
    pub(super) admin_cmd_passthru: Option<BTreeMap<String, bool>>,
    pub(super) discovery_filter: Option<String>,
    pub(super) discovery_filters: Option<Vec<String>>,
    pub(super) dhchap_digests: Option<Vec<String>>,
    pub(super) dhchap_dhgroups: Option<Vec<String>>,
    pub(super) dup_host_policy: Option<String>,
}
