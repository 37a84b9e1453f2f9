//! Checks whether the audit log can be written, without opening files.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use cairn_config::Audit;
use rustix::fs::{Access, AtFlags, CWD};

use super::user;
use crate::files;
use cairn_data_path::audit::JOURNAL;

pub(super) fn problems(audit: &Audit) -> Vec<String> {
    let named = audit.file.as_deref();
    let journal = audit.journal.then_some(Path::new(JOURNAL));
    let files = named.into_iter().map(|path| in_time(path, file));
    let sockets = journal.into_iter().chain(audit.datagram.as_deref());
    let sockets = sockets.map(|path| in_time(path, socket));
    let found = files.chain(sockets).filter_map(Result::err);
    found.map(|text| format!("audit log: {text}")).collect()
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
        Some(found) if !found.is_file() => Err(format!("{shown} is not a regular file: remove it")),
        Some(_) => may(path, Access::READ_OK | Access::WRITE_OK),
        None => {
            let folder = path.parent().unwrap_or(path);
            match kind(folder)? {
                Some(_) => may(folder, Access::WRITE_OK | Access::EXEC_OK),
                None => {
                    let folder = folder.display();
                    Err(format!("{folder} does not exist: `mkdir -p {folder}`"))
                }
            }
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
        assert_eq!(of_file(at("audit.json")), [""; 0]);
        assert!(!at("audit.json").exists(), "nothing is made");
        std::fs::write(at("there"), "").unwrap();
        assert_eq!(of_file(at("there")), [""; 0]);
        symlink(at("there"), at("link")).unwrap();
        assert!(of_file(at("link"))[0].contains("name the file itself"));
        assert!(of_file(folder.path().to_owned())[0].contains("is not a regular file"));
        assert!(of_file(at("none/audit.json"))[0].contains("mkdir -p"));
        assert!(of_file(at("there/audit.json"))[0].contains("there/audit.json"));
        assert!(of_socket(at("socket"))[0].contains("start the program"));
        assert!(of_socket(at("there"))[0].contains("is not a socket"));
        let _listening = UnixDatagram::bind(at("socket")).unwrap();
        assert_eq!(of_socket(at("socket")), [""; 0]);
    }
}
