//! Import of a configuration saved by SPDK's rpc.py.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use cairn_config::{
    DHCHAP_GROUPS, DHCHAP_HASHES, Draft, EditError, NSID_MAX, NewCeph, NewLimits, NewListener,
    NewNamespace, NewSubsystem, Nqn, Only, SubsystemSettings, Traddr, Trid,
};
use serde_json::Value;

use super::fields::Fields;
use super::{Converted, Notes};
use super::{ELSEWHERE, NO_RDMA, spdk_transport};
use crate::spdk::listed;

/// Requests in every saved configuration, with SPDK's defaults.
const USUAL: &[(&str, &[(&str, &str)])] = &[
    (
        "accel_set_options",
        &[
            ("small_cache_size", "128"),
            ("large_cache_size", "16"),
            ("task_count", "2048"),
            ("sequence_count", "2048"),
            ("buf_count", "2048"),
        ],
    ),
    (
        "bdev_set_options",
        &[
            ("bdev_io_pool_size", "65535"),
            ("bdev_io_cache_size", "256"),
            ("bdev_auto_examine", "true"),
            ("iobuf_small_cache_size", "128"),
            ("iobuf_large_cache_size", "16"),
        ],
    ),
    ("framework_set_scheduler", &[("name", "static")]),
    (
        "iobuf_set_options",
        &[
            ("small_pool_count", "8192"),
            ("large_pool_count", "1024"),
            ("small_bufsize", "8192"),
            ("large_bufsize", "135168"),
            ("enable_numa", "false"),
        ],
    ),
    (
        "nvmf_set_crdt",
        &[("crdt1", "0"), ("crdt2", "0"), ("crdt3", "0")],
    ),
    ("nvmf_set_max_subsystems", &[("max_subsystems", "1024")]),
];

/// Requests that configure parts of SPDK without a counterpart in Cairn.
const OF_OTHER_PARTS: [&str; 6] = [
    "bdev_iscsi_set_options",
    "bdev_nvme_set_hotplug",
    "bdev_nvme_set_options",
    "bdev_raid_set_options",
    "sock_impl_set_options",
    "sock_set_default_impl",
];

struct Import {
    draft: Draft,
    notes: Notes,
    clusters: HashMap<String, NewCeph>,
    disks: HashMap<String, NewNamespace>,
    listeners: Vec<Trid>,
    listeners_of: BTreeMap<String, Vec<Trid>>,
    states: BTreeMap<Trid, BTreeMap<String, States>>,
    has_others: bool,
}

const BEST: &str = "optimized";

#[derive(Default, PartialEq, Eq)]
struct States {
    all: Option<String>,
    groups: BTreeMap<u32, String>,
}

impl States {
    fn set(&mut self, group: Option<u32>, state: String) {
        let Some(group) = group.filter(|group| *group != 0) else {
            self.groups.clear();
            self.all = Some(state).filter(|state| state != BEST);
            return;
        };
        if state == self.all.as_deref().unwrap_or(BEST) {
            self.groups.remove(&group);
        } else {
            self.groups.insert(group, state);
        }
    }

    fn entries(&self) -> impl Iterator<Item = (Option<u32>, &str)> {
        let all = self.all.iter().map(|state| (None, state.as_str()));
        let groups = self.groups.iter();
        all.chain(groups.map(|(group, state)| (Some(*group), state.as_str())))
    }
}

