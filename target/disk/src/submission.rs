//! Determines which operations on a file may block at submission.
//!
//! io_uring tries each operation without blocking, and passes it to a kernel thread if it would
//! block. Some file systems ignore the non-blocking flag and block the reactor: FUSE, and any
//! frozen file system before Linux 6.12. Reads of such files go to a kernel thread at once
//! (IOSQE_ASYNC). Writes go to workers, which first check leases (`Ring::set_lease`). Files on slow
//! disks are treated alike, because a hanging commit of ext4's journal blocks the next write.

use std::fs::File;
use std::io::IoSliceMut;
use std::sync::LazyLock;

use rustix::io::{Errno, ReadWriteFlags};

/// Offset beyond any disk, where a read accesses no medium.
const NOWHERE: u64 = 1 << 62;

/// First Linux version that tries writes to a frozen file system without waiting (io_uring/rw.c,
/// `io_kiocb_start_write`). Backports are not detected.
const FREEZE_AWARE: (u32, u32) = (6, 12);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Handover {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Handover {
    pub(crate) const ALL: Self = Self {
        reads: true,
        writes: true,
    };

    pub(crate) fn of(file: &File, direct: bool, is_device: bool) -> Self {
        static KERNEL: LazyLock<Option<(u32, u32)>> =
            LazyLock::new(|| version(&std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?));
        Self::choose(supports_nowait(file), direct, is_device, *KERNEL)
    }

    fn choose(
        supports_nowait: bool,
        direct: bool,
        is_device: bool,
        kernel: Option<(u32, u32)>,
    ) -> Self {
        let thaws = is_device || kernel.is_some_and(|kernel| kernel >= FREEZE_AWARE);
        Self {
            reads: !supports_nowait,
            // A write to the page cache may wait for memory and for other writes.
            writes: !(supports_nowait && direct && thaws),
        }
    }
}

fn supports_nowait(file: &File) -> bool {
    let mut buffer = [0; 512];
    let mut slices = [IoSliceMut::new(&mut buffer)];
    let read = rustix::io::preadv2(file, &mut slices, NOWHERE, ReadWriteFlags::NOWAIT);
    read != Err(Errno::OPNOTSUPP)
}

fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_kernels() {
        assert_eq!(version("6.12.9-arch1"), Some((6, 12)));
        assert_eq!(version("5.15.0-91-generic"), Some((5, 15)));
        assert_eq!(version("7.0-rc1"), Some((7, 0)));
        assert_eq!(version("6.9+"), Some((6, 9)));
        assert_eq!(version("next"), None);
    }

    #[test]
    fn only_what_cannot_block_is_tried_in_line() {
        let (all, none) = (Handover::ALL, Handover::default());
        let writes = Handover {
            reads: false,
            ..all
        };
        let (old, new) = (Some((6, 11)), Some((6, 12)));
        assert_eq!(Handover::choose(false, true, false, new), all);
        assert_eq!(Handover::choose(true, true, false, new), none);
        assert_eq!(Handover::choose(true, true, false, old), writes);
        assert_eq!(Handover::choose(true, true, false, None), writes);
        assert_eq!(Handover::choose(true, true, true, old), none);
        assert_eq!(Handover::choose(true, false, false, new), writes);
    }

    #[test]
    fn to_ask_changes_nothing() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let first = Handover::of(&file, true, false);
        assert_eq!(Handover::of(&file, true, false), first);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
