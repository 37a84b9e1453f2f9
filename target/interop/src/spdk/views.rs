//! Responses of the SPDK-compatible query methods.

use std::collections::HashMap;

use cairn_config::{Access, Config, Listener, Namespace, Nqn, Subsystem, Trid, Uuid};
use cairn_control::Error;
use nvme_proto::limits::{ADMIN_QUEUE_ENTRIES, ANA_GROUPS_MAX, KAS, PAGE_BYTES};
use nvme_proto::wire::log::AnaState;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::iostat::TICK_RATE;
use super::{bdev_name, keyring, reactors};
use crate::{Export, Snapshot};

pub(super) fn version() -> Value {
    let text = env!("CARGO_PKG_VERSION");
    let mut numbers = text.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    json!({
        "version": format!("Cairn {text}"),
        "fields": {"major": next(), "minor": next(), "patch": next(), "suffix": " (Cairn)"},
    })
}

pub(super) fn transports(config: &Config, trtype: Option<&str>) -> Result<Value, Error> {
    if trtype.is_some_and(|trtype| !trtype.eq_ignore_ascii_case("rdma")) {
        return Err(Error::errno(Errno::NODEV, "No such device"));
    }
    let target = &config.target;
    Ok(json!([{
        "trtype": "RDMA",
        "max_queue_depth": target.queue_depth,
        "max_io_qpairs_per_ctrlr": target.io_queues,
        "in_capsule_data_size": target.in_capsule_data_bytes,
        "max_io_size": target.max_transfer_bytes,
        "io_unit_size": target.max_transfer_bytes,
        "max_aq_depth": ADMIN_QUEUE_ENTRIES,
        "dif_insert_or_strip": false,
        "no_srq": true,
        "disable_command_passthru": true,
        "kas": KAS,
    }]))
}

pub(super) fn stats(snapshot: &impl Snapshot) -> Value {
    let reactors = snapshot.reactors().into_iter().enumerate();
    let groups = reactors.map(|(index, reactor)| {
        json!({
            "name": reactors::thread(index),
            "current_admin_qpairs": reactor.admin_queues,
            "current_io_qpairs": reactor.io_queues,
            "completed_nvme_io": reactor.completed,
            "transports": [{"trtype": "RDMA"}],
        })
    });
    json!({"tick_rate": TICK_RATE, "poll_groups": groups.collect::<Vec<_>>()})
}

pub(super) fn trid(Trid { address, port }: Trid) -> Value {
    json!({
        "trtype": "RDMA",
        "adrfam": if address.ip().is_ipv4() { "IPv4" } else { "IPv6" },
        "traddr": address.to_string(),
        "trsvcid": port.to_string(),
    })
}

pub(crate) fn address(listener: &Listener) -> Value {
    trid(listener.trid())
}

pub(super) fn discovery(config: &Config) -> Value {
    json!({
        "nqn": Nqn::discovery().raw(),
        "subtype": "Discovery",
        "listen_addresses": config.listeners.iter().map(address).collect::<Vec<_>>(),
        "allow_any_host": true,
        "hosts": [],
    })
}

pub(super) fn discovery_listeners(config: &Config) -> Value {
    let listeners = config.listeners.iter();
    listeners
        .map(|listener| json!({"address": address(listener)}))
        .collect()
}

