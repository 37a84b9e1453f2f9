//! Division of a transfer into pieces that the device accepts as single requests.
//!
//! The kernel splits large requests, but not non-blocking requests (`REQ_NOWAIT`). io_uring first
//! tries each request without blocking, which would always fail for a large request.

use std::fs::File;
use std::path::Path;

use super::queue_limits;

const PIECES_MAX: u32 = 8;

const UNIT: u64 = 4096;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    count: u32,
    out: u32,
    asked: u32,
    moved: u32,
    /// Set after a step with several pieces failed in part. Each step then has one piece.
    one_by_one: bool,
    error: i32,
}

impl Pieces {
    pub(super) fn begin(&mut self) {
        *self = Self {
            one_by_one: self.one_by_one,
            ..Self::default()
        };
    }

    pub(super) fn may_add(&self) -> bool {
        let most = if self.one_by_one { 1 } else { PIECES_MAX };
        self.count < most
    }

    pub(super) fn add(&mut self, bytes: u32) {
        self.count += 1;
        self.out += 1;
        self.asked += bytes;
    }

    /// True if the step has several pieces. If it fails with `EAGAIN`, some pieces may have
    /// succeeded.
    pub(super) fn several(&self) -> bool {
        self.count > 1
    }

    /// Records the result of one piece. After the last piece, returns the result of the step. If
    /// one of several pieces failed or was short, the result is `EAGAIN`: the caller repeats the
    /// pieces one by one.
    pub(super) fn end_one(&mut self, result: Result<u32, i32>) -> Option<Result<u32, i32>> {
        if self.count <= 1 {
            return Some(result);
        }
        self.out -= 1;
        self.moved += result.unwrap_or(0);
        if self.out > 0 {
            return None;
        }
        if self.moved == self.asked {
            return Some(Ok(self.moved));
        }
        self.one_by_one = true;
        Some(Err(libc::EAGAIN))
    }
}

impl Pieces {
    /// Like [`Self::end_one`], for pieces that succeed or fail completely. The result of the step
    /// is the number of its bytes, or its first error.
    pub(super) fn end_whole(&mut self, result: Result<(), i32>) -> Option<Result<u32, i32>> {
        self.out -= 1;
        if let (Err(error), 0) = (result, self.error) {
            self.error = error;
        }
        (self.out == 0).then_some(match self.error {
            0 => Ok(self.asked),
            error => Err(error),
        })
    }
}

/// Returns the maximum bytes of a passthrough command. The kernel does not split such commands, and
/// maps each in at most 256 segments. Unaligned data needs one more segment.
pub(super) fn largest_command(device: &File) -> Option<u64> {
    let queues = queue_limits::folders(device)?;
    queues.iter().find_map(|queue| command_of_queue(queue))
}

fn command_of_queue(queue: &Path) -> Option<u64> {
    let limit = |name| queue_limits::read_limit(queue, name);
    let bytes = limit("max_sectors_kb")? << 10;
    let segments = limit("max_segments").unwrap_or(u64::MAX).min(256);
    let largest = bytes.min((segments.max(2) - 1) * UNIT);
    Some((largest / UNIT * UNIT).max(UNIT))
}

pub(super) fn largest_request(device: &File) -> Option<u64> {
    let queues = queue_limits::folders(device)?;
    queues.iter().find_map(|queue| request_of_queue(queue))
}

fn request_of_queue(queue: &Path) -> Option<u64> {
    let limit = |name| queue_limits::read_limit(queue, name);
    let bytes = limit("max_sectors_kb")? << 10;
    let segments = limit("max_segments").unwrap_or(u64::MAX);
    let largest = bytes.min(segments.saturating_mul(UNIT));
    Some((largest / UNIT * UNIT).max(UNIT))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn queue(limits: &[(&str, &str)]) -> Option<u64> {
        let folder = tempfile::tempdir().unwrap();
        for (name, value) in limits {
            fs::write(folder.path().join(name), value).unwrap();
        }
        request_of_queue(folder.path())
    }

    #[test]
    fn requests_are_as_large_as_the_queue_allows() {
        let (kb, segments) = ("max_sectors_kb", "max_segments");
        assert_eq!(
            queue(&[(kb, "127\n"), (segments, "128\n")]),
            Some(124 << 10)
        );
        assert_eq!(
            queue(&[(kb, "1280\n"), (segments, "33\n")]),
            Some(132 << 10)
        );
        assert_eq!(queue(&[(kb, "1\n")]), Some(4096));
        assert_eq!(queue(&[]), None);
    }

    #[test]
    fn commands_leave_room_for_a_page_that_they_begin_in() {
        let folder = tempfile::tempdir().unwrap();
        let commands = |kb: &str, segments: &str| {
            fs::write(folder.path().join("max_sectors_kb"), kb).unwrap();
            fs::write(folder.path().join("max_segments"), segments).unwrap();
            command_of_queue(folder.path())
        };
        assert_eq!(commands("128\n", "127\n"), Some(128 << 10));
        assert_eq!(commands("512\n", "127\n"), Some(504 << 10));
        assert_eq!(commands("2048\n", "65535\n"), Some(1020 << 10));
        assert_eq!(commands("512\n", "1\n"), Some(4096));
    }

    #[test]
    fn whole_pieces_end_with_the_first_error() {
        let two = || {
            let mut pieces = Pieces::default();
            pieces.begin();
            pieces.add(4096);
            pieces.add(512);
            pieces
        };
        let mut good = two();
        assert_eq!(good.end_whole(Ok(())), None);
        assert_eq!(good.end_whole(Ok(())), Some(Ok(4608)));
        let mut bad = two();
        assert_eq!(bad.end_whole(Err(5)), None);
        assert_eq!(bad.end_whole(Err(6)), Some(Err(5)));
        bad.begin();
        bad.add(512);
        assert_eq!(bad.end_whole(Ok(())), Some(Ok(512)));
    }

    #[test]
    fn a_step_ends_with_its_last_piece() {
        let mut pieces = Pieces::default();
        pieces.begin();
        while pieces.may_add() {
            pieces.add(4096);
        }
        for _ in 1..PIECES_MAX {
            assert_eq!(pieces.end_one(Ok(4096)), None);
        }
        assert_eq!(pieces.end_one(Ok(4096)), Some(Ok(4096 * PIECES_MAX)));
    }

    #[test]
    fn what_did_not_all_succeed_is_tried_again_one_by_one() {
        for bad in [Err(libc::EIO), Ok(512)] {
            let mut pieces = Pieces::default();
            pieces.begin();
            pieces.add(4096);
            pieces.add(4096);
            assert_eq!(pieces.end_one(bad), None);
            assert_eq!(pieces.end_one(Ok(4096)), Some(Err(libc::EAGAIN)));
            pieces.begin();
            pieces.add(4096);
            assert!(!pieces.may_add());
            assert_eq!(pieces.end_one(bad), Some(bad));
        }
    }
}
