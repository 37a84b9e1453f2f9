//! Registered memory, as packets reach it: every access names a key, and every
//! access is checked.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cairn_rdma::{Access, FabricError, Mapping, Sge};

use crate::chance::Chance;

/// Regions that a device holds at a time.
pub const MAX_REGIONS: usize = 4096;

/// Bits of a key that say where its region stands in the table; the others are
/// chance, so that a key cannot be guessed from another.
const INDEX_BITS: u32 = MAX_REGIONS.trailing_zeros();

/// A registered region.
#[derive(Debug)]
struct Region {
    key: u32,
    mapping: Arc<Mapping>,
    access: Access,
    /// Until the key is invalidated or the region dropped.
    live: AtomicBool,
}

type Table = Vec<Option<Arc<Region>>>;

/// A device's regions, for those who register.
#[derive(Debug)]
pub struct Regions {
    /// Counts the tables, so that readers see with one load that theirs is old.
    version: AtomicU64,
    table: Mutex<Arc<Table>>,
    chance: Chance,
}

/// A reader's view of a device's regions. A key that is taken out of use is
/// refused at once; a new one is known after [`Memory::refresh`].
#[derive(Debug)]
pub struct Memory {
    regions: Arc<Regions>,
    version: u64,
    table: Arc<Table>,
}

/// The key, range or right is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused;

impl Default for Regions {
    fn default() -> Self {
        Self::new(Chance::default())
    }
}

impl Regions {
    /// No regions; `chance` will make their keys.
    #[must_use]
    pub fn new(chance: Chance) -> Self {
        Self {
            version: AtomicU64::new(0),
            table: Mutex::default(),
            chance,
        }
    }
}

impl Regions {
    /// Registers the whole of `mapping` and returns its key.
    ///
    /// # Errors
    /// There are [`MAX_REGIONS`] already.
    pub fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<u32, FabricError> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::make_mut(&mut *table);
        let free = next.iter().position(Option::is_none);
        let index = free.unwrap_or(next.len());
        if index == MAX_REGIONS {
            return Err(FabricError::Limit {
                what: "memory regions",
                limit: MAX_REGIONS as u64,
            });
        }
        if free.is_none() {
            next.push(None);
        }
        let version = self.version.load(Ordering::Relaxed) + 1;
        let key = (self.chance.draw() as u32) << INDEX_BITS | index as u32;
        next[index] = Some(Arc::new(Region {
            key,
            mapping,
            access,
            live: AtomicBool::new(true),
        }));
        self.version.store(version, Ordering::Release);
        Ok(key)
    }

    /// Takes a key out of use, and forgets its region.
    pub fn deregister(&self, key: u32) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let next = Arc::make_mut(&mut *table);
        let entry = next.get_mut(index_of(key));
        if let Some(entry) = entry
            && let Some(region) = entry.take_if(|region| region.key == key)
        {
            region.live.store(false, Ordering::Release);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// A view for one reader.
    #[must_use]
    pub fn reader(self: &Arc<Self>) -> Memory {
        Memory {
            version: self.version.load(Ordering::Acquire),
            table: Arc::clone(&self.table.lock().unwrap_or_else(PoisonError::into_inner)),
            regions: Arc::clone(self),
        }
    }
}

const fn index_of(key: u32) -> usize {
    key as usize & (MAX_REGIONS - 1)
}

impl Memory {
    /// Takes note of what was registered since. One load when nothing was.
    pub fn refresh(&mut self) {
        if self.regions.version.load(Ordering::Acquire) != self.version {
            *self = self.regions.reader();
        }
    }

    fn region(&self, key: u32) -> Result<&Region, Refused> {
        let region = self.table.get(index_of(key)).and_then(Option::as_deref);
        region
            .filter(|region| region.key == key && region.live.load(Ordering::Acquire))
            .ok_or(Refused)
    }

    /// The mapping and offset of `length` bytes at `addr`, if `key` allows.
    fn locate(
        &self,
        key: u32,
        addr: u64,
        length: u64,
        access: Access,
    ) -> Result<(&Mapping, usize), Refused> {
        let region = self.region(key)?;
        let fine = region.access.contains(access) && region.mapping.contains(addr, length);
        if !fine {
            return Err(Refused);
        }
        Ok((&region.mapping, (addr - region.mapping.addr()) as usize))
    }

