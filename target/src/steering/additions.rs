//! Control methods that add subsystems, namespaces and listeners, or find them unchanged.

use std::collections::BTreeMap;
use std::path::Path;

use cairn_config::{
    GROUP_PREFIX, HostList, InForce, NewCeph, NewLimits, NewListener, NewNamespace, NewSubsystem,
    PORT_DEFAULT, Provider, Roce, Trid, Uuid, ana_summary, ana_word,
};
use cairn_control::{Error, Kind, Stage, read};
use cairn_disk::copied_identity;
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::methods::{Methods, answer};
use super::parameters::{ListenerAt, NamespaceAdd, SubsystemAdd};
use super::policy;
use crate::answers::NamespaceAdded;
use crate::files;
use crate::server::{Export, Snapshot};

type Answer = Result<Value, Error>;
type Params = Map<String, Value>;

impl Methods {
    /// Adds an object by `add`. If the file has the object with other settings, calls `add` again
    /// with the settings in force, which `of` reads from a snapshot. A snapshot is too costly for
    /// every addition.
    async fn add<T: Send + Sync + 'static>(
        &self,
        of: impl Fn(&Snapshot) -> T,
        add: impl Fn(&mut Stage, Option<&T>) -> Answer + Clone + Send + Sync + 'static,
    ) -> Answer {
        let first = add.clone();
        let added = self
            .change(Kind::Grows, move |stage| first(stage, None))
            .await;
        let exists = Errno::EXIST.raw_os_error();
        if !added
            .as_ref()
            .is_err_and(|error| error.code == -i64::from(exists))
        {
            return added;
        }
        let in_force = of(&self.snapshot().await?);
        self.change(Kind::Grows, move |stage| add(stage, Some(&in_force)))
            .await
    }

    pub(super) async fn subsystem_add(&self, params: Params) -> Answer {
        let add: SubsystemAdd = read(params)?;
        let nqn = add.nqn.clone();
        let new = NewSubsystem {
            nqn: add.nqn,
            serial: add.serial,
            model: add.model,
            controller_ids: add.controller_ids,
            allow_any_host: add.allow_any_host,
            hosts: add.hosts,
            listeners: add.listeners,
        };
        self.add(
            |now| of_subsystem(now, &nqn),
            move |stage, in_force| {
                let none = InForce::new();
                let is_new = !stage.draft.has_subsystem(&new, in_force.unwrap_or(&none))?;
                if is_new {
                    stage.draft.add_subsystem(&new)?;
                }
                Ok(json!(is_new))
            },
        )
        .await
    }

    pub(super) async fn namespace_add(&self, params: Params) -> Answer {
        let add: NamespaceAdd = read(params)?;
        let (nqn, nsid, export) = (add.nqn.clone(), add.nsid, add.export.clone());
        let copied = copied(&add).await;
        let new = NewNamespace {
            nsid: add.nsid,
            name: add.name,
            export: add.export,
            uuid: add.uuid,
            nguid: add.nguid,
            block_size: add.block_size,
            read_only: add.read_only,
            write_protection: add.write_protection,
            shared: add.shared,
            ana_group: add.ana_group,
            hosts: add.hosts,
            limits: NewLimits::default(),
            ceph: NewCeph::default(),
        };
        let added = self
            .add(
                |now| of_namespaces(now, &nqn, nsid, &export),
                move |stage, in_force| {
                    let known = stage.draft.has_namespace(&add.nqn, &new, in_force)?;
                    let nsid = match known {
                        Some(nsid) => nsid,
                        None => stage.draft.add_namespace(&add.nqn, &new)?,
                    };
                    let added = known.is_none();
                    let warnings = copied.iter().filter(|_| added).cloned().collect();
                    answer(&NamespaceAdded {
                        nsid,
                        added,
                        warnings,
                    })
                },
            )
            .await?;
        if added["added"] == false {
            policy::refuse_displaced(&self.snapshot().await?, &nqn, nsid, &export).await?;
        }
        Ok(added)
    }

    pub(super) async fn listener_add(&self, params: Params) -> Answer {
        let at: ListenerAt = read(params)?;
        if at.ana_group.is_some() {
            return Err(Error::invalid(
                "\"ana_group\": add the listener, then set the state of the group",
            ));
        }
        let place = Trid::new(at.address, at.port.unwrap_or(PORT_DEFAULT));
        let new = NewListener {
            provider: at.provider,
            roce: at.roce,
            vlan: at.vlan,
            ana: at.ana,
            ..NewListener::at(place.address, place.port)
        };
        self.add(
            |now| of_listener(now, place),
            move |stage, in_force| {
                let none = InForce::new();
                let is_new = !stage.draft.has_listener(&new, in_force.unwrap_or(&none))?;
                if is_new {
                    stage.draft.add_listener(&new)?;
                }
                Ok(json!(is_new))
            },
        )
        .await
    }
}

