//! Which commands may be sent again after their connection broke before they
//! were answered: whether they were carried out is unknown then.

use crate::wire::{NvmOpcode, Sqe};

/// Whether carrying the command out twice does the same as once, provided that
/// no other command writes to the same blocks meanwhile, as none may while a write
/// is outstanding. For commands of I/O queues.
///
/// Reads, writes and their kin name their blocks and, in the host's memory, their
/// data: twice is once. Reservations change who may do what, Copy may read what
/// it has written, and of a vendor's command nothing is known: their caller must
/// decide. A command whose key the controller was to take out of use cannot be
/// sent again with that key, so it goes back to its caller, too.
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
