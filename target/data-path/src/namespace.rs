use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cairn_base::log::{LogLine, Topic};
use cairn_base::peer_line;
use cairn_config::{Backing, Uuid};
use cairn_disk::{Backend, OpenError, Scope};
use cairn_rdma::{Device, FabricError, Region};
use nvme_proto::io::NamespaceView;
use nvme_proto::reservation::Reservations;
use nvme_proto::wire::Nqn;
use nvme_proto::wire::feature::WriteProtectionState;

use crate::depth::Depth;
use crate::limits::Limiter;
use crate::metrics::NamespaceCounters;
use crate::order::{DiskKey, DiskOrder, DiskOrders};
use crate::protection_file::ProtectionFile;
use crate::regions::Regions;
use crate::reservation_file::{ReservationFile, UNREADABLE};
use crate::reservations::Reserving;
use crate::size_file::{SMALLER, SizeFile, UNKNOWN_SIZE};

#[derive(Debug)]
pub struct Namespace {
    pub id: u64,
    pub nsid: u32,
    pub backend: Backend,
    pub backing: String,
    pub uuid: Uuid,
    pub is_named: bool,
    pub nguid: Option<[u8; 16]>,
    pub read_only: bool,
    pub limiter: Limiter,
    pub depth: Depth,
    pub(crate) order: Arc<DiskOrder>,
    counters: Box<[Arc<NamespaceCounters>]>,
    anagrpid: AtomicU32,
    restricted: AtomicBool,
    withheld: AtomicBool,
    protected: AtomicBool,
    pub protection_file: Option<ProtectionFile>,
    /// Write protection, initially from the protection file or the replaced namespace of the same
    /// disk.
    protection: AtomicU8,
    regions: Option<Arc<Regions>>,
    /// False for a disk shared by several targets, because they do not exchange reservations.
    reservable: bool,
    pub reservation_file: Option<ReservationFile>,
    stored: Reservations,
    reserving: OnceLock<Arc<Reserving>>,
    /// Measured size in bytes of a disk that lost data, or [`NO_LOSS`].
    remaining: AtomicU64,
    size_file: Option<SizeFile>,
}

const NO_LOSS: u64 = u64::MAX;

