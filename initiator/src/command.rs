//! Constructors of submission queue entries. CID and data pointer are set on submission.

use nvme_proto::wire::cross_reset::Instance;
use nvme_proto::wire::feature::{GetFeaturesCdw10, Select, SetFeaturesCdw10};
use nvme_proto::wire::identify::{CSI_NVM, Cns, IdentifyCdw10, IdentifyCdw11};
use nvme_proto::wire::log::{GetLogCdw10, GetLogCdw11, LogPage};
use nvme_proto::wire::{AdminOpcode, FromZeros, NvmOpcode, Sqe, U32};

/// FUA in CDW12.
const FUA: u32 = 1 << 30;
/// DEAC in CDW12 of Write Zeroes.
const DEALLOCATE: u32 = 1 << 25;
/// AD in CDW11 of Dataset Management.
const ATTRIBUTE_DEALLOCATE: u32 = 1 << 2;

/// Identify with the CSI of the NVM command set.
#[must_use]
pub fn identify(cns: Cns, nsid: u32) -> Sqe {
    let mut sqe = plain(AdminOpcode::IDENTIFY.0, nsid);
    sqe.cdw10 = U32::new(IdentifyCdw10(0).with_cns(cns.0).0);
    sqe.cdw11 = U32::new(IdentifyCdw11(0).with_csi(CSI_NVM).0);
    sqe
}

/// Get Log Page of `length` bytes from `offset`. With `retain` (RAE), the controller does not
/// re-arm the page's event.
///
/// # Panics
/// If `length` is 0 or not a multiple of 4.
#[must_use]
pub fn get_log_page(page: LogPage, nsid: u32, offset: u64, length: u32, retain: bool) -> Sqe {
    assert!(
        length > 0 && length.is_multiple_of(4),
        "a log page is fetched in dwords, not {length} bytes"
    );
    let numd = length / 4 - 1;
    let mut sqe = plain(AdminOpcode::GET_LOG_PAGE.0, nsid);
    sqe.cdw10 = U32::new(
        GetLogCdw10(0)
            .with_lid(page.0)
            .with_rae(retain)
            .with_numdl(numd as u16)
            .0,
    );
    sqe.cdw11 = U32::new(GetLogCdw11(0).with_numdu((numd >> 16) as u16).0);
    sqe.cdw12 = U32::new(offset as u32);
    sqe.cdw13 = U32::new((offset >> 32) as u32);
    sqe
}

/// Get Features. SEL (`select`) is current, default, saved or capabilities.
#[must_use]
pub fn get_features(fid: u8, select: Select, nsid: u32, cdw11: u32) -> Sqe {
    let mut sqe = plain(AdminOpcode::GET_FEATURES.0, nsid);
    sqe.cdw10 = U32::new(GetFeaturesCdw10(0).with_fid(fid).with_sel(select.0).0);
    sqe.cdw11 = U32::new(cdw11);
    sqe
}

/// Set Features, without saving the value.
#[must_use]
pub fn set_features(fid: u8, nsid: u32, cdw11: u32) -> Sqe {
    let mut sqe = plain(AdminOpcode::SET_FEATURES.0, nsid);
    sqe.cdw10 = U32::new(SetFeaturesCdw10(0).with_fid(fid).0);
    sqe.cdw11 = U32::new(cdw11);
    sqe
}

/// Abort of command `cid` on queue `sqid`.
#[must_use]
pub fn abort(sqid: u16, cid: u16) -> Sqe {
    let mut sqe = plain(AdminOpcode::ABORT.0, 0);
    sqe.cdw10 = U32::new(u32::from(sqid) | u32::from(cid) << 16);
    sqe
}

/// Cross-Controller Reset of another controller of this host.
#[must_use]
pub fn cross_controller_reset(instance: &Instance) -> Sqe {
    let mut sqe = plain(AdminOpcode::CROSS_CONTROLLER_RESET.0, 0);
    instance.put(&mut sqe);
    sqe
}

/// Keep Alive, which has no NSID.
#[must_use]
pub fn keep_alive() -> Sqe {
    plain(AdminOpcode::KEEP_ALIVE.0, 0)
}

/// Asynchronous Event Request, which has no NSID.
#[must_use]
pub fn async_event_request() -> Sqe {
    plain(AdminOpcode::ASYNC_EVENT_REQUEST.0, 0)
}

/// Read of `blocks` blocks from `slba`.
#[must_use]
pub fn read(nsid: u32, slba: u64, blocks: u32) -> Sqe {
    blocks_command(NvmOpcode::READ, nsid, slba, blocks)
}

/// Write of `blocks` blocks from `slba`.
#[must_use]
pub fn write(nsid: u32, slba: u64, blocks: u32) -> Sqe {
    blocks_command(NvmOpcode::WRITE, nsid, slba, blocks)
}

