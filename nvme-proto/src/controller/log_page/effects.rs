//! Log pages 05h and 12h: supported commands and features (Base, 5.16.1.6 and 5.16.1.18).

use zerocopy::{FromZeros, IntoBytes};

use crate::common::{Common, Kind};
use crate::controller::features;
use crate::window::Window;
use crate::wire::feature::Feature;
use crate::wire::log::{CommandEffects, CommandEffectsLog, FeatureEffects};
use crate::wire::{AdminOpcode, NvmOpcode, U32};

const ADMIN: [AdminOpcode; 9] = [
    AdminOpcode::GET_LOG_PAGE,
    AdminOpcode::IDENTIFY,
    AdminOpcode::ABORT,
    AdminOpcode::SET_FEATURES,
    AdminOpcode::GET_FEATURES,
    AdminOpcode::ASYNC_EVENT_REQUEST,
    AdminOpcode::KEEP_ALIVE,
    AdminOpcode::CROSS_CONTROLLER_RESET,
    AdminOpcode::FABRICS,
];

/// I/O commands listed for every NVM controller; true if the command changes data (LBCC).
const NVM: [(NvmOpcode, bool); 13] = [
    (NvmOpcode::FLUSH, false),
    (NvmOpcode::WRITE, true),
    (NvmOpcode::READ, false),
    (NvmOpcode::COMPARE, false),
    (NvmOpcode::WRITE_ZEROES, true),
    (NvmOpcode::DATASET_MANAGEMENT, true),
    (NvmOpcode::VERIFY, false),
    (NvmOpcode::CANCEL, false),
    (NvmOpcode::COPY, true),
    (NvmOpcode::RESERVATION_REGISTER, false),
    (NvmOpcode::RESERVATION_REPORT, false),
    (NvmOpcode::RESERVATION_ACQUIRE, false),
    (NvmOpcode::RESERVATION_RELEASE, false),
];

pub(super) fn put_commands(kind: Kind, write_uncorrectable: bool, page: &mut Window<'_>) {
    let supported = CommandEffects(0).with_csupp(true);
    let mut log = CommandEffectsLog::new_zeroed();
    for opcode in ADMIN {
        let effects = supported.with_controller_scope(true);
        log.acs[usize::from(opcode.0)].set(effects.0);
    }
    if kind == Kind::Nvm {
        let more = write_uncorrectable.then_some((NvmOpcode::WRITE_UNCORRECTABLE, true));
        for (opcode, changes_blocks) in NVM.into_iter().chain(more) {
            let effects = supported
                .with_lbcc(changes_blocks)
                .with_namespace_scope(true);
            log.iocs[usize::from(opcode.0)].set(effects.0);
        }
    }
    page.put(0, log.as_bytes());
}

pub(super) fn put_features(common: &Common, page: &mut Window<'_>) {
    let mut log = [U32::ZERO; 256];
    for fid in features::supported(common.kind()) {
        let of_namespace = features::capabilities(*fid).namespace_specific();
        let absent = *fid == Feature::VOLATILE_WRITE_CACHE && !common.has_write_cache();
        let effects = FeatureEffects(0)
            .with_fsupp(true)
            .with_namespace_scope(of_namespace)
            .with_controller_scope(!of_namespace);
        log[usize::from(fid.0)].set(if absent { 0 } else { effects.0 });
    }
    page.put(0, log.as_bytes());
}
