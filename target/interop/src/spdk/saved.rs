//! Requests that recreate the configuration, for SPDK's clients.

use std::collections::BTreeMap;

use cairn_config::{Access, Backing, Config, DhchapPolicy, Limits, Listener, Namespace, Subsystem};
use cairn_control::Disk;
use nvme_proto::limits::ANA_GROUPS_MAX;
use nvme_proto::wire::log::AnaState;
use serde_json::{Value, json};

use super::{bdev_name, bdevs, keyring, qos, referrals, views};
use crate::{Export, Snapshot};

pub(super) fn subsystems() -> Value {
    json!([
        {"subsystem": "keyring", "depends_on": []},
        {"subsystem": "bdev", "depends_on": ["keyring"]},
        {"subsystem": "nvmf", "depends_on": ["bdev", "keyring"]},
    ])
}

pub(super) fn config(
    name: &str,
    snapshot: &impl Snapshot,
    disks: &BTreeMap<String, Disk>,
) -> Option<Value> {
    match name {
        "keyring" => Some(keyring(snapshot.config())),
        "bdev" => Some(all_bdevs(snapshot, disks)),
        "nvmf" => Some(nvmf(snapshot.config())),
        _ => None,
    }
}

#[expect(clippy::needless_pass_by_value, reason = "json! stands in the call")]
pub(crate) fn request(method: &str, params: Value) -> Value {
    json!({"method": method, "params": params})
}

fn all_bdevs(snapshot: &impl Snapshot, disks: &BTreeMap<String, Disk>) -> Value {
    let mut all: BTreeMap<String, (Value, Option<Value>)> = snapshot
        .exports()
        .map(|export| {
            let name = bdev_name(export.config);
            let limits = limits(&name, &export.config.limits);
            (name, (of_export(&export), limits))
        })
        .collect();
    for (name, disk) in disks {
        let of_disk = || {
            (
                of_disk(name, disk),
                qos_request(name, qos::of_disk(&disk.limits)),
            )
        };
        all.entry(name.clone()).or_insert_with(of_disk);
    }
    let (disks, limits): (Vec<Value>, Vec<Option<Value>>) = all.into_values().unzip();
    disks
        .into_iter()
        .chain(limits.into_iter().flatten())
        .collect()
}

fn of_export(export: &Export<'_>) -> Value {
    let (config, block_bytes) = (export.config, export.block_bytes);
    let name = bdev_name(config);
    let uuid = export.uuid.to_string();
    let sized = json!({
        "name": name, "num_blocks": export.blocks, "block_size": block_bytes, "uuid": uuid,
    });
    match &config.backing {
        Backing::Memory { .. } => request("bdev_malloc_create", sized),
        Backing::Null { .. } => request("bdev_null_create", sized),
        Backing::Disk(path) => request(
            "bdev_aio_create",
            json!({
                "name": name, "filename": path, "block_size": block_bytes,
                "readonly": config.read_only, "uuid": uuid,
            }),
        ),
        Backing::Rbd(image) => request(
            "bdev_rbd_create",
            json!({
                "name": name, "pool_name": image.pool, "rbd_name": image.image,
                "block_size": block_bytes, "uuid": uuid,
            }),
        ),
    }
}

pub(crate) fn limits(name: &str, limits: &Limits) -> Option<Value> {
    qos_request(name, qos::of_namespace(limits))
}

fn qos_request(name: &str, mut limits: Value) -> Option<Value> {
    let mut all = limits.as_object()?.values();
    let any = all.any(|limit| limit.as_u64() != Some(0));
    limits["name"] = json!(name);
    any.then(|| request("bdev_set_qos_limit", limits))
}

fn of_disk(name: &str, disk: &Disk) -> Value {
    let method = match disk.product {
        bdevs::MALLOC => "bdev_malloc_create",
        bdevs::NULL => "bdev_null_create",
        bdevs::AIO => "bdev_aio_create",
        _ => "bdev_uring_create",
    };
    let mut params = json!({"name": name, "block_size": disk.block_bytes});
    if disk.blocks > 0 {
        params["num_blocks"] = json!(disk.blocks);
    } else {
        params["filename"] = json!(disk.export);
    }
    if disk.read_only {
        params["readonly"] = json!(true);
    }
    if let Some(uuid) = &disk.uuid {
        params["uuid"] = json!(uuid);
    }
    request(method, params)
}

