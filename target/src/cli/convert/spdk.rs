//! What SPDK's rpc.py saved, as a configuration.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use cairn_config::{
    Draft, NewCeph, NewLimits, NewListener, NewNamespace, NewSubsystem, Only, SubsystemSettings,
};
use serde_json::Value;

use super::{Converted, Notes, array, identity, number, text};

/// What is made of the requests.
struct Import {
    draft: Draft,
    notes: Notes,
    /// How images are opened, by the name of a cluster's connection.
    clusters: HashMap<String, NewCeph>,
    /// Disks by name, until they are namespaces.
    disks: HashMap<String, NewNamespace>,
    /// The listeners, each once.
    listeners: Vec<SocketAddr>,
    /// Those of each subsystem, by NQN.
    listeners_of: BTreeMap<String, Vec<SocketAddr>>,
    /// The ANA states of subsystems, by listener and NQN.
    states: BTreeMap<SocketAddr, BTreeMap<String, States>>,
}

/// The state that every ANA group has at first, at SPDK and here.
const BEST: &str = "optimized";

/// ANA states of a subsystem by way of a listener.
#[derive(Default, PartialEq, Eq)]
struct States {
    /// That of the groups that have no other; [`BEST`] if not given.
    all: Option<String>,
    groups: BTreeMap<u32, String>,
}

impl States {
    /// Without a group, or with 0, all of them get it.
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

pub(super) fn import(saved: &Value) -> Result<Converted, String> {
    let Some(parts) = saved["subsystems"].as_array() else {
        return Err(
            "error: this is not what rpc.py save_config writes: it has no subsystems".into(),
        );
    };
    let mut import = Import {
        draft: Draft::new("").map_err(|error| error.to_string())?,
        notes: Notes::default(),
        clusters: HashMap::new(),
        disks: HashMap::new(),
        listeners: Vec::new(),
        listeners_of: BTreeMap::new(),
        states: BTreeMap::new(),
    };
    for part in parts {
        for element in array(&part["config"]) {
            // A batch is an array.
            let requests = element
                .as_array()
                .map_or(std::slice::from_ref(element), Vec::as_slice);
            for request in requests {
                let method = request["method"].as_str().unwrap_or_default();
                import.carry_out(method, &request["params"]);
            }
        }
    }
    import.set_listeners();
    import.set_states();
    Ok(Converted {
        text: import.draft.text(),
        notes: import.notes.0,
    })
}

fn nqn(params: &Value) -> &str {
    params["nqn"].as_str().unwrap_or_default()
}

/// The export of an image: "rbd:POOL/IMAGE", or "rbd:POOL/NAMESPACE/IMAGE".
fn image(params: &Value) -> Option<String> {
    let (pool, image) = (text(&params["pool_name"])?, text(&params["rbd_name"])?);
    Some(match text(&params["namespace_name"]) {
        Some(namespace) => format!("rbd:{pool}/{namespace}/{image}"),
        None => format!("rbd:{pool}/{image}"),
    })
}

/// Options of Ceph's client.
fn options(table: &Value) -> BTreeMap<String, String> {
    let all = table.as_object().into_iter().flatten();
    all.filter_map(|(key, value)| Some((key.clone(), text(value)?)))
        .collect()
}

impl Import {
    fn carry_out(&mut self, method: &str, params: &Value) {
        match method {
            "bdev_rbd_register_cluster" => self.cluster(params),
            "bdev_malloc_create" | "bdev_null_create" | "bdev_aio_create" | "bdev_uring_create"
            | "bdev_rbd_create" => self.disk(method, params),
            "bdev_set_qos_limit" => self.limits(params),
            "keyring_file_add_key" => self.key(params),
            "nvmf_create_subsystem" => self.subsystem(params),
            "nvmf_subsystem_add_host" => self.host(params),
            "nvmf_subsystem_add_ns" => self.namespace(params),
            "nvmf_subsystem_add_listener" | "nvmf_subsystem_listener_set_ana_state" => {
                self.listener(params);
            }
            "nvmf_ns_add_host" => {
                let nsid = number(&params["nsid"]).unwrap_or_default();
                let host = params["host"].as_str().unwrap_or_default();
                let made = self.draft.show_namespace(nqn(params), nsid, host, true);
                self.notes.made(made);
            }
            "nvmf_discovery_add_referral" => self.referral(params),
            "nvmf_subsystem_allow_any_host" => {
                let allow = params["allow_any_host"].as_bool() == Some(true);
                let made = self.draft.allow_any_host(nqn(params), allow);
                self.notes.made(made);
            }
            // Cairn always has what they ask for.
            "bdev_wait_for_examine" | "framework_start_init" | "framework_wait_init" => {}
            "nvmf_set_config" if is_empty(params) => {}
            "nvmf_create_transport" if is_rdma(params) => {
                if params.as_object().is_some_and(|params| params.len() > 1) {
                    self.notes.add(
                        "nvmf_create_transport: queue depth and sizes: those of [target] are used",
                    );
                }
            }
            other => self.notes.add(format!("{other} has no counterpart")),
        }
    }

