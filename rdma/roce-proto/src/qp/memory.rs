//! Access to registered memory by a queue pair.
//!
//! Each access names a key, and the owner of the memory checks key, range and right.

use core::fmt::Debug;

use cairn_rdma::{Access, Sge};

/// The key, range or right is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// Memory of a protection domain, implemented by the endpoint.
pub trait Memory: Debug {
    /// Checks whether a peer may access `length` bytes at `addr` with `rkey`.
    ///
    /// An access of 0 bytes is allowed (IBTA 9.7.4.1.5).
    ///
    /// # Errors
    /// [`Refused`].
    fn check(&self, rkey: u32, addr: u64, length: u64, access: Access) -> Result<(), Refused>;

    /// Copies bytes out for a peer.
    ///
    /// # Errors
    /// [`Refused`]; then `out` is unchanged.
    fn read(&self, rkey: u32, addr: u64, out: &mut [u8], access: Access) -> Result<(), Refused>;

    /// Prefetches bytes read soon by a peer.
    fn prefetch(&self, rkey: u32, addr: u64, length: u64, access: Access);

    /// Copies bytes in for a peer.
    ///
    /// # Errors
    /// [`Refused`]; then none were copied.
    fn write(&self, rkey: u32, addr: u64, bytes: &[u8], access: Access) -> Result<(), Refused>;

    /// Invalidates a remote key on a peer's request (IBTA 9.4.1.1.1).
    ///
    /// The region's local key stays valid.
    ///
    /// # Errors
    /// [`Refused`]: no region has the key.
    fn invalidate(&self, rkey: u32) -> Result<(), Refused>;

    /// True if a region has the remote key.
    fn knows(&self, rkey: u32) -> bool;

    /// Checks access to the local bytes of a work request.
    ///
    /// # Errors
    /// [`Refused`].
    fn check_local(&self, sges: &[Sge], access: Access) -> Result<(), Refused>;

    /// Copies a list of ranges from `offset` on into `out`.
    ///
    /// # Errors
    /// [`Refused`], also if the list is too short.
    fn gather(&self, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), Refused>;

    /// Prefetches before [`Memory::gather`].
    fn prefetch_gather(&self, sges: &[Sge], offset: u64, length: u64);

    /// Copies bytes to `offset` of a list of ranges.
    ///
    /// # Errors
    /// [`Refused`], also if the list is too short.
    fn scatter(&self, sges: &[Sge], offset: u64, bytes: &[u8]) -> Result<(), Refused>;
}