impl Namespace {
    pub fn new(
        config: &cairn_config::Namespace,
        backend: Backend,
        backing: String,
        reactors: usize,
        orders: &Arc<DiskOrders>,
        kept_in: Option<(&Path, Nqn)>,
    ) -> Result<Self, OpenError> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let uuid = match config.uuid {
            Some(uuid) => uuid,
            None => identity(config, &backend, true)?,
        };
        // A namespace with a configured UUID is another disk to hosts, so it lacks the drive's
        // NGUID.
        let of_drive = || match config.uuid {
            Some(_) => None,
            None => backend.names().nguid,
        };
        let nguid = config.nguid.map(|nguid| nguid.with(uuid)).or_else(of_drive);
        let regions = Regions::of(&backend);
        let place = match backend.place() {
            Some((device, inode)) => DiskKey::File(device, inode),
            None => DiskKey::Named(uuid),
        };
        let path = config.write_protection_file.clone();
        let protection_file = path.map(|path| ProtectionFile::new(path, uuid));
        let protection = protection_file
            .as_ref()
            .map_or(WriteProtectionState::NONE, read_protection);
        let has_disk = matches!(config.backing, Backing::Disk(_) | Backing::Rbd(_));
        let size_file = kept_in.filter(|_| has_disk);
        let size_file =
            size_file.map(|(folder, nqn)| SizeFile::new(folder, (nqn, config.nsid), uuid));
        let kept_in = kept_in.filter(|_| !config.shared);
        let reservation_file = kept_in.map(|(folder, nqn)| ReservationFile::new(folder, uuid, nqn));
        let stored = match &reservation_file {
            Some(file) => read_reservations(file)?,
            None => Reservations::default(),
        };
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            nsid: config.nsid,
            backend,
            backing,
            uuid,
            is_named: config.uuid.is_some(),
            nguid,
            read_only: config.read_only,
            limiter: Limiter::new(&config.limits),
            depth: Depth::new(config.limits.outstanding, reactors),
            order: orders.of(place),
            counters: (0..reactors).map(|_| Arc::default()).collect(),
            anagrpid: AtomicU32::new(config.ana_group),
            restricted: AtomicBool::new(is_restricted(config)),
            withheld: AtomicBool::new(false),
            protected: AtomicBool::new(protection != WriteProtectionState::NONE),
            protection_file,
            protection: AtomicU8::new(protection.0),
            regions,
            reservable: !config.shared,
            reservation_file,
            stored,
            reserving: OnceLock::new(),
            remaining: AtomicU64::new(NO_LOSS),
            size_file,
        })
    }

    pub fn list_reservations(&self) {
        let Some(file) = self
            .reservation_file
            .as_ref()
            .filter(|_| self.stored.is_persistent())
        else {
            return;
        };
        if let Err(error) = file.list() {
            // Logged when the configuration is applied.
            tracing::warn!(
                file = %file.path().display(), %error,
                "cannot write into the folder index of state_directory: a later start would not \
                 notice the loss of this file"
            );
        }
    }

    pub fn warn_unless_polled(&self) {
        if self.backend.lacks_poll_queues() {
            // Logged when the configuration is applied.
            tracing::warn!(
                backing = self.backing,
                "poll_drives is set, but Linux's driver has no polled queues for this drive: its \
                 commands complete by interrupts; boot with nvme.poll_queues=N, one for each \
                 reactor, or leave out poll_drives"
            );
        }
    }

    pub(crate) fn counters(&self, reactor: usize) -> &Arc<NamespaceCounters> {
        &self.counters[reactor]
    }

    pub fn all_counters(&self) -> &[Arc<NamespaceCounters>] {
        &self.counters
    }

    pub(crate) fn anagrpid(&self) -> u32 {
        self.anagrpid.load(Ordering::Relaxed)
    }

    pub fn set_anagrpid(&self, anagrpid: u32) {
        self.anagrpid.store(anagrpid, Ordering::Relaxed);
    }

    pub fn set_restricted(&self, restricted: bool) {
        self.restricted.store(restricted, Ordering::Relaxed);
    }

    /// Makes controllers of the replaced namespace wait for access until they have noticed the
    /// change. Must precede the export.
    pub fn withhold(&self) {
        self.withheld.store(true, Ordering::Relaxed);
    }

    pub fn set_protected(&self, protected: bool) {
        self.protected.store(protected, Ordering::Release);
    }

    /// Takes over the write protection of the replaced namespace on the same disk. Must precede the
    /// export.
    pub fn stays_protected(&self, state: WriteProtectionState) {
        self.protection.store(state.0, Ordering::Relaxed);
        self.set_protected(state != WriteProtectionState::NONE);
    }

    pub fn is_reservable(&self) -> bool {
        self.reservable
    }

    pub fn reserving(&self) -> &Arc<Reserving> {
        self.reserving.get_or_init(|| {
            let can_persist = self.reservation_file.is_some();
            Arc::new(Reserving::new(can_persist, self.stored.clone()))
        })
    }

    /// Takes over the reservations of the replaced namespace on the same disk, if both can persist
    /// them or neither can. Must precede the export.
    pub fn stays_reserved(&self, reserving: &Arc<Reserving>) {
        if self.reservable && reserving.can_persist() == self.reservation_file.is_some() {
            self.reserving.get_or_init(|| Arc::clone(reserving));
        }
    }

    pub fn protection(&self) -> WriteProtectionState {
        WriteProtectionState(self.protection.load(Ordering::Relaxed))
    }

    #[inline(always)]
    pub fn is_protected(&self) -> bool {
        self.protected.load(Ordering::Relaxed)
    }

    pub fn entry(self: &Arc<Self>) -> Entry {
        Entry {
            namespace: Arc::clone(self),
            view: self.view(),
            restricted: self.restricted.load(Ordering::Relaxed)
                || self.withheld.load(Ordering::Relaxed),
        }
    }

    pub fn view(&self) -> NamespaceView {
        let geometry = self.backend.geometry();
        NamespaceView {
            nsze: geometry.blocks,
            lbads: geometry.block_bytes.trailing_zeros() as u8,
            write_protected: self.read_only,
            write_uncorrectable: self.backend.writes_uncorrectable(),
        }
    }

    pub fn bytes(&self) -> u64 {
        let geometry = self.backend.geometry();
        geometry.blocks * u64::from(geometry.block_bytes)
    }

    /// Returns true if the disk is or was smaller than its namespace: hosts lost data, and the
    /// caller must not resize the namespace. [`Self::remaining_bytes`] then returns
    /// `measured_bytes`.
    pub fn finds_loss(&self, measured_bytes: u64) -> bool {
        let has_lost = measured_bytes < self.bytes() || self.backend.is_cut();
        let remaining = if has_lost { measured_bytes } else { NO_LOSS };
        self.remaining.store(remaining, Ordering::Relaxed);
        has_lost
    }

    pub fn remaining_bytes(&self) -> Option<u64> {
        let remaining = self.remaining.load(Ordering::Relaxed);
        (remaining != NO_LOSS).then_some(remaining)
    }

    /// Fails if the disk is at least one block smaller than its stored size. Blocks on the file
    /// system.
    pub fn check_size(&self) -> Result<(), OpenError> {
        let stored = self.size_file.as_ref().map(|file| (file.read(), file));
        match stored {
            Some((Ok(Some(before)), _)) => {
                let now = self.bytes();
                let block_bytes = u64::from(self.backend.geometry().block_bytes);
                if now + block_bytes > before {
                    return Ok(());
                }
                Err(OpenError::new(format!(
                    "{SMALLER}: {} had {before} bytes, and has {now} now",
                    self.backing
                )))
            }
            Some((Err(error), file)) => Err(OpenError::new(format!(
                "{UNKNOWN_SIZE} that {} had, {}: {error}: restore the file from a backup, or \
                 remove it if the disk has its size",
                self.backing,
                file.path().display()
            ))),
            Some((Ok(None), _)) | None => Ok(()),
        }
    }

    /// Stores the size, or logs a failure. Blocks on the file system.
    pub fn keep_size(&self) {
        if let Some(file) = &self.size_file
            && let Err(error) = file.write(self.bytes())
        {
            // Logged when a disk is opened or resized.
            tracing::warn!(
                file = %file.path().display(), %error,
                "cannot store the size of a disk: the next start does not find a loss"
            );
        }
    }

    pub fn keeps_size(&self) -> bool {
        self.size_file.is_some()
    }

    pub fn region(&self, device: &Arc<dyn Device>) -> Result<Option<Arc<Region>>, FabricError> {
        let regions = self.regions.as_ref();
        regions.map(|regions| regions.at(device)).transpose()
    }

    pub fn forget_device(&self, device: u64) {
        if let Some(regions) = &self.regions {
            regions.forget(device);
        }
    }
}

