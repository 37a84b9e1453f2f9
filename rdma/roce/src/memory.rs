//! Registered memory of one protection domain, accessed by key.
//!
//! Each region has a local key for work requests of this end, which contains its index, and, if
//! peers have access, a random remote key. Packets are checked against remote keys only. A queue
//! pair uses the keys of a domain ([`Regions`]) through a [`View`].

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_base::Mapping;
use cairn_rdma::{Access, FabricError, Sge};
use cairn_roce_proto::qp::memory::{Memory, Refused};

use cairn_base::entropy::Entropy;

pub const MAX_REGIONS: usize = 8 << 10;

/// Bits of the region's index in a local key. The other bits count registrations, to delay the
/// reuse of a key.
const INDEX_BITS: u32 = MAX_REGIONS.trailing_zeros();

const FIRST_ENTRIES: usize = 16;

#[derive(Debug)]
struct Region {
    lkey: u32,
    rkey: Option<u32>,
    mapping: Arc<Mapping>,
    access: Access,
    live: AtomicBool,
    open: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys {
    pub lkey: u32,
    pub rkey: Option<u32>,
}

#[derive(Debug, Clone, Default)]
struct Table {
    local: Vec<Option<Arc<Region>>>,
    /// Regions, indexed by the low bits of their remote keys. At least half of the entries are
    /// free, so that a random key soon fits.
    remote: Vec<Option<Arc<Region>>>,
    remotes: usize,
    registered: u32,
}

#[derive(Debug)]
pub struct Regions {
    /// Number of changes of `table`. A view with another version is stale.
    version: AtomicU64,
    table: Mutex<Arc<Table>>,
    entropy: Entropy,
}

/// Copy of a domain's regions for one endpoint. An invalidated key stops working at once, but a new
/// key works only after [`View::refresh`].
#[derive(Debug)]
pub struct View {
    regions: Arc<Regions>,
    version: u64,
    table: Arc<Table>,
}

impl Default for Regions {
    fn default() -> Self {
        Self::new(Entropy::default())
    }
}

impl Regions {
    #[must_use]
    pub fn new(entropy: Entropy) -> Self {
        let table = Table {
            registered: entropy.draw() as u32,
            ..Table::default()
        };
        Self {
            version: AtomicU64::new(0),
            table: Mutex::new(Arc::new(table)),
            entropy,
        }
    }
}

impl Regions {
    fn table(&self) -> MutexGuard<'_, Arc<Table>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn register(&self, mapping: Arc<Mapping>, access: Access) -> Result<Keys, FabricError> {
        let mut table = self.table();
        let mut next = Table::clone(&table);
        let lkey = next.local_key().ok_or(FabricError::Limit {
            what: "memory regions",
            limit: MAX_REGIONS as u64,
        })?;
        let rkey = access.is_remote().then(|| next.remote_key(&self.entropy));
        let region = Arc::new(Region {
            lkey,
            rkey,
            mapping,
            access,
            live: AtomicBool::new(true),
            open: AtomicBool::new(rkey.is_some()),
        });
        if let Some(rkey) = rkey {
            let at = next.remote_index(rkey);
            next.remote[at] = Some(Arc::clone(&region));
            next.remotes += 1;
        }
        next.local[index_of(lkey)] = Some(region);
        *table = Arc::new(next);
        self.version.fetch_add(1, Ordering::Release);
        Ok(Keys { lkey, rkey })
    }

