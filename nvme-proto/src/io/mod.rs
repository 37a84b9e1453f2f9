//! Parser of I/O commands of the NVM command set.
//!
//! [`IoCommand::parse`] checks opcode, block range, data length and location, and reserved fields
//! of an SQE.
//!
//! A target processes an I/O command in these steps:
//!
//! 1. Pass a Fabrics command ([`Sqe::is_fabrics`]) to the controller.
//! 2. Create the [`NamespaceView`] of `sqe.nsid` and parse the SQE. An error is the status.
//! 3. Fetch [`DataTransfer::FromHost`] by RDMA READ, or use [`DataTransfer::InCapsule`] in place.
//! 4. Execute [`IoCommand::operation`].
//! 5. After success, send [`DataTransfer::ToHost`] by RDMA WRITE.
//! 6. Send the response. It invalidates the key from `sqe.dptr.invalidate_rkey()`, if any.
//!
//! The parser does not allocate. As specified, it ignores protection information (CDW2, CDW3,
//! CDW14, CDW15) and access hints (CDW13) of block commands.

mod cancel;
mod copy;
mod dataset;

pub use cancel::Cancel;
pub use copy::{BlockCopy, COPY_BYTES_MAX, COPY_RANGES_MAX, CopyFormat, CopyRange, CopyRanges};
pub use dataset::{DATASET_RANGE_BYTES, DATASET_RANGES_MAX, DatasetRange, DatasetRanges};

use crate::fused;
use crate::transfer::{DataTransfer, RemoteBuffer};
use crate::wire::identify::{Oncs, Vwc};
use crate::wire::{NSID_ALL, NvmOpcode, Sqe, Status};

/// Valid I/O command.
///
/// ```
/// use nvme_proto::io::{IoCommand, NamespaceView, Operation};
/// use nvme_proto::subsystem::{Settings, Subsystem};
/// use nvme_proto::wire::{NvmOpcode, SglDescriptor, Sqe, Status};
///
/// let nqn = "nqn.2026-01.org.example:disk".parse()?;
/// let limits = Subsystem::new(Settings::new(nqn, "SN1")).io_limits();
/// let namespace = NamespaceView {
///     nsze: 1000,
///     lbads: 9,
///     write_protected: false,
///     write_uncorrectable: false,
/// };
/// let mut sqe = Sqe::new(3, NvmOpcode::READ.0, 1);
/// sqe.cdw10.set(992);
/// sqe.cdw12.set(8 - 1);
/// sqe.dptr = SglDescriptor::keyed(0x1000, 8 * 512, 0x77, true);
///
/// let command = IoCommand::parse(&sqe, 0, Some(&namespace), &limits).unwrap();
/// assert!(matches!(command.operation, Operation::Read(access) if access.range.slba == 992));
/// assert_eq!(command.transfer.length(), 8 * 512);
///
/// sqe.cdw10.set(993);
/// let status = IoCommand::parse(&sqe, 0, Some(&namespace), &limits).unwrap_err();
/// assert_eq!(status.code(), Status::LBA_OUT_OF_RANGE);
/// # Ok::<(), nvme_proto::wire::nqn::NqnError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoCommand {
    /// Command identifier.
    pub cid: u16,
    /// NSID; FFFFFFFFh only for Flush.
    pub nsid: u32,
    /// Operation and parameters.
    pub operation: Operation,
    /// Location and length of the data.
    pub transfer: DataTransfer,
}

/// Operation of an I/O command, with its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reads blocks (NVM, 3.2.4).
    Read(BlockAccess),
    /// Writes blocks (NVM, 3.2.6).
    Write(BlockAccess),
    /// Compares blocks with data from the host (NVM, 3.2.1).
    Compare(BlockAccess),
    /// Reads blocks without transferring data (NVM, 3.2.5).
    Verify(BlockAccess),
    /// Sets blocks to zeroes (NVM, 3.2.8).
    WriteZeroes {
        /// Blocks and access flags.
        access: BlockAccess,
        /// DEAC: the blocks may be deallocated if they then read as zeroes.
        deallocate: bool,
    },
    /// Makes blocks unreadable until they are written (NVM, 3.2.7).
    WriteUncorrectable(BlockAccess),
    /// Makes completed writes durable (Base, 7.1).
    Flush(FlushScope),
    /// Deallocates ranges, or gives hints (NVM, 3.2.3).
    DatasetManagement {
        /// NR: number of ranges, 1 to [`DATASET_RANGES_MAX`].
        ranges: u16,
        /// AD: true to deallocate the ranges, false for hints only.
        deallocate: bool,
    },
    /// Copies blocks within the namespace (NVM 1.1, 3.3.2).
    Copy(BlockCopy),
}

