//! Files behind loop devices. A target locks them as well as the device, because a file and a loop
//! device over it are one disk with two names.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::claim::Claim;
use super::lock::Lock;

/// Maximum devices between an exported one and a loop device: partitions, volumes, RAIDs.
const LEVELS_MAX: usize = 8;

/// Takes a shared lock of each file behind a device. The locks are shared, because several loop
/// devices can have parts of one file. The error is the path of a file that is itself exported.
///
/// A file that this process cannot open is not locked.
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
