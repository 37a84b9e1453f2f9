//! Limit on locked memory, beyond which the kernel does not pin buffers.

use std::io;
use std::sync::Once;

use rustix::process::{Resource, getrlimit};

pub(crate) fn is_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EPERM))
}

pub(crate) fn report(needed: usize) {
    static REPORTED: Once = Once::new();
    REPORTED.call_once(|| {
        let limit = getrlimit(Resource::Memlock).current;
        let limit_kib = limit.map_or(u64::MAX, |bytes| bytes >> 10);
        // Logged at the start or for an added device.
        tracing::info!(
            needed_kib = needed >> 10,
            limit_kib,
            "the limit on locked memory is too low to pin the buffers of disks, which are \
             slightly slower unpinned: raise LimitMEMLOCK or run `ulimit -l unlimited`"
        );
    });
}
