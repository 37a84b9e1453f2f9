//! How a ring is made.

use std::io;

use io_uring::{IoUring, cqueue, squeue};
use rustix::process::{Resource, getrlimit};

use super::SUBMISSIONS;

/// The most fixed files that a ring has room for: one for each disk of the process.
const FILES_MAX: usize = 16 << 10;

/// Files that a process has open beside disks: sockets, rings, devices, logs.
const FILES_RESERVED: usize = 256;

/// Files that are open for a disk that is a file: one for its I/O, one that holds its lock.
const FILES_EACH: usize = 2;

/// Disks that are files: as many as a ring has room for, and this process may open.
pub fn disks_max() -> usize {
    FILES_MAX.min(open_files_max().saturating_sub(FILES_RESERVED) / FILES_EACH)
}

/// Fixed files that a ring of this process has room for: the limit on open files bounds them,
/// too.
pub(super) fn files_max() -> usize {
    FILES_MAX.min(open_files_max())
}

/// Files that this process may have open.
fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| limit as usize)
}

/// Makes room for fixed files, which come later. Linux 5.19 needs no list of them.
pub(super) fn make_room<S, C>(uring: &IoUring<S, C>, files: usize) -> io::Result<()>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    let submitter = uring.submitter();
    match submitter.register_files_sparse(files as u32) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            submitter.register_files(&vec![-1; files])
        }
        other => other,
    }
}

/// The best ring this kernel has: 6.1 defers completion work to the time we
/// ask for it, older ones interrupt us for it. `polled`: nothing ends unless it is asked for.
pub(super) fn build<S, C>(operations: u32, polled: bool) -> io::Result<IoUring<S, C>>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    let completions = (operations + SUBMISSIONS).next_power_of_two();
    let mut builder = IoUring::<S, C>::builder();
    builder.setup_clamp().setup_cqsize(completions);
    if polled {
        builder.setup_iopoll();
    }
    let modern = builder
        .clone()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(SUBMISSIONS);
    match modern {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => builder.build(SUBMISSIONS),
        other => other,
    }
    .map_err(explain_setup)
}

/// Why there is no io_uring, and what to do about it.
fn explain_setup(error: io::Error) -> io::Error {
    let remedy = match error.raw_os_error() {
        Some(libc::ENOSYS) => "this kernel has no io_uring: Linux 5.15 or newer is needed",
        Some(libc::EPERM) => {
            "io_uring is switched off: set sysctl kernel.io_uring_disabled=0, or, in a container, \
             allow io_uring_setup in its seccomp profile"
        }
        Some(libc::ENOMEM) => "no locked memory left for io_uring: raise LimitMEMLOCK",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("io_uring_setup: {error}: {remedy}"))
}