    fn cluster(&mut self, params: &Value) {
        let name = text(&params["name"]).unwrap_or_default();
        let known = ["name", "user_id", "config_param", "config_file", "key_file"];
        self.notes
            .unknown(&format!("cluster {name}"), params, &known);
        let ceph = NewCeph {
            conf: text(&params["config_file"]),
            id: text(&params["user_id"]),
            keyring: text(&params["key_file"]),
            options: options(&params["config_param"]),
        };
        self.clusters.insert(name, ceph);
    }

    /// How an image is opened: by a connection that was made for several, or by one of its own.
    fn ceph(&self, params: &Value) -> NewCeph {
        let shared = text(&params["cluster_name"]).and_then(|name| self.clusters.get(&name));
        shared.cloned().unwrap_or_else(|| NewCeph {
            id: text(&params["user_id"]),
            options: options(&params["config"]),
            ..NewCeph::default()
        })
    }

    fn disk(&mut self, method: &str, params: &Value) {
        let name = text(&params["name"]).unwrap_or_default();
        let block_size = number(&params["block_size"]).filter(|bytes| *bytes != 0);
        let bytes = || {
            let blocks = params["num_blocks"].as_u64()?;
            blocks.checked_mul(block_size?.into())
        };
        let export = match method {
            "bdev_malloc_create" => bytes().map(|bytes| format!("mem:{bytes}")),
            "bdev_null_create" => bytes().map(|bytes| format!("null:{bytes}")),
            "bdev_rbd_create" => image(params),
            _ => text(&params["filename"]),
        };
        let Some(export) = export else {
            self.notes
                .add(format!("{method} {name} is left out: it names no disk"));
            return;
        };
        let known = [
            "name",
            "block_size",
            "num_blocks",
            "filename",
            "readonly",
            "read_only",
            "uuid",
            "pool_name",
            "namespace_name",
            "rbd_name",
            "user_id",
            "config",
            "cluster_name",
            "fallocate",
            "nowait",
            "physical_block_size",
            "numa_id",
            "md_interleave",
            "dif_is_head_of_md",
            "dif_pi_format",
            "optimal_io_boundary",
        ];
        self.notes
            .unknown(&format!("{method} {name}"), params, &known);
        let disk = NewNamespace {
            name: Some(name.clone()),
            export,
            uuid: identity(&params["uuid"]),
            // What is behind an image has blocks of its own.
            block_size: block_size.filter(|_| method != "bdev_rbd_create"),
            // Files have the one, and images the other.
            read_only: params["readonly"] == true || params["read_only"] == true,
            ceph: self.ceph(params),
            ..NewNamespace::default()
        };
        self.disks.insert(name, disk);
    }

    fn limits(&mut self, params: &Value) {
        let name = text(&params["name"]).unwrap_or_default();
        let known = [
            "name",
            "rw_ios_per_sec",
            "rw_mbytes_per_sec",
            "r_mbytes_per_sec",
            "w_mbytes_per_sec",
        ];
        self.notes
            .unknown(&format!("limits of {name}"), params, &known);
        let rate = |key: &str| params[key].as_u64().filter(|rate| *rate != 0);
        let bytes = |key: &str| rate(key).map(|mbytes| format!("{mbytes}MiB"));
        match self.disks.get_mut(&name) {
            Some(disk) => {
                disk.limits = NewLimits {
                    iops: rate("rw_ios_per_sec"),
                    read: bytes("r_mbytes_per_sec"),
                    write: bytes("w_mbytes_per_sec"),
                    total: bytes("rw_mbytes_per_sec"),
                    outstanding: None,
                    burst_ms: None,
                };
            }
            None => self.notes.add(format!(
                "limits of {name} are left out: its disk has no counterpart"
            )),
        }
    }

    fn subsystem(&mut self, params: &Value) {
        let name = nqn(params).to_owned();
        let [first, last] = [&params["min_cntlid"], &params["max_cntlid"]].map(number);
        // SPDK's default goes further than NVMe's range of dynamic controllers.
        let range = first
            .zip(last)
            .map(|(first, last)| format!("{first}-{}", last.min(0xffef)));
        let known = [
            "nqn",
            "serial_number",
            "model_number",
            "allow_any_host",
            "min_cntlid",
            "max_cntlid",
            "max_namespaces",
            "ana_reporting",
            "tgt_name",
        ];
        self.notes
            .unknown(&format!("subsystem {name}"), params, &known);
        self.listeners_of.insert(name.clone(), Vec::new());
        let made = self.draft.add_subsystem(&NewSubsystem {
            nqn: name,
            serial: text(&params["serial_number"]),
            model: text(&params["model_number"]),
            controller_ids: range,
            allow_any_host: params["allow_any_host"].as_bool() == Some(true),
            hosts: Vec::new(),
            listeners: None,
        });
        self.notes.made(made);
    }

