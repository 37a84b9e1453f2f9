use cairn_base::peer_line;
use cairn_disk::{BlockIo, BlockOp, Errno};
use nvme_proto::wire::Status;
use nvme_proto::wire::status::SCT_PATH;

use crate::reactor::io::Io;
use crate::reactor::queues::Queues;
use crate::reactor::time::Now;
use crate::request::RequestId;

/// Error of a change overtaken by a newer change of the same blocks.
pub(in crate::reactor) const OVERTAKEN: Errno = Errno(-1);

const PROTECTION_REMEDY: &str = "a block does not match its protection information: write it again \
     from a copy, and look at the drive by `nvme smart-log`";

/// Sets Do Not Retry unless a retry or another path may succeed.
pub(in crate::reactor) fn status_of(op: BlockOp, errno: Errno) -> Status {
    if let Some(bits) = errno.drive_status() {
        return status_of_drive(op, Status::from_bits(bits));
    }
    match (errno.0, op) {
        (libc::ENOSPC | libc::EDQUOT | libc::EFBIG, _) => Status::CAPACITY_EXCEEDED.with_dnr(),
        (libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF, _) => {
            Status::NAMESPACE_WRITE_PROTECTED.with_dnr()
        }
        // Ceph refused this target or timed out; another target may succeed.
        (libc::ESHUTDOWN, _) => Status::INTERNAL_PATH_ERROR,
        (libc::EOPNOTSUPP, _) => Status::INVALID_OPCODE.with_dnr(),
        (libc::EIO | libc::EILSEQ | libc::ENODATA | libc::EREMOTEIO, op) => medium_error(op),
        (
            libc::ENODEV
            | libc::ENXIO
            | libc::ENOMEDIUM
            | libc::EAGAIN
            | libc::EINTR
            | libc::ECANCELED,
            _,
        ) => Status::NAMESPACE_NOT_READY,
        _ => Status::INTERNAL_ERROR,
    }
}

fn medium_error(op: BlockOp) -> Status {
    match op {
        BlockOp::Read | BlockOp::Compare | BlockOp::Verify => Status::UNRECOVERED_READ_ERROR,
        _ => Status::WRITE_FAULT,
    }
}

/// A path error, or an abort not requested by the host, becomes Namespace Not Ready without Do Not
/// Retry. A failed check of protection information becomes an error of the medium, because hosts
/// have a namespace without.
fn status_of_drive(op: BlockOp, status: Status) -> Status {
    let code = status.code();
    let aborted = [Status::ABORT_REQUESTED, Status::ABORTED_SQ_DELETION];
    if code.sct() == SCT_PATH || aborted.contains(&code) {
        return Status::NAMESPACE_NOT_READY;
    }
    let code = match is_protection_check(code) {
        true => medium_error(op),
        false => code,
    };
    // CRD and More, which refer to the drive's controller, are removed.
    if status.dnr() { code.with_dnr() } else { code }
}

pub(in crate::reactor) fn is_difference(errno: Errno) -> bool {
    let status = errno.drive_status().map(Status::from_bits);
    status.is_some_and(|status| status.code() == Status::COMPARE_FAILURE)
}

fn is_protection_check(code: Status) -> bool {
    [
        Status::GUARD_CHECK_ERROR,
        Status::APPLICATION_TAG_CHECK_ERROR,
        Status::REFERENCE_TAG_CHECK_ERROR,
        Status::STORAGE_TAG_CHECK_ERROR,
    ]
    .contains(&code)
}

/// True if a drive, or Linux for a block device (EILSEQ), found wrong protection information.
pub(in crate::reactor) fn is_protection_error(errno: Errno) -> bool {
    let status = errno.drive_status().map(Status::from_bits);
    status.map_or(errno.0 == libc::EILSEQ, |it| is_protection_check(it.code()))
}

fn reason(errno: Errno) -> String {
    let error = match errno.drive_status() {
        Some(bits) => format!("the drive's status: {}", Status::from_bits(bits)),
        None => std::io::Error::from_raw_os_error(errno.0).to_string(),
    };
    if is_protection_error(errno) {
        return format!("{error}: {PROTECTION_REMEDY}");
    }
    error
}

/// Logs at most one failure a second per disk.
pub(in crate::reactor) fn report_failure(
    queues: &Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    block: BlockIo,
    errno: Errno,
) {
    let request = &queues.requests[id];
    let disk = request.disk.expect("block I/O has a disk");
    let Some(line) = io.disks[disk].failure_to_report(now.at) else {
        return;
    };
    let queue = &queues.qpairs[request.qpair];
    peer_line!(warn, line,
        host = queue.host_nqn(), subsystem = queue.subsystem_nqn(),
        nsid = request.sqe.nsid.get(), op = %block.op, offset = block.offset,
        length = block.length, error = reason(errno),
        "the disk failed a command"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_speaks_for_itself() {
        let write = BlockOp::Write { durable: false };
        let shown = |bits: i32| status_of(write, Errno((1 << 16) + bits));
        let unrecovered = Status::UNRECOVERED_READ_ERROR;
        assert_eq!(shown(0x281), unrecovered);
        assert_eq!(shown(0x4281), unrecovered.with_dnr());
        assert_eq!(shown(0x3281), unrecovered);
        for lost in [0x370, 0x4371, 0x007, 0x008] {
            assert_eq!(shown(lost), Status::NAMESPACE_NOT_READY, "{lost:#x}");
        }
        let reason = reason(Errno((1 << 16) + 0x281));
        assert_eq!(reason, "the drive's status: Unrecovered Read Error (2/81h)");
    }

    #[test]
    fn a_host_without_protection_information_sees_an_unreadable_block() {
        let write = BlockOp::Write { durable: false };
        for bits in [0x282, 0x283, 0x284, 0x288] {
            let errno = Errno((1 << 16) + bits);
            for op in [BlockOp::Read, BlockOp::Compare, BlockOp::Verify] {
                assert_eq!(status_of(op, errno), Status::UNRECOVERED_READ_ERROR);
            }
            assert_eq!(status_of(write, errno), Status::WRITE_FAULT);
            assert!(is_protection_error(errno));
            assert!(reason(errno).contains(PROTECTION_REMEDY));
        }
        let final_error = status_of(BlockOp::Read, Errno((1 << 16) + 0x4282));
        assert_eq!(final_error, Status::UNRECOVERED_READ_ERROR.with_dnr());
        assert!(is_protection_error(Errno(libc::EILSEQ)));
        for errno in [libc::EIO, (1 << 16) + 0x281, (1 << 16) + 0x285] {
            assert!(!is_protection_error(Errno(errno)), "{errno:#x}");
        }
    }

    #[test]
    fn errors_of_the_disk_in_nvme_terms() {
        let write = BlockOp::Write { durable: false };
        assert_eq!(status_of(write, Errno(libc::EIO)), Status::WRITE_FAULT);
        assert_eq!(
            status_of(BlockOp::Read, Errno(libc::EIO)),
            Status::UNRECOVERED_READ_ERROR
        );
        assert_eq!(
            status_of(write, Errno(libc::ENOSPC)),
            Status::CAPACITY_EXCEEDED.with_dnr()
        );
        assert_eq!(
            status_of(BlockOp::Flush, Errno(libc::ENOMEM)),
            Status::INTERNAL_ERROR
        );
    }
}