pub fn from_spdk(saved: &Value) -> Result<Converted, String> {
    let parts = saved["subsystems"].as_array().into_iter().flatten();
    if saved["ports"].is_array() || parts.clone().any(|part| part["nqn"].is_string()) {
        return Err("error: this file is nvmet's: cairn-target import nvmet FILE".into());
    }
    if !saved["subsystems"].is_array() {
        return Err(
            "error: this is not what rpc.py save_config writes: it has no subsystems".into(),
        );
    }
    let mut import = Import {
        draft: Draft::new("").map_err(|error| error.to_string())?,
        notes: Notes::default(),
        clusters: HashMap::new(),
        disks: HashMap::new(),
        listeners: Vec::new(),
        listeners_of: BTreeMap::new(),
        states: BTreeMap::new(),
        has_others: false,
    };
    let root = Fields::of("the configuration", saved, &import.notes);
    for part in root.array("subsystems") {
        let part = Fields::of("a part of the configuration", part, &import.notes);
        let name = part.text("subsystem").unwrap_or_default();
        let part = part.named(format!("the configuration of {name}"));
        for element in part.array("config") {
            let requests = element
                .as_array()
                .map_or(std::slice::from_ref(element), Vec::as_slice);
            for request in requests {
                let request = Fields::of("a request", request, &import.notes);
                let method = request.text("method").unwrap_or_default();
                let request = request.named(format!("request {method}"));
                let params = Fields::of(&*method, request.value("params"), &import.notes);
                import.carry_out(&method, params);
            }
        }
    }
    drop(root);
    if import.listeners.is_empty() && import.has_others {
        import.notes.lacks(NO_RDMA);
    }
    import.set_listeners();
    import.set_states();
    Ok(import.notes.into_commented(&import.draft.text()))
}

fn nqn(params: &Fields<'_>) -> String {
    params.text("nqn").unwrap_or_default()
}

fn image(params: &Fields<'_>) -> Option<String> {
    let (pool, image) = (params.text("pool_name")?, params.text("rbd_name")?);
    Some(match params.text("namespace_name") {
        Some(namespace) => format!("rbd:{pool}/{namespace}/{image}"),
        None => format!("rbd:{pool}/{image}"),
    })
}

impl Import {
    fn carry_out(&mut self, method: &str, params: Fields<'_>) {
        match method {
            "bdev_rbd_register_cluster" => self.cluster(params),
            "bdev_malloc_create" | "bdev_null_create" | "bdev_aio_create" | "bdev_uring_create"
            | "bdev_rbd_create" => self.disk(method, params),
            "bdev_set_qos_limit" => self.limits(params),
            "keyring_file_add_key" => self.key(params),
            "nvmf_create_subsystem" => self.subsystem(params),
            "nvmf_subsystem_add_host" => self.host(params),
            "nvmf_subsystem_add_ns" => self.namespace(&params),
            "nvmf_subsystem_add_listener" | "nvmf_subsystem_listener_set_ana_state" => {
                self.listener(&params);
            }
            "nvmf_ns_add_host" => {
                params.ignore(&["tgt_name"]);
                let nsid = params.number_u32("nsid").unwrap_or_default();
                let host = params.text("host").unwrap_or_default();
                if params.are_readable(&[]) {
                    let made = self.draft.show_namespace(&nqn(&params), nsid, &host, true);
                    self.notes.made(made);
                }
            }
            "nvmf_discovery_add_referral" => self.referral(&params),
            "nvmf_subsystem_allow_any_host" => {
                params.ignore(&["tgt_name"]);
                let allow = params.flag("allow_any_host") == Some(true);
                if params.are_readable(&[]) {
                    let made = self.draft.allow_any_host(&nqn(&params), allow);
                    self.notes.made(made);
                }
            }
            "nvmf_set_config" => self.settings(&params),
            // Cairn always meets the conditions for which these requests wait.
            "bdev_wait_for_examine" | "framework_start_init" | "framework_wait_init" => {}
            "nvmf_create_transport" if is_rdma(&params) => {
                spdk_transport::import(&params, &mut self.draft, &self.notes);
            }
            other if OF_OTHER_PARTS.contains(&other) => params.ignore_all(),
            other => {
                let usual = USUAL.iter().find(|(method, _)| *method == other);
                params.ignore_usual(usual.map_or(&[], |(_, usual)| usual));
                if usual.is_none() || !params.are_all_known() {
                    let kind = params.text("trtype").map(|kind| format!(" of {kind}"));
                    let kind = kind.unwrap_or_default();
                    params.leave_out_whole(format!("{other}{kind} has no counterpart"));
                }
            }
        }
    }

