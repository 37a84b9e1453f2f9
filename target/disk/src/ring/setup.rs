use std::io;

use io_uring::{IoUring, cqueue, squeue};
use rustix::process::{Resource, getrlimit};

use super::SUBMISSIONS;

/// Maximum fixed files of a ring: one per disk.
const FILES_MAX: usize = 16 << 10;

/// Descriptors reserved for sockets, rings, devices and logs.
const FILES_RESERVED: usize = 256;

/// Open files per file-backed disk: one for I/O, one for the lock.
const FILES_EACH: usize = 2;

pub fn disks_max() -> usize {
    FILES_MAX.min(open_files_max().saturating_sub(FILES_RESERVED) / FILES_EACH)
}

pub(super) fn files_max() -> usize {
    FILES_MAX.min(open_files_max())
}

fn open_files_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| limit as usize)
}

/// Registers empty slots for fixed files; Linux before 5.19 requires them as a list.
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

/// Creates an io_uring. From Linux 6.1 on, the kernel completes operations at this thread's next
/// call. Older kernels interrupt the thread. If `polled`, completions must be polled.
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
