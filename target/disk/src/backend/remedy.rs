//! Remedies for a path that cannot be opened.
//!
//! Administrators run the suggested commands as root, so no remedy changes an existing file, or
//! creates a file in a device or memory file system.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cairn_base::permission::permission_for_root;
use cairn_base::shell::shell_word;
use rustix::fs::{Access, AtFlags, CWD, accessat, fstatfs};

/// `f_type` of file systems in memory (statfs(2)).
const IN_MEMORY: [u32; 2] = [
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
];

const OF_THE_KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

const FOR_ROOT: &str = "look for the attribute immutable (lsattr), a read-only device (blockdev --getro), a \
     security module, or a service without the capability";

pub(super) fn permission(otherwise: &str) -> String {
    cairn_base::permission(otherwise, FOR_ROOT)
}

pub(super) fn is_in_memory(file: &File) -> bool {
    fstatfs(file).is_ok_and(|statfs| IN_MEMORY.contains(&(statfs.f_type as u32)))
}

/// False for devices, although `/dev` is in memory.
fn is_file_in_memory(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file()) && is_in_memory(file)
}

pub(super) fn for_missing(path: &Path) -> String {
    let folder = path.parent().filter(|folder| folder.is_dir());
    let Some(folder) = folder.and_then(|folder| folder.canonicalize().ok()) else {
        return "its folder does not exist either: check the path".to_owned();
    };
    let shown = folder.display();
    if OF_THE_KERNEL.iter().any(|above| folder.starts_with(above)) {
        return format!(
            "check the name: `ls -l {}` lists the present ones",
            word(&folder)
        );
    }
    if File::open(&folder).is_ok_and(|folder| is_in_memory(&folder)) {
        return format!(
            "check the path ({shown} is in memory: an image there ends with the machine)"
        );
    }
    // No command makes an image, because an empty image would hide the lost disk.
    "check the path, and that its file system is mounted; a new disk needs an image there first"
        .to_owned()
}

pub(super) fn for_denied(path: &Path) -> String {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return permission_for_root(FOR_ROOT);
    }
    let mut folders: Vec<&Path> = path.ancestors().skip(1).collect();
    folders.reverse();
    let closed = folders.into_iter().find(|folder| {
        accessat(CWD, *folder, Access::EXEC_OK, AtFlags::EACCESS) == Err(rustix::io::Errno::ACCESS)
    });
    let object = closed.unwrap_or(path);
    let right = if closed.is_some() {
        "search it"
    } else {
        "read and write it"
    };
    let owners = match object.metadata() {
        Ok(found) => format!(
            "{} belongs to {} and {}, with mode {:04o}",
            object.display(),
            name("/etc/passwd", "user", found.uid()),
            name("/etc/group", "group", found.gid()),
            found.mode() & 0o7777
        ),
        Err(error) => format!("{}: {error}", object.display()),
    };
    let user = name("/etc/passwd", "user", user.as_raw());
    format!("{owners}: let {user} {right}, or export another disk")
}

fn name(table: &str, kind: &str, id: u32) -> String {
    let table = std::fs::read_to_string(table).unwrap_or_default();
    let found = table.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then_some(name)
    });
    found.map_or_else(|| format!("{kind} {id}"), |name| format!("{kind} {name}"))
}

fn word(path: &Path) -> String {
    shell_word(&path.to_string_lossy(), "PATH")
}

pub(super) fn warn_of_memory(path: &Path, file: &File) {
    if is_file_in_memory(file) {
        // Logged when the configuration is applied.
        tracing::warn!(
            path = %path.display(),
            "the file is in memory (tmpfs): its contents are lost when the machine stops; for a disk \
             in memory use mem:SIZE, otherwise move the file to a disk"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_not_in_memory() {
        assert!(!is_file_in_memory(&File::open("/dev/null").unwrap()));
        let folder = File::open("/dev").unwrap();
        if is_in_memory(&folder) {
            let file = tempfile::tempfile_in("/dev/shm").unwrap();
            assert!(is_file_in_memory(&file));
        }
    }

    #[test]
    fn no_remedy_creates_a_file() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let missing = folder.path().join("disk.img");
        for path in [
            missing.to_str().unwrap(),
            "/dev/disk/nvme-foo",
            "/dev/nvme-foo",
            "/dev/shm/foo",
            "/proc/foo",
            "/sys/foo",
        ] {
            let remedy = for_missing(Path::new(path));
            assert!(
                !remedy.contains("truncate") && remedy.contains("check the"),
                "{path}: {remedy}"
            );
        }
    }

    #[test]
    fn a_folder_that_does_not_exist_is_named_first() {
        let remedy = for_missing(Path::new("/no/such/folder/disk.img"));
        assert!(remedy.contains("folder does not exist"), "{remedy}");
    }

    #[test]
    fn users_and_groups_have_names() {
        assert_eq!(name("/etc/passwd", "user", 0), "user root");
        assert_eq!(
            name("/etc/group", "group", u32::MAX - 7),
            format!("group {}", u32::MAX - 7)
        );
    }
}