pub(super) fn subsystems(snapshot: &impl Snapshot, wanted: Option<&str>) -> Value {
    let config = snapshot.config();
    let exports = snapshot.exports();
    let exports: HashMap<_, _> = exports
        .map(|export| ((*export.nqn, export.config.nsid), export))
        .collect();
    let mut all = Vec::new();
    if wanted.is_none() {
        all.push(discovery(config));
    }
    let is_wanted = |nqn: &str| wanted.is_none_or(|wanted| wanted == nqn);
    for subsystem in config
        .subsystems
        .iter()
        .filter(|one| is_wanted(one.nqn.raw()))
    {
        let own = config.listeners_of(subsystem);
        let hosts = subsystem.allowed_hosts.hosts.iter().map(|host| {
            let mut shown = json!({"nqn": host.raw()});
            keyring::show(&mut shown, keyring::of_host(subsystem, host));
            shown
        });
        let namespaces = subsystem.namespaces.iter().map(|namespace| {
            let export = exports.get(&(subsystem.nqn, namespace.nsid));
            of_namespace(namespace, export)
        });
        all.push(json!({
            "nqn": subsystem.nqn.raw(),
            "subtype": "NVMe",
            "listen_addresses": own.map(address).collect::<Vec<_>>(),
            "allow_any_host": subsystem.allow_any_host,
            "hosts": hosts.collect::<Vec<_>>(),
            "serial_number": subsystem.serial,
            "model_number": subsystem.model,
            "max_namespaces": cairn_config::NSID_MAX,
            "passthrough": false,
            "dmrsl": 0,
            // The value is the base-2 logarithm of the size in pages, as in Identify Controller.
            "wzsl": (config.target.max_transfer_bytes / PAGE_BYTES).max(1).ilog2(),
            "min_cntlid": subsystem.controller_ids.start(),
            "max_cntlid": subsystem.controller_ids.end(),
            "namespaces": namespaces.collect::<Vec<_>>(),
        }));
    }
    Value::Array(all)
}

fn of_namespace(namespace: &Namespace, export: Option<&Export<'_>>) -> Value {
    let mut shown = json!({
        "nsid": namespace.nsid,
        "bdev_name": bdev_name(namespace),
        "name": bdev_name(namespace),
        "uuid": export.map(|export| export.uuid.to_string()),
        "anagrpid": namespace.ana_group,
    });
    if let Access::Hosts(list) = &namespace.hosts {
        let hosts: Vec<&str> = list.hosts.iter().map(Nqn::raw).collect();
        shown["no_auto_visible"] = json!(true);
        shown["hosts"] = json!(hosts);
    }
    let shown_to_hosts = export.and_then(|export| export.nguid);
    if let Some(nguid) = shown_to_hosts.or_else(|| namespace.known_nguid()) {
        shown["nguid"] = json!(format!("{:032X}", u128::from_be_bytes(nguid)));
    }
    shown
}

pub(super) fn ana_state(state: AnaState) -> &'static str {
    match state {
        AnaState::OPTIMIZED => "optimized",
        AnaState::NON_OPTIMIZED => "non_optimized",
        _ => "inaccessible",
    }
}

pub(super) fn listeners(config: &Config, subsystem: &Subsystem) -> Value {
    let own = config.listeners_of(subsystem);
    let listeners = own.map(|listener| {
        let own = subsystem.ana_at(listener);
        let states = (1..=ANA_GROUPS_MAX).map(|group| {
            let state = match own.get(group) {
                AnaState::PERSISTENT_LOSS => "persistent_loss",
                AnaState::CHANGE => "change",
                other => ana_state(other),
            };
            json!({"ana_group": group, "ana_state": state})
        });
        json!({
            "address": address(listener),
            "ana_states": states.collect::<Vec<_>>(),
        })
    });
    listeners.collect()
}

pub(super) fn controllers(snapshot: &impl Snapshot, nqn: &str) -> Value {
    let controllers = snapshot.controllers(nqn).into_iter().map(|controller| {
        json!({
            "cntlid": controller.cntlid,
            "cntrltype": "io",
            "hostnqn": controller.host_nqn,
            "hostid": Uuid::from_bytes(controller.hostid).to_string(),
            "num_io_qpairs": controller.queues.iter().filter(|queue| queue.qid != 0).count(),
        })
    });
    controllers.collect()
}

pub(super) fn qpairs(snapshot: &impl Snapshot, nqn: &str) -> Value {
    let mut all = Vec::new();
    let end = |address: std::net::SocketAddr| trid(address.into());
    for controller in snapshot.controllers(nqn) {
        for queue in controller.queues {
            let mut shown = json!({
                "cntlid": controller.cntlid,
                "qid": queue.qid,
                "state": "enabled",
                "hostnqn": controller.host_nqn,
                "thread": reactors::thread(queue.reactor),
                "listen_address": end(queue.local),
                "peer_address": end(queue.peer),
            });
            if let Some((digest, dhgroup)) = queue.authenticated {
                shown["auth"] = json!({"state": "completed", "digest": digest, "dhgroup": dhgroup});
            }
            all.push(shown);
        }
    }
    Value::Array(all)
}