    fn settings(&mut self, params: &Fields<'_>) {
        let mut lists = [
            ("dhchap_digests", &DHCHAP_HASHES[..]),
            ("dhchap_dhgroups", &DHCHAP_GROUPS[..]),
        ]
        .map(|(key, all)| {
            let list = params.has(key).then(|| params.texts(key));
            let known = listed(key, list.as_deref(), all);
            known.unwrap_or_else(|message| {
                self.notes.add(format!(
                    "nvmf_set_config: {message}: no host can authenticate"
                ));
                // The target refuses an empty list, so no host gets access without authentication.
                Some(Vec::new())
            })
        });
        let [hashes, groups] = &mut lists;
        let is_all = |list: &Vec<&str>, all: &[&str]| *list != *all;
        let hashes = hashes.take().filter(|list| is_all(list, &DHCHAP_HASHES));
        let groups = groups.take().filter(|list| is_all(list, &DHCHAP_GROUPS));
        self.draft.set_dhchap(hashes.as_deref(), groups.as_deref());
        params.ignore(&["acceptor_poll_rate", "poll_groups_mask"]);
        drop(params.object("admin_cmd_passthru"));
        for (key, usual) in [
            ("discovery_filter", "match_any"),
            ("dup_host_policy", "allow"),
        ] {
            if let Some(value) = params.text(key).filter(|value| value != usual) {
                self.notes.opens(format!(
                    "nvmf_set_config: {key} has no counterpart, and hosts see and may do more than \
                     with \"{value}\": use listeners, allowed_hosts and allowed_addresses"
                ));
            }
        }
    }

    fn cluster(&mut self, params: Fields<'_>) {
        let name = params.text("name").unwrap_or_default();
        let params = params.named(format!("cluster {name}"));
        let ceph = NewCeph {
            conf: params.text("config_file"),
            id: params.text("user_id"),
            keyring: params.text("key_file"),
            options: params.object("config_param").options(),
        };
        if params.are_readable(&[]) {
            self.clusters.insert(name, ceph);
        }
    }

    fn ceph(&self, params: &Fields<'_>) -> NewCeph {
        let shared = params.text("cluster_name");
        let shared = shared.and_then(|name| self.clusters.get(&name));
        let own = NewCeph {
            id: params.text("user_id"),
            options: params.object("config").options(),
            ..NewCeph::default()
        };
        shared.cloned().unwrap_or(own)
    }

    fn disk(&mut self, method: &str, params: Fields<'_>) {
        let name = params.text("name").unwrap_or_default();
        let params = params.named(format!("{method} {name}"));
        let block_size = params.number_u32("block_size").filter(|bytes| *bytes != 0);
        let blocks = params.number("num_blocks");
        let bytes = || blocks?.checked_mul(block_size?.into());
        let export = match method {
            "bdev_malloc_create" => bytes().map(|bytes| format!("mem:{bytes}")),
            "bdev_null_create" => bytes().map(|bytes| format!("null:{bytes}")),
            "bdev_rbd_create" => image(&params),
            _ => params.text("filename"),
        };
        let [readonly, read_only] = ["readonly", "read_only"].map(|key| params.flag(key));
        let ceph = self.ceph(&params);
        let uuid = params.identity("uuid");
        params.ignore(&[
            "fallocate",
            "nowait",
            "physical_block_size",
            "numa_id",
            "md_interleave",
            "dif_is_head_of_md",
            "dif_pi_format",
            "optimal_io_boundary",
        ]);
        if !params.are_readable(&[]) {
            return;
        }
        let Some(export) = export else {
            params.leave_out("it names no disk");
            return;
        };
        let disk = NewNamespace {
            name: Some(name.clone()),
            export,
            uuid,
            block_size: block_size.filter(|_| method != "bdev_rbd_create"),
            read_only: readonly == Some(true) || read_only == Some(true),
            ceph,
            ..NewNamespace::default()
        };
        self.disks.insert(name, disk);
    }

    fn limits(&mut self, params: Fields<'_>) {
        let name = params.text("name").unwrap_or_default();
        let params = params.named(format!("limits of {name}"));
        let rate = |key: &'static str| params.number(key).filter(|rate| *rate != 0);
        let bytes = |key: &'static str| rate(key).map(|mbytes| format!("{mbytes}MiB"));
        let limits = NewLimits {
            iops: rate("rw_ios_per_sec"),
            read: bytes("r_mbytes_per_sec"),
            write: bytes("w_mbytes_per_sec"),
            total: bytes("rw_mbytes_per_sec"),
            outstanding: None,
            burst_ms: None,
        };
        if !params.are_readable(&[]) {
            return;
        }
        match self.disks.get_mut(&name) {
            Some(disk) => disk.limits = limits,
            None => params.leave_out_whole(format!(
                "limits of {name} are left out: its disk has no counterpart"
            )),
        }
    }

