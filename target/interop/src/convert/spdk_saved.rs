//! Export of a configuration as requests for SPDK's rpc.py. A copy of the configuration first gets
//! missing names, and loses settings unknown to SPDK.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use cairn_config::{
    AnaStates, Authentication, Backing, BlockSize, Config, DhchapPolicy, ImageSpec, KeySource,
    Keys, Limits, Listener, NamedKey, Namespace, Nguid, Nqn, Subsystem,
};
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;
use serde_json::{Value, json};

use super::{Converted, Notes, is_device};
use crate::spdk::qos::{IOS_UNIT, MBYTE};
use crate::spdk::saved::{keyring, limits, nvmf, request};
use crate::spdk::views::address;

pub fn to_spdk(config: &Config) -> Converted {
    let notes = Notes::default();
    let config = fitted(&notes, config);
    let namespaces = config.subsystems.iter().flat_map(|one| &one.namespaces);
    let disks = namespaces.clone().flat_map(disk);
    let limits = namespaces.filter_map(|one| limits(one.name.as_deref()?, &one.limits));
    let bdevs: Vec<Value> = disks.chain(limits).collect();
    let mut subsystems = nvmf(&config);
    if let Some(requests) = subsystems.as_array_mut() {
        // These requests must follow the transport. They precede the subsystems, so that a later
        // import keeps the order of the listeners.
        requests.splice(2..2, config.listeners.iter().map(of_discovery));
    }
    let saved = json!({"subsystems": [
        {"subsystem": "keyring", "config": keyring(&config)},
        {"subsystem": "bdev", "config": bdevs},
        {"subsystem": "nvmf", "config": subsystems},
    ]});
    notes.into_converted(format!("{saved:#}"))
}

fn of_discovery(listener: &Listener) -> Value {
    let params = json!({"nqn": Nqn::discovery().raw(), "listen_address": address(listener)});
    request("nvmf_subsystem_add_listener", params)
}

fn fitted(notes: &Notes, config: &Config) -> Config {
    let mut config = config.clone();
    let usual = notes.of_process(&config, &[]);
    for key in config.keys.iter().filter(|key| key.is_removed) {
        notes.add(format!("[[key]] {} is left out: it is removed", key.name));
    }
    for (listener, port_id) in config.listeners.iter().zip(1..) {
        let what = format!("listener {}", listener.trid());
        notes.of_listener(&what, listener, &usual.listeners[0]);
        notes.without_counterpart(&what, [("port_id", listener.port_id != port_id)]);
    }
    for subsystem in &config.subsystems {
        for listener in config.listeners_of(subsystem) {
            look_at_states(notes, listener, &subsystem.ana_at(listener));
        }
    }
    let mut names = Names::of(&config);
    let mut keys = std::mem::take(&mut config.keys);
    for subsystem in &mut config.subsystems {
        look_at_subsystem(notes, subsystem, &config.dhchap);
        let nqn = subsystem.nqn;
        fit_keys(notes, subsystem, &mut keys);
        subsystem.namespaces.retain_mut(|namespace| {
            let what = format!("namespace {} of {nqn}", namespace.nsid);
            let fits = fit_namespace(notes, &what, namespace);
            if fits {
                names.give(namespace);
            }
            fits
        });
    }
    config.keys = keys;
    config
}

fn look_at_states(notes: &Notes, listener: &Listener, states: &AnaStates) {
    let what = format!("listener {}", listener.trid());
    let is_known = |state| {
        [
            AnaState::OPTIMIZED,
            AnaState::NON_OPTIMIZED,
            AnaState::INACCESSIBLE,
        ]
        .contains(&state)
    };
    if (1..=ANA_GROUPS_MAX).any(|group| !is_known(states.get(group))) {
        notes.add(format!(
            "{what}: the ANA states persistent-loss and change have no counterpart: inaccessible is written"
        ));
    }
}

fn look_at_subsystem(notes: &Notes, subsystem: &Subsystem, dhchap: &DhchapPolicy) {
    let Subsystem {
        nqn,
        serial: _,
        model: _,
        controller_ids: _,
        allow_any_host: _,
        allowed_hosts: _,
        listeners: _,
        ana: _,
        authentication:
            Authentication {
                others: _,
                hosts: _,
                is_required: _,
                policy,
            },
        limits: _,
        limits_per_host: _,
        limits_of_hosts: _,
        namespaces: _,
        pools,
    } = subsystem;
    notes.of_limits(subsystem);
    notes.of_policy(&format!("subsystem {nqn}"), policy, dhchap);
    notes.of_required_key(subsystem);
    for pool in pools {
        notes.of_pool(nqn.raw(), pool);
    }
}

