//! Files behind loop devices. A target locks the device and the file, because both names lead to
//! the same data.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

use super::claim::Claim;
use super::lock::Lock;

/// Maximum stacked devices followed down to a loop device.
const LEVELS_MAX: usize = 8;

/// Locks each file behind a device, if this process can open the file. The locks are shared,
/// because several loop devices can use parts of one file. The error is the path of a file locked
/// exclusively, for example because the file itself is exported.
pub(super) fn lock(device: u64, claim: Claim) -> Result<Vec<Lock>, PathBuf> {
    let claim = Claim {
        shared: true,
        ..claim
    };
    let mut locks = Vec::new();
    for path in files(device) {
        let Ok(file) = File::open(&path) else {
            continue;
        };
        match Lock::take(&file, claim) {
            Ok(lock) => locks.push(lock),
            Err(Errno::WOULDBLOCK) => return Err(path),
            Err(_) => {}
        }
    }
    Ok(locks)
}

fn files(device: u64) -> Vec<PathBuf> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let mut found = Vec::new();
    if let Ok(folder) = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) {
        add(&folder, LEVELS_MAX, &mut found);
    }
    found
}

fn add(device: &Path, levels: usize, found: &mut Vec<PathBuf>) {
    if levels == 0 {
        return;
    }
    if device.join("partition").exists()
        && let Some(disk) = device.parent()
    {
        add(disk, levels - 1, found);
    }
    if let Ok(path) = fs::read_to_string(device.join("loop/backing_file")) {
        found.push(PathBuf::from(path.trim_end_matches('\n')));
    }
    let below = fs::read_dir(device.join("slaves")).into_iter().flatten();
    for device in below.flatten() {
        if let Ok(folder) = fs::canonicalize(device.path()) {
            add(&folder, levels - 1, found);
        }
    }
}

/// Returns a loop device over a file, if the loop device is mounted, swap, or part of another
/// device. `file` is (device, inode).
pub(super) fn used_over(file: (u64, u64)) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let over = devices.filter(|device| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file"));
        backing.is_ok_and(|path| is_at(path.trim_end_matches('\n'), file))
    });
    let mut over = over.map(|device| Path::new("/dev").join(device.file_name()));
    over.find(|device| is_used(device))
}

fn is_at(path: &str, file: (u64, u64)) -> bool {
    // Without DONT_SYNC, a file on a lost NFS server would block this call for every disk.
    let statx = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
    statx.is_ok_and(|statx| {
        let device = rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor);
        (device, statx.stx_ino) == file
    })
}

fn is_used(device: &Path) -> bool {
    let mut options = File::options();
    match options.read(true).custom_flags(libc::O_EXCL).open(device) {
        Ok(_) => false,
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => true,
        // This process may not open the device, so it searches the lists of mounts and swap areas.
        Err(_) => ["/proc/self/mountinfo", "/proc/swaps"].iter().any(|list| {
            let list = fs::read_to_string(list);
            list.is_ok_and(|list| is_listed(&list, &device.display().to_string()))
        }),
    }
}

fn is_listed(list: &str, device: &str) -> bool {
    let mut words = list.split_ascii_whitespace();
    words.any(|word| {
        let part = word.strip_prefix(device);
        part.is_some_and(|part| part.is_empty() || part.starts_with('p'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_listed_by_its_name_or_by_a_partition() {
        let list =
            "36 1 7:1 / /a rw - ext4 /dev/loop1 rw\n37 1 7:3 / /b rw - xfs /dev/loop30p2 rw\n";
        assert!(is_listed(list, "/dev/loop1") && is_listed(list, "/dev/loop30"));
        assert!(!is_listed(list, "/dev/loop3") && !is_listed(list, "/dev/loop10"));
    }
}