    pub fn deregister(&self, lkey: u32) {
        let mut table = self.table();
        let mut next = Table::clone(&table);
        let entry = next.local.get_mut(index_of(lkey));
        if let Some(entry) = entry
            && let Some(region) = entry.take_if(|region| region.lkey == lkey)
        {
            region.live.store(false, Ordering::Release);
            region.open.store(false, Ordering::Release);
            if let Some(rkey) = region.rkey {
                let at = next.remote_index(rkey);
                next.remote[at] = None;
                next.remotes -= 1;
            }
            *table = Arc::new(next);
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    #[must_use]
    pub fn reader(self: &Arc<Self>) -> View {
        View {
            version: self.version.load(Ordering::Acquire),
            table: Arc::clone(&self.table()),
            regions: Arc::clone(self),
        }
    }
}

impl Table {
    fn local_key(&mut self) -> Option<u32> {
        let free = self.local.iter().position(Option::is_none);
        let index = free.unwrap_or(self.local.len());
        if index == MAX_REGIONS {
            return None;
        }
        if free.is_none() {
            self.local.push(None);
        }
        self.registered = self.registered.wrapping_add(1);
        Some(self.registered << INDEX_BITS | index as u32)
    }

    fn remote_key(&mut self, entropy: &Entropy) -> u32 {
        if 2 * (self.remotes + 1) > self.remote.len() {
            let entries = FIRST_ENTRIES.max(2 * self.remote.len());
            let old = std::mem::replace(&mut self.remote, vec![None; entries]);
            for region in old.into_iter().flatten() {
                let rkey = region.rkey.expect("it stands here by its remote key");
                let at = self.remote_index(rkey);
                self.remote[at] = Some(region);
            }
        }
        loop {
            let rkey = entropy.draw() as u32;
            if rkey != 0 && self.remote[self.remote_index(rkey)].is_none() {
                return rkey;
            }
        }
    }

    fn remote_index(&self, rkey: u32) -> usize {
        rkey as usize & self.remote.len().wrapping_sub(1)
    }
}

const fn index_of(lkey: u32) -> usize {
    lkey as usize & (MAX_REGIONS - 1)
}

impl Region {
    fn locate(&self, addr: u64, length: u64, access: Access) -> Result<(&Mapping, usize), Refused> {
        let fine = self.access.contains(access) && self.mapping.contains(addr, length);
        if !fine {
            return Err(Refused);
        }
        Ok((&self.mapping, (addr - self.mapping.addr()) as usize))
    }
}

impl View {
    /// Copies the regions again after a change.
    pub fn refresh(&mut self) {
        if self.regions.version.load(Ordering::Acquire) != self.version {
            *self = self.regions.reader();
        }
    }

    fn local(&self, lkey: u32) -> Result<&Region, Refused> {
        let region = self.table.local.get(index_of(lkey));
        let region = region.and_then(Option::as_deref);
        region
            .filter(|region| region.lkey == lkey && region.live.load(Ordering::Acquire))
            .ok_or(Refused)
    }

    fn remote(&self, rkey: u32) -> Result<&Region, Refused> {
        let region = self.table.remote.get(self.table.remote_index(rkey));
        let region = region.and_then(Option::as_deref);
        region
            .filter(|region| region.rkey == Some(rkey) && region.open.load(Ordering::Acquire))
            .ok_or(Refused)
    }
}

// `write` and `scatter` may bypass the caches, so the caller must call [`Mapping::fence`] before
// other threads read the data.
impl Memory for View {
    fn knows(&self, rkey: u32) -> bool {
        self.remote(rkey).is_ok()
    }

    fn check(&self, rkey: u32, addr: u64, length: u64, access: Access) -> Result<(), Refused> {
        if length == 0 {
            return Ok(());
        }
        self.remote(rkey)?.locate(addr, length, access).map(|_| ())
    }

    fn read(&self, rkey: u32, addr: u64, out: &mut [u8], access: Access) -> Result<(), Refused> {
        if !out.is_empty() {
            let region = self.remote(rkey)?;
            let (mapping, offset) = region.locate(addr, out.len() as u64, access)?;
            mapping.read(offset, out);
        }
        Ok(())
    }

    fn prefetch(&self, rkey: u32, addr: u64, length: u64, access: Access) {
        let region = self.remote(rkey);
        if let Ok((mapping, offset)) = region.and_then(|r| r.locate(addr, length, access)) {
            mapping.prefetch(offset, length as usize);
        }
    }

    fn write(&self, rkey: u32, addr: u64, bytes: &[u8], access: Access) -> Result<(), Refused> {
        if !bytes.is_empty() {
            let region = self.remote(rkey)?;
            let (mapping, offset) = region.locate(addr, bytes.len() as u64, access)?;
            mapping.write_around(offset, bytes);
        }
        Ok(())
    }

    fn invalidate(&self, rkey: u32) -> Result<(), Refused> {
        self.remote(rkey)?.open.store(false, Ordering::Release);
        Ok(())
    }

    fn check_local(&self, sges: &[Sge], access: Access) -> Result<(), Refused> {
        sges.iter()
            .filter(|sge| sge.length > 0)
            .try_for_each(|sge| {
                let region = self.local(sge.lkey)?;
                region.locate(sge.addr, sge.length.into(), access)?;
                Ok(())
            })
    }

    fn gather(&self, sges: &[Sge], offset: u64, out: &mut [u8]) -> Result<(), Refused> {
        let mut rest = out;
        for piece in Pieces::new(sges, offset) {
            let (now, later) = rest.split_at_mut(rest.len().min(piece.length as usize));
            if !now.is_empty() {
                let (region, length) = (self.local(piece.lkey)?, now.len() as u64);
                let (mapping, at) = region.locate(piece.addr, length, Access::LOCAL_READ)?;
                mapping.read(at, now);
            }
            rest = later;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Refused)
        }
    }

    fn prefetch_gather(&self, sges: &[Sge], offset: u64, length: u64) {
        if let Some(piece) = Pieces::new(sges, offset).next()
            && let Ok(region) = self.local(piece.lkey)
        {
            let length = length.min(u64::from(piece.length));
            let located = region.locate(piece.addr, length, Access::LOCAL_READ);
            if let Ok((mapping, at)) = located {
                mapping.prefetch(at, length as usize);
            }
        }
    }

    fn scatter(&self, sges: &[Sge], offset: u64, bytes: &[u8]) -> Result<(), Refused> {
        let mut rest = bytes;
        for piece in Pieces::new(sges, offset) {
            let (now, later) = rest.split_at(rest.len().min(piece.length as usize));
            if !now.is_empty() {
                let (region, length) = (self.local(piece.lkey)?, now.len() as u64);
                let (mapping, at) = region.locate(piece.addr, length, Access::LOCAL_WRITE)?;
                mapping.write_around(at, now);
            }
            rest = later;
        }
        if rest.is_empty() {
            Ok(())
        } else {
            Err(Refused)
        }
    }
}

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
        let keys = regions
            .register(Arc::clone(&mapping), Access::REMOTE_READ)
            .unwrap();
        let rkey = keys.rkey.unwrap();
        let memory = regions.reader();
        let read = Access::REMOTE_READ;
        assert_eq!(memory.check(rkey, base, length, read), Ok(()));
        assert_eq!(memory.check(rkey, base + 1, length, read), Err(Refused));
        assert_eq!(memory.check(rkey, u64::MAX, 2, read), Err(Refused));
        for bit in 0..32 {
            let other = rkey ^ 1 << bit;
            assert_eq!(memory.check(other, base, 1, read), Err(Refused));
        }
        assert_eq!(memory.check(rkey ^ 1, base, 0, read), Ok(()));
        let write = Access::REMOTE_WRITE;
        assert_eq!(memory.check(rkey, base, 1, write), Err(Refused));

