use crate::host::requeue;
use crate::wire::Sqe;
use crate::wire::status::{SCT_PATH, Status};

/// Maximum retries of a command on any path, as in Linux.
pub const FAILOVERS_MAX: u8 = requeue::RETRIES_MAX;

/// Next step for a failed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Return the error to the caller.
    Caller,
    /// Send the command on another path.
    Elsewhere {
        /// True if the path's ANA state caused the failure and must be read again.
        doubt_ana: bool,
    },
    /// Send the command again on any path after [`requeue::pause`].
    Again,
}

/// Decides the next step for a command that failed with `status`, as Linux does.
///
/// A command that must not be repeated ([`requeue::may_pass`]) fails. A path related status (SCT
/// 3h) or Command Aborted due to SQ Deletion requires another path; other statuses allow any path.
///
/// `failovers` counts earlier retries, except those after a loss or an ANA status. At
/// [`FAILOVERS_MAX`], a command fails unless it has an ANA status.
#[must_use]
pub fn judge(status: Status, sqe: &Sqe, failovers: u8) -> Verdict {
    let code = status.code();
    let of_path = status.sct() == SCT_PATH || code == Status::ABORTED_SQ_DELETION;
    if !requeue::may_pass(status, sqe) {
        return Verdict::Caller;
    }
    if !of_path {
        return match failovers < FAILOVERS_MAX {
            true => Verdict::Again,
            false => Verdict::Caller,
        };
    }
    let doubt_ana = matches!(
        code,
        Status::ANA_PERSISTENT_LOSS | Status::ANA_INACCESSIBLE | Status::ANA_TRANSITION
    );
    if doubt_ana || failovers < FAILOVERS_MAX {
        Verdict::Elsewhere { doubt_ana }
    } else {
        Verdict::Caller
    }
}

/// Decides the next step for a command whose connection was lost.
#[must_use]
pub fn judge_loss(sqe: &Sqe) -> Verdict {
    if requeue::is_safe(sqe) {
        Verdict::Elsewhere { doubt_ana: false }
    } else {
        Verdict::Caller
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FromZeros, NvmOpcode, SglDescriptor};

    fn sqe(opcode: NvmOpcode) -> Sqe {
        let mut sqe = Sqe::new_zeroed();
        sqe.opc = opcode.0;
        sqe.dptr = SglDescriptor::none();
        sqe
    }

    #[test]
    fn a_paths_fault_is_tried_elsewhere_and_no_other() {
        let write = sqe(NvmOpcode::WRITE);
        let elsewhere = |doubt_ana| Verdict::Elsewhere { doubt_ana };
        for (status, verdict) in [
            (Status::SUCCESS, Verdict::Caller),
            (Status::NAMESPACE_NOT_READY, Verdict::Again),
            (Status::ABORT_REQUESTED, Verdict::Again),
            (Status::WRITE_FAULT, Verdict::Again),
            (Status::INTERNAL_PATH_ERROR, elsewhere(false)),
            (Status::CONTROLLER_PATHING_ERROR, elsewhere(false)),
            (Status::HOST_PATHING_ERROR, elsewhere(false)),
            (Status::ABORTED_BY_HOST, elsewhere(false)),
            (Status::ABORTED_SQ_DELETION, elsewhere(false)),
            (Status::ANA_INACCESSIBLE, elsewhere(true)),
            (Status::ANA_PERSISTENT_LOSS, elsewhere(true)),
            (Status::ANA_TRANSITION, elsewhere(true)),
        ] {
            assert_eq!(judge(status, &write, 0), verdict, "{status}");
            assert_eq!(judge(status.with_more(), &write, 0), verdict, "{status}");
            assert_eq!(judge(status.with_dnr(), &write, 0), Verdict::Caller);
        }
    }

    #[test]
    fn a_path_that_is_there_and_refuses_is_not_asked_for_ever() {
        let read = sqe(NvmOpcode::READ);
        for status in [Status::INTERNAL_PATH_ERROR, Status::NAMESPACE_NOT_READY] {
            let verdict = judge(status, &read, FAILOVERS_MAX);
            assert_eq!(verdict, Verdict::Caller, "{status}");
        }
        let verdict = judge(Status::ANA_INACCESSIBLE, &read, FAILOVERS_MAX);
        assert_eq!(verdict, Verdict::Elsewhere { doubt_ana: true });
    }

    #[test]
    fn what_cannot_be_done_twice_is_its_callers() {
        assert_ne!(judge_loss(&sqe(NvmOpcode::WRITE)), Verdict::Caller);
        let reserve = sqe(NvmOpcode::RESERVATION_ACQUIRE);
        assert_eq!(judge_loss(&reserve), Verdict::Caller);
        assert_eq!(
            judge(Status::HOST_PATHING_ERROR, &reserve, 0),
            Verdict::Caller
        );
    }
}
