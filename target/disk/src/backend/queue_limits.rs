//! What a block device says of itself in sysfs.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// How a block device is best used, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueLimits {
    /// What it gives back at a time; 0: it gives nothing back.
    pub(super) discard: u64,
    /// What it writes at a time without reading first.
    pub(super) write: u64,
    /// What it writes fastest; 0: it does not say.
    pub(super) optimal: u64,
}

impl QueueLimits {
    /// Those of a block device; `None` if it does not say.
    pub(super) fn of(device: &File) -> Option<Self> {
        folders(device)?.iter().find_map(|queue| Self::read(queue))
    }

    fn read(queue: &Path) -> Option<Self> {
        let limit = |name| read_limit(queue, name);
        let can_discard = limit("discard_max_bytes").is_some_and(|most| most > 0);
        let write = limit("physical_block_size")?;
        Some(Self {
            discard: if can_discard {
                limit("discard_granularity").unwrap_or(0).max(write)
            } else {
                0
            },
            write,
            optimal: limit("optimal_io_size").unwrap_or(0),
        })
    }
}

/// Whether a block device has zones that take writes only in order.
pub(super) fn has_sequential_zones(device: &File) -> bool {
    let folders = folders(device).into_iter().flatten();
    folders.into_iter().any(|queue| is_host_managed(&queue))
}

/// The zones of other models (`host-aware`) take writes in any order.
fn is_host_managed(queue: &Path) -> bool {
    let model = fs::read_to_string(queue.join("zoned"));
    model.is_ok_and(|model| model.trim() == "host-managed")
}

/// Where a device's queue may be. A partition's is its disk's, the folder above.
pub(super) fn folders(device: &File) -> Option<[PathBuf; 2]> {
    let number = device.metadata().ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    Some(["queue", "../queue"].map(|queue| device.join(queue)))
}

/// A number in the folder of a queue.
pub(super) fn read_limit(queue: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(queue.join(name)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_discard_has_no_granularity_of_it() {
        let read = |limits: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            for (name, value) in limits {
                fs::write(folder.path().join(name), value).unwrap();
            }
            QueueLimits::read(folder.path())
        };
        let (most, granularity) = ("discard_max_bytes", "discard_granularity");
        let physical = ("physical_block_size", "4096\n");
        let limits = |discard, optimal| {
            Some(QueueLimits {
                discard,
                write: 4096,
                optimal,
            })
        };
        let flash = [(most, "2147450880\n"), (granularity, "512\n"), physical];
        assert_eq!(read(&flash), limits(4096, 0));
        let thin = [
            (most, "65536\n"),
            (granularity, "65536\n"),
            physical,
            ("optimal_io_size", "65536\n"),
        ];
        assert_eq!(read(&thin), limits(65536, 65536));
        let disk = [(most, "0\n"), (granularity, "4096\n"), physical];
        assert_eq!(read(&disk), limits(0, 0));
        assert_eq!(read(&[(most, "0\n")]), None);
    }

    #[test]
    fn only_host_managed_zones_demand_an_order() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!is_host_managed(folder.path()), "an old kernel");
        let models = [
            ("none\n", false),
            ("host-aware\n", false),
            ("host-managed\n", true),
        ];
        for (model, expected) in models {
            fs::write(folder.path().join("zoned"), model).unwrap();
            assert_eq!(is_host_managed(folder.path()), expected, "{model}");
        }
    }
}
