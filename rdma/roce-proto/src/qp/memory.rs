//! Registered memory, as a queue pair reaches it: each access names a key, and the owner
//! of the memory checks key, range and right.

use core::fmt::Debug;

use cairn_rdma::{Access, Sge};

/// The key, range or right is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

/// A protection domain's memory. The endpoint has it; this crate copies by it.
pub trait Memory: Debug {
    /// Whether a peer that names `rkey` may access `length` bytes at `addr` so. It may always
    /// access no bytes, whatever the key (IBTA 9.7.4.1.5).
    ///
    /// # Errors
    /// [`Refused`].
    fn check(&self, rkey: u32, addr: u64, length: u64, access: Access) -> Result<(), Refused>;

    /// Copies bytes out for a peer.
    ///
    /// # Errors
    /// [`Refused`]; then `out` is unchanged.
    fn read(&self, rkey: u32, addr: u64, out: &mut [u8], access: Access) -> Result<(), Refused>;

    /// Bytes that a peer will read soon.
    fn prefetch(&self, rkey: u32, addr: u64, length: u64, access: Access);

    /// Copies bytes in for a peer.
    ///
    /// # Errors
    /// [`Refused`]; then none were copied.
    fn write(&self, rkey: u32, addr: u64, bytes: &[u8], access: Access) -> Result<(), Refused>;

    /// Takes a remote key out of use, as the peer requests (IBTA 9.4.1.1.1). The region's
    /// local key stays valid.
    ///
    /// # Errors
    /// [`Refused`]: no region has the key.
    fn invalidate(&self, rkey: u32) -> Result<(), Refused>;

    /// Whether a region has that remote key.
    fn knows(&self, rkey: u32) -> bool;

    /// Whether a work request's own bytes may be accessed so.
    ///
    /// # Errors
    /// [`Refused`].
    fn check_local(&self, sges: &[Sge], access: Access) -> Result<(), Refused>;

    /// Copies the bytes from `offset` on out of a list of stretches.
    ///
    /// # Errors
    /// [`Refused`], also if the list is shorter than that.
    fn gather(&self, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), Refused>;

    /// Bytes of a list of stretches that will be copied out soon.
    fn prefetch_gather(&self, sges: &[Sge], offset: u64, length: u64);

    /// Copies bytes into a list of stretches, from `offset` on.
    ///
    /// # Errors
    /// [`Refused`], also if the list is shorter than that.
    fn scatter(&self, sges: &[Sge], offset: u64, bytes: &[u8]) -> Result<(), Refused>;
}
