//! Error Information log (Base, 5.16.1.2).

use alloc::collections::VecDeque;

use zerocopy::FromZeros;

use crate::limits::ERROR_LOG_ENTRIES;
use crate::wire::Status;
use crate::wire::log::{ErrorEntry, TransportType};

/// Failed command, for the error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// SQID; 0 for the admin queue.
    pub sqid: u16,
    /// Command identifier.
    pub cid: u16,
    /// Status of the completion.
    pub status: Status,
    /// Byte offset of the invalid SQE field, if any.
    pub byte: Option<u8>,
    /// First affected LBA; 0 for none.
    pub lba: u64,
    /// NSID of the command; 0 for none.
    pub nsid: u32,
}

/// Error Information log of one association.
#[derive(Debug, Default)]
pub struct ErrorLog {
    /// At most [`ERROR_LOG_ENTRIES`], newest first.
    entries: VecDeque<ErrorEntry>,
    count: u64,
}

impl ErrorLog {
    /// Adds an entry; a full log loses its oldest.
    pub fn record(&mut self, failure: &Failure) {
        self.count += 1;
        let mut entry = ErrorEntry::new_zeroed();
        entry.error_count.set(self.count);
        entry.sqid.set(failure.sqid);
        entry.cid.set(failure.cid);
        entry.status.set(failure.status.to_field(false));
        let byte = failure.byte.map_or(ErrorEntry::NOT_OF_A_COMMAND, u16::from);
        entry.parameter_error_location.set(byte);
        entry.lba.set(failure.lba);
        entry.nsid.set(failure.nsid);
        entry.trtype = TransportType::RDMA.0;
        self.entries.truncate(ERROR_LOG_ENTRIES - 1);
        self.entries.push_front(entry);
    }

    pub(crate) fn skip(&mut self, failures: u64) {
        self.count += failures;
    }

    /// Number of failed commands of the association.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Entries, newest first.
    pub fn entries(&self) -> impl Iterator<Item = &ErrorEntry> {
        self.entries.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(cid: u16) -> Failure {
        Failure {
            sqid: 1,
            cid,
            status: Status::LBA_OUT_OF_RANGE,
            byte: None,
            lba: 9,
            nsid: 2,
        }
    }

    #[test]
    fn the_newest_come_first_and_the_count_goes_on() {
        let mut log = ErrorLog::default();
        for cid in 0..100 {
            log.record(&failure(cid));
        }
        assert_eq!(log.count(), 100);
        assert_eq!(log.entries().count(), ERROR_LOG_ENTRIES);
        let newest = log.entries().next().unwrap();
        assert_eq!((newest.error_count.get(), newest.cid.get()), (100, 99));
        let oldest = log.entries().last().unwrap();
        assert_eq!((oldest.error_count.get(), oldest.cid.get()), (37, 36));
    }

    #[test]
    fn an_entry_says_what_failed_and_where() {
        let mut log = ErrorLog::default();
        log.record(&Failure {
            byte: Some(44),
            ..failure(3)
        });
        let entry = log.entries().next().unwrap();
        assert_eq!(entry.parameter_error_location.get(), 44);
        assert_eq!(
            Status::from_field(entry.status.get()),
            Status::LBA_OUT_OF_RANGE
        );
        assert_eq!(
            (entry.sqid.get(), entry.lba.get(), entry.nsid.get()),
            (1, 9, 2)
        );
    }
}
