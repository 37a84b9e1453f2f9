//! SPDK-compatible methods, parameters, results and error codes (differences: docs/control.md).

mod bdevs;
mod discovery;
mod ignored;
mod iostat;
mod keyring;
mod listeners;
mod notices;
mod parameters;
mod process;
pub(crate) mod qos;
mod reactors;
mod referrals;
pub(crate) mod saved;
pub(crate) mod views;

use cairn_config::{
    Config, Draft, EditError, Losses, NewCeph, NewNamespace, NewSubsystem, Subsystem, Uuid,
};
use cairn_control::{
    Declared,
    Effect::{Changes, Reads},
    Error, Kind, Nothing, Stage, read,
};
use nvme_proto::wire::Nqn;
use nvme_proto::wire::fabrics::CNTLID_MAX;
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use crate::control::{Changing, Control, Snapshot};
use parameters::{
    Allow, BdevOf, ControllersOf, HostOf, NsAdd, NsHost, NsRemove, NullResize, SubsystemCreate,
    SubsystemOf, TransportsOf, Wanted,
};

pub use bdevs::{bdev_name, sizes};
pub use notices::Notices;
pub(crate) use process::listed;

pub const METHODS: Declared = &[
    ("accel_set_options", Changes),
    ("bdev_aio_create", Changes),
    ("bdev_aio_delete", Changes),
    ("bdev_aio_rescan", Changes),
    ("bdev_examine", Reads),
    ("bdev_get_bdevs", Reads),
    ("bdev_get_iostat", Reads),
    ("bdev_iscsi_set_options", Changes),
    ("bdev_malloc_create", Changes),
    ("bdev_malloc_delete", Changes),
    ("bdev_null_create", Changes),
    ("bdev_null_delete", Changes),
    ("bdev_null_resize", Changes),
    ("bdev_nvme_set_hotplug", Changes),
    ("bdev_nvme_set_options", Changes),
    ("bdev_raid_set_options", Changes),
    ("bdev_set_options", Changes),
    ("bdev_set_qos_limit", Changes),
    ("bdev_uring_create", Changes),
    ("bdev_uring_delete", Changes),
    ("bdev_uring_rescan", Changes),
    ("bdev_wait_for_examine", Reads),
    ("framework_get_config", Reads),
    ("framework_get_pci_devices", Reads),
    ("framework_get_reactors", Reads),
    ("framework_get_scheduler", Reads),
    ("framework_get_subsystems", Reads),
    ("framework_set_scheduler", Changes),
    ("framework_start_init", Reads),
    ("framework_wait_init", Reads),
    ("iobuf_set_options", Changes),
    ("keyring_file_add_key", Changes),
    ("keyring_file_remove_key", Changes),
    ("keyring_get_keys", Reads),
    ("keyring_linux_set_options", Changes),
    ("log_get_level", Reads),
    ("log_set_level", Changes),
    ("notify_get_notifications", Reads),
    ("notify_get_types", Reads),
    ("nvmf_create_subsystem", Changes),
    ("nvmf_create_transport", Changes),
    ("nvmf_delete_subsystem", Changes),
    ("nvmf_discovery_add_referral", Changes),
    ("nvmf_discovery_get_referrals", Reads),
    ("nvmf_discovery_remove_referral", Changes),
    ("nvmf_get_stats", Reads),
    ("nvmf_get_subsystems", Reads),
    ("nvmf_get_transports", Reads),
    ("nvmf_ns_add_host", Changes),
    ("nvmf_ns_remove_host", Changes),
    ("nvmf_set_config", Changes),
    ("nvmf_set_crdt", Changes),
    ("nvmf_set_max_subsystems", Changes),
    ("nvmf_subsystem_add_host", Changes),
    ("nvmf_subsystem_add_listener", Changes),
    ("nvmf_subsystem_add_ns", Changes),
    ("nvmf_subsystem_allow_any_host", Changes),
    ("nvmf_subsystem_get_controllers", Reads),
    ("nvmf_subsystem_get_listeners", Reads),
    ("nvmf_subsystem_get_qpairs", Reads),
    ("nvmf_subsystem_listener_set_ana_state", Changes),
    ("nvmf_subsystem_remove_host", Changes),
    ("nvmf_subsystem_remove_listener", Changes),
    ("nvmf_subsystem_remove_ns", Changes),
    ("nvmf_subsystem_set_keys", Changes),
    ("sock_impl_set_options", Changes),
    ("sock_set_default_impl", Changes),
    ("spdk_get_version", Reads),
];
/// Methods that SPDK's clients call only before a target has started.
pub const AT_START: &[&str] = &["framework_start_init"];