    fn subsystem(&mut self, params: Fields<'_>) {
        let name = nqn(&params);
        let params = params.named(format!("subsystem {name}"));
        let [first, last] = ["min_cntlid", "max_cntlid"].map(|key| params.number_u32(key));
        // SPDK's default exceeds 0xffef, the largest CNTLID of NVMe.
        let range = first
            .zip(last)
            .map(|(first, last)| format!("{first}-{}", last.min(0xffef)));
        let new = NewSubsystem {
            nqn: name.clone(),
            serial: params.text("serial_number"),
            model: params.text("model_number"),
            controller_ids: range,
            allow_any_host: params.flag("allow_any_host") == Some(true),
            hosts: Vec::new(),
            listeners: None,
        };
        self.notes
            .lacks_model(params.what(), &new, "SPDK bdev Controller");
        params.ignore(&["ana_reporting", "tgt_name"]);
        for usual in ["0", "32", &NSID_MAX.to_string()] {
            params.ignore_usual(&[("max_namespaces", usual)]);
        }
        if params.are_readable(&[]) {
            self.listeners_of.insert(name, Vec::new());
            self.notes.made(self.draft.add_subsystem(&new));
        }
    }

    /// Adds a host. A host whose key is lost is left out, because it could connect without
    /// authentication.
    fn host(&mut self, params: Fields<'_>) {
        let host = params.text("host").unwrap_or_default();
        let what = format!("host {host}");
        let params = params.named(&*what);
        let nqn = nqn(&params);
        params.ignore(&["tgt_name"]);
        let named = |key| params.text(key).map(|name| format!("key:{name}"));
        let (key, controller) = (named("dhchap_key"), named("dhchap_ctrlr_key"));
        if params.has("psk") {
            params.leave_out_open(format!(
                "{what} is left out: over RDMA there is no TLS, and without its psk it would connect unauthenticated"
            ));
            return;
        }
        if !params.are_readable(&[]) {
            return;
        }
        if let Err(error) = self.draft.add_host(&nqn, &host) {
            self.notes.lacks(error.to_string());
            return;
        }
        if key.is_none() && controller.is_none() {
            return;
        }
        let keys = key.as_deref().map(|key| (key, controller.as_deref()));
        let set = match keys {
            Some(keys) => self.draft.set_host_keys(&nqn, &host, Some(keys)),
            None => Err(EditError::Missing(
                "it has a dhchap_ctrlr_key without a dhchap_key".to_owned(),
            )),
        };
        if let Err(error) = set {
            self.notes.opens(format!(
                "{what} is left out of {nqn}, because it would connect unauthenticated: its dhchap_key cannot \
                 be carried over: {error} (docs/guide-target.md, Authentication)"
            ));
            self.notes.made(self.draft.remove_host(&nqn, &host));
        }
    }

    fn key(&mut self, params: Fields<'_>) {
        let (name, path) = (params.text("name"), params.text("path"));
        let (Some(name), Some(path)) = (name, path) else {
            params.leave_out("it has no name and path");
            return;
        };
        let _named = params.named(format!("key {name}"));
        let made = self.draft.add_key(&name, Path::new(&path));
        self.notes.made(made);
    }

    fn namespace(&mut self, params: &Fields<'_>) {
        let nqn = nqn(params);
        params.ignore(&["tgt_name"]);
        let namespace = params.object("namespace");
        let bdev = namespace.text("bdev_name").unwrap_or_default();
        let nsid = namespace.number_u32("nsid").filter(|nsid| *nsid != 0);
        let what = match nsid {
            Some(nsid) => format!("namespace {nsid} of {nqn} ({bdev})"),
            None => format!("namespace {bdev} of {nqn}"),
        };
        let namespace = namespace.named(&*what);
        let Some(disk) = self.disks.get(&bdev) else {
            namespace.leave_out_namespace("its disk has no counterpart");
            return;
        };
        let new = NewNamespace {
            nsid,
            uuid: namespace.identity("uuid").or_else(|| disk.uuid.clone()),
            nguid: namespace.identity("nguid"),
            ana_group: namespace.number_u32("anagrpid").filter(|id| *id > 1),
            hosts: (namespace.flag("no_auto_visible") == Some(true)).then(Vec::new),
            ..disk.clone()
        };
        if namespace.are_readable(&[]) {
            let made = self.draft.add_namespace(&nqn, &new);
            self.notes.made(made);
        }
    }

