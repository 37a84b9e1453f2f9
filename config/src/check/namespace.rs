use std::collections::HashMap;
use std::path::{Path, PathBuf};

use nvme_proto::limits::ANA_GROUPS_MAX;
use uuid::Uuid;

use super::hosts::Groups;
use super::{Check, limits, pool, rbd};
use crate::block_size::BlockSize;
use crate::config::{
    Access, Backing, DIRECTORY_PREFIX, MEMORY_NAMESPACES_MAX, NSID_MAX, Namespace, Nguid,
};
use crate::file::{NamespaceTable, SubsystemTable};
use crate::key_path::KeyPath;
use crate::size;

const MEMORY_PREFIX: &str = "mem:";
const NULL_PREFIX: &str = "null:";
const FORMS: &str = "write the absolute path of a block device or file, \"dir:DIRECTORY\", \"rbd:POOL/IMAGE\", \"mem:SIZE\" or \"null:SIZE\"";
/// Maximum size in bytes. Byte offsets and block addresses then fit in signed 64-bit numbers.
const BYTES_MAX: u64 = 1 << 62;

/// Returns a subsystem's namespaces sorted by NSID, each with a flag: true for a pool directory.
pub(super) fn check(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[NamespaceTable],
    groups: &mut Groups,
) -> Vec<(Namespace, bool)> {
    let mut namespaces: Vec<(Namespace, bool)> = tables
        .iter()
        .enumerate()
        .filter_map(|(index, table)| {
            let namespace = namespace(check, &place.index(index), table, groups)?;
            Some((namespace, pool::is_pool(table)))
        })
        .collect();
    unique(check, place, tables, "nsid", |table| {
        table.nsid.map(|nsid| nsid.to_string())
    });
    unique(check, place, tables, "uuid", |table| {
        table.uuid.as_ref().map(|u| u.to_lowercase())
    });
    unique(check, place, tables, "nguid", known_nguid);
    namespaces.sort_by_key(|(namespace, _)| namespace.nsid);
    namespaces
}

pub(super) fn check_limits(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[SubsystemTable],
    nsid_max: u32,
) {
    let mut memory = 0;
    for (index, subsystem) in tables.iter().enumerate() {
        let below = place.index(index).key("namespace");
        for (index, namespace) in subsystem.namespace.iter().enumerate() {
            let at = below.index(index);
            let too_high = i64::from(nsid_max) + 1..=i64::from(NSID_MAX);
            if let Some(nsid) = namespace.nsid.filter(|nsid| too_high.contains(nsid)) {
                check
                    .wrong(
                        &at.key("nsid"),
                        format!("{nsid} requires longer transfers than mdts allows"),
                    )
                    .help(format!(
                        "set mdts = \"64KiB\" or more in [target], or write a number from 1 to {nsid_max}"
                    ));
            }
            let export = namespace.export.as_deref().unwrap_or_default();
            let is_memory = export.starts_with(MEMORY_PREFIX);
            memory += usize::from(is_memory);
            if is_memory && memory == MEMORY_NAMESPACES_MAX + 1 {
                check
                    .wrong(
                        &at.key("export"),
                        format!(
                            "this is memory namespace {memory}, and at most \
                             {MEMORY_NAMESPACES_MAX} are possible: each registers a region with the RDMA device"
                        ),
                    )
                    .help("export files of /dev/shm or null disks, which register no region");
            }
        }
    }
}

/// Refuses two exports of one pool directory, and of one disk unless both are read-only: hosts
/// would overwrite each other's data.
pub(super) fn check_disks(check: &mut Check<'_>, place: &KeyPath, tables: &[SubsystemTable]) {
    let mut firsts: HashMap<PathBuf, (KeyPath, bool)> = HashMap::new();
    for (index, subsystem) in tables.iter().enumerate() {
        let below = place.index(index).key("namespace");
        for (index, namespace) in subsystem.namespace.iter().enumerate() {
            let is_pool = pool::is_pool(namespace);
            let is_place = |e: &&str| is_pool || e.starts_with('/') || e.starts_with(rbd::PREFIX);
            let Some(export) = namespace.export.as_deref().filter(is_place) else {
                continue;
            };
            let at = below.index(index).key("export");
            let read_only = namespace.read_only.unwrap_or(false) || rbd::is_snapshot(export);
            let path: PathBuf = if export.starts_with(rbd::PREFIX) {
                rbd::place_of(export, namespace.ceph.as_ref())
            } else {
                let path = export.strip_prefix(DIRECTORY_PREFIX).unwrap_or(export);
                Path::new(path).components().collect()
            };
            match firsts.get(&path) {
                Some((first, first_read_only)) if is_pool || !(read_only && *first_read_only) => {
                    check
                        .repeated(&at, first, format_args!("the disk {export}"))
                        .help(if is_pool {
                            "export each directory once"
                        } else {
                            "export each disk once, or set read_only = true on both"
                        });
                }
                Some(_) => {}
                None => {
                    firsts.insert(path, (at, read_only));
                }
            }
        }
    }
}

