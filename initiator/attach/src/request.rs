//! Requests of a local disk, and their division into NVMe commands.

use cairn_initiator::Buffer;

/// Operation on a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Reads into the request's memory.
    Read,
    /// Writes the request's memory; with `fua`, durably.
    Write {
        /// Force Unit Access.
        fua: bool,
    },
    /// Makes completed writes durable; the range is ignored.
    Flush,
    /// Deallocates blocks, whose content is undefined afterwards.
    Discard,
    /// Sets blocks to zero.
    Zero {
        /// Permits the deallocation of the blocks.
        unmap: bool,
        /// Force Unit Access.
        fua: bool,
    },
}

impl Operation {
    pub(crate) fn has_data(self) -> bool {
        matches!(self, Self::Read | Self::Write { .. })
    }

    pub(crate) fn changes_data(self) -> bool {
        !matches!(self, Self::Read | Self::Flush)
    }
}

/// Error number of a failed request, as in errno(3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Request of a front end, such as a connection of NBD.
#[derive(Debug)]
pub struct Request<T> {
    /// Identifies the request to its front end.
    pub tag: T,
    /// Operation on the range.
    pub operation: Operation,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Memory of a read or write: pieces of [`Limits::piece_bytes`], the last of which may be
    /// longer than its data.
    pub memory: Vec<Buffer>,
}

/// Ended request, with the memory given at its submission.
#[derive(Debug)]
pub struct Done<T> {
    /// Tag of the request.
    pub tag: T,
    /// Bytes of the request.
    pub bytes: u64,
    /// Result of all commands of the request.
    pub result: Result<(), Errno>,
    /// Memory of the request.
    pub memory: Vec<Buffer>,
}

/// Properties of a namespace that limit requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of a piece of memory, which one command transfers.
    pub piece_bytes: u32,
    /// Maximum bytes of a Write Zeroes command.
    pub(crate) zero_bytes: u32,
    /// True if the namespace is write protected.
    pub read_only: bool,
    /// True if the controller deallocates blocks.
    pub discards: bool,
    /// True if the controller sets blocks to zero.
    pub zeroes: bool,
}

impl Limits {
    /// Checks a request against the namespace.
    ///
    /// # Errors
    /// `EROFS` for a change of a read-only namespace, `EOPNOTSUPP` for a missing operation,
    /// `EINVAL` for a range that is not in whole blocks or, except for changes, beyond the end, and
    /// `ENOSPC` for a change beyond the end.
    pub fn check(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), Errno> {
        if operation == Operation::Flush {
            return Ok(());
        }
        if operation.changes_data() && self.read_only {
            return Err(Errno(libc::EROFS));
        }
        match operation {
            Operation::Discard if !self.discards => return Err(Errno(libc::EOPNOTSUPP)),
            Operation::Zero { .. } if !self.zeroes => return Err(Errno(libc::EOPNOTSUPP)),
            _ => {}
        }
        let block = u64::from(self.block_bytes);
        if bytes == 0 || !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(Errno(libc::EINVAL));
        }
        let fits = offset
            .checked_add(bytes)
            .is_some_and(|end| end <= self.bytes);
        match (fits, operation.changes_data()) {
            (true, _) => Ok(()),
            (false, true) => Err(Errno(libc::ENOSPC)),
            (false, false) => Err(Errno(libc::EINVAL)),
        }
    }

    /// Number of pieces of memory for `bytes` bytes.
    #[must_use]
    pub fn pieces(&self, bytes: u64) -> usize {
        bytes.div_ceil(self.piece_bytes.into()) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        block_bytes: 4096,
        bytes: 1 << 20,
        piece_bytes: 1 << 16,
        zero_bytes: 1 << 16,
        read_only: false,
        discards: true,
        zeroes: false,
    };

    #[test]
    fn a_request_is_checked_before_a_command_is_sent() {
        let write = Operation::Write { fua: false };
        let check = |operation, offset, bytes| {
            let checked = LIMITS.check(operation, offset, bytes);
            checked.map_err(|Errno(code)| code)
        };
        assert_eq!(check(write, 0, 1 << 20), Ok(()));
        assert_eq!(check(Operation::Read, 4096, (1 << 20) - 4096), Ok(()));
        assert_eq!(check(Operation::Flush, 7, 3), Ok(()));
        assert_eq!(check(Operation::Read, 512, 4096), Err(libc::EINVAL));
        assert_eq!(check(Operation::Read, 4096, 512), Err(libc::EINVAL));
        assert_eq!(check(Operation::Read, 0, 0), Err(libc::EINVAL));
        assert_eq!(check(Operation::Read, 4096, 1 << 20), Err(libc::EINVAL));
        assert_eq!(check(write, 4096, 1 << 20), Err(libc::ENOSPC));
        let last = u64::MAX - 4095;
        assert_eq!(check(Operation::Discard, last, 4096), Err(libc::ENOSPC));
        let zero = Operation::Zero {
            unmap: true,
            fua: false,
        };
        assert_eq!(check(zero, 0, 4096), Err(libc::EOPNOTSUPP));
        let protected = Limits {
            read_only: true,
            ..LIMITS
        };
        assert_eq!(protected.check(write, 0, 4096), Err(Errno(libc::EROFS)));
        assert_eq!(protected.check(Operation::Read, 0, 4096), Ok(()));
    }
}