    fn place(address: &Fields<'_>) -> Option<Trid> {
        if !is_rdma(address) {
            address.leave_out("its transport is not RDMA");
            return None;
        }
        address.ignore(&["adrfam"]);
        let ip: Option<Traddr> = address.text("traddr").and_then(|text| text.parse().ok());
        let port = address.text("trsvcid").and_then(|text| text.parse().ok());
        if ip.is_none() || port.is_none() {
            address.leave_out("it has no IP address and port");
        }
        Some(Trid::new(ip?, port?))
    }

    fn listener(&mut self, params: &Fields<'_>) {
        let address = params.object("listen_address");
        let what = format!("listener {}", address.text("traddr").unwrap_or_default());
        let Some(at) = Self::place(&address.named(&*what)) else {
            self.has_others = true;
            return;
        };
        params.ignore(&["tgt_name"]);
        let nqn = nqn(params);
        let state = params.text("ana_state");
        let group = params.number_u32("anagrpid");
        if !params.are_readable(&[]) {
            return;
        }
        let new = NewListener::at(at.address, at.port);
        // Subsystems may share a listener. Each listener also serves discovery.
        if !self.listeners.contains(&at) {
            let made = self.draft.add_listener(&new);
            self.notes.made(made);
            self.listeners.push(at);
        }
        if let Some(own) = self.listeners_of.get_mut(&nqn)
            && !own.contains(&at)
        {
            own.push(at);
        }
        if let Some(state) = state.filter(|_| nqn != Nqn::discovery().raw()) {
            let of_listener = self.states.entry(at).or_default();
            let states = of_listener.entry(nqn).or_default();
            states.set(group, state.replace('_', "-"));
        }
    }

    fn set_states(&mut self) {
        for (at, of_listener) in &self.states {
            let all = self.listeners_of.iter().filter(|(_, own)| own.contains(at));
            let mut all = all.map(|(nqn, _)| of_listener.get(nqn));
            let first = all.next().flatten();
            if all.all(|other| other == first) {
                for (group, state) in first.into_iter().flat_map(States::entries) {
                    let Trid { address, port } = *at;
                    self.notes
                        .made(self.draft.set_ana(address, port, group, state));
                }
                continue;
            }
            for (nqn, states) in of_listener {
                for (group, state) in states.entries() {
                    self.notes
                        .made(self.draft.set_ana_of(nqn, *at, group, state));
                }
            }
        }
    }

    fn set_listeners(&mut self) {
        for (nqn, own) in &self.listeners_of {
            if own.len() < self.listeners.len() {
                let listeners = SubsystemSettings {
                    listeners: Some(Only::These(own.clone())),
                    ..SubsystemSettings::default()
                };
                let made = self.draft.set_subsystem(nqn, &listeners);
                self.notes.made(made);
            }
        }
    }

    fn referral(&mut self, params: &Fields<'_>) {
        let address = params.object("address");
        params.ignore(&["tgt_name"]);
        let what = format!("referral {}", address.text("traddr").unwrap_or_default());
        let address = address.named(what);
        let place = Self::place(&address);
        let name = params.text("subnqn");
        let Some(place) = place.filter(|_| params.are_readable(&[])) else {
            return;
        };
        match place.unscoped() {
            Some(at) => drop(self.draft.add_referral(at, name.as_deref())),
            None => address.leave_out(ELSEWHERE),
        }
    }
}

fn is_rdma(of: &Fields<'_>) -> bool {
    let transport = of.text("trtype");
    transport.is_some_and(|transport| transport.eq_ignore_ascii_case("rdma"))
}
