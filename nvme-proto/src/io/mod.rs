//! Commands of I/O queues: the NVM command set, parsed once.
//!
//! [`IoCommand::parse`] takes an SQE, what is known of the namespace its NSID
//! names, and the controller's limits. What comes out is valid in itself: the
//! opcode is supported, the blocks exist, the transfer has the length of the
//! blocks and stays in the capsule or names host memory, no reserved field is
//! set. What can still fail is the disk, and the contents of Dataset
//! Management's ranges, which arrive later ([`DatasetRanges`]).
//!
//! The life of a command in a target:
//!
//! 1. Fabrics commands ([`Sqe::is_fabrics`]) go to the controller instead.
//! 2. Look up the namespace by `sqe.nsid`, make its [`NamespaceView`], parse.
//!    An error is the status to answer with.
//! 3. By [`IoCommand::transfer`]: fetch [`DataTransfer::FromHost`] by RDMA READ,
//!    or take [`DataTransfer::InCapsule`] where it lies.
//! 4. Do the [`IoCommand::operation`].
//! 5. Send [`DataTransfer::ToHost`] by RDMA WRITE, unless it failed.
//! 6. Answer, whatever the outcome (step 2 included) by SEND with invalidate if
//!    `sqe.dptr.invalidate_rkey()` names a key.
//!
//! Everything here is `Copy`, and nothing allocates.
//!
//! Fields that a controller must ignore by the specification are not checked:
//! the protection tags (CDW2, CDW3, CDW14, CDW15 of block commands) of a
//! namespace without protection information, and access hints (CDW13). The
//! status for an NSID without namespace is Invalid Namespace or Format, whether
//! the NSID is beyond NN or merely not attached: a host cannot distinguish a namespace
//! that has just gone from one that never was.

mod dataset;

pub use dataset::{DATASET_RANGE_BYTES, DATASET_RANGES_MAX, DatasetRange, DatasetRanges};

use crate::transfer::{DataTransfer, RemoteBuffer};
use crate::wire::identify::{Oncs, Vwc};
use crate::wire::{NSID_ALL, NvmOpcode, Sqe, Status};

/// A command of the NVM command set that has passed every check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoCommand {
    /// CID.
    pub cid: u16,
    /// NSID; FFFFFFFFh only for a Flush of all.
    pub nsid: u32,
    /// What to do.
    pub operation: Operation,
    /// The data that go with it.
    pub transfer: DataTransfer,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read blocks (NVM, 3.2.4).
    Read(BlockAccess),
    /// Write blocks (NVM, 3.2.6).
    Write(BlockAccess),
    /// Compare blocks with the host's data; Compare Failure if they differ (NVM, 3.2.1).
    Compare(BlockAccess),
    /// Read blocks and return nothing (NVM, 3.2.5).
    Verify(BlockAccess),
    /// Make blocks read as zeroes (NVM, 3.2.8).
    WriteZeroes {
        /// Which blocks, and how.
        access: BlockAccess,
        /// DEAC: deallocate them if that makes them read as zeroes.
        deallocate: bool,
    },
    /// Make blocks unreadable, until they are written again (NVM, 3.2.7).
    WriteUncorrectable(BlockAccess),
    /// Make what was written before durable (Base, 7.1).
    Flush(FlushScope),
    /// Ranges that the host says something of (NVM, 3.2.3).
    DatasetManagement {
        /// NR: how many, 1 to [`DATASET_RANGES_MAX`].
        ranges: u16,
        /// AD: deallocate them. If false the command is a hint and may do nothing.
        deallocate: bool,
    },
}

/// What a command asks for, without its blocks: small, for what is decided after planning.
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
        /// AD.
        deallocate: bool,
    },
}

impl Operation {
    /// The operation without its blocks.
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
        }
    }
}

impl OperationKind {
    /// Whether it changes the namespace.
    #[must_use]
    #[inline]
    pub const fn changes(self) -> bool {
        match self {
            Self::Write | Self::WriteZeroes | Self::WriteUncorrectable => true,
            Self::DatasetManagement { deallocate } => deallocate,
            Self::Read | Self::Flush(_) | Self::Compare | Self::Verify => false,
        }
    }
}

/// What a Flush covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushScope {
    /// The namespace of the command.
    Namespace,
    /// Every namespace that is attached to the controller.
    All,
}

/// Blocks and how to access them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockAccess {
    /// The blocks. They exist.
    pub range: BlockRange,
    /// FUA: reach the non-volatile medium, not a cache.
    pub fua: bool,
    /// LR: limited retry.
    pub limited_retry: bool,
}

/// A run of logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// SLBA: the first.
    pub slba: u64,
    /// How many; 1-based, unlike NLB.
    pub blocks: u32,
}

/// What parsing must know of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// NSZE: size, in logical blocks.
    pub nsze: u64,
    /// LBADS: a logical block is 2^LBADS bytes.
    pub lbads: u8,
    /// Whether writes are refused.
    pub write_protected: bool,
    /// Whether its disk has Write Uncorrectable.
    pub write_uncorrectable: bool,
}