        regions.deregister(keys.lkey);
        assert_eq!(memory.check(rkey, base, 1, read), Err(Refused));
        let again = regions.register(mapping, Access::REMOTE_READ).unwrap();
        assert!(again.lkey != keys.lkey && again.rkey != keys.rkey);
    }

    #[test]
    fn local_and_remote_keys_do_not_mix() {
        let regions = Arc::new(Regions::default());
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let all = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let own = regions
            .register(Arc::clone(&mapping), Access::LOCAL_WRITE)
            .unwrap();
        let shared = regions.register(Arc::clone(&mapping), all).unwrap();
        let (memory, base) = (regions.reader(), mapping.addr());
        let sge = |lkey| Sge {
            addr: base,
            length: 8,
            lkey,
        };
        assert_eq!(own.rkey, None);
        let rkey = shared.rkey.unwrap();
        for lkey in [own.lkey, shared.lkey] {
            assert_eq!(
                memory.check(lkey, base, 8, Access::REMOTE_READ),
                Err(Refused)
            );
            assert_eq!(memory.invalidate(lkey), Err(Refused));
        }
        assert_eq!(memory.gather(&[sge(rkey)], 0, &mut [0; 8]), Err(Refused));

        assert_eq!(memory.invalidate(rkey), Ok(()));
        assert!(!memory.knows(rkey));
        for lkey in [own.lkey, shared.lkey] {
            assert_eq!(memory.scatter(&[sge(lkey)], 0, &[1; 8]), Ok(()));
        }
    }

    #[test]
    fn a_key_is_of_one_domain() {
        let domains = [(); 2].map(|()| Arc::new(Regions::default()));
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let keys = domains[0]
            .register(Arc::clone(&mapping), Access::REMOTE_READ)
            .unwrap();
        let [own, other] = domains.each_ref().map(Regions::reader);
        let (addr, rkey) = (mapping.addr(), keys.rkey.unwrap());
        assert_eq!(own.check(rkey, addr, 1, Access::REMOTE_READ), Ok(()));
        assert_eq!(
            other.check(rkey, addr, 1, Access::REMOTE_READ),
            Err(Refused)
        );
        assert_eq!(other.invalidate(rkey), Err(Refused));
    }

    #[test]
    fn as_many_regions_as_there_may_be() {
        let regions = Arc::new(Regions::default());
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let register = || regions.register(Arc::clone(&mapping), Access::REMOTE_READ);
        let keys: Vec<Keys> = (0..MAX_REGIONS).map(|_| register().unwrap()).collect();
        assert!(register().is_err());
        let memory = regions.reader();
        let rkeys = || keys.iter().filter_map(|keys| keys.rkey);
        assert_eq!(
            rkeys().filter(|&rkey| memory.knows(rkey)).count(),
            MAX_REGIONS
        );
        for bit in 0..32 {
            let set = rkeys().filter(|rkey| rkey >> bit & 1 == 1).count();
            assert!(
                (MAX_REGIONS / 4..MAX_REGIONS * 3 / 4).contains(&set),
                "{bit}"
            );
        }
        for keys in &keys {
            regions.deregister(keys.lkey);
        }
        assert!(rkeys().all(|rkey| !memory.knows(rkey)));
        register().unwrap();
    }

    #[test]
    fn lists_are_copied_from_any_offset() {
        let regions = Arc::new(Regions::default());
        let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
        let keys = regions
            .register(Arc::clone(&mapping), Access::LOCAL_WRITE)
            .unwrap();
        let lkey = keys.lkey;
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