/// Returns the UUID of a disk whose configuration sets none. If `stores`, a file without a stored
/// UUID gets one.
fn identity(
    config: &cairn_config::Namespace,
    backend: &Backend,
    stores: bool,
) -> Result<Uuid, OpenError> {
    let machine = cairn_config::machine();
    backend.identity(Scope {
        machine: &machine,
        shared: config.shared,
        stores,
    })
}

/// Checks the size and the reservations that `folder` has for a disk, and writes nothing.
pub fn check_stored(
    config: &cairn_config::Namespace,
    backend: Backend,
    backing: String,
    (folder, nqn): (&Path, Nqn),
) -> Result<(), OpenError> {
    let uuid = config
        .uuid
        .map_or_else(|| identity(config, &backend, false), Ok)?;
    let config = cairn_config::Namespace {
        uuid: Some(uuid),
        ..config.clone()
    };
    Namespace::new(
        &config,
        backend,
        backing,
        1,
        &Arc::default(),
        Some((folder, nqn)),
    )?
    .check_size()
}

fn read_reservations(file: &ReservationFile) -> Result<Reservations, OpenError> {
    file.read().map_err(|error| {
        OpenError::new(format!(
            "{UNREADABLE} in {}: {error}; restore it from a backup: without it the reservations of \
             the disk are dropped, and fenced hosts write again",
            file.path().display()
        ))
    })
}