fn namespace(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &NamespaceTable,
    groups: &mut Groups,
) -> Option<Namespace> {
    let nsid = nsid(check, place, table.nsid);
    let block_size = block_size(check, place, table.block_size);
    let backing = backing(check, place, table, block_size);
    rbd::check_stray(check, place, table);
    let uuid = uuid(check, place, table.uuid.as_deref());
    let nguid = nguid(check, place, table.nguid.as_deref());
    let ana_group = check.number(
        &place.key("ana_group"),
        table.ana_group,
        1..=i64::from(ANA_GROUPS_MAX),
    );
    let shared = shared(check, place, table);
    let name = name(check, place, table.name.as_deref());
    let hosts = hosts(check, place, table.hosts.as_deref(), groups);
    let limits = limits::of_namespace(check, &place.key("limits"), table.limits.as_ref());
    let nsid = nsid?;
    Some(Namespace {
        nsid,
        name,
        backing: backing?,
        uuid,
        nguid,
        block_size,
        read_only: read_only(check, place, table),
        write_protection: table.write_protection.unwrap_or(false),
        write_protection_file: write_protection_file(check, place, table),
        shared,
        ana_group: ana_group.map_or(1, |group| group as u32),
        hosts,
        pooled: None,
        limits,
    })
}

fn write_protection_file(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &NamespaceTable,
) -> Option<PathBuf> {
    let text = table.write_protection_file.as_deref()?;
    let at = place.key("write_protection_file");
    if table.write_protection != Some(true) {
        check
            .wrong(
                &at,
                "hosts cannot protect the namespace, so there is nothing to keep",
            )
            .help("set write_protection = true as well, or remove it");
        return None;
    }
    let path = Path::new(text);
    if !path.is_absolute() || path.file_name().is_none() || text.contains('\0') {
        let message = format!("\"{}\" is not an absolute path", text.escape_debug());
        check
            .wrong(&at, message)
            .help("write a path such as /var/lib/cairn/disk1.protected");
        return None;
    }
    Some(path.to_owned())
}

fn hosts(
    check: &mut Check<'_>,
    place: &KeyPath,
    names: Option<&[String]>,
    groups: &mut Groups,
) -> Access {
    let place = place.key("hosts");
    names.map_or(Access::AnyHost, |names| {
        Access::Hosts(groups.list(check, &place, names))
    })
}

const NAME_MAX: usize = 128;

fn name(check: &mut Check<'_>, place: &KeyPath, text: Option<&str>) -> Option<String> {
    let text = text?;
    let is_good = text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_good && !text.is_empty() && text.len() <= NAME_MAX {
        return Some(text.to_owned());
    }
    let message = format!("\"{}\" is not a valid name of a disk", text.escape_debug());
    check.wrong(&place.key("name"), message).help(format!(
        "write 1 to {NAME_MAX} printable ASCII characters without spaces"
    ));
    None
}

fn read_only(check: &mut Check<'_>, place: &KeyPath, table: &NamespaceTable) -> bool {
    let is_snapshot = table.export.as_deref().is_some_and(rbd::is_snapshot);
    if is_snapshot && table.read_only == Some(false) {
        check
            .wrong(&place.key("read_only"), "a snapshot can only be read")
            .help("leave read_only out, or export a clone of the snapshot: `rbd clone`");
    }
    table.read_only.unwrap_or(is_snapshot)
}

fn shared(check: &mut Check<'_>, place: &KeyPath, table: &NamespaceTable) -> bool {
    let shared = table.shared.unwrap_or(false);
    let export = table.export.as_deref().unwrap_or_default();
    if shared && export.starts_with(MEMORY_PREFIX) {
        check
            .wrong(
                &place.key("shared"),
                "memory of this process cannot be shared with another target",
            )
            .help("share a file, such as one in /dev/shm, or a block device");
    }
    shared
}

fn nsid(check: &mut Check<'_>, place: &KeyPath, nsid: Option<i64>) -> Option<u32> {
    if nsid.is_none() {
        check.missing(
            place,
            "nsid",
            "write a number, such as nsid = 1: it identifies the disk to hosts",
        );
    }
    let nsid = check.number(&place.key("nsid"), nsid, 1..=i64::from(NSID_MAX))?;
    Some(nsid as u32)
}

