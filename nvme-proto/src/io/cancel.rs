//! Cancel (TP 4097), as in Linux's RFC patches: aborts commands of the same submission queue.

use crate::transfer::DataTransfer;
use crate::wire::{NSID_ALL, NvmOpcode, Sqe, Status};

use super::{INVALID_FIELD, check_header};

const CID_ALL: u16 = 0xffff;
const SINGLE: u32 = 0;
const MULTIPLE: u32 = 1;

/// Valid Cancel command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel {
    /// CID of the command to abort; `None` for all except this Cancel.
    pub cid: Option<u16>,
    nsid: u32,
}

impl Cancel {
    /// True for a Cancel command.
    #[must_use]
    pub fn is_one(sqe: &Sqe) -> bool {
        sqe.opc == NvmOpcode::CANCEL.0
    }

    /// Creates the SQE, with CID 0, to abort command `cid` of queue `sqid`, or all if `None`.
    #[must_use]
    pub fn sqe(nsid: u32, sqid: u16, cid: Option<u16>) -> Sqe {
        let mut sqe = Sqe::new(0, NvmOpcode::CANCEL.0, nsid);
        let victim = cid.unwrap_or(CID_ALL);
        sqe.cdw10.set(u32::from(sqid) | u32::from(victim) << 16);
        sqe.cdw11.set(if cid.is_some() { SINGLE } else { MULTIPLE });
        sqe
    }

    /// Parses a command of queue `qid` for which [`Self::is_one`] is true.
    pub fn parse(sqe: &Sqe, qid: u16) -> Result<Self, Status> {
        check_header(sqe)?;
        DataTransfer::none(sqe)?;
        let reserved = [
            sqe.cdw2, sqe.cdw3, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15,
        ];
        let (sqid, cid) = (sqe.cdw10.get() as u16, (sqe.cdw10.get() >> 16) as u16);
        if sqid != qid || reserved.iter().any(|dword| dword.get() != 0) {
            return Err(INVALID_FIELD);
        }
        let cid = match sqe.cdw11.get() {
            SINGLE if cid == sqe.cid.get() => return Err(Status::INVALID_COMMAND_ID.with_dnr()),
            SINGLE => Some(cid),
            MULTIPLE if cid == CID_ALL => None,
            _ => return Err(INVALID_FIELD),
        };
        let nsid = sqe.nsid.get();
        Ok(Self { cid, nsid })
    }

    /// True if the command aborts a command with this CID and NSID.
    #[must_use]
    pub fn aborts(&self, cid: u16, nsid: u32) -> bool {
        let is_named = self.cid.is_none_or(|own| own == cid);
        is_named && (self.nsid == NSID_ALL || self.nsid == nsid)
    }

    /// Returns DW0: commands aborted (`immediate`), and commands still at a disk (`deferred`).
    #[must_use]
    pub fn result(immediate: usize, deferred: usize) -> u64 {
        let count = |number: usize| u64::from(u16::try_from(number).unwrap_or(u16::MAX));
        count(immediate) | count(deferred) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(sqe: Sqe) -> Result<Cancel, Status> {
        let sqe = Sqe {
            cid: 9.into(),
            ..sqe
        };
        Cancel::parse(&sqe, 3).map_err(Status::code)
    }

    #[test]
    fn one_command_or_all_of_a_namespace_are_aborted() {
        let one = parse(Cancel::sqe(1, 3, Some(7))).unwrap();
        assert!(one.aborts(7, 1) && !one.aborts(7, 2) && !one.aborts(8, 1));
        let all = parse(Cancel::sqe(1, 3, None)).unwrap();
        assert!(all.aborts(7, 1) && all.aborts(8, 1) && !all.aborts(7, 2));
        let all = parse(Cancel::sqe(NSID_ALL, 3, None)).unwrap();
        assert!(all.aborts(7, 1) && all.aborts(7, 2));
    }

    #[test]
    fn a_cancel_names_its_own_queue_and_no_cancel_itself() {
        for sqid in [0, 2, 4, 0xffff] {
            let refused = parse(Cancel::sqe(1, sqid, Some(7)));
            assert_eq!(refused, Err(Status::INVALID_FIELD));
        }
        let own = parse(Cancel::sqe(1, 3, Some(9)));
        assert_eq!(own, Err(Status::INVALID_COMMAND_ID));
        assert!(parse(Cancel::sqe(1, 3, Some(CID_ALL))).is_ok());
    }

    #[test]
    fn reserved_bits_are_refused() {
        let changes: [fn(&mut Sqe); 6] = [
            |sqe| sqe.cdw10.set(3 | 7 << 16),
            |sqe| sqe.cdw11.set(2),
            |sqe| sqe.cdw11.set(0x101),
            |sqe| sqe.cdw12.set(1),
            |sqe| sqe.mptr.set(1),
            |sqe| sqe.flags |= 1,
        ];
        for change in changes {
            let mut sqe = Cancel::sqe(1, 3, None);
            change(&mut sqe);
            assert_eq!(parse(sqe), Err(Status::INVALID_FIELD));
        }
        let mut sqe = Cancel::sqe(1, 3, None);
        sqe.dptr = crate::wire::SglDescriptor::keyed(0, 512, 1, false);
        assert!(parse(sqe).is_err());
    }

    #[test]
    fn the_result_counts_up_to_its_limit() {
        assert_eq!(Cancel::result(2, 1), 0x1_0002);
        assert_eq!(Cancel::result(1 << 16, 1 << 16), 0xffff_ffff);
    }
}