/// What parsing must know of a controller: what it says of itself in Identify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimits {
    /// Bytes of the longest transfer (MDTS).
    pub mdts_bytes: u32,
    /// Bytes of the longest Write Zeroes (WZSL), if limited.
    pub wzsl_bytes: Option<u32>,
    /// Bytes of the longest Verify (VSL), if limited.
    pub vsl_bytes: Option<u32>,
    /// Bytes of the longest Write Uncorrectable (WUSL), if limited.
    pub wusl_bytes: Option<u32>,
    /// ONCS: which optional commands there are.
    pub oncs: Oncs,
    /// VWC: whether a Flush may have NSID FFFFFFFFh.
    pub vwc: Vwc,
}

const INVALID_FIELD: Status = Status::INVALID_FIELD.with_dnr();
const INVALID_OPCODE: Status = Status::INVALID_OPCODE.with_dnr();
const INVALID_NAMESPACE: Status = Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr();
const INVALID_PROTECTION: Status = Status::INVALID_PROTECTION_INFORMATION.with_dnr();
const LBA_OUT_OF_RANGE: Status = Status::LBA_OUT_OF_RANGE.with_dnr();
const WRITE_PROTECTED: Status = Status::NAMESPACE_WRITE_PROTECTED.with_dnr();

impl IoCommand {
    /// Parses and checks a command.
    ///
    /// `in_capsule_bytes` is how much data came after the SQE; `namespace` what
    /// is attached under the SQE's NSID, `None` if nothing is.
    ///
    /// # Errors
    /// The status to complete the command with.
    // Inlined, so that what is found out of a Read stays in registers.
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
        // Optional commands that ONCS does not announce are refused.
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
            // By the namespace: ONCS announces it only if all have it.
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

/// What every command has to keep to: an SGL, no metadata.
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
    /// The range, if all of its blocks exist.
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

    /// How many bytes these blocks are.
    ///
    /// # Panics
    /// If LBADS is more than 31: no namespace may have such blocks.
    #[must_use]
    #[inline]
    pub fn bytes(&self, blocks: u32) -> u64 {
        assert!(self.lbads < 32, "LBADS {} is no block size", self.lbads);
        u64::from(blocks) << self.lbads
    }
}

/// Bits of CDW12 of the commands that name blocks.
mod cdw12 {
    pub(super) const NLB: u32 = 0xffff;
    /// All but NLB, of Write Uncorrectable: DTYPE and reserved bits.
    pub(super) const ABOVE_NLB: u32 = !NLB;
    /// DTYPE and reserved bits: directives are not supported.
    pub(super) const RESERVED: u32 = 0x02ff_0000;
    /// DEAC, of Write Zeroes alone.
    pub(super) const DEAC: u32 = 1 << 25;
    /// STC and PRINFO.
    pub(super) const PROTECTION: u32 = 0x3d00_0000;
    pub(super) const FUA: u32 = 1 << 30;
    pub(super) const LR: u32 = 1 << 31;
}

/// Bits 15:8 of CDW13 of the commands that name blocks.
const CDW13_RESERVED: u32 = 0x0000_ff00;

/// By value: what it has then stays in registers.
#[derive(Clone, Copy)]
struct Parser<'a> {
    sqe: &'a Sqe,
    in_capsule_bytes: u32,
    namespace: Option<&'a NamespaceView>,
    limits: &'a IoLimits,
}

type Parsed = Result<(Operation, DataTransfer), Status>;

impl<'a> Parser<'a> {
    // Inlined, as all that a read or write passes: what they find out then stays in
    // registers. The compiler counts this one as too large for that by itself.
    #[inline(always)]
    fn read(self) -> Parsed {
        check_header(self.sqe)?;
        let (access, bytes) = self.block_access(0)?;
        let buffer = RemoteBuffer::of_command(self.sqe, self.within_mdts(bytes)?)?;
        Ok((Operation::Read(access), DataTransfer::ToHost(buffer)))
    }

    #[inline]
    fn write(self) -> Parsed {
        check_header(self.sqe)?;
        self.check_writable()?;
        let (access, bytes) = self.block_access(0)?;
        Ok((Operation::Write(access), self.data_of_host(bytes)?))
    }

    fn compare(self) -> Parsed {
        check_header(self.sqe)?;
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
        /// IDR and IDW are hints; AD deallocates.
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

    /// The blocks of a command that has them in CDW10 to CDW12, and their bytes.
    ///
    /// `defined` are bits of CDW12 that this command has and others do not.
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

    /// Base, figure 275, MDTS: a longer transfer is aborted with Invalid Field.
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

/// NVM, figure 102: a command beyond WZSL, VSL or WUSL is aborted with Invalid Field.
fn check_limit(bytes: u64, limit: Option<u32>) -> Result<(), Status> {
    match limit {
        Some(limit) if bytes > u64::from(limit) => Err(INVALID_FIELD),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