type Params = Map<String, Value>;
type Answer = Result<Value, Error>;

fn invalid() -> Error {
    Error::invalid("Invalid parameters")
}

/// As in SPDK, a missing object has code -32602.
fn of(error: EditError) -> Error {
    match error {
        EditError::Missing(message) => Error::invalid(format!("Invalid parameters: {message}")),
        other => other.into(),
    }
}

fn subsystem<'a>(config: &'a Config, nqn: &str) -> Result<&'a Subsystem, Error> {
    let mut all = config.subsystems.iter();
    all.find(|subsystem| subsystem.nqn.raw() == nqn)
        .ok_or_else(|| Error::invalid(format!("Subsystem with NQN '{nqn}' not found")))
}

/// Refuses a malformed NQN, as SPDK does. In the configuration file, it only causes a warning.
fn well_formed(name: &str, parameter: &str) -> Result<(), Error> {
    let refused = |why: String| {
        let name = name.escape_debug();
        Error::invalid(format!(
            "Invalid parameters: {parameter} \"{name}\" is not an NQN: {why}"
        ))
    };
    let nqn = Nqn::parse(name).map_err(|error| refused(error.to_string()))?;
    match nqn.irregularity() {
        None => Ok(()),
        Some(why) => Err(refused(why.to_string())),
    }
}

fn edit<'c, T>(
    control: &'c impl Control,
    kind: Kind,
    edit: impl Fn(&mut Draft) -> Result<T, EditError> + Send + Sync + 'static,
) -> Changing<'c> {
    control.change(kind, move |stage| {
        edit(&mut stage.draft).map_err(of)?;
        Ok(json!(true))
    })
}

/// Removes an object. Logs the settings lost with it, because SPDK's responses cannot contain them.
async fn remove(
    control: &impl Control,
    edit: impl Fn(&mut Draft) -> Result<Losses, EditError> + Send + Sync + 'static,
) -> Answer {
    let losses = control.change(Kind::Shrinks, move |stage| {
        Ok(json!(edit(&mut stage.draft).map_err(of)?))
    });
    for loss in losses.await?.as_array().into_iter().flatten() {
        // Logged for a control socket request.
        tracing::warn!("{}", loss.as_str().unwrap_or_default());
    }
    Ok(json!(true))
}

pub async fn call(control: &impl Control, method: &str, mut params: Params) -> Answer {
    ignored::take_out(method, &mut params)?;
    if params.contains_key("nqn")
        && discovery::is_named(&params, control.snapshot().await?.config())
    {
        return discovery::call(control, method, params).await;
    }
    match method {
        _ if ignored::SETTINGS.contains(&method) => ignored::set(method, &params),
        "spdk_get_version" => Ok(views::version()),
        _ if method.starts_with("framework_") => process::framework(control, method, params).await,
        _ if method.starts_with("log_") => process::log(control, method, params),
        _ if method.starts_with("keyring_") => keyring::call(control, method, params).await,
        _ if method.starts_with("notify_") => notices::call(control, method, params).await,
        "nvmf_set_config" => process::set_config(control, params).await,
        "nvmf_set_max_subsystems" => process::set_max_subsystems(params),
        _ if method.starts_with("nvmf_discovery_") => {
            referrals::call(control, method, params).await
        }
        "nvmf_create_transport" => {
            let trtype = params.get("trtype").and_then(Value::as_str);
            match trtype {
                Some(trtype) if trtype.eq_ignore_ascii_case("rdma") => Ok(json!(true)),
                _ => Err(Error::invalid(
                    "Invalid parameters: Cairn's transport is RDMA",
                )),
            }
        }
        "nvmf_get_transports" => {
            let TransportsOf { trtype, .. } = read(params)?;
            views::transports(control.snapshot().await?.config(), trtype.as_deref())
        }
        "nvmf_get_stats" => {
            read::<Nothing>(params)?;
            Ok(views::stats(&control.snapshot().await?))
        }
        "nvmf_get_subsystems" => {
            let wanted: Wanted = read(params)?;
            let snapshot = control.snapshot().await?;
            if let Some(nqn) = &wanted.nqn {
                subsystem(snapshot.config(), nqn)?;
            }
            Ok(views::subsystems(&snapshot, wanted.nqn.as_deref()))
        }
        "nvmf_subsystem_get_controllers" | "nvmf_subsystem_get_qpairs" => {
            let of: ControllersOf = read(params)?;
            let snapshot = control.snapshot().await?;
            subsystem(snapshot.config(), &of.nqn)?;
            Ok(match method {
                "nvmf_subsystem_get_qpairs" => views::qpairs(&snapshot, &of.nqn),
                _ => views::controllers(&snapshot, &of.nqn),
            })
        }
        "nvmf_subsystem_get_listeners" => {
            let of: ControllersOf = read(params)?;
            let snapshot = control.snapshot().await?;
            let subsystem = subsystem(snapshot.config(), &of.nqn)?;
            Ok(views::listeners(snapshot.config(), subsystem))
        }
        _ if method.starts_with("bdev_") => bdev(control, method, params).await,
        _ => change(control, method, params).await,
    }
}

