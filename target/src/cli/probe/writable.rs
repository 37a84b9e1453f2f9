//! Checks, without writing, that the configured files and the state directory are writable.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use cairn_base::shell::shell_word;
use cairn_config::{Audit, Backing, Config};
use rustix::fs::{Access, AtFlags, CWD, OFlags};

use super::user;
use crate::files;
use crate::server::{StateInUse, check_state, is_empty};
use cairn_data_path::audit::{JOURNAL, check_file};
use cairn_data_path::protection_file;
use cairn_data_path::reservation_file::RESERVATIONS_END;

pub(super) fn problems(audit: &Audit) -> Vec<String> {
    let named = audit.file.as_deref();
    let journal = audit.journal.then_some(Path::new(JOURNAL));
    let files = named.into_iter().map(|path| in_time(path, file));
    let sockets = journal.into_iter().chain(audit.datagram.as_deref());
    let sockets = sockets.map(|path| in_time(path, socket));
    let found = files.chain(sockets).filter_map(Result::err);
    found.map(|text| format!("audit log: {text}")).collect()
}

pub(super) fn state_problem(path: &Path) -> Option<String> {
    let problem = in_time(path, directory).err()?;
    Some(format!("[target] state_directory: {problem}"))
}

pub(super) fn state_in_use(path: &Path) -> Option<StateInUse> {
    files::call_here(path, check_state).ok()?.err()
}

/// Returns the state directory if it is empty and disks are configured.
pub(in crate::cli) fn empty_state(config: &Config) -> Option<&Path> {
    const PATIENCE: Duration = Duration::from_secs(2);
    let folder = config.target.state_directory.as_deref()?;
    let mut namespaces = config.subsystems.iter().flat_map(|one| &one.namespaces);
    let has_disk = namespaces.any(|one| matches!(one.backing, Backing::Disk(_) | Backing::Rbd(_)));
    let is_empty = has_disk && files::call_here_within(PATIENCE, folder, is_empty).ok()?;
    is_empty.then_some(folder)
}

pub(in crate::cli) fn before_first_start(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "state_directory {folder} is empty, which is right only for a first start: if it had files, \
         restore them before hosts connect, because {RESERVATIONS_END}"
    )
}

pub(in crate::cli) fn after_first_start(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "state_directory {folder} was empty when this target started, which is right only for a \
         first start: if it had files, stop the target, restore them, and start it, because \
         {RESERVATIONS_END}"
    )
}

pub(super) fn protection_problems(config: &Config) -> Vec<String> {
    let mut problems = Vec::new();
    for subsystem in &config.subsystems {
        for namespace in &subsystem.namespaces {
            let path = namespace.write_protection_file.as_deref();
            let problem = path.and_then(|path| in_time(path, protection).err());
            let (nsid, nqn) = (namespace.nsid, subsystem.nqn);
            problems.extend(problem.map(|problem| {
                format!("namespace {nsid} of {nqn}: write_protection_file: {problem}")
            }));
        }
    }
    problems
}

fn in_time(path: &Path, check: fn(&Path) -> Result<(), String>) -> Result<(), String> {
    let checked = files::call_here(path, check);
    checked.unwrap_or_else(|error| Err(format!("{}: {error}", path.display())))
}

fn file(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match kind(path)? {
        Some(found) if found.is_symlink() => Err(format!(
            "{shown} is a symbolic link, and the target follows none there: name the file itself"
        )),
        Some(found) if !found.is_file() => {
            Err(format!("{shown} is not a regular file: name another"))
        }
        Some(_) => {
            may(path, Access::READ_OK | Access::WRITE_OK)?;
            content(path).map_err(|error| format!("{shown}: {error}"))
        }
        None => folder_of(path),
    }
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn content(path: &Path) -> io::Result<()> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let mut options = File::options();
    check_file(&options.read(true).custom_flags(flags).open(path)?)
}

