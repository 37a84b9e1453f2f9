//! Failed commands that are not yet in their controller's error log.
//!
//! Hosts can cause failures at any rate, so reactors store them without a lock; the controller's
//! next admin command moves them to the log.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use nvme_proto::controller::error_log::Failure;
use nvme_proto::limits::ERROR_LOG_ENTRIES;

/// Maximum attempts to replace the oldest failure. Another reactor may fill the freed entry first.
const ATTEMPTS: usize = 3;

/// Latest failed commands, at most as many as the error log has entries.
#[derive(Debug)]
pub(super) struct Failures {
    sender: Sender<Failure>,
    receiver: Receiver<Failure>,
    left_out: AtomicU64,
}

impl Failures {
    pub(super) fn new() -> Self {
        let (sender, receiver) = bounded(ERROR_LOG_ENTRIES);
        Self {
            sender,
            receiver,
            left_out: AtomicU64::new(0),
        }
    }

    pub(super) fn record(&self, mut failure: Failure) {
        for _ in 0..ATTEMPTS {
            match self.sender.try_send(failure) {
                Ok(()) => return,
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => failure = back,
            }
            if self.receiver.try_recv().is_ok() {
                self.left_out.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }

    pub(super) fn take(&self) -> impl Iterator<Item = Failure> + '_ {
        self.receiver.try_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_proto::wire::Status;

    fn failure(cid: u16) -> Failure {
        Failure {
            sqid: 1,
            cid,
            status: Status::LBA_OUT_OF_RANGE,
            byte: None,
            lba: 0,
            nsid: 1,
        }
    }

    #[test]
    fn the_newest_stay_and_all_are_counted() {
        let failures = Failures::new();
        let many = ERROR_LOG_ENTRIES as u16 + 10;
        for cid in 0..many {
            failures.record(failure(cid));
        }
        assert_eq!(failures.take_left_out(), 10);
        let kept: Vec<u16> = failures.take().map(|failure| failure.cid).collect();
        assert_eq!(kept, (10..many).collect::<Vec<_>>());
        assert_eq!(failures.take_left_out(), 0);
        assert_eq!(failures.take().count(), 0);
    }

    #[test]
    fn reactors_record_at_once() {
        const EACH: u16 = 1000;
        let failures = Failures::new();
        let taken = std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..EACH).for_each(|cid| failures.record(failure(cid))));
            }
            let mut taken = 0;
            for _ in 0..100 {
                taken += failures.take().count() as u64 + failures.take_left_out();
            }
            taken
        });
        let rest = failures.take().count() as u64 + failures.take_left_out();
        assert_eq!(taken + rest, 4 * u64::from(EACH));
    }
}