async fn change(control: &impl Control, method: &str, params: Params) -> Answer {
    match method {
        "nvmf_create_subsystem" => create_subsystem(control, params).await,
        "nvmf_delete_subsystem" => {
            let SubsystemOf { nqn, .. } = read(params)?;
            remove(control, move |draft| draft.remove_subsystem(&nqn)).await
        }
        "nvmf_subsystem_add_ns" => add_ns(control, params).await,
        "nvmf_subsystem_remove_ns" => {
            let NsRemove { nqn, nsid, .. } = read(params)?;
            remove(control, move |draft| draft.remove_namespace(&nqn, nsid)).await
        }
        "nvmf_ns_add_host" => show_ns(control, params, Kind::Grows, true).await,
        "nvmf_ns_remove_host" => show_ns(control, params, Kind::Shrinks, false).await,
        "nvmf_subsystem_add_listener"
        | "nvmf_subsystem_remove_listener"
        | "nvmf_subsystem_listener_set_ana_state" => listeners::call(control, method, params).await,
        "nvmf_subsystem_add_host" => keyring::add_host(control, params).await,
        "nvmf_subsystem_set_keys" => keyring::set_keys(control, params).await,
        "nvmf_subsystem_remove_host" => {
            let HostOf { nqn, host, .. } = read(params)?;
            remove(control, move |draft| draft.remove_host(&nqn, &host)).await
        }
        "nvmf_subsystem_allow_any_host" => {
            let Allow {
                nqn,
                allow_any_host,
                ..
            } = read(params)?;
            let kind = if allow_any_host {
                Kind::Alone
            } else {
                Kind::Narrows
            };
            edit(control, kind, move |draft| {
                draft.allow_any_host(&nqn, allow_any_host)
            })
            .await
        }
        _ => Err(Error::no_method()),
    }
}

async fn create_subsystem(control: &impl Control, params: Params) -> Answer {
    let create: SubsystemCreate = read(params)?;
    well_formed(&create.nqn, "nqn")?;
    let range = match (create.min_cntlid, create.max_cntlid) {
        (None, None) => None,
        (first, last) => {
            let (first, last) = (first.unwrap_or(1), last.unwrap_or(CNTLID_MAX));
            if first < 1 || last < first || last > CNTLID_MAX {
                let message = format!(
                    "Invalid cntlid range [{first}-{last}]: controllers have the numbers 1 to {CNTLID_MAX}"
                );
                return Err(Error::invalid(message));
            }
            Some(format!("{first}-{last}"))
        }
    };
    let new = NewSubsystem {
        nqn: create.nqn,
        serial: create.serial_number,
        model: create.model_number,
        controller_ids: range,
        allow_any_host: create.allow_any_host,
        hosts: Vec::new(),
        listeners: Some(Vec::new()),
    };
    control
        .change(Kind::Grows, move |stage| {
            let added = stage.draft.add_subsystem(&new);
            added.map_err(|error| {
                let message = format!("Unable to create subsystem {}: {error}", new.nqn);
                Error::new(Error::INTERNAL, message)
            })?;
            Ok(json!(true))
        })
        .await
}