fn protection(path: &Path) -> Result<(), String> {
    folder_of(path)?;
    protection_file::check(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn folder_of(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    match kind(folder)? {
        Some(_) => may(folder, Access::WRITE_OK | Access::EXEC_OK),
        None => {
            let word = shell_word(&folder.to_string_lossy(), "DIR");
            let folder = folder.display();
            Err(format!("{folder} does not exist: `mkdir -p {word}`"))
        }
    }
}

fn socket(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match kind(path)? {
        Some(found) if found.file_type().is_socket() => may(path, Access::WRITE_OK),
        Some(_) => Err(format!("{shown} is not a socket: check the path")),
        None => Err(format!(
            "{shown} does not exist: start the program that listens there"
        )),
    }
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn directory(path: &Path) -> Result<(), String> {
    let shown = path.display();
    match path.metadata() {
        Ok(found) if found.is_dir() => may(path, Access::WRITE_OK | Access::EXEC_OK),
        Ok(_) => Err(format!("{shown} is not a directory: name another path")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(format!(
            "{shown} does not exist: restore it from a backup, because {RESERVATIONS_END}; make it, \
             owned by the target's user, only if the target never had it"
        )),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn kind(path: &Path) -> Result<Option<Metadata>, String> {
    match path.symlink_metadata() {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

fn may(path: &Path, access: Access) -> Result<(), String> {
    let shown = path.display();
    rustix::fs::accessat(CWD, path, access, AtFlags::EACCESS).map_err(|error| match error {
        rustix::io::Errno::ROFS => {
            format!("{shown} cannot be written: its file system is read-only")
        }
        _ => format!("no permission to write {shown}: let {} do so", user()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::Flags;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixDatagram;
    use std::path::PathBuf;

    fn of_file(path: PathBuf) -> Vec<String> {
        problems(&Audit {
            file: Some(path),
            ..Audit::default()
        })
    }

    fn of_socket(path: PathBuf) -> Vec<String> {
        problems(&Audit {
            datagram: Some(path),
            ..Audit::default()
        })
    }

    #[test]
    fn each_obstacle_has_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert_eq!(state_problem(folder.path()), None);
        for (name, why) in [("none", "does not exist"), ("file", "is not a directory")] {
            std::fs::write(at("file"), "").unwrap();
            let problem = state_problem(&at(name)).unwrap();
            assert!(problem.contains(why), "{problem}");
        }
        assert_eq!(of_file(at("audit.json")), [""; 0]);
        assert!(!at("audit.json").exists(), "nothing is made");
        std::fs::write(at("there"), "").unwrap();
        assert_eq!(of_file(at("there")), [""; 0]);
        symlink(at("there"), at("link")).unwrap();
        assert!(of_file(at("link"))[0].contains("name the file itself"));
        std::fs::write(at("log"), "{\"time\":\"2026-").unwrap();
        assert_eq!(of_file(at("log")), [""; 0]);
        std::fs::write(at("disk"), [0; 512]).unwrap();
        assert!(of_file(at("disk"))[0].contains("is not an audit log"));
        assert!(of_file(folder.path().to_owned())[0].contains("is not a regular file"));
        assert!(of_file(at("none/audit.json"))[0].contains("mkdir -p"));
        assert!(of_file(at("there/audit.json"))[0].contains("there/audit.json"));
        assert!(of_socket(at("socket"))[0].contains("start the program"));
        assert!(of_socket(at("there"))[0].contains("is not a socket"));
        let _listening = UnixDatagram::bind(at("socket")).unwrap();
        assert_eq!(of_socket(at("socket")), [""; 0]);
    }

    #[test]
    fn a_write_protection_file_has_a_folder_and_no_other_content() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let of = |path: PathBuf| {
            let text = format!(
                "[[listener]]\naddress = \"127.0.0.1\"\n[[subsystem]]\n\
                 nqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n\
                 [[subsystem.namespace]]\nnsid = 1\nexport = \"null:1MiB\"\n\
                 write_protection = true\nwrite_protection_file = \"{}\"\n",
                path.display()
            );
            let config = Config::parse("test", &text, &Flags::default()).unwrap();
            protection_problems(&config)
        };
        assert_eq!(of(at("none")), [""; 0]);
        let uuid = "00000000-0000-0000-0000-000000000001";
        std::fs::write(at("ours"), format!("protected {uuid}\n")).unwrap();
        assert_eq!(of(at("ours")), [""; 0]);
        std::fs::write(at("disk"), [0; 512]).unwrap();
        let problem = of(at("disk")).remove(0);
        assert!(problem.starts_with("namespace 1 of nqn"), "{problem}");
        assert!(problem.contains("not written by a target"), "{problem}");
        assert!(of(at("deep/file"))[0].contains("mkdir -p"));
    }
}
