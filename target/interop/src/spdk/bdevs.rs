//! Bdevs created by SPDK clients. The configuration file has the names of bdevs with a namespace.

use std::collections::BTreeMap;
use std::path::Path;

use cairn_config::{Backing, Namespace, NewLimits};
use cairn_control::{Disk, Error, Stage, read};
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use super::notices::{Disks, by_name};
use super::parameters::{FileBdev, SizedBdev};
use super::qos;
use crate::{Control, Snapshot};

const DISKS_MAX: usize = 16384;

/// SPDK product names, by which clients filter bdevs.
pub(super) const AIO: &str = "AIO disk";
pub(super) const MALLOC: &str = "Malloc disk";
pub(super) const NULL: &str = "Null disk";
pub(super) const URING: &str = "URING bdev";

pub(super) struct New {
    /// `None` for the next free "Malloc" name.
    name: Option<String>,
    disk: Disk,
}

pub(super) async fn create(
    control: &impl Control,
    method: &str,
    params: Map<String, Value>,
) -> Result<New, Error> {
    let is_sized = matches!(method, "bdev_malloc_create" | "bdev_null_create");
    if !is_sized {
        let file: FileBdev = read(params)?;
        block_size(file.block_size.filter(|bytes| *bytes != 0).unwrap_or(512))?;
        let looked = control.metadata(Path::new(&file.filename)).await;
        looked.map_err(|error| Error::io(&error, format!("{}: {error}", file.filename)))?;
        return Ok(New {
            name: Some(file.name),
            disk: Disk {
                export: file.filename,
                block_size: file.block_size.filter(|bytes| *bytes != 0),
                uuid: file.uuid,
                product: match method {
                    "bdev_aio_create" => AIO,
                    _ => URING,
                },
                blocks: 0,
                block_bytes: file.block_size.unwrap_or(512),
                read_only: file.readonly,
                limits: NewLimits::default(),
            },
        });
    }
    let sized: SizedBdev = read(params)?;
    block_size(sized.block_size)?;
    let bytes = sized.num_blocks.checked_mul(u64::from(sized.block_size));
    let bytes = bytes.filter(|bytes| (1..=1 << 62).contains(bytes));
    let bytes = bytes.ok_or_else(|| Error::errno(Errno::INVAL, "Invalid argument: num_blocks"))?;
    let (kind, product) = match method {
        "bdev_malloc_create" => ("mem", MALLOC),
        _ => ("null", NULL),
    };
    Ok(New {
        name: sized.name,
        disk: Disk {
            export: format!("{kind}:{bytes}"),
            block_size: Some(sized.block_size),
            uuid: sized.uuid,
            product,
            blocks: sized.num_blocks,
            block_bytes: sized.block_size,
            read_only: false,
            limits: NewLimits::default(),
        },
    })
}

fn block_size(bytes: u32) -> Result<(), Error> {
    match bytes {
        512 | 4096 => Ok(()),
        _ => Err(Error::errno(
            Errno::INVAL,
            "Invalid argument: block_size is 512 or 4096",
        )),
    }
}

impl New {
    pub(super) fn add(&self, stage: &mut Stage) -> Result<Value, Error> {
        let is_taken =
            |name: &str| stage.disks.contains_key(name) || !stage.draft.named(name).is_empty();
        let name = match &self.name {
            Some(name) => name.clone(),
            None => (0..)
                .map(|number| format!("Malloc{number}"))
                .find(|name| !is_taken(name))
                .unwrap_or_default(),
        };
        if name.is_empty() || name.len() > 128 || !name.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::errno(Errno::INVAL, "Invalid argument: name"));
        }
        if is_taken(&name) {
            return Err(Error::errno(Errno::EXIST, "File exists"));
        }
        if stage.disks.len() >= DISKS_MAX {
            return Err(Error::errno(Errno::NOSPC, "too many disks: delete some"));
        }
        stage.disks.insert(name.clone(), self.disk.clone());
        Ok(json!(name))
    }
}

pub(super) fn delete(stage: &mut Stage, name: &str) -> Result<Value, Error> {
    let places = stage.draft.named(name);
    if stage.disks.remove(name).is_none() && places.is_empty() {
        return Err(no_device());
    }
    for (nqn, nsid) in places {
        let removed = stage.draft.remove_namespace(&nqn, nsid);
        removed.map_err(super::of)?;
    }
    Ok(json!(true))
}

pub(super) fn null_bytes(
    snapshot: &impl Snapshot,
    disks: &BTreeMap<String, Disk>,
    name: &str,
) -> Result<u64, Error> {
    let other = || {
        Error::errno(
            Errno::INVAL,
            "Invalid argument: it is no null disk with a name",
        )
    };
    let mut exports = snapshot.exports();
    if let Some(export) = exports.find(|one| bdev_name(one.config) == name) {
        return match (&export.config.backing, &export.config.name) {
            (Backing::Null { bytes }, Some(_)) => Ok(*bytes),
            _ => Err(other()),
        };
    }
    let disk = disks.get(name).ok_or_else(no_device)?;
    match disk.product {
        NULL => Ok(disk.blocks * u64::from(disk.block_bytes)),
        _ => Err(other()),
    }
}