fn fit_keys(notes: &Notes, subsystem: &mut Subsystem, keyring: &mut Vec<NamedKey>) {
    let nqn = subsystem.nqn;
    let left_out = |who: &str, why: &str| {
        notes.opens(format!(
            "subsystem {nqn}: the keys of {who} are left out, and without them hosts connect unauthenticated: {why}"
        ));
    };
    let no_file =
        "SPDK reads keys from files, and these are systemd's or in the configuration itself";
    let keys = &mut subsystem.authentication;
    keys.hosts.retain_mut(|(host, of_host)| {
        let fits = name_keys(of_host, keyring);
        if !fits {
            left_out(&format!("host {host}"), no_file);
        }
        fits
    });
    let Some(mut others) = keys.others.take() else {
        return;
    };
    let has_list = !subsystem.allow_any_host;
    if has_list && name_keys(&mut others, keyring) {
        keys.others = Some(others);
    } else {
        let no_list = "SPDK gives keys to hosts that are listed alone";
        left_out("its hosts", if has_list { no_file } else { no_list });
    }
}

fn name_keys(keys: &mut Keys, keyring: &mut Vec<NamedKey>) -> bool {
    let mut all = std::iter::once(&mut keys.host).chain(&mut keys.controller);
    all.all(|source| {
        let path = match source {
            KeySource::Named(_) => return true,
            KeySource::Credential(_) | KeySource::Inline(_) => return false,
            KeySource::File(path) => std::mem::take(path),
        };
        *source = KeySource::Named(in_keyring(keyring, path));
        true
    })
}

fn in_keyring(keyring: &mut Vec<NamedKey>, path: PathBuf) -> NamedKey {
    let known = keyring
        .iter()
        .find(|key| key.path == path && !key.is_removed);
    if let Some(known) = known {
        return known.clone();
    }
    let names = (0..).map(|number| format!("key{number}"));
    let mut free = names.filter(|name| keyring.iter().all(|key| key.name != *name));
    let key = NamedKey {
        name: free.next().expect("there is no end of numbers"),
        path,
        is_removed: false,
    };
    keyring.push(key.clone());
    key
}

fn fit_namespace(notes: &Notes, what: &str, namespace: &mut Namespace) -> bool {
    if let Some(why) = why_left_out(namespace) {
        notes.lacks(format!("{what} is left out: {why}"));
        return false;
    }
    let Namespace {
        nsid: _,
        name: _,
        backing: _,
        uuid,
        nguid,
        block_size: _,
        read_only: _,
        write_protection,
        write_protection_file,
        shared,
        ana_group: _,
        hosts: _,
        pooled: _,
        limits,
    } = &*namespace;
    let settings = [
        ("write_protection", *write_protection),
        ("write_protection_file", write_protection_file.is_some()),
        ("shared", *shared),
        (
            "nguid = \"from-uuid\"",
            *nguid == Some(Nguid::FromUuid) && uuid.is_none(),
        ),
    ];
    notes.without_counterpart(what, settings);
    let others = Limits {
        iops: None,
        read: None,
        write: None,
        total: None,
        ..*limits
    };
    notes.limits(what, "limits", &others);
    let is_odd =
        |limit: Option<u64>, unit: u64| limit.is_some_and(|limit| !limit.is_multiple_of(unit));
    let bytes = [limits.read, limits.write, limits.total];
    if is_odd(limits.iops, IOS_UNIT) || bytes.into_iter().any(|limit| is_odd(limit, MBYTE)) {
        notes.add(format!(
            "{what}: its limits are rounded up to whole thousands of commands and MiB"
        ));
    }
    match &namespace.backing {
        Backing::Disk(path) if namespace.block_size.is_none() && !is_device(path) => {
            namespace.block_size = Some(BlockSize::B512);
            notes.add(format!(
                "{what}: its block_size is the file's own, and SPDK requires one: 512 is written; cairn-target \
                 namespace list shows what hosts see"
            ));
        }
        _ => {}
    }
    let has_own = matches!(namespace.backing, Backing::Disk(_) | Backing::Rbd(_));
    if has_own && namespace.uuid.is_none() {
        notes.add(format!(
            "{what}: its uuid is the disk's own, and SPDK makes another: cairn-target namespace list shows it"
        ));
    }
    true
}