async fn add_ns(control: &impl Control, params: Params) -> Answer {
    let NsAdd {
        nqn, mut namespace, ..
    } = read(params)?;
    namespace.bdev_name = named(control, namespace.bdev_name).await?;
    control
        .change(Kind::Grows, move |stage| {
            let Some(disk) = stage.disks.get(&namespace.bdev_name) else {
                let message = format!("Invalid parameters: no bdev {}", namespace.bdev_name);
                return Err(Error::invalid(message));
            };
            // As in SPDK, a bdev backs only one namespace. Two namespaces of a memory bdev would
            // not share their data.
            if !stage.draft.named(&namespace.bdev_name).is_empty() {
                let name = &namespace.bdev_name;
                let message = format!("Invalid parameters: bdev {name} is a namespace already");
                return Err(Error::invalid(message));
            }
            let new = NewNamespace {
                nsid: namespace.nsid.filter(|nsid| *nsid != 0),
                name: Some(namespace.bdev_name.clone()),
                export: disk.export.clone(),
                uuid: namespace.uuid.clone().or_else(|| disk.uuid.clone()),
                nguid: namespace.nguid.clone(),
                block_size: disk.block_size,
                read_only: disk.read_only,
                write_protection: false,
                shared: false,
                // With 0, the target chooses the group.
                ana_group: namespace.anagrpid.filter(|group| *group != 0),
                hosts: namespace.no_auto_visible.then(Vec::new),
                limits: disk.limits.clone(),
                ceph: NewCeph::default(),
            };
            let nsid = stage.draft.add_namespace(&nqn, &new);
            nsid.map(Value::from).map_err(|error| match error {
                EditError::Exists(message) => Error::invalid(message),
                other => of(other),
            })
        })
        .await
}

async fn show_ns(control: &impl Control, params: Params, kind: Kind, is_shown: bool) -> Answer {
    let NsHost {
        nqn, nsid, host, ..
    } = read(params)?;
    control
        .change(kind, move |stage| {
            let shown = stage.draft.show_namespace(&nqn, nsid, &host, is_shown);
            shown.map_err(|error| match error {
                // As in SPDK, a namespace visible to every host cannot be shown to a single host.
                EditError::Exists(message) => Error::errno(Errno::PERM, message),
                other => of(other),
            })?;
            Ok(json!(true))
        })
        .await
}

async fn named(control: &impl Control, name: String) -> Result<String, Error> {
    if Uuid::try_parse(&name).is_err() {
        return Ok(name);
    }
    let snapshot = control.snapshot().await?;
    Ok(bdevs::named(&snapshot, &control.disks(), name))
}

async fn bdev(control: &impl Control, method: &str, params: Params) -> Answer {
    match method {
        "bdev_get_bdevs" => {
            let BdevOf { name, .. } = read(params)?;
            let snapshot = control.snapshot().await?;
            let all = bdevs::all(&snapshot, &control.disks());
            let name = name.as_deref();
            let wanted = |bdev: &&Value| name.is_none_or(|name| bdevs::is_called(bdev, name));
            let found: Vec<&Value> = all.iter().filter(wanted).collect();
            if found.is_empty() && name.is_some() {
                return Err(Error::errno(Errno::NODEV, "No such device"));
            }
            Ok(json!(found))
        }
        "bdev_get_iostat" => {
            let snapshot = control.snapshot().await?;
            iostat::answer(&snapshot, &control.disks(), read(params)?)
        }
        "bdev_set_qos_limit" => {
            let mut set = qos::Set::read(params)?;
            set.name = named(control, set.name).await?;
            control
                .change(Kind::Alone, move |stage: &mut Stage| set.apply(stage))
                .await
        }
        "bdev_malloc_create" | "bdev_null_create" | "bdev_aio_create" | "bdev_uring_create" => {
            let new = bdevs::create(control, method, params).await?;
            control
                .change(Kind::Grows, move |stage: &mut Stage| new.add(stage))
                .await
        }
        "bdev_malloc_delete" | "bdev_null_delete" | "bdev_aio_delete" | "bdev_uring_delete" => {
            let BdevOf { name, .. } = read(params)?;
            let name = named(control, name.ok_or_else(invalid)?).await?;
            control
                .change(Kind::Shrinks, move |stage| bdevs::delete(stage, &name))
                .await
        }
        "bdev_null_resize" => {
            let NullResize { name, new_size } = read(params)?;
            let name = named(control, name).await?;
            let snapshot = control.snapshot().await?;
            let old = bdevs::null_bytes(&snapshot, &control.disks(), &name)?;
            control
                .change(Kind::Alone, move |stage| {
                    bdevs::resize_null(stage, &name, old, new_size)
                })
                .await
        }
        "bdev_aio_rescan" | "bdev_uring_rescan" => {
            let BdevOf { name, .. } = read(params)?;
            let name = named(control, name.ok_or_else(invalid)?).await?;
            let snapshot = control.snapshot().await?;
            bdevs::check_file(&snapshot, &control.disks(), &name)?;
            control
                .change(Kind::Alone, move |stage| {
                    stage.rereads = true;
                    Ok(json!(true))
                })
                .await
        }
        _ => Err(Error::no_method()),
    }
}