pub(super) fn resize_null(
    stage: &mut Stage,
    name: &str,
    old: u64,
    new_mib: u64,
) -> Result<Value, Error> {
    let bytes = new_mib.checked_mul(1 << 20).filter(|bytes| {
        // SPDK compares sizes in whole MiB.
        (1..=1 << 62).contains(bytes) && new_mib >= old >> 20
    });
    let bytes = bytes.ok_or_else(|| {
        Error::errno(
            Errno::INVAL,
            "Invalid argument: new_size is in MiB, and a disk does not become smaller",
        )
    })?;
    let export = format!("null:{bytes}");
    if let Some(disk) = stage.disks.get_mut(name) {
        disk.export.clone_from(&export);
        disk.blocks = bytes / u64::from(disk.block_bytes);
    }
    for (nqn, nsid) in stage.draft.named(name) {
        let set = stage.draft.set_export(&nqn, nsid, &export);
        set.map_err(super::of)?;
    }
    Ok(json!(true))
}

pub(super) fn check_file(
    snapshot: &impl Snapshot,
    disks: &BTreeMap<String, Disk>,
    name: &str,
) -> Result<(), Error> {
    let mut exports = snapshot.exports();
    let is_file = match exports.find(|one| bdev_name(one.config) == name) {
        Some(export) => matches!(export.config.backing, Backing::Disk(_)),
        None => disks.get(name).is_some_and(|disk| disk.blocks == 0),
    };
    if is_file { Ok(()) } else { Err(no_device()) }
}

fn no_device() -> Error {
    Error::errno(Errno::NODEV, "No such device")
}

pub fn sizes(snapshot: &impl Snapshot, disks: &BTreeMap<String, Disk>) -> Disks {
    let made = disks.iter().map(|(name, disk)| (name.clone(), disk.blocks));
    let exports = snapshot.exports();
    let exported = exports.map(|export| (bdev_name(export.config), export.blocks));
    by_name(made.chain(exported))
}

pub(super) fn all(snapshot: &impl Snapshot, disks: &BTreeMap<String, Disk>) -> Vec<Value> {
    let mut all: BTreeMap<String, Value> = BTreeMap::new();
    for (name, disk) in disks {
        let file = (disk.blocks == 0).then_some(&disk.export);
        let of_file = file.map(|path| {
            let shown = json!({"filename": path});
            (shown, disk.block_size.is_some(), disk.read_only)
        });
        let mut bdev = bdev(name, disk.block_bytes, disk.blocks, disk.uuid.as_deref());
        bdev["product_name"] = json!(disk.product);
        bdev["driver_specific"] = specific(disk.product, of_file);
        bdev["assigned_rate_limits"] = qos::of_disk(&disk.limits);
        all.insert(name.clone(), bdev);
    }
    for export in snapshot.exports() {
        let name = bdev_name(export.config);
        let made = disks.get(&name).map(|disk| disk.product);
        let product = made.unwrap_or_else(|| product(&export.config.backing));
        let uuid = export.uuid.to_string();
        let mut bdev = bdev(&name, export.block_bytes, export.blocks, Some(&uuid));
        bdev["claimed"] = json!(true);
        bdev["product_name"] = json!(product);
        bdev["driver_specific"] = of_backing(product, export.config);
        bdev["assigned_rate_limits"] = qos::of_namespace(&export.config.limits);
        all.insert(name, bdev);
    }
    all.into_values().collect()
}

fn product(backing: &Backing) -> &'static str {
    match backing {
        Backing::Disk(_) => AIO,
        Backing::Memory { .. } => MALLOC,
        Backing::Null { .. } => NULL,
        Backing::Rbd(_) => "Ceph Rbd Disk",
    }
}

fn of_backing(product: &str, config: &Namespace) -> Value {
    match &config.backing {
        Backing::Disk(path) => {
            let shown = json!({"filename": path});
            specific(
                product,
                Some((shown, config.block_size.is_some(), config.read_only)),
            )
        }
        Backing::Rbd(image) => json!({
            "rbd": {"pool_name": image.pool, "rbd_name": image.image},
        }),
        Backing::Memory { .. } | Backing::Null { .. } => json!({}),
    }
}

fn specific(product: &str, file: Option<(Value, bool, bool)>) -> Value {
    match file {
        None => json!({}),
        Some((shown, ..)) if product == URING => json!({"uring": shown}),
        Some((mut shown, has_blocks, read_only)) => {
            shown["block_size_override"] = json!(has_blocks);
            shown["readonly"] = json!(read_only);
            json!({"aio": shown})
        }
    }
}

pub(super) fn is_called(bdev: &Value, name: &str) -> bool {
    let is_alias = |uuid: &str| uuid.eq_ignore_ascii_case(name);
    bdev["name"] == name || bdev["uuid"].as_str().is_some_and(is_alias)
}

pub(super) fn named(
    snapshot: &impl Snapshot,
    disks: &BTreeMap<String, Disk>,
    name: String,
) -> String {
    if disks.contains_key(&name) {
        return name;
    }
    let all = all(snapshot, disks);
    let mut known = all.iter().filter(|bdev| is_called(bdev, &name));
    let found = known.next().and_then(|bdev| bdev["name"].as_str());
    found.map(str::to_owned).unwrap_or(name)
}

fn bdev(name: &str, block_bytes: u32, blocks: u64, uuid: Option<&str>) -> Value {
    json!({
        "name": name,
        "aliases": uuid.iter().collect::<Vec<_>>(),
        "block_size": block_bytes,
        "num_blocks": blocks,
        "uuid": uuid,
        "claimed": false,
        "zoned": false,
        "supported_io_types": {
            "read": true,
            "write": true,
            "unmap": true,
            "flush": true,
            "reset": false,
            "nvme_admin": false,
            "nvme_io": false,
            "write_zeroes": true,
            "compare": true,
        },
    })
}

pub fn bdev_name(namespace: &Namespace) -> String {
    let name = namespace.name.clone();
    name.unwrap_or_else(|| namespace.backing.to_string())
}
