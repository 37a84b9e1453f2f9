//! Contents of a simulated disk: current data, and data that survives a power failure.
//!
//! Until a flush, the medium may hold any version of a block since the last flush, because caches
//! write back in any order.

use std::collections::BTreeMap;

use super::Chance;

/// Effect of a crash on unflushed writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheFate {
    Kept,
    Lost,
    /// Each block randomly has one of its versions since the last flush.
    Mixed,
}

#[derive(Debug)]
struct Version {
    number: u64,
    bytes: Box<[u8]>,
    /// Whether a failed flush dropped this version, so that later flushes do not write it.
    dropped: bool,
}

#[derive(Debug)]
pub(super) struct Medium {
    block_bytes: usize,
    current: Vec<u8>,
    stable: Vec<u8>,
    unflushed: BTreeMap<usize, Vec<Version>>,
    writes: u64,
}

impl Medium {
    pub(super) fn new(bytes: usize, block_bytes: usize) -> Self {
        Self {
            block_bytes,
            current: vec![0; bytes],
            stable: vec![0; bytes],
            unflushed: BTreeMap::new(),
            writes: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.current.len()
    }

    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    pub(super) fn read(&self, offset: usize, length: usize) -> &[u8] {
        &self.current[offset..offset + length]
    }

    pub(super) fn stable(&self, offset: usize, length: usize) -> &[u8] {
        &self.stable[offset..offset + length]
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8], durable: bool) {
        self.writes += 1;
        let size = self.block_bytes;
        assert!(
            offset.is_multiple_of(size) && bytes.len().is_multiple_of(size),
            "{} bytes at {offset} are not whole blocks of {size}",
            bytes.len()
        );
        self.current[offset..offset + bytes.len()].copy_from_slice(bytes);
        for (block, content) in (offset / size..).zip(bytes.chunks_exact(size)) {
            if durable {
                self.stable[block * size..][..size].copy_from_slice(content);
                self.unflushed.remove(&block);
                continue;
            }
            self.unflushed.entry(block).or_default().push(Version {
                number: self.writes,
                bytes: content.into(),
                dropped: false,
            });
        }
    }

    pub(super) fn flush(&mut self, upto: u64) {
        let (stable, size) = (&mut self.stable, self.block_bytes);
        self.unflushed.retain(|&block, versions| {
            let covered = |version: &Version| version.number <= upto && !version.dropped;
            if let Some(last) = versions.iter().rposition(covered) {
                stable[block * size..][..size].copy_from_slice(&versions[last].bytes);
                versions.drain(..=last);
            }
            !versions.is_empty()
        });
    }

    /// Marks unflushed versions as lost, as Linux's page cache does after a failed write-back.
    /// Reads return the data, and later flushes succeed.
    pub(super) fn drop_unflushed(&mut self, upto: u64) {
        let versions = self.unflushed.values_mut().flatten();
        for version in versions.filter(|version| version.number <= upto) {
            version.dropped = true;
        }
    }

    pub(super) fn crash(&mut self, fate: CacheFate, chance: &mut Chance) {
        let size = self.block_bytes;
        for (block, mut versions) in std::mem::take(&mut self.unflushed) {
            let kept = match fate {
                CacheFate::Lost => 0,
                CacheFate::Kept => versions.len(),
                CacheFate::Mixed => chance.below(versions.len() as u64 + 1) as usize,
            };
            if let Some(kept) = kept.checked_sub(1) {
                let bytes = versions.swap_remove(kept).bytes;
                self.stable[block * size..][..size].copy_from_slice(&bytes);
            }
        }
        self.current.copy_from_slice(&self.stable);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medium() -> (Medium, Chance) {
        (Medium::new(4 * 512, 512), Chance::new(7))
    }

    #[test]
    fn a_crash_loses_what_was_not_flushed_and_nothing_else() {
        for fate in [CacheFate::Kept, CacheFate::Lost] {
            let (mut medium, mut chance) = medium();
            medium.write(0, &[1; 512], false);
            medium.write(512, &[2; 512], true);
            medium.flush(medium.writes());
            medium.write(0, &[3; 1024], false);
            assert_eq!(medium.read(0, 1024), [3; 1024]);
            assert_eq!(medium.stable(512, 512), [2; 512]);
            medium.crash(fate, &mut chance);
            let first = if fate == CacheFate::Kept { 3 } else { 1 };
            let second = if fate == CacheFate::Kept { 3 } else { 2 };
            assert_eq!(medium.read(0, 512), [first; 512]);
            assert_eq!(medium.read(512, 512), [second; 512]);
        }
    }

    #[test]
    fn a_mixed_crash_leaves_any_version_since_the_flush() {
        let mut seen = [false; 4];
        for seed in 0..100 {
            let (mut medium, mut chance) = (medium().0, Chance::new(seed));
            for version in 1..4 {
                medium.write(0, &[version; 512], false);
            }
            medium.crash(CacheFate::Mixed, &mut chance);
            let left = medium.read(0, 512);
            assert!(left.iter().all(|byte| *byte == left[0]), "a block is whole");
            seen[usize::from(left[0])] = true;
        }
        assert_eq!(seen, [true; 4]);
    }

    #[test]
    fn a_flush_covers_what_was_written_before_it_was_submitted() {
        let (mut medium, mut chance) = medium();
        medium.write(0, &[1; 512], false);
        let upto = medium.writes();
        medium.write(0, &[2; 512], false);
        medium.flush(upto);
        medium.crash(CacheFate::Lost, &mut chance);
        assert_eq!(medium.read(0, 512), [1; 512]);
    }

    #[test]
    fn what_a_failed_flush_dropped_no_later_one_saves() {
        let (mut medium, mut chance) = medium();
        medium.write(0, &[1; 512], false);
        medium.drop_unflushed(medium.writes());
        medium.write(512, &[2; 512], false);
        medium.flush(medium.writes());
        assert_eq!(medium.read(0, 512), [1; 512]);
        medium.crash(CacheFate::Lost, &mut chance);
        assert_eq!(medium.read(0, 512), [0; 512]);
        assert_eq!(medium.read(512, 512), [2; 512]);
    }
}