pub(crate) fn copy_sentence(path: &Path, of: Uuid) -> String {
    format!(
        "{} is a copy of the disk with the UUID {of}, and gets a UUID of its own: to replace that \
         disk by the copy, set uuid to {of}",
        path.display()
    )
}

async fn copied(add: &NamespaceAdd) -> Option<String> {
    if add.uuid.is_some() || !add.export.starts_with('/') {
        return None;
    }
    let path = Path::new(&add.export);
    let of = files::call(path, copied_identity).await.ok()??;
    Some(copy_sentence(path, of))
}

fn hosts_of(list: &HostList) -> Vec<String> {
    let groups = list
        .groups
        .iter()
        .map(|name| format!("{GROUP_PREFIX}{name}"));
    let hosts = list.hosts.iter().map(|host| host.raw().to_owned());
    groups.chain(hosts).collect()
}

fn of_subsystem(now: &Snapshot, nqn: &str) -> InForce {
    let mut all = now.config.subsystems.iter();
    let Some(one) = all.find(|one| one.nqn.raw() == nqn) else {
        return InForce::new();
    };
    let ids = &one.controller_ids;
    let listeners = now.config.listeners_of(one);
    let mut in_force = InForce::from([
        ("serial", vec![one.serial.clone()]),
        ("model", vec![one.model.clone()]),
        (
            "controller_ids",
            vec![format!("{}-{}", ids.start(), ids.end())],
        ),
        ("allow_any_host", vec![one.allow_any_host.to_string()]),
        (
            "listeners",
            listeners.map(|one| one.trid().to_string()).collect(),
        ),
    ]);
    let hosts = hosts_of(&one.allowed_hosts);
    if !hosts.is_empty() {
        in_force.insert("allowed_hosts", hosts);
    }
    in_force
}

/// Returns the settings of the namespace `nsid` or, without `nsid`, of all namespaces with this
/// export.
fn of_namespaces(
    now: &Snapshot,
    nqn: &str,
    nsid: Option<u32>,
    export: &str,
) -> BTreeMap<u32, InForce> {
    let is_it = |one: &Export<'_>| match nsid {
        Some(nsid) => one.config.nsid == nsid,
        None => one.config.backing.to_string() == export,
    };
    let all = now.exports().filter(|one| one.nqn.raw() == nqn);
    let all = all.filter(is_it);
    all.map(|one| (one.config.nsid, of_namespace(&one)))
        .collect()
}

fn of_namespace(export: &Export<'_>) -> InForce {
    let (config, entry) = (export.config, &export.entry);
    let block_bytes = 1u64 << entry.view.lbads;
    let mut in_force = InForce::from([
        ("uuid", vec![entry.namespace.uuid.to_string()]),
        ("block_size", vec![block_bytes.to_string()]),
        ("ana_group", vec![config.ana_group.to_string()]),
        ("read_only", vec![config.read_only.to_string()]),
        (
            "write_protection",
            vec![config.write_protection.to_string()],
        ),
        ("shared", vec![config.shared.to_string()]),
    ]);
    if let Some(nguid) = entry.namespace.nguid {
        let nguid = u128::from_be_bytes(nguid);
        in_force.insert("nguid", vec![format!("{nguid:032x}")]);
    }
    if let Some(list) = config.hosts.list() {
        in_force.insert("hosts", hosts_of(list));
    }
    in_force
}

fn of_listener(now: &Snapshot, at: Trid) -> InForce {
    let mut configured = now.config.listeners.iter();
    let mut open = now.listeners.iter();
    let (Some(one), Some(open)) = (
        configured.find(|one| one.trid() == at),
        open.find(|one| one.address == at),
    ) else {
        return InForce::new();
    };
    let provider = match one.provider {
        Provider::Auto => "auto",
        Provider::Verbs => "verbs",
        Provider::Soft => "soft",
    };
    let mut in_force = InForce::from([
        (
            "provider",
            vec![provider.to_owned(), open.provider.to_owned()],
        ),
        ("ana", vec![ana_word(ana_summary(&one.ana).0).to_owned()]),
    ]);
    let (roce, vlan) = match now.config.roce_at(one) {
        Roce::V1 { vlan } => ("v1", vlan),
        Roce::V2 => ("v2", None),
    };
    in_force.insert("roce", vec![roce.to_owned()]);
    if let Some(vlan) = vlan {
        in_force.insert("vlan", vec![vlan.to_string()]);
    }
    in_force
}
