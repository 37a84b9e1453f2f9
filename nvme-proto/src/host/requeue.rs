//! Commands that may be sent again.

use core::time::Duration;

use crate::wire::identify::IdentifyController;
use crate::wire::{NvmOpcode, Sqe, Status};

/// Maximum retries of a failed command, as in Linux.
pub const RETRIES_MAX: u8 = 5;
const CRDT_UNIT_MS: u64 = 100;

/// True if a failed command may be sent again: DNR is clear, and [`is_safe`] is true.
#[must_use]
pub fn may_pass(status: Status, sqe: &Sqe) -> bool {
    !status.is_success() && !status.dnr() && is_safe(sqe)
}

/// Delay before a retry: the CRDT selected by CRD.
#[must_use]
pub fn pause(status: Status, controller: &IdentifyController) -> Duration {
    let units = match status.crd() {
        0 => 0,
        1 => controller.crdt1.get(),
        2 => controller.crdt2.get(),
        _ => controller.crdt3.get(),
    };
    Duration::from_millis(u64::from(units) * CRDT_UNIT_MS)
}

/// True if executing the command twice has the same result as once, unless another command changes
/// the blocks in between.
///
/// False for reservations, Copy (which may read its own output), vendor specific and fused
/// commands, and commands whose response invalidates a memory key.
#[must_use]
pub fn is_safe(sqe: &Sqe) -> bool {
    let idempotent = matches!(
        NvmOpcode(sqe.opc),
        NvmOpcode::FLUSH
            | NvmOpcode::WRITE
            | NvmOpcode::READ
            | NvmOpcode::WRITE_UNCORRECTABLE
            | NvmOpcode::COMPARE
            | NvmOpcode::WRITE_ZEROES
            | NvmOpcode::DATASET_MANAGEMENT
            | NvmOpcode::VERIFY
    );
    idempotent && sqe.fuse() == 0 && sqe.dptr.invalidate_rkey().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{FromZeros, SglDescriptor};

    fn sqe(opcode: NvmOpcode) -> Sqe {
        let mut sqe = Sqe::new_zeroed();
        sqe.opc = opcode.0;
        sqe.dptr = SglDescriptor::none();
        sqe
    }

    #[test]
    fn the_pause_is_the_one_that_the_status_names() {
        let mut controller = IdentifyController::new_zeroed();
        controller.crdt1.set(3);
        controller.crdt3.set(0xffff);
        let not_ready = Status::NAMESPACE_NOT_READY;
        for (crd, pause_ms) in [(0, 0), (1, 300), (2, 0), (3, 6_553_500)] {
            let pause = pause(not_ready.with_crd(crd), &controller);
            assert_eq!(pause, Duration::from_millis(pause_ms));
        }
        let write = sqe(NvmOpcode::WRITE);
        assert!(may_pass(not_ready, &write) && !may_pass(not_ready.with_dnr(), &write));
        assert!(!may_pass(not_ready, &sqe(NvmOpcode::COPY)));
    }

    #[test]
    fn what_can_be_done_twice_and_what_cannot() {
        assert!(is_safe(&sqe(NvmOpcode::WRITE)) && is_safe(&sqe(NvmOpcode::FLUSH)));
        for opcode in [
            NvmOpcode::COPY,
            NvmOpcode::RESERVATION_ACQUIRE,
            NvmOpcode::FABRICS,
            NvmOpcode(0xc0),
        ] {
            assert!(!is_safe(&sqe(opcode)), "{opcode}");
        }
        let mut once = sqe(NvmOpcode::READ);
        once.dptr = SglDescriptor::keyed(4096, 512, 7, true);
        assert!(!is_safe(&once));
        let mut fused = sqe(NvmOpcode::COMPARE);
        fused.flags = 1;
        assert!(!is_safe(&fused));
    }
}