/// Operation of an I/O command, without block ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// [`Operation::Read`].
    Read,
    /// [`Operation::Write`].
    Write,
    /// [`Operation::Flush`].
    Flush(FlushScope),
    /// [`Operation::Compare`].
    Compare,
    /// [`Operation::Verify`].
    Verify,
    /// [`Operation::WriteZeroes`].
    WriteZeroes,
    /// [`Operation::WriteUncorrectable`].
    WriteUncorrectable,
    /// [`Operation::DatasetManagement`].
    DatasetManagement {
        /// AD: true to deallocate the ranges.
        deallocate: bool,
    },
    /// [`Operation::Copy`].
    Copy,
}

impl Operation {
    /// Returns the operation without block ranges.
    #[must_use]
    #[inline]
    pub const fn kind(&self) -> OperationKind {
        match *self {
            Self::Read(_) => OperationKind::Read,
            Self::Write(_) => OperationKind::Write,
            Self::Flush(scope) => OperationKind::Flush(scope),
            Self::Compare(_) => OperationKind::Compare,
            Self::Verify(_) => OperationKind::Verify,
            Self::WriteZeroes { .. } => OperationKind::WriteZeroes,
            Self::WriteUncorrectable(_) => OperationKind::WriteUncorrectable,
            Self::DatasetManagement { deallocate, .. } => {
                OperationKind::DatasetManagement { deallocate }
            }
            Self::Copy(_) => OperationKind::Copy,
        }
    }
}

impl OperationKind {
    /// True if the operation changes data of the namespace.
    #[must_use]
    #[inline]
    pub const fn changes(self) -> bool {
        match self {
            Self::Write | Self::WriteZeroes | Self::WriteUncorrectable | Self::Copy => true,
            Self::DatasetManagement { deallocate } => deallocate,
            Self::Read | Self::Flush(_) | Self::Compare | Self::Verify => false,
        }
    }
}

/// Scope of a Flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// The namespace of the command.
    Namespace,
    /// All namespaces attached to the controller.
    All,
}

/// Range of blocks with access flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAccess {
    /// Range within the namespace.
    pub range: BlockRange,
    /// FUA: accesses the medium, not a cache.
    pub fua: bool,
    /// LR: limits the disk's retries.
    pub limited_retry: bool,
}

/// Range of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// First logical block.
    pub slba: u64,
    /// Number of blocks, not 0-based (unlike NLB).
    pub blocks: u32,
}

/// Namespace properties for the parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// Size in logical blocks.
    pub nsze: u64,
    /// Log2 of the block size in bytes.
    pub lbads: u8,
    /// True if commands that change data fail.
    pub write_protected: bool,
    /// True if Write Uncorrectable is supported.
    pub write_uncorrectable: bool,
}

/// Controller limits for the parser, as in Identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimits {
    /// MDTS: maximum data length in bytes.
    pub mdts_bytes: u32,
    /// WZSL: maximum Write Zeroes in bytes; `None`: no limit.
    pub wzsl_bytes: Option<u32>,
    /// VSL: maximum Verify in bytes; `None`: no limit.
    pub vsl_bytes: Option<u32>,
    /// WUSL: maximum Write Uncorrectable in bytes; `None`: no limit.
    pub wusl_bytes: Option<u32>,
    /// Supported optional commands.
    pub oncs: Oncs,
    /// Whether Flush may have NSID FFFFFFFFh.
    pub vwc: Vwc,
}

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_dnr();
const INVALID_OPCODE: Status = Status::INVALID_OPCODE.with_dnr();
const INVALID_NAMESPACE: Status = Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr();
const INVALID_PROTECTION: Status = Status::INVALID_PROTECTION_INFORMATION.with_dnr();
const LBA_OUT_OF_RANGE: Status = Status::LBA_OUT_OF_RANGE.with_dnr();
const WRITE_PROTECTED: Status = Status::NAMESPACE_WRITE_PROTECTED.with_dnr();

impl IoCommand {
    /// Parses and validates an SQE.
    ///
    /// `namespace` is the namespace of the SQE's NSID, if any.
    // Inlining keeps the fields of a Read command in registers.
    #[inline(always)]
    pub fn parse(
        sqe: &Sqe,
        in_capsule_bytes: u32,
        namespace: Option<&NamespaceView>,
        limits: &IoLimits,
    ) -> Result<Self, Status> {
        let parser = Parser {
            sqe,
            in_capsule_bytes,
            namespace,
            limits,
        };
        let oncs = &limits.oncs;
        let (operation, transfer) = match NvmOpcode(sqe.opc) {
            NvmOpcode::READ => parser.read()?,
            NvmOpcode::WRITE => parser.write()?,
            NvmOpcode::FLUSH => parser.flush()?,
            NvmOpcode::COMPARE if oncs.compare() => parser.compare()?,
            NvmOpcode::VERIFY if oncs.verify() => parser.verify()?,
            NvmOpcode::WRITE_ZEROES if oncs.write_zeroes() => parser.write_zeroes()?,
            NvmOpcode::DATASET_MANAGEMENT if oncs.dataset_management() => {
                parser.dataset_management()?
            }
            NvmOpcode::COPY if oncs.copy() => parser.copy()?,
            // Not checked in ONCS, which reports the command only if all namespaces support it.
            NvmOpcode::WRITE_UNCORRECTABLE
                if namespace.is_some_and(|namespace| namespace.write_uncorrectable) =>
            {
                parser.write_uncorrectable()?
            }
            _ => return Err(INVALID_OPCODE),
        };
        Ok(Self {
            cid: sqe.cid.get(),
            nsid: sqe.nsid.get(),
            operation,
            transfer,
        })
    }
}