    fn host(&mut self, params: &Value) {
        let host = params["host"].as_str().unwrap_or_default();
        let known = ["nqn", "host", "dhchap_key", "dhchap_ctrlr_key", "tgt_name"];
        self.notes.unknown(&format!("host {host}"), params, &known);
        let made = self.draft.add_host(nqn(params), host);
        self.notes.made(made);
        let named = |key: &str| text(&params[key]).map(|name| format!("key:{name}"));
        let Some(key) = named("dhchap_key") else {
            return;
        };
        let controller = named("dhchap_ctrlr_key");
        let keys = Some((key.as_str(), controller.as_deref()));
        if let Err(error) = self.draft.set_host_keys(nqn(params), host, keys) {
            self.notes.add(format!(
                "host {host}: its dhchap_key is left out, so that it connects unauthenticated: {error} \
                 (docs/guide-target.md, Authentication)"
            ));
        }
    }

    /// A file of a key has the same form here and there: the text of the secret.
    fn key(&mut self, params: &Value) {
        let (name, path) = (text(&params["name"]), text(&params["path"]));
        let (Some(name), Some(path)) = (name, path) else {
            self.notes
                .add("keyring_file_add_key is left out: it has no name and path");
            return;
        };
        self.notes
            .unknown(&format!("key {name}"), params, &["name", "path"]);
        let made = self.draft.add_key(&name, Path::new(&path));
        self.notes.made(made);
    }

    fn namespace(&mut self, params: &Value) {
        let namespace = &params["namespace"];
        let bdev = namespace["bdev_name"].as_str().unwrap_or_default();
        let what = format!("namespace {bdev} of {}", nqn(params));
        let Some(disk) = self.disks.get(bdev) else {
            self.notes
                .add(format!("{what} is left out: its disk has no counterpart"));
            return;
        };
        let new = NewNamespace {
            nsid: number(&namespace["nsid"]).filter(|nsid| *nsid != 0),
            uuid: identity(&namespace["uuid"]).or_else(|| disk.uuid.clone()),
            nguid: identity(&namespace["nguid"]),
            ana_group: number(&namespace["anagrpid"]).filter(|id| *id > 1),
            hosts: (namespace["no_auto_visible"].as_bool() == Some(true)).then(Vec::new),
            ..disk.clone()
        };
        let known = [
            "nsid",
            "bdev_name",
            "uuid",
            "nguid",
            "anagrpid",
            "no_auto_visible",
        ];
        self.notes.unknown(&what, namespace, &known);
        let made = self.draft.add_namespace(nqn(params), &new);
        self.notes.made(made);
    }

    fn place(&mut self, what: &str, address: &Value) -> Option<(IpAddr, u16)> {
        if !is_rdma(address) {
            self.notes
                .add(format!("{what} is left out: its transport is not RDMA"));
            return None;
        }
        let ip = text(&address["traddr"]).and_then(|text| text.parse().ok());
        let port = text(&address["trsvcid"]).and_then(|text| text.parse().ok());
        if ip.is_none() || port.is_none() {
            self.notes
                .add(format!("{what} is left out: it has no IP address and port"));
        }
        Some((ip?, port?))
    }

    fn listener(&mut self, params: &Value) {
        let at = &params["listen_address"];
        let what = format!("listener {}", text(&at["traddr"]).unwrap_or_default());
        let Some((address, port)) = self.place(&what, at) else {
            return;
        };
        let new = NewListener::at(address, port);
        let at = SocketAddr::new(address, port);
        // The same one may lead to several subsystems.
        if !self.listeners.contains(&at) {
            let made = self.draft.add_listener(&new);
            self.notes.made(made);
            self.listeners.push(at);
        }
        if let Some(own) = self.listeners_of.get_mut(nqn(params))
            && !own.contains(&at)
        {
            own.push(at);
        }
        if let Some(state) = text(&params["ana_state"]) {
            let of_listener = self.states.entry(at).or_default();
            let states = of_listener.entry(nqn(params).to_owned()).or_default();
            states.set(number(&params["anagrpid"]), state.replace('_', "-"));
        }
    }

    /// States that all subsystems of a listener have become the listener's.
    fn set_states(&mut self) {
        for (at, of_listener) in &self.states {
            let all = self.listeners_of.iter().filter(|(_, own)| own.contains(at));
            let mut all = all.map(|(nqn, _)| of_listener.get(nqn));
            let first = all.next().flatten();
            if all.all(|other| other == first) {
                for (group, state) in first.into_iter().flat_map(States::entries) {
                    let (address, port) = (at.ip(), at.port());
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

    /// A subsystem with all listeners names none: one that is added leads to it, too.
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

    fn referral(&mut self, params: &Value) {
        let at = &params["address"];
        let what = format!("referral {}", text(&at["traddr"]).unwrap_or_default());
        if let Some((address, port)) = self.place(&what, at) {
            let name = text(&params["subnqn"]);
            let at = SocketAddr::new(address, port);
            self.draft.add_referral(at, name.as_deref());
        }
    }
}

fn is_empty(params: &Value) -> bool {
    params.as_object().is_some_and(serde_json::Map::is_empty)
}

fn is_rdma(of: &Value) -> bool {
    let transport = of["trtype"].as_str();
    transport.is_some_and(|transport| transport.eq_ignore_ascii_case("rdma"))
}
