//! Limits of a block device, from sysfs. Sizes are in bytes.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::Atomic;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueLimits {
    /// Largest discard; 0 if unsupported.
    pub(super) discard: u64,
    pub(super) write: u64,
    /// Optimal write size; 0 if unknown.
    pub(super) optimal: u64,
    pub(super) unit: Option<Unit>,
    pub(super) sector: u64,
    /// Distance of the boundaries at which the device splits requests; 0 means none.
    pub(super) chunk: u64,
}

/// Atomic write unit: its size, and the start of the first unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    pub(super) bytes: u64,
    pub(super) offset: u64,
}

impl Unit {
    /// Converts the unit to logical blocks, or returns a single block if the unit is not a whole
    /// number of at least two blocks.
    pub(super) fn in_blocks(self, block_bytes: u32) -> Atomic {
        let block = u64::from(block_bytes);
        let in_blocks = |bytes: u64| bytes.is_multiple_of(block).then(|| bytes / block);
        match (in_blocks(self.bytes), in_blocks(self.offset)) {
            (Some(blocks @ 2..=0x1_0000), Some(offset)) => {
                Atomic::units(blocks as u32, (offset % blocks) as u16)
            }
            _ => Atomic::BLOCK,
        }
    }
}

impl QueueLimits {
    pub(super) fn of(device: &File) -> Option<Self> {
        Self::read(&folder(device)?)
    }

    fn read(device: &Path) -> Option<Self> {
        let disk = disk_of(device)?;
        let queue = disk.join("queue");
        let limit = |name| read_limit(&queue, name);
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
            unit: unit(device, &disk),
            sector: limit("logical_block_size").unwrap_or(512),
            chunk: chunk(device, &queue),
        })
    }

    pub(super) fn keeps_blocks_whole(&self, block_bytes: u32) -> bool {
        let block = u64::from(block_bytes);
        let is_within = |unit: Unit| [unit.bytes, unit.offset].map(|it| it % block) == [0, 0];
        block <= self.sector || self.unit.is_some_and(is_within)
    }

    pub(super) fn boundary(&self, block_bytes: u32) -> u16 {
        let block = u64::from(block_bytes);
        let blocks = self
            .chunk
            .is_multiple_of(block)
            .then_some(self.chunk / block);
        blocks
            .and_then(|blocks| u16::try_from(blocks).ok())
            .unwrap_or(0)
    }
}

/// Returns the distance of the boundaries in bytes (`chunk_sectors`); 0 for a device without
/// boundaries, and for a partition that does not start at a boundary.
fn chunk(device: &Path, queue: &Path) -> u64 {
    let chunk = read_limit(queue, "chunk_sectors").unwrap_or(0);
    let start = read_limit(device, "start").unwrap_or(0);
    if chunk > 0 && start.is_multiple_of(chunk) {
        chunk << 9
    } else {
        0
    }
}

/// Returns the atomic unit, from `physical_block_size` and `alignment_offset`; `None` if the offset
/// is -1 (misaligned).
fn unit(device: &Path, disk: &Path) -> Option<Unit> {
    let bytes = smallest_unit(disk).filter(|bytes| *bytes > 0)?;
    let offset = read_limit(device, "alignment_offset")? % bytes;
    Some(Unit { bytes, offset })
}

/// Returns the smallest physical block size of a device and of all devices below it. A stacked
/// device reports only the largest.
fn smallest_unit(disk: &Path) -> Option<u64> {
    let mut smallest = read_limit(disk, "queue/physical_block_size")?;
    for below in fs::read_dir(disk.join("slaves")).into_iter().flatten() {
        let below = disk_of(&below.ok()?.path())?;
        smallest = smallest.min(smallest_unit(&below)?);
    }
    Some(smallest)
}

fn disk_of(device: &Path) -> Option<PathBuf> {
    let disks = [device.to_owned(), device.join("..")];
    disks.into_iter().find(|disk| disk.join("queue").is_dir())
}

pub(super) fn has_sequential_zones(device: &File) -> bool {
    let folders = folders(device).into_iter().flatten();
    folders.into_iter().any(|queue| is_host_managed(&queue))
}

fn is_host_managed(queue: &Path) -> bool {
    let model = fs::read_to_string(queue.join("zoned"));
    model.is_ok_and(|model| model.trim() == "host-managed")
}

/// Returns the two possible `queue` folders of a device. A partition's folder is one level up.
pub(super) fn folders(device: &File) -> Option<[PathBuf; 2]> {
    let device = folder(device)?;
    Some(["queue", "../queue"].map(|queue| device.join(queue)))
}

fn folder(device: &File) -> Option<PathBuf> {
    let number = device.metadata().ok()?.rdev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    Some(PathBuf::from(format!("/sys/dev/block/{major}:{minor}")))
}

