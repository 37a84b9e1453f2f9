//! Log pages read by several commands, each within MDTS.

use nvme_proto::wire::Sqe;
use nvme_proto::wire::log::LogPage;

use crate::command;

#[derive(Debug)]
pub(crate) struct Reading {
    page: LogPage,
    nsid: u32,
    offset: u64,
    length: usize,
    piece_max: usize,
    retain: bool,
    bytes: Vec<u8>,
}

impl Reading {
    /// Creates a read of a log page. Unless `retain` is set, the first command re-arms the page's
    /// event, so that changes during the read are reported.
    ///
    /// # Panics
    /// If `length` is 0 or not a multiple of 4, or `piece_max` is less than 4.
    pub(crate) fn new(
        (page, nsid): (LogPage, u32),
        offset: u64,
        length: usize,
        piece_max: usize,
        retain: bool,
    ) -> Self {
        assert!(
            length > 0 && length.is_multiple_of(4) && piece_max >= 4,
            "a log page is read in dwords, not {length} bytes by {piece_max}"
        );
        Self {
            page,
            nsid,
            offset,
            length,
            piece_max: piece_max & !3,
            retain,
            bytes: Vec::with_capacity(length),
        }
    }

    pub(crate) fn next(&self) -> Option<(Sqe, u32)> {
        let piece = (self.length - self.bytes.len()).min(self.piece_max) as u32;
        let retain = self.retain || !self.bytes.is_empty();
        let at = self.offset + self.bytes.len() as u64;
        (piece > 0).then(|| {
            let sqe = command::get_log_page(self.page, self.nsid, at, piece, retain);
            (sqe, piece)
        })
    }

    pub(crate) fn take(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use nvme_proto::wire::NSID_ALL;
    use nvme_proto::wire::log::{GetLogCdw10, GetLogCdw11};

    use super::*;

    #[test]
    fn each_byte_is_read_once_and_the_first_command_arms_the_event() {
        let page: Vec<u8> = (0..70_000u32).map(|at| at as u8).collect();
        let mut reading = Reading::new((LogPage::ANA, NSID_ALL), 16, 69_984, 8192, false);
        let mut commands = 0;
        while let Some((sqe, bytes)) = reading.next() {
            let cdw10 = GetLogCdw10(sqe.cdw10.get());
            assert_eq!(cdw10.rae(), commands > 0);
            let numd =
                u32::from(cdw10.numdl()) | u32::from(GetLogCdw11(sqe.cdw11.get()).numdu()) << 16;
            assert!(bytes <= 8192 && (numd + 1) * 4 == bytes);
            let at = sqe.cdw12.get() as usize;
            reading.take(&page[at..at + bytes as usize]);
            commands += 1;
        }
        assert_eq!(commands, 9);
        assert_eq!(reading.into_bytes(), page[16..]);
    }
}