fn why_left_out(namespace: &Namespace) -> Option<&'static str> {
    match &namespace.backing {
        Backing::Memory { .. } | Backing::Null { .. } if namespace.read_only => {
            Some("SPDK would let hosts write to it")
        }
        Backing::Disk(path) if is_generic(path) => Some(
            "SPDK takes an NVMe drive from the kernel, by its PCI address: see bdev_nvme_attach_controller",
        ),
        Backing::Rbd(image) if image.namespace.is_some() || image.snapshot.is_some() => {
            Some("SPDK has no namespaces of pools, and no snapshots of images")
        }
        _ => None,
    }
}

fn is_generic(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    is_device(path) && name.is_some_and(|name| name.starts_with("ng"))
}

struct Names(HashSet<String>);

impl Names {
    fn of(config: &Config) -> Self {
        let all = config.subsystems.iter().flat_map(|one| &one.namespaces);
        Self(all.filter_map(|one| one.name.clone()).collect())
    }

    fn give(&mut self, namespace: &mut Namespace) {
        if namespace.name.is_some() {
            return;
        }
        let kind = match namespace.backing {
            Backing::Memory { .. } => "Malloc",
            Backing::Null { .. } => "Null",
            Backing::Disk(_) => "Aio",
            Backing::Rbd(_) => "Rbd",
        };
        let mut names = (0..).map(|number| format!("{kind}{number}"));
        let free = names.find(|name| self.0.insert(name.clone()));
        namespace.name = free;
    }
}

fn disk(namespace: &Namespace) -> Vec<Value> {
    let name = &namespace.name;
    let bytes_of_block = namespace.block_size.map(BlockSize::bytes);
    let sized = |bytes: u64| {
        let block_size = bytes_of_block.unwrap_or(512);
        json!({"name": name, "num_blocks": bytes / u64::from(block_size), "block_size": block_size})
    };
    let mut before = None;
    let (method, mut params) = match &namespace.backing {
        Backing::Memory { bytes } => ("bdev_malloc_create", sized(*bytes)),
        Backing::Null { bytes } => ("bdev_null_create", sized(*bytes)),
        Backing::Disk(path) => {
            let mut params =
                json!({"name": name, "filename": path, "readonly": namespace.read_only});
            if let Some(bytes) = bytes_of_block {
                params["block_size"] = json!(bytes);
            }
            ("bdev_aio_create", params)
        }
        Backing::Rbd(spec) => {
            // `fitted` has left out images with `namespace` or `snapshot`. `cluster` converts the
            // other ignored fields.
            let ImageSpec {
                pool,
                image,
                namespace: _,
                snapshot: _,
                conf: _,
                user,
                keyring: _,
                options: _,
            } = spec;
            let mut params = json!({
                "name": name, "pool_name": pool, "rbd_name": image,
                "block_size": bytes_of_block.unwrap_or(512), "read_only": namespace.read_only,
            });
            if let Some(made) = cluster(spec, name.as_deref().unwrap_or_default()) {
                params["cluster_name"] = made["name"].clone();
                before = Some(request("bdev_rbd_register_cluster", made));
            } else if let Some(user) = user {
                params["user_id"] = json!(user);
            }
            ("bdev_rbd_create", params)
        }
    };
    if let Some(uuid) = namespace.uuid {
        params["uuid"] = json!(uuid.to_string());
    }
    before
        .into_iter()
        .chain([request(method, params)])
        .collect()
}

fn cluster(image: &ImageSpec, name: &str) -> Option<Value> {
    if image.conf.is_none() && image.keyring.is_none() && image.options.is_empty() {
        return None;
    }
    let mut params = json!({"name": format!("cluster-{name}")});
    for (key, value) in [
        ("user_id", json!(image.user)),
        ("config_file", json!(image.conf)),
        ("key_file", json!(image.keyring)),
    ] {
        if !value.is_null() {
            params[key] = value;
        }
    }
    if !image.options.is_empty() {
        let options = image
            .options
            .iter()
            .map(|(key, value)| (key.clone(), json!(value)));
        params["config_param"] = options.collect();
    }
    Some(params)
}
