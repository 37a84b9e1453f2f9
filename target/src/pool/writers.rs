//! Whether a program has a file open to write. The kernel says so when it refuses a lease.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// fcntl(2): which signal says that a lease ends (asm-generic/fcntl.h).
const F_SETSIG: libc::c_int = 10;

/// Whether a program of this machine may still write a file. `false` also where the kernel cannot
/// say: a file system without leases, or a file of another user.
pub(super) fn is_written(path: &Path) -> bool {
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let Ok(file) = opened else {
        return false;
    };
    // SAFETY: the descriptor is open, and these operations take a number. A program that opens the
    // file meanwhile has the kernel send SIGURG, which is ignored, in the place of SIGIO, which ends a process.
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
        // Another program's first write waits for no lease of ours.
        File::options().write(true).open(&path).unwrap();
        assert!(!is_written(&folder.path().join("none")));
        drop(reader);
    }
}
