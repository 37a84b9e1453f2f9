//! Detects files that are open for writing, on which the kernel grants no read lease.

#![expect(clippy::disallowed_methods, reason = "each directory has a thread")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Command that sets the signal of a broken lease (fcntl(2), asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;

/// Returns whether a program has the file open for writing. Returns false if the open fails, the
/// file system has no leases, or another user owns the file.
pub(super) fn is_written(path: &Path) -> bool {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let Ok(file) = opened else {
        return false;
    };
    // SAFETY: the descriptor is open, and these operations take a number. If a program opens the
    // file, the kernel sends SIGURG, which is ignored, instead of SIGIO, which ends a process.
    unsafe {
        if libc::fcntl(file.as_raw_fd(), F_SETSIG, libc::SIGURG) != 0 {
            return false;
        }
        let leased = libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK);
        let refused = leased != 0;
        let error = std::io::Error::last_os_error().raw_os_error();
        libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK);
        refused && error == Some(libc::EAGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_open_to_write_is_told_from_one_that_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let writer = File::create(&path).unwrap();
        let reader = File::open(&path).unwrap();
        assert!(is_written(&path));
        drop(writer);
        assert!(!is_written(&path));
        File::options().write(true).open(&path).unwrap();
        assert!(!is_written(&folder.path().join("none")));
        drop(reader);
    }
}