pub(crate) fn keyring(config: &Config) -> Value {
    let keys = config.keys.iter().filter(|key| !key.is_removed);
    let params = keys.map(|key| json!({"name": key.name, "path": key.path}));
    params
        .map(|params| request("keyring_file_add_key", params))
        .collect()
}

pub(crate) fn nvmf(config: &Config) -> Value {
    let mut all = vec![
        request("nvmf_set_config", dhchap(&config.dhchap)),
        request("nvmf_create_transport", json!({"trtype": "RDMA"})),
    ];
    for referral in &config.referrals {
        let params = referrals::shown(referral);
        all.push(request("nvmf_discovery_add_referral", params));
    }
    for subsystem in &config.subsystems {
        let nqn = subsystem.nqn.raw();
        all.push(request(
            "nvmf_create_subsystem",
            json!({
                "nqn": nqn,
                "allow_any_host": subsystem.allow_any_host,
                "serial_number": subsystem.serial,
                "model_number": subsystem.model,
                "max_namespaces": cairn_config::NSID_MAX,
                "min_cntlid": subsystem.controller_ids.start(),
                "max_cntlid": subsystem.controller_ids.end(),
                "ana_reporting": true,
            }),
        ));
        for host in subsystem.allowed_hosts.hosts.iter() {
            let mut params = json!({"nqn": nqn, "host": host.raw()});
            keyring::show(&mut params, keyring::of_host(subsystem, host));
            all.push(request("nvmf_subsystem_add_host", params));
        }
        let namespaces = subsystem.namespaces.iter();
        all.extend(namespaces.flat_map(|namespace| of_namespace(nqn, namespace)));
        let own = config.listeners_of(subsystem);
        all.extend(own.flat_map(|listener| of_listener(subsystem, listener)));
    }
    Value::Array(all)
}

fn dhchap(policy: &DhchapPolicy) -> Value {
    let all = DhchapPolicy::default();
    let mut params = json!({});
    if policy.hashes != all.hashes {
        params["dhchap_digests"] = json!(policy.hashes);
    }
    if policy.groups != all.groups {
        params["dhchap_dhgroups"] = json!(policy.groups);
    }
    params
}

fn of_namespace(nqn: &str, namespace: &Namespace) -> Vec<Value> {
    let mut params = json!({
        "nsid": namespace.nsid,
        "bdev_name": bdev_name(namespace),
        "anagrpid": namespace.ana_group,
        "no_auto_visible": namespace.hosts != Access::AnyHost,
    });
    if let Some(nguid) = namespace.known_nguid() {
        params["nguid"] = json!(format!("{:032X}", u128::from_be_bytes(nguid)));
    }
    let add = json!({"nqn": nqn, "namespace": params});
    let mut all = vec![request("nvmf_subsystem_add_ns", add)];
    if let Access::Hosts(list) = &namespace.hosts {
        all.extend(list.hosts.iter().map(|host| {
            let params = json!({"nqn": nqn, "nsid": namespace.nsid, "host": host.raw()});
            request("nvmf_ns_add_host", params)
        }));
    }
    all
}

fn of_listener(subsystem: &Subsystem, listener: &Listener) -> Vec<Value> {
    let (nqn, address) = (subsystem.nqn.raw(), views::address(listener));
    let states = subsystem.ana_at(listener);
    let params = json!({"nqn": nqn, "listen_address": address});
    let mut all = vec![request("nvmf_subsystem_add_listener", params)];
    let groups = 1..=ANA_GROUPS_MAX;
    let others = groups.filter(|group| states.get(*group) != AnaState::OPTIMIZED);
    all.extend(others.map(|group| {
        let state = views::ana_state(states.get(group));
        let params = json!({
            "nqn": nqn, "listen_address": address, "ana_state": state, "anagrpid": group,
        });
        request("nvmf_subsystem_listener_set_ana_state", params)
    }));
    all
}