    /// Whether `length` bytes at `addr` may be accessed so. No bytes may always
    /// be, whatever the key (IBTA 9.7.4.1.5).
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, key: u32, addr: u64, length: u64, access: Access) -> Result<(), Refused> {
        if length == 0 {
            return Ok(());
        }
        self.locate(key, addr, length, access).map(|_| ())
    }

    /// Copies registered bytes out.
    ///
    /// # Errors
    /// [`Refused`]; then `out` is as it was.
    pub fn read(&self, key: u32, addr: u64, out: &mut [u8], access: Access) -> Result<(), Refused> {
        if !out.is_empty() {
            let (mapping, offset) = self.locate(key, addr, out.len() as u64, access)?;
            mapping.read(offset, out);
        }
        Ok(())
    }

    /// Bytes that will be read soon.
    pub fn foresee(&self, key: u32, addr: u64, length: u64, access: Access) {
        if let Ok((mapping, offset)) = self.locate(key, addr, length, access) {
            mapping.foresee(offset, length as usize);
        }
    }

    /// Copies bytes into registered memory. Other threads may look for them after
    /// [`Mapping::settle`].
    ///
    /// # Errors
    /// [`Refused`]; then none were copied.
    pub fn write(&self, key: u32, addr: u64, bytes: &[u8], access: Access) -> Result<(), Refused> {
        if !bytes.is_empty() {
            let (mapping, offset) = self.locate(key, addr, bytes.len() as u64, access)?;
            mapping.write_around(offset, bytes);
        }
        Ok(())
    }

    /// Takes a key out of use because a peer says so (IBTA 9.4.1.1.1).
    ///
    /// # Errors
    /// [`Refused`]: it was in no use.
    pub fn invalidate(&self, key: u32) -> Result<(), Refused> {
        self.region(key)?.live.store(false, Ordering::Release);
        Ok(())
    }

    /// Whether a key is in use.
    #[must_use]
    pub fn knows(&self, key: u32) -> bool {
        self.region(key).is_ok()
    }

    /// Whether a work request's own bytes may be accessed so.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check_local(&self, sges: &[Sge], access: Access) -> Result<(), Refused> {
        sges.iter()
            .try_for_each(|sge| self.check(sge.lkey, sge.addr, u64::from(sge.length), access))
    }

    /// Copies the bytes from `offset` on out of a list of stretches.
    ///
    /// # Errors
    /// [`Refused`], also if the list is shorter than that.
    pub fn gather(&self, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), Refused> {
        let mut rest = out;
        for piece in Pieces::new(sges, offset) {
            let (now, later) = rest.split_at_mut(rest.len().min(piece.length as usize));
            self.read(piece.lkey, piece.addr, now, Access::LOCAL_READ)?;
            rest = later;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    /// Bytes of a list of stretches that will be copied out soon.
    pub fn foresee_gather(&self, sges: &[Sge], offset: u64, length: u64) {
        if let Some(piece) = Pieces::new(sges, offset).next() {
            let length = length.min(u64::from(piece.length));
            self.foresee(piece.lkey, piece.addr, length, Access::LOCAL_READ);
        }
    }

    /// Copies bytes into a list of stretches, from `offset` on.
    ///
    /// # Errors
    /// [`Refused`], also if the list is shorter than that.
    pub fn scatter(&self, sges: &[Sge], offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let mut rest = bytes;
        for piece in Pieces::new(sges, offset) {
            let (now, later) = rest.split_at(rest.len().min(piece.length as usize));
            self.write(piece.lkey, piece.addr, now, Access::LOCAL_WRITE)?;
            rest = later;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Refused)
        }
    }
}

/// The stretches of a list from an offset on.
struct Pieces<'a> {
    sges: std::slice::Iter<'a, Sge>,
    skip: u64,
}

impl<'a> Pieces<'a> {
    fn new(sges: &'a [Sge], offset: u64) -> Self {
        Self {
            sges: sges.iter(),
            skip: offset,
        }
    }
}

impl Iterator for Pieces<'_> {
    type Item = Sge;

    fn next(&mut self) -> Option<Sge> {
        loop {
            let sge = *self.sges.next()?;
            if self.skip < u64::from(sge.length) {
                let skipped = std::mem::take(&mut self.skip);
                return Some(Sge {
                    addr: sge.addr.wrapping_add(skipped),
                    length: sge.length - skipped as u32,
                    lkey: sge.lkey,
                });
            }
            self.skip -= u64::from(sge.length);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_ranges_and_rights_are_checked() {
        let regions = Arc::new(Regions::default());
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let (base, length) = (mapping.addr(), mapping.len() as u64);
        let key = regions
            .register(Arc::clone(&mapping), Access::REMOTE_READ)
            .unwrap();
        let memory = regions.reader();
        let read = Access::REMOTE_READ;
        assert_eq!(memory.check(key, base, length, read), Ok(()));
        assert_eq!(memory.check(key, base + 1, length, read), Err(Refused));
        assert_eq!(memory.check(key, u64::MAX, 2, read), Err(Refused));
        assert_eq!(memory.check(key ^ 1 << 31, base, 1, read), Err(Refused));
        assert_eq!(memory.check(key ^ 1, base, 1, read), Err(Refused));
        assert_eq!(memory.check(key ^ 1, base, 0, read), Ok(()));
        let write = Access::REMOTE_WRITE;
        assert_eq!(memory.check(key, base, 1, write), Err(Refused));

        regions.deregister(key);
        assert_eq!(memory.check(key, base, 1, read), Err(Refused));
        let again = regions.register(mapping, Access::REMOTE_READ).unwrap();
        assert_ne!(again, key);
    }

    #[test]
    fn lists_are_copied_from_any_offset() {
        let regions = Arc::new(Regions::default());
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let lkey = regions
            .register(Arc::clone(&mapping), Access::LOCAL_WRITE)
            .unwrap();
        let memory = regions.reader();
        let sge = |offset: u64, length| Sge {
            addr: mapping.addr() + offset,
            length,
            lkey,
        };
        let list = [sge(100, 10), sge(0, 10)];
        let bytes: Vec<u8> = (0..20).collect();
        for cut in 0..=20 {
            memory.scatter(&list, 0, &[0xff; 20]).unwrap();
            memory.scatter(&list, cut, &bytes[cut as usize..]).unwrap();
            let mut out = vec![0; 20 - cut as usize];
            memory.gather(&list, cut, &mut out).unwrap();
            assert_eq!(out, bytes[cut as usize..]);
        }
        assert_eq!(memory.gather(&list, 1, &mut [0; 20]), Err(Refused));
    }
}
