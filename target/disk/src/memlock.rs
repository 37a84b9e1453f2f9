//! The error for a limit on locked memory that is too small.

use std::io;

use rustix::process::{Resource, getrlimit};

/// Puts the limit and the remedy into an error about locking `needed` bytes.
pub(crate) fn explain(error: io::Error, needed: usize) -> io::Error {
    if !matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EPERM)) {
        return error;
    }
    let limit = getrlimit(Resource::Memlock).current;
    io::Error::new(
        error.kind(),
        format!(
            "cannot lock {} MiB of memory ({error}): the limit is {}; raise LimitMEMLOCK in the \
             service, run `ulimit -l unlimited`, or lower data_buffers and receives",
            needed.div_ceil(1 << 20),
            limit.map_or_else(
                || "unlimited".into(),
                |bytes| format!("{} KiB", bytes >> 10)
            ),
        ),
    )
}
