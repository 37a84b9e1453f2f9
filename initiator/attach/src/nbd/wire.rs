//! Values and layouts of the NBD protocol (NetworkBlockDevice/nbd, doc/proto.md).

use crate::request::{Errno, Limits, Operation};

pub(super) const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
pub(super) const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flags: fixed newstyle, no zeroes.
pub(super) const HANDSHAKE_FLAGS: u16 = 0b11;
pub(super) const CLIENT_FIXED_NEWSTYLE: u32 = 1;
pub(super) const CLIENT_NO_ZEROES: u32 = 1 << 1;

pub(super) mod option {
    pub(in super::super) const EXPORT_NAME: u32 = 1;
    pub(in super::super) const ABORT: u32 = 2;
    pub(in super::super) const LIST: u32 = 3;
    pub(in super::super) const INFO: u32 = 6;
    pub(in super::super) const GO: u32 = 7;
    pub(in super::super) const STRUCTURED_REPLY: u32 = 8;
}

pub(super) mod reply {
    pub(in super::super) const ACK: u32 = 1;
    pub(in super::super) const SERVER: u32 = 2;
    pub(in super::super) const INFO: u32 = 3;
    pub(in super::super) const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub(in super::super) const ERR_INVALID: u32 = 1 << 31 | 3;
    pub(in super::super) const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub(in super::super) const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

pub(super) mod info {
    pub(in super::super) const EXPORT: u16 = 0;
    pub(in super::super) const BLOCK_SIZE: u16 = 3;
}

mod transmission {
    pub(super) const HAS_FLAGS: u16 = 1;
    pub(super) const READ_ONLY: u16 = 1 << 1;
    pub(super) const SEND_FLUSH: u16 = 1 << 2;
    pub(super) const SEND_FUA: u16 = 1 << 3;
    pub(super) const SEND_TRIM: u16 = 1 << 5;
    pub(super) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(super) const SEND_DF: u16 = 1 << 7;
    pub(super) const CAN_MULTI_CONN: u16 = 1 << 8;
}

mod command {
    pub(super) const READ: u16 = 0;
    pub(super) const WRITE: u16 = 1;
    pub(super) const DISC: u16 = 2;
    pub(super) const FLUSH: u16 = 3;
    pub(super) const TRIM: u16 = 4;
    pub(super) const WRITE_ZEROES: u16 = 6;
    pub(super) const FLAG_FUA: u16 = 1;
    pub(super) const FLAG_NO_HOLE: u16 = 1 << 1;
    pub(super) const FLAG_DF: u16 = 1 << 2;
}

pub(super) const CHUNK_DONE: u16 = 1;
pub(super) const CHUNK_OFFSET_DATA: u16 = 1;
pub(super) const CHUNK_ERROR: u16 = 1 << 15 | 1;

/// Transmission flags of an export.
pub(super) fn transmission_flags(limits: &Limits, is_structured: bool) -> u16 {
    use transmission::{
        CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, SEND_DF, SEND_FLUSH, SEND_FUA, SEND_TRIM,
        SEND_WRITE_ZEROES,
    };
    let optional = [
        (limits.read_only, READ_ONLY),
        (limits.discards, SEND_TRIM),
        (limits.zeroes, SEND_WRITE_ZEROES),
        (is_structured, SEND_DF),
    ];
    let present = optional.iter().filter(|(is_on, _)| *is_on);
    let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
    present.fold(always, |flags, (_, flag)| flags | flag)
}

/// Size of a request without its data.
pub(super) const REQUEST_BYTES: usize = 28;

/// Request of the transmission phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Operation, or the error number for an invalid request.
    pub(super) operation: Result<Operation, Errno>,
    /// True if data follows.
    pub(super) has_payload: bool,
    pub(super) handle: u64,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// Result of parsing a request's first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parsed {
    Request(Header),
    Disconnect,
    /// The bytes are no request, so the end of this one is unknown.
    NoRequest,
}

pub(super) fn parse(bytes: &[u8; REQUEST_BYTES]) -> Parsed {
    use command::{DISC, FLAG_DF, FLAG_FUA, FLAG_NO_HOLE, FLUSH, READ, TRIM, WRITE, WRITE_ZEROES};
    if be32(bytes, 0) != REQUEST_MAGIC {
        return Parsed::NoRequest;
    }
    let (flags, kind) = (be16(bytes, 4), be16(bytes, 6));
    let fua = flags & FLAG_FUA != 0;
    // FUA is permitted with each operation.
    let (operation, other_flags) = match kind {
        READ => (Some(Operation::Read), FLAG_DF),
        WRITE => (Some(Operation::Write { fua }), 0),
        DISC => return Parsed::Disconnect,
        FLUSH => (Some(Operation::Flush), 0),
        // Discarded blocks have undefined data, durable or not, so FUA has no effect.
        TRIM => (Some(Operation::Discard), 0),
        WRITE_ZEROES => {
            let unmap = flags & FLAG_NO_HOLE == 0;
            (Some(Operation::Zero { unmap, fua }), FLAG_NO_HOLE)
        }
        _ => (None, 0),
    };
    let operation = operation.filter(|_| flags & !(FLAG_FUA | other_flags) == 0);
    Parsed::Request(Header {
        operation: operation.ok_or(Errno(libc::EINVAL)),
        has_payload: kind == WRITE,
        handle: be64(bytes, 8),
        offset: be64(bytes, 16),
        bytes: be32(bytes, 24),
    })
}

/// Returns the protocol's number of an error.
pub(super) fn error_number(errno: Errno) -> u32 {
    match errno.0 {
        libc::EPERM | libc::EROFS | libc::EBADE => 1,
        libc::ENOMEM => 12,
        libc::EINVAL => 22,
        libc::ENOSPC => 28,
        libc::EOPNOTSUPP => 95,
        _ => 5,
    }
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