#[inline(always)]
fn check_header(sqe: &Sqe) -> Result<(), Status> {
    sqe.check_flags()?;
    if sqe.mptr.get() == 0 {
        Ok(())
    } else {
        Err(INVALID_FIELD)
    }
}

impl NamespaceView {
    /// Returns the range if it is within the namespace.
    ///
    /// # Errors
    /// LBA Out of Range.
    #[inline]
    pub fn check_range(&self, slba: u64, blocks: u32) -> Result<BlockRange, Status> {
        match slba.checked_add(u64::from(blocks)) {
            Some(end) if end <= self.nsze => Ok(BlockRange { slba, blocks }),
            _ => Err(LBA_OUT_OF_RANGE),
        }
    }

    /// Converts blocks to bytes.
    ///
    /// # Panics
    /// If LBADS exceeds 31.
    #[must_use]
    #[inline]
    pub fn bytes(&self, blocks: u32) -> u64 {
        assert!(self.lbads < 32, "LBADS {} is no block size", self.lbads);
        u64::from(blocks) << self.lbads
    }
}

mod cdw12 {
    pub(super) const NLB: u32 = 0xffff;
    /// Bits 31:16, which must be 0 in Write Uncorrectable.
    pub(super) const ABOVE_NLB: u32 = !NLB;
    /// DTYPE and reserved bits; directives are not supported.
    pub(super) const RESERVED: u32 = 0x02ff_0000;
    pub(super) const DEAC: u32 = 1 << 25;
    pub(super) const PROTECTION: u32 = 0x3d00_0000;
    pub(super) const FUA: u32 = 1 << 30;
    pub(super) const LR: u32 = 1 << 31;
}

const CDW13_RESERVED: u32 = 0x0000_ff00;

/// Inputs of the parser; passed by value to stay in registers.
#[derive(Clone, Copy)]
struct Parser<'a> {
    sqe: &'a Sqe,
    in_capsule_bytes: u32,
    namespace: Option<&'a NamespaceView>,
    limits: &'a IoLimits,
}

type Parsed = Result<(Operation, DataTransfer), Status>;

impl<'a> Parser<'a> {
    #[inline(always)]
    fn read(self) -> Parsed {
        check_header(self.sqe)?;
        let (access, bytes) = self.block_access(0)?;
        let buffer = RemoteBuffer::of_command(self.sqe, self.within_mdts(bytes)?)?;
        Ok((Operation::Read(access), DataTransfer::ToHost(buffer)))
    }

    #[inline]
    fn write(self) -> Parsed {
        check_header(self.sqe).map_err(|status| fused::refusal(self.sqe, status))?;
        self.check_writable()?;
        let (access, bytes) = self.block_access(0)?;
        Ok((Operation::Write(access), self.data_of_host(bytes)?))
    }

    fn compare(self) -> Parsed {
        check_header(self.sqe).map_err(|status| fused::refusal(self.sqe, status))?;
        let (access, bytes) = self.block_access(0)?;
        Ok((Operation::Compare(access), self.data_of_host(bytes)?))
    }

    fn verify(self) -> Parsed {
        check_header(self.sqe)?;
        let (access, bytes) = self.block_access(0)?;
        check_limit(bytes, self.limits.vsl_bytes)?;
        Ok((Operation::Verify(access), DataTransfer::none(self.sqe)?))
    }

    fn write_zeroes(self) -> Parsed {
        check_header(self.sqe)?;
        self.check_writable()?;
        let (access, bytes) = self.block_access(cdw12::DEAC)?;
        check_limit(bytes, self.limits.wzsl_bytes)?;
        let deallocate = self.sqe.cdw12.get() & cdw12::DEAC != 0;
        Ok((
            Operation::WriteZeroes { access, deallocate },
            DataTransfer::none(self.sqe)?,
        ))
    }

