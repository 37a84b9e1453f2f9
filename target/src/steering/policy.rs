//! Rules for all changes through the control socket. They compare configurations, so no method can
//! bypass them.

use std::collections::HashSet;
use std::path::Path;

use cairn_base::shell::shell_word;
use cairn_config::{Backing, Config, Exports, Nqn};
use cairn_control::{Error, Kind};
use cairn_disk::FoundPath;
use rustix::io::Errno;

use super::wording::word;
use crate::server::{Export, Snapshot};
use crate::{files, pool};

pub(super) fn check(kind: Kind, now: &Config, before: &Config) -> Result<(), Error> {
    if kind.is_removal()
        && let Some(widened) = now.widened_from(before)
    {
        return Err(Error::errno(
            Errno::PERM,
            format!(
                "nothing is removed, because {widened}: first refuse hosts without a key (cairn-target \
                 subsystem set {} --require-key on) or remove the host, or write the change into \
                 the configuration file and reload",
                word(widened.nqn().raw())
            ),
        ));
    }
    if let Some(exports) = &before.control.exports {
        check_exports(exports, now, before)?;
    }
    let (now, before) = (folders(now), folders(before));
    let mut new = now.difference(&before);
    new.try_for_each(|folder| {
        pool::check_folder(folder).map_err(|(error, message)| Error::io(&error, message))
    })
}

/// Refuses to add an existing export if its path leads to another file by now, because the former
/// file would stay served.
pub(super) async fn refuse_displaced(
    snapshot: &Snapshot,
    nqn: &str,
    nsid: Option<u32>,
    export: &str,
) -> Result<(), Error> {
    let found = snapshot.exports().find(|one| {
        let is_it = nsid.is_none_or(|nsid| one.config.nsid == nsid);
        is_it && one.nqn.raw() == nqn && one.config.backing.to_string() == export
    });
    let Some(Export { entry, config, .. }) = found else {
        return Ok(());
    };
    let (Backing::Disk(path), Some(served)) = (&config.backing, entry.namespace.backend.place())
    else {
        return Ok(());
    };
    let now = files::call(path, FoundPath::find).await;
    let Ok(Ok(now)) = now else {
        return Ok(());
    };
    if now.place() == served {
        return Ok(());
    }
    let (nsid, shown, word) = (config.nsid, path.display(), word(nqn));
    Err(Error::errno(
        Errno::BUSY,
        format!(
            "another file is at {shown}, and namespace {nsid} of {nqn} still serves the former one: \
             copy its data from a host if it was deleted; then, to serve the file at the path: \
             cairn-target namespace remove {word} {nsid} --force; cairn-target namespace add {word} \
             {} --nsid {nsid}, with its former settings",
            shell_word(&path.to_string_lossy(), "PATH")
        ),
    ))
}

fn check_exports(exports: &Exports, now: &Config, before: &Config) -> Result<(), Error> {
    for backing in backings(now).difference(&backings(before)) {
        match backing {
            Backing::Memory { .. } | Backing::Null { .. } => {}
            Backing::Rbd(image) if exports.allow_image(&image.to_string()) => {}
            Backing::Rbd(image) => return Err(not_allowed(&image.to_string())),
            Backing::Disk(path) => check_path(exports, path)?,
        }
    }
    let (now, before) = (folders(now), folders(before));
    let mut new = now.difference(&before);
    new.try_for_each(|folder| check_path(exports, folder))
}

fn backings(config: &Config) -> HashSet<&Backing> {
    let all = config.subsystems.iter().flat_map(|one| &one.namespaces);
    let own = all.filter(|one| one.pooled.is_none());
    own.map(|one| &one.backing).collect()
}

fn folders(config: &Config) -> HashSet<&Path> {
    let all = config.subsystems.iter().flat_map(|one| &one.pools);
    all.map(|pool| pool.folder.as_path()).collect()
}

fn check_path(exports: &Exports, path: &Path) -> Result<(), Error> {
    let shown = path.display().to_string();
    if !exports.name_path(path) {
        return Err(not_allowed(&shown));
    }
    // This check gives an early error. Each opening repeats it, because links may change.
    let resolved = files::canonicalize_here(path).map_err(|error| {
        let message = format!("{shown} cannot be looked up: {error}");
        Error::io(&error, message)
    })?;
    match exports.allow_path(path, &resolved) {
        true => Ok(()),
        false => Err(not_allowed(&format!(
            "{shown}, which is {},",
            resolved.display()
        ))),
    }
}

fn not_allowed(what: &str) -> Error {
    Error::errno(
        Errno::ACCESS,
        format!(
            "{what} may not be exported by the control socket: [control] exports does not name it; \
             add its folder or device there and restart the target, or export it by the configuration file and reload"
        ),
    )
}

pub(super) fn late<'a>(
    wanted: &'a Config,
    there: &'a Config,
) -> impl Iterator<Item = (Nqn, u32)> + 'a {
    let all = wanted.subsystems.iter().flat_map(|subsystem| {
        let namespaces = subsystem.namespaces.iter();
        namespaces.map(|namespace| (subsystem.nqn, namespace.nsid))
    });
    let is_there: HashSet<(Nqn, u32)> = there
        .subsystems
        .iter()
        .flat_map(|subsystem| {
            subsystem
                .namespaces
                .iter()
                .map(|ns| (subsystem.nqn, ns.nsid))
        })
        .collect();
    all.filter(move |place| !is_there.contains(place))
}

pub(super) fn has(config: &Config, (nqn, nsid): (Nqn, u32)) -> bool {
    let mut subsystems = config.subsystems.iter().filter(|one| one.nqn == nqn);
    subsystems.any(|one| one.namespaces.iter().any(|ns| ns.nsid == nsid))
}

/// Refuses to remove one namespace of a directory, and all of them without `force`.
pub(super) fn refuse_directory(
    config: &Config,
    nqn: &str,
    nsid: u32,
    force: bool,
) -> Result<(), Error> {
    let mut subsystems = config.subsystems.iter();
    let Some(own) = subsystems.find(|one| one.nqn.raw() == nqn) else {
        return Ok(());
    };
    let mut pools = own.pools.iter();
    let Some(pool) = pools.find(|pool| pool.nsids.contains(&nsid)) else {
        return Ok(());
    };
    let mut files = own.namespaces.iter();
    let of_pool =
        |one: &&cairn_config::Namespace| one.pooled.is_some() && pool.nsids.contains(&one.nsid);
    let folder = pool.folder.display();
    let (first, of) = (pool.like.nsid, word(nqn));
    if nsid != first && files.clone().filter(of_pool).any(|one| one.nsid == nsid) {
        return Err(Error::invalid(format!(
            "namespace {nsid} of {nqn} is a file of the directory {folder}: to remove it, move the \
             file out of the directory"
        )));
    }
    if nsid == first && !force && files.any(|one| of_pool(&one)) {
        return Err(Error::errno(
            Errno::BUSY,
            format!(
                "the files of the directory {folder} are namespaces of {nqn} from {first} on: to \
                 remove one, move its file out of the directory; to remove all: cairn-target \
                 namespace remove {of} {first} --force"
            ),
        ));
    }
    Ok(())
}
