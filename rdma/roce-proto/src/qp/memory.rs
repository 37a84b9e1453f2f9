//! Access of a queue pair to registered memory, by key.

use core::fmt::Debug;

use cairn_rdma::{Access, Sge};

/// Error: the key, range or access right is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Memory of a protection domain, implemented by the endpoint.
pub trait Memory: Debug {
    /// Checks whether a peer may access `length` bytes at `addr` with `rkey`.
    ///
    /// An access of 0 bytes is always permitted (IBTA 9.7.4.1.5).
    fn check(&self, rkey: u32, addr: u64, length: u64, access: Access) -> Result<(), Refused>;

    /// Copies registered memory to `out`, for a peer's READ.
    ///
    /// # Errors
    /// [`Refused`]; `out` is then unchanged.
    fn read(&self, rkey: u32, addr: u64, out: &mut [u8], access: Access) -> Result<(), Refused>;

    /// Prefetches memory for a later [`Memory::read`].
    fn prefetch(&self, rkey: u32, addr: u64, length: u64, access: Access);

    /// Copies `bytes` to registered memory, for a peer's WRITE.
    ///
    /// # Errors
    /// [`Refused`]; no byte was then copied.
    fn write(&self, rkey: u32, addr: u64, bytes: &[u8], access: Access) -> Result<(), Refused>;

    /// Invalidates a remote key for a SEND with Invalidate (IBTA 9.4.1.1.1). The region's local key
    /// stays valid.
    fn invalidate(&self, rkey: u32) -> Result<(), Refused>;

    /// True if a region has the remote key.
    fn knows(&self, rkey: u32) -> bool;

    /// Checks access to a work request's local ranges.
    fn check_local(&self, sges: &[Sge], access: Access) -> Result<(), Refused>;

    /// Copies bytes of the ranges, from `offset` in their concatenation, to `out`.
    ///
    /// # Errors
    /// [`Refused`], also if the ranges are too short.
    fn gather(&self, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), Refused>;

    /// Prefetches bytes for a later [`Memory::gather`].
    fn prefetch_gather(&self, sges: &[Sge], offset: u64, length: u64);

    /// Copies `bytes` to the ranges, from `offset` in their concatenation.
    ///
    /// # Errors
    /// [`Refused`], also if the ranges are too short.
    fn scatter(&self, sges: &[Sge], offset: u64, bytes: &[u8]) -> Result<(), Refused>;
}