    fn write_uncorrectable(self) -> Parsed {
        check_header(self.sqe)?;
        self.check_writable()?;
        if self.sqe.cdw12.get() & cdw12::ABOVE_NLB != 0 {
            return Err(INVALID_FIELD);
        }
        let (access, bytes) = self.block_access(0)?;
        check_limit(bytes, self.limits.wusl_bytes)?;
        Ok((
            Operation::WriteUncorrectable(access),
            DataTransfer::none(self.sqe)?,
        ))
    }

    fn flush(self) -> Parsed {
        let sqe = self.sqe;
        check_header(sqe)?;
        let all = sqe.nsid.get() == NSID_ALL && self.limits.vwc.flush_all() == Vwc::FLUSH_ALL_YES;
        let scope = if all {
            FlushScope::All
        } else {
            self.namespace()?;
            FlushScope::Namespace
        };
        self.check_zero(&[
            sqe.cdw2, sqe.cdw3, sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13,
        ])?;
        self.check_zero(&[sqe.cdw14, sqe.cdw15])?;
        Ok((Operation::Flush(scope), DataTransfer::none(sqe)?))
    }

    fn dataset_management(self) -> Parsed {
        const AD: u32 = 1 << 2;
        const ATTRIBUTES: u32 = 0b111;

        let sqe = self.sqe;
        check_header(sqe)?;
        self.namespace()?;
        let (nr, attributes) = (sqe.cdw10.get(), sqe.cdw11.get());
        if nr > u32::from(u8::MAX) || attributes & !ATTRIBUTES != 0 {
            return Err(INVALID_FIELD);
        }
        self.check_zero(&[
            sqe.cdw2, sqe.cdw3, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15,
        ])?;
        let deallocate = attributes & AD != 0;
        if deallocate {
            self.check_writable()?;
        }
        let ranges = nr as u16 + 1;
        let bytes = u32::from(ranges) * DATASET_RANGE_BYTES as u32;
        let transfer = DataTransfer::from_host_at_least(sqe, bytes, self.in_capsule_bytes)?;
        Ok((
            Operation::DatasetManagement { ranges, deallocate },
            transfer,
        ))
    }

    fn copy(self) -> Parsed {
        check_header(self.sqe)?;
        self.check_writable()?;
        let copy = BlockCopy::parse(self.sqe)?;
        let bytes = copy.data_bytes();
        let transfer = DataTransfer::from_host(self.sqe, bytes, self.in_capsule_bytes)?;
        Ok((Operation::Copy(copy), transfer))
    }

    /// Returns the blocks with flags, and their length in bytes. `defined` has the bits of
    /// `cdw12::RESERVED` that the command defines.
    #[inline(always)]
    fn block_access(self, defined: u32) -> Result<(BlockAccess, u64), Status> {
        let namespace = self.namespace()?;
        let dword12 = self.sqe.cdw12.get();
        if dword12 & cdw12::RESERVED & !defined != 0 || self.sqe.cdw13.get() & CDW13_RESERVED != 0 {
            return Err(INVALID_FIELD);
        }
        if dword12 & cdw12::PROTECTION != 0 {
            return Err(INVALID_PROTECTION);
        }
        let blocks = (dword12 & cdw12::NLB) + 1;
        let access = BlockAccess {
            range: namespace.check_range(self.sqe.cdw10_11(), blocks)?,
            fua: dword12 & cdw12::FUA != 0,
            limited_retry: dword12 & cdw12::LR != 0,
        };
        Ok((access, namespace.bytes(blocks)))
    }

    #[inline]
    fn data_of_host(self, bytes: u64) -> Result<DataTransfer, Status> {
        DataTransfer::from_host(self.sqe, self.within_mdts(bytes)?, self.in_capsule_bytes)
    }

    #[inline]
    fn within_mdts(self, bytes: u64) -> Result<u32, Status> {
        match u32::try_from(bytes) {
            Ok(bytes) if bytes <= self.limits.mdts_bytes => Ok(bytes),
            _ => Err(INVALID_FIELD),
        }
    }

    #[inline]
    fn namespace(self) -> Result<&'a NamespaceView, Status> {
        match self.sqe.nsid.get() {
            0 | NSID_ALL => Err(INVALID_NAMESPACE),
            _ => self.namespace.ok_or(INVALID_NAMESPACE),
        }
    }

    #[inline]
    fn check_writable(self) -> Result<(), Status> {
        if self.namespace()?.write_protected {
            Err(WRITE_PROTECTED)
        } else {
            Ok(())
        }
    }

    fn check_zero(self, reserved: &[crate::wire::U32]) -> Result<(), Status> {
        if reserved.iter().all(|dword| dword.get() == 0) {
            Ok(())
        } else {
            Err(INVALID_FIELD)
        }
    }
}

fn check_limit(bytes: u64, limit: Option<u32>) -> Result<(), Status> {
    match limit {
        Some(limit) if bytes > u64::from(limit) => Err(INVALID_FIELD),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