/// Compare of `blocks` blocks from `slba` with the command's data.
#[must_use]
pub fn compare(nsid: u32, slba: u64, blocks: u32) -> Sqe {
    blocks_command(NvmOpcode::COMPARE, nsid, slba, blocks)
}

/// Makes a Compare and a Write of one block a fused pair. The Write is executed only if the Compare
/// succeeds. No other command changes or compares the block in between.
#[must_use]
pub fn fused(mut compare: Sqe, mut write: Sqe) -> [Sqe; 2] {
    compare.flags |= 0b01;
    write.flags |= 0b10;
    [compare, write]
}

/// Verify: the controller reads `blocks` blocks from `slba`, and transfers no data.
#[must_use]
pub fn verify(nsid: u32, slba: u64, blocks: u32) -> Sqe {
    blocks_command(NvmOpcode::VERIFY, nsid, slba, blocks)
}

/// Write Zeroes to `blocks` blocks from `slba`. With `deallocate`, the controller may deallocate
/// the blocks instead.
#[must_use]
pub fn write_zeroes(nsid: u32, slba: u64, blocks: u32, deallocate: bool) -> Sqe {
    let mut sqe = blocks_command(NvmOpcode::WRITE_ZEROES, nsid, slba, blocks);
    if deallocate {
        sqe.cdw12 = U32::new(sqe.cdw12.get() | DEALLOCATE);
    }
    sqe
}

/// Flush of a namespace.
#[must_use]
pub fn flush(nsid: u32) -> Sqe {
    plain(NvmOpcode::FLUSH.0, nsid)
}

/// Dataset Management that deallocates `ranges` ranges. Each range has 16 bytes of data.
///
/// # Panics
/// If `ranges` is not in 1 to 256.
#[must_use]
pub fn deallocate(nsid: u32, ranges: u32) -> Sqe {
    assert!(
        (1..=256).contains(&ranges),
        "1 to 256 ranges fit a command, not {ranges}"
    );
    let mut sqe = plain(NvmOpcode::DATASET_MANAGEMENT.0, nsid);
    sqe.cdw10 = U32::new(ranges - 1);
    sqe.cdw11 = U32::new(ATTRIBUTE_DEALLOCATE);
    sqe
}

/// Copy of `ranges` source ranges in format 0h to the blocks from `sdlba`. Each range has 32 bytes
/// of data.
///
/// # Panics
/// If `ranges` is not in 1 to 256.
#[must_use]
pub fn copy(nsid: u32, sdlba: u64, ranges: u32) -> Sqe {
    assert!(
        (1..=256).contains(&ranges),
        "1 to 256 ranges fit a command, not {ranges}"
    );
    blocks_command(NvmOpcode::COPY, nsid, sdlba, ranges)
}

/// Adds Force Unit Access (Read, Write, Compare, Write Zeroes, Copy).
#[must_use]
pub fn with_fua(mut sqe: Sqe) -> Sqe {
    sqe.cdw12 = U32::new(sqe.cdw12.get() | FUA);
    sqe
}

/// Command with only opcode and NSID.
#[must_use]
pub fn plain(opcode: u8, nsid: u32) -> Sqe {
    let mut sqe = Sqe::new_zeroed();
    sqe.opc = opcode;
    sqe.nsid = U32::new(nsid);
    sqe
}

fn blocks_command(opcode: NvmOpcode, nsid: u32, slba: u64, blocks: u32) -> Sqe {
    assert!(
        (1..=0x1_0000).contains(&blocks),
        "1 to 65536 blocks fit a command, not {blocks}"
    );
    let mut sqe = plain(opcode.0, nsid);
    sqe.cdw10 = U32::new(slba as u32);
    sqe.cdw11 = U32::new((slba >> 32) as u32);
    sqe.cdw12 = U32::new(blocks - 1);
    sqe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_0_based_and_addresses_64_bits_wide() {
        let sqe = with_fua(write(3, 0x1_2345_6789, 0x1_0000));
        assert_eq!((sqe.opc, sqe.nsid.get()), (1, 3));
        assert_eq!(sqe.cdw10_11(), 0x1_2345_6789);
        assert_eq!(sqe.cdw12.get(), 0x4000_ffff);
        assert_eq!(deallocate(1, 256).cdw10.get(), 255);
    }

    #[test]
    fn a_log_page_is_asked_for_in_dwords() {
        let sqe = get_log_page(LogPage::DISCOVERY, 0, 0, 3072, false);
        assert_eq!(sqe.cdw10.get(), 0x02ff_0070);
        let sqe = get_log_page(LogPage::ERROR_INFORMATION, 0, 1 << 33, 1 << 20, true);
        assert_eq!(sqe.cdw10.get(), 0xffff_8001);
        assert_eq!(sqe.cdw11.get(), 3);
        assert_eq!(sqe.cdw13.get(), 2);
    }
}
