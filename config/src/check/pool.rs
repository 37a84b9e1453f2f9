//! Checks of pool directories: `export = "dir:/srv/cairn"`.

use std::path::PathBuf;

use super::Check;
use crate::config::{Backing, DIRECTORY_PREFIX, Namespace, Nguid, Pool};
use crate::file::NamespaceTable;
use crate::key_path::KeyPath;

pub(super) fn is_pool(table: &NamespaceTable) -> bool {
    let export = table.export.as_deref();
    export.is_some_and(|export| export.starts_with(DIRECTORY_PREFIX))
}

fn is_one_disks(nguid: Option<&str>) -> bool {
    nguid.is_some_and(|nguid| nguid != Nguid::FROM_UUID)
}

pub(super) fn directory(
    check: &mut Check<'_>,
    place: &KeyPath,
    path: &str,
    table: &NamespaceTable,
) -> Option<Backing> {
    for (key, is_given) in [
        ("uuid", table.uuid.is_some()),
        ("nguid", is_one_disks(table.nguid.as_deref())),
        ("name", table.name.is_some()),
        (
            "write_protection_file",
            table.write_protection_file.is_some(),
        ),
    ] {
        if is_given {
            let message = format!("{key} identifies one disk, and a directory has many");
            let wrong = check.wrong(&place.key(key), message);
            wrong.help("leave it out: each file has its own UUID");
        }
    }
    if path.starts_with('/') && !path.contains('\0') {
        return Some(Backing::Disk(PathBuf::from(path)));
    }
    let message = format!("\"{}\" is not an absolute path", path.escape_debug());
    let wrong = check.wrong(&place.key("export"), message);
    wrong.help("write the absolute path of a directory, such as \"dir:/srv/cairn\"");
    None
}

/// Separates pools from other namespaces; `all` is sorted by NSID. A pool gets the NSIDs up to the
/// next entry, or up to `last`.
pub(super) fn split(all: Vec<(Namespace, bool)>, last: u32) -> (Vec<Namespace>, Vec<Pool>) {
    let firsts: Vec<u32> = all.iter().map(|(one, _)| one.nsid).collect();
    let (mut namespaces, mut pools) = (Vec::new(), Vec::new());
    for (index, (namespace, is_pool)) in all.into_iter().enumerate() {
        if !is_pool {
            namespaces.push(namespace);
            continue;
        }
        let Backing::Disk(folder) = &namespace.backing else {
            continue;
        };
        let next = firsts.get(index + 1).map_or(last, |next| next - 1);
        pools.push(Pool {
            folder: folder.clone(),
            nsids: namespace.nsid..=next.min(last),
            like: namespace,
            problem: None,
            left_out: Vec::new(),
        });
    }
    (namespaces, pools)
}