fn read_protection(protection_file: &ProtectionFile) -> WriteProtectionState {
    protection_file.read().unwrap_or_else(|error| {
        // Logged when the configuration is applied.
        tracing::error!(
            file = %protection_file.path().display(), %error,
            "cannot read the file of write protection: the namespace is protected"
        );
        WriteProtectionState::PROTECTED
    })
}

pub fn is_restricted(config: &cairn_config::Namespace) -> bool {
    config.hosts != cairn_config::Access::AnyHost
}

/// Immutable: each change sends a new table to the reactors.
#[derive(Debug, Default, Clone)]
pub struct NamespaceTable {
    pub namespaces: Vec<Entry>,
}

impl NamespaceTable {
    pub fn get(&self, nsid: u32) -> Option<&Entry> {
        let namespaces = &self.namespaces;
        let found = namespaces.binary_search_by_key(&nsid, |entry| entry.namespace.nsid);
        found.ok().map(|index| &namespaces[index])
    }

    /// Flushes all namespaces, even after a failure. Blocks until the disks reply. False if a flush
    /// failed.
    pub fn flush(&self) -> bool {
        let mut intact = true;
        for Entry { namespace, .. } in &self.namespaces {
            if let Err(error) = namespace.backend.flush() {
                intact = false;
                if let Some(line) = LogLine::about(Topic::Disk) {
                    peer_line!(error, line, nsid = namespace.nsid, backing = namespace.backing, %error,
                        "flush failed at shutdown: acknowledged writes may be lost"
                    );
                }
            }
        }
        intact
    }
}

#[derive(Debug, Clone)]
pub struct Entry {
    pub namespace: Arc<Namespace>,
    pub view: NamespaceView,
    pub(crate) restricted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::Clock;
    use cairn_disk::{Claim, Formers, FoundPath, Habits, SimulatedDisk};

    #[test]
    fn one_disk_that_fails_does_not_keep_the_others_from_being_flushed() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |number: u32| {
            let path = folder.path().join(number.to_string());
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(1 << 20).unwrap();
            let disk = SimulatedDisk::register(&path, &Clock::default(), 0).unwrap();
            let found = FoundPath::find(&path).unwrap();
            let admitted = found.admit(|_| Ok(true)).unwrap();
            let backend =
                Backend::open(&admitted, None, Claim::default(), &Formers::default()).unwrap();
            let config = cairn_config::Namespace {
                name: None,
                nsid: number,
                backing: Backing::Disk(path),
                uuid: None,
                nguid: None,
                block_size: None,
                read_only: false,
                write_protection: false,
                write_protection_file: None,
                shared: false,
                ana_group: 1,
                hosts: cairn_config::Access::AnyHost,
                pooled: None,
                limits: cairn_config::Limits::default(),
            };
            let orders = Arc::default();
            let namespace =
                Namespace::new(&config, backend, String::new(), 1, &orders, None).unwrap();
            (Arc::new(namespace).entry(), disk)
        };
        let (namespaces, disks): (Vec<Entry>, Vec<SimulatedDisk>) = (1..=3).map(entry).unzip();
        let table = NamespaceTable { namespaces };
        assert!(table.flush());
        for number in [0, 2] {
            disks[number].set_habits(Habits {
                flush_error: 1000,
                ..Habits::default()
            });
        }
        assert!(!table.flush());
        let failed = |entry: &Entry| entry.namespace.backend.is_failed();
        let failed: Vec<bool> = table.namespaces.iter().map(failed).collect();
        assert_eq!(failed, [true, false, true]);
        for disk in &disks {
            disk.set_habits(Habits::default());
        }
        assert!(!table.flush(), "what was lost stays lost");
    }
}