fn block_size(check: &mut Check<'_>, place: &KeyPath, bytes: Option<i64>) -> Option<BlockSize> {
    match bytes? {
        512 => Some(BlockSize::B512),
        4096 => Some(BlockSize::B4096),
        other => {
            check
                .wrong(
                    &place.key("block_size"),
                    format!("{other} is not a block size"),
                )
                .help("write 512 or 4096");
            None
        }
    }
}

fn backing(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &NamespaceTable,
    block_size: Option<BlockSize>,
) -> Option<Backing> {
    let Some(export) = table.export.as_deref() else {
        check.missing(place, "export", FORMS);
        return None;
    };
    let at = place.key("export");
    if let Some(size) = export.strip_prefix(MEMORY_PREFIX) {
        let bytes = blocks(check, &at, size, block_size)?;
        return Some(Backing::Memory { bytes });
    }
    if let Some(size) = export.strip_prefix(NULL_PREFIX) {
        let bytes = blocks(check, &at, size, block_size)?;
        return Some(Backing::Null { bytes });
    }
    if let Some(image) = export.strip_prefix(rbd::PREFIX) {
        return rbd::image(check, place, image, table.ceph.as_ref()).map(Backing::Rbd);
    }
    if let Some(path) = export.strip_prefix(DIRECTORY_PREFIX) {
        return pool::directory(check, place, path, table);
    }
    if export.starts_with('/') && !export.contains('\0') {
        return Some(Backing::Disk(PathBuf::from(export)));
    }
    let message = match export.split_once(':') {
        Some((kind, size)) if size::parse(size).is_ok() => {
            format!("\"{kind}:\" is not a kind of disk")
        }
        _ => format!("\"{}\" is not an absolute path", export.escape_debug()),
    };
    check.wrong(&at, message).help(FORMS);
    None
}

fn blocks(
    check: &mut Check<'_>,
    place: &KeyPath,
    text: &str,
    block_size: Option<BlockSize>,
) -> Option<u64> {
    let block_bytes = u64::from(block_size.unwrap_or(BlockSize::B512).bytes());
    let bytes = check.size(place, Some(text), block_bytes..=BYTES_MAX)?;
    if bytes.is_multiple_of(block_bytes) {
        return Some(bytes);
    }
    let below = size::format(bytes - bytes % block_bytes);
    check
        .wrong(
            place,
            format!("\"{text}\" is not a multiple of the block size, {block_bytes} bytes"),
        )
        .help(format!("the next size below is {below}"));
    None
}

fn uuid(check: &mut Check<'_>, place: &KeyPath, text: Option<&str>) -> Option<Uuid> {
    let text = text?;
    match Uuid::try_parse(text) {
        Ok(uuid) if !uuid.is_nil() => Some(uuid),
        _ => {
            check
                .wrong(&place.key("uuid"), format!("\"{text}\" is not a UUID"))
                .help(
                    "write one as uuidgen prints it (not all zeroes), or leave it out: it then \
                 follows from the disk",
                );
            None
        }
    }
}

fn known_nguid(table: &NamespaceTable) -> Option<String> {
    let text = table.nguid.as_deref()?;
    if text != Nguid::FROM_UUID {
        return Some(text.to_lowercase());
    }
    let uuid = Uuid::try_parse(table.uuid.as_deref()?).ok()?;
    Some(uuid.simple().to_string())
}

fn nguid(check: &mut Check<'_>, place: &KeyPath, text: Option<&str>) -> Option<Nguid> {
    let text = text?;
    if text == Nguid::FROM_UUID {
        return Some(Nguid::FromUuid);
    }
    let hexadecimal = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u128::from_str_radix(text, 16) {
        Ok(nguid) if hexadecimal && nguid != 0 => Some(Nguid::Given(nguid.to_be_bytes())),
        _ => {
            check
                .wrong(&place.key("nguid"), format!("\"{text}\" is not an NGUID"))
                .help("write 32 hexadecimal digits, not all zeroes, or \"from-uuid\"");
            None
        }
    }
}

fn unique(
    check: &mut Check<'_>,
    place: &KeyPath,
    tables: &[NamespaceTable],
    key: &str,
    value: impl Fn(&NamespaceTable) -> Option<String>,
) {
    let mut firsts: HashMap<String, usize> = HashMap::new();
    for (index, table) in tables.iter().enumerate() {
        let Some(value) = value(table) else { continue };
        match firsts.get(&value) {
            Some(first) => {
                let (at, first) = (place.index(index).key(key), place.index(*first).key(key));
                check
                    .repeated(&at, &first, format_args!("{key} {value}"))
                    .help("give each namespace of a subsystem a different one");
            }
            None => {
                firsts.insert(value, index);
            }
        }
    }
}