pub(super) fn read_limit(folder: &Path, name: &str) -> Option<u64> {
    let text = fs::read_to_string(folder.join(name)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_discard_has_no_granularity_of_it() {
        let read = |limits: &[(&str, &str)]| {
            let folder = tempfile::tempdir().unwrap();
            let queue = folder.path().join("queue");
            fs::create_dir(&queue).unwrap();
            for (name, value) in limits {
                fs::write(queue.join(name), value).unwrap();
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
                unit: None,
                sector: 512,
                chunk: 0,
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

    fn disk(folder: &Path, name: &str, physical: &str, alignment: &str) -> PathBuf {
        let disk = folder.join(name);
        fs::create_dir_all(disk.join("queue")).unwrap();
        fs::write(disk.join("queue/physical_block_size"), physical).unwrap();
        fs::write(disk.join("alignment_offset"), alignment).unwrap();
        disk
    }

    fn unit_of(device: &Path) -> Option<(u64, u64)> {
        let unit = QueueLimits::read(device).unwrap().unit;
        unit.map(|unit| (unit.bytes, unit.offset))
    }

    #[test]
    fn a_physical_block_is_written_as_one_where_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let whole = disk(folder.path(), "sda", "4096\n", "0\n");
        assert_eq!(unit_of(&whole), Some((4096, 0)));
        let partition = |name: &str, alignment: &str| {
            let partition = whole.join(name);
            fs::create_dir(&partition).unwrap();
            fs::write(partition.join("alignment_offset"), alignment).unwrap();
            partition
        };
        assert_eq!(unit_of(&partition("sda1", "512\n")), Some((4096, 512)));
        assert_eq!(unit_of(&partition("sda2", "61440\n")), Some((4096, 0)));
        assert_eq!(unit_of(&partition("sda3", "-1\n")), None);
    }

    #[test]
    fn a_unit_of_several_blocks_is_a_promise_within_its_bounds() {
        let in_blocks = |bytes, offset, block| Unit { bytes, offset }.in_blocks(block);
        assert_eq!(in_blocks(4096, 0, 512), Atomic::units(8, 0));
        assert_eq!(in_blocks(4096, 512, 512), Atomic::units(8, 1));
        assert_eq!(in_blocks(16384, 4096, 4096), Atomic::units(4, 1));
        let most = 512 << 16;
        assert_eq!(
            in_blocks(most, most - 512, 512),
            Atomic::units(1 << 16, 0xffff)
        );
        for (bytes, offset, block) in [
            (512, 0, 512),
            (512, 0, 4096),
            (16384, 512, 4096),
            (6144, 0, 4096),
            (2 * most, 0, 512),
        ] {
            assert_eq!(in_blocks(bytes, offset, block), Atomic::BLOCK, "{bytes}");
        }
    }

    #[test]
    fn a_block_of_several_sectors_is_whole_where_a_physical_block_covers_it() {
        let folder = tempfile::tempdir().unwrap();
        let keeps = |name: &str, physical: &str, alignment: &str| {
            let limits = QueueLimits::read(&disk(folder.path(), name, physical, alignment));
            let limits = limits.unwrap();
            [512, 4096].map(|block| limits.keeps_blocks_whole(block))
        };
        assert_eq!(keeps("sda", "512\n", "0\n"), [true, false]);
        assert_eq!(keeps("sdb", "4096\n", "0\n"), [true, true]);
        assert_eq!(keeps("sdc", "16384\n", "4096\n"), [true, true]);
        assert_eq!(keeps("sdd", "4096\n", "512\n"), [true, false]);
        assert_eq!(keeps("sde", "4096\n", "-1\n"), [true, false]);
    }

    #[test]
    fn a_device_on_several_promises_what_all_of_them_do() {
        let folder = tempfile::tempdir().unwrap();
        let below = |device: &Path, name: &str, other: &Path| {
            let slaves = device.join("slaves");
            fs::create_dir_all(&slaves).unwrap();
            std::os::unix::fs::symlink(other, slaves.join(name)).unwrap();
        };
        let on_512e = disk(folder.path(), "sda", "4096\n", "0\n");
        let on_512n = disk(folder.path(), "sdb", "512\n", "0\n");
        let raid = disk(folder.path(), "md0", "4096\n", "0\n");
        let volume = disk(folder.path(), "dm-0", "4096\n", "0\n");
        below(&volume, "md0", &raid);
        below(&raid, "sda", &on_512e);
        assert_eq!(unit_of(&volume), Some((4096, 0)));
        let partition = on_512n.join("sdb1");
        fs::create_dir(&partition).unwrap();
        below(&raid, "sdb1", &partition);
        assert_eq!(unit_of(&volume), Some((512, 0)));
        below(&raid, "sdc", &folder.path().join("sdc"));
        assert_eq!(unit_of(&volume), None);
    }

    #[test]
    fn requests_that_a_disk_cuts_are_named_where_it_cuts_them() {
        let folder = tempfile::tempdir().unwrap();
        let raid = disk(folder.path(), "md0", "4096\n", "0\n");
        let boundary =
            |device: &Path, block_bytes| QueueLimits::read(device).unwrap().boundary(block_bytes);
        assert_eq!(boundary(&raid, 512), 0, "it says nothing");
        fs::write(raid.join("queue/chunk_sectors"), "128\n").unwrap();
        assert_eq!((boundary(&raid, 512), boundary(&raid, 4096)), (128, 16));
        for (start, expected) in [("2048\n", 16), ("63\n", 0)] {
            let partition = raid.join(format!("md0p{expected}"));
            fs::create_dir(&partition).unwrap();
            fs::write(partition.join("start"), start).unwrap();
            assert_eq!(boundary(&partition, 4096), expected);
        }
        for (chunk, block) in [("9\n", 4096), ("65536\n", 512), ("0\n", 512)] {
            fs::write(raid.join("queue/chunk_sectors"), chunk).unwrap();
            assert_eq!(boundary(&raid, block), 0, "{chunk}");
        }
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
