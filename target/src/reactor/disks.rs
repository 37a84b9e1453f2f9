//! The namespaces as one reactor knows them: with their place in its ring, and
//! the keys that its devices have for their memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_disk::{Backend, FileSlot, Ring};
use cairn_rdma::log::{Line, Topic};
use cairn_rdma::{Device, Region, Sge};
use nvme_proto::ana;
use nvme_proto::io::NamespaceView;
use nvme_proto::wire::Status;

use super::entrance::Entrance;
use super::port::PORTS_MAX;
use crate::limits::Purse;
use crate::metrics::NamespaceCounters;
use crate::namespace::{Entry, Namespace, NamespaceTable};
use crate::qpair::Association;
use crate::registry::{ControllerShared, IoCounters};
use crate::request::{Request, RequestId, RequestTable};

/// Between two lines about the failures of one disk.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// A disk is slow while it has had a command for so long.
const SLOW: Duration = Duration::from_millis(100);

const _: () = assert!(size_of::<Option<Disk>>() == 256);

/// A namespace of this reactor. Its size is a power of two, by which a place in the list of them is computed in one
/// instruction: what is seldom needed is elsewhere.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) view: NamespaceView,
    /// What is counted of it here.
    pub(crate) counters: Arc<NamespaceCounters>,
    /// What is counted of its subsystem here.
    pub(crate) smart: Arc<IoCounters>,
    /// Its place among the ring's files, if it is one.
    pub(crate) file: Option<FileSlot>,
    /// Its memory as the device of each port knows it.
    regions: [Option<Arc<Region>>; PORTS_MAX],
    /// When a failure of it was last reported, and how many have been passed over since.
    reported: Option<(Instant, u64)>,
    /// Requests that work on it.
    users: u32,
    /// Bytes of buffers that these hold, or have been promised.
    pub(super) held: usize,
    /// When a command for it last began while others waited for requests.
    pub(super) last_begun: Option<Instant>,
    /// What this reactor has bought of its limits.
    pub(super) purse: Purse,
    /// Where commands wait that do not go straight in.
    pub(super) entrance: Box<Entrance>,
    /// Nanoseconds that its oldest command has been with it.
    oldest_ns: u64,
    /// Whether it goes once no request uses it.
    retired: bool,
}

impl Disk {
    /// What its blocks live on.
    pub(crate) fn backend(&self) -> &Backend {
        &self.namespace.backend
    }

    /// The bytes that a device can move from the disk by itself: `None`
    /// if it needs a buffer for that, or does not know the disk's memory.
    #[inline(always)]
    pub(crate) fn window(&self, port: usize, length: u32) -> Option<Sge> {
        let (mapping, start) = self.backend().window(length)?;
        let region = self.regions[port].as_ref()?;
        Some(Sge {
            addr: mapping.addr() + start as u64,
            length,
            lkey: region.lkey(),
        })
    }

    /// Whether the controller may use it (Base, 8.1.3).
    ///
    /// # Errors
    /// The status of a command that tries.
    #[inline(always)]
    pub(super) fn check_access(&self, controller: &ControllerShared) -> Result<(), Status> {
        ana::check_access(controller.ana_state(self.namespace.anagrpid()))
    }

    /// A line to report a failure, if there is one, which says how many were not
    /// reported since the last.
    pub(crate) fn failure_to_report(&mut self, now: Instant) -> Option<Line> {
        let due = self
            .reported
            .is_none_or(|(at, _)| now >= at + REPORT_INTERVAL);
        let unreported = self.reported.map_or(0, |(_, unreported)| unreported);
        let line = due.then(|| Line::about(Topic::Disk)).flatten();
        self.reported = match (&line, self.reported) {
            (None, Some((at, _))) => Some((at, unreported + 1)),
            (None, None) => Some((now, 1)),
            (Some(_), _) => Some((now, 0)),
        };
        Some(line?.after(unreported))
    }

    /// A request begins to work on it.
    #[inline]
    pub(crate) fn enter(&mut self) {
        self.users += 1;
        self.show_users();
    }

    /// Requests that work on it.
    pub(super) fn users(&self) -> u32 {
        self.users
    }

    fn show_users(&self) {
        self.counters.in_progress.set(u64::from(self.users));
    }

    fn learn(&mut self, port: usize, device: &Arc<dyn Device>) {
        match self.namespace.region(device) {
            Ok(region) => self.regions[port] = region,
            // Data then takes the way by a buffer.
            // Cause: the configuration, at a change or when a device is new.
            Err(error) => tracing::warn!(
                nsid = self.namespace.nsid, device = device.name(), %error,
                "the memory of a namespace could not be registered: its data will be copied"
            ),
        }
    }
}

/// What an NSID of a subsystem stands for.
#[derive(Debug, Clone, Copy, Default)]
enum Slot {
    /// Nothing.
    #[default]
    Empty,
    /// A disk that every host of the subsystem sees: most are, and cost nothing more.
    Open(u32),
    /// A disk that some of them see.
    Restricted(u32),
}

impl Slot {
    fn new(disk: u32, entry: &Entry) -> Self {
        if entry.restricted {
            Self::Restricted(disk)
        } else {
            Self::Open(disk)
        }
    }

    fn disk(self) -> Option<u32> {
        match self {
            Self::Empty => None,
            Self::Open(disk) | Self::Restricted(disk) => Some(disk),
        }
    }
}

/// A subsystem of this reactor.
#[derive(Debug, Default)]
struct Table {
    /// As it came last.
    source: Arc<NamespaceTable>,
    /// By NSID, less one.
    disks: Vec<Slot>,
    /// What is counted of it here.
    counters: Arc<IoCounters>,
    /// What this reactor has bought of its limits.
    purse: Purse,
    /// I/O commands in progress.
    active: u32,
    /// Whether it is among [`Disks::busy`].
    busy: bool,
}

impl Table {
    /// What the host of a controller sees as this namespace.
    #[inline]
    fn find(&self, controller: &ControllerShared, nsid: u32) -> Option<u32> {
        let slot = usize::try_from(nsid.checked_sub(1)?).ok()?;
        match *self.disks.get(slot)? {
            Slot::Open(disk) => Some(disk),
            Slot::Restricted(disk) if controller.sees(nsid) => Some(disk),
            Slot::Restricted(_) | Slot::Empty => None,
        }
    }
}

/// All namespaces of a reactor.
#[derive(Debug)]
pub(crate) struct Disks {
    /// The number of the reactor that has them.
    reactor: usize,
    disks: Vec<Option<Disk>>,
    /// By the subsystem's id.
    tables: Vec<Table>,
    /// Number of changes of decisions so far, modulo 2^32: [`super::decisions`].
    epoch: u32,
    /// Subsystems whose time counts as busy: those with I/O commands in progress,
    /// and those that had some in this round.
    busy: Vec<u32>,
}

impl Disks {
    /// None as yet, of this reactor.
    pub(crate) fn new(reactor: usize) -> Self {
        Self {
            reactor,
            disks: Vec::new(),
            tables: Vec::new(),
            epoch: 0,
            busy: Vec::new(),
        }
    }

    /// The number of the reactor that has them.
    pub(super) fn reactor(&self) -> usize {
        self.reactor
    }

    /// The present epoch.
    #[inline(always)]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Begins the next epoch, after a decision about commands has changed; returns it.
    pub(super) fn begin_epoch(&mut self) -> u32 {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch
    }

    /// Goes on counting after the epochs of a reactor that panicked.
    pub(super) fn go_on_from(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

    /// The namespaces of a subsystem are these from now on, and this counts it.
    pub(crate) fn adopt(
        &mut self,
        subsystem: u32,
        counters: &Arc<IoCounters>,
        table: &Arc<NamespaceTable>,
        ports: &[(usize, Arc<dyn Device>)],
        ring: &mut Ring,
    ) {
        self.begin_epoch();
        let index = subsystem as usize;
        if self.tables.len() <= index {
            self.tables.resize_with(index + 1, Table::default);
            // No I/O allocates, whichever subsystems are busy at once.
            self.busy.reserve(self.tables.len() - self.busy.len());
        }
        self.tables[index].source = Arc::clone(table);
        self.tables[index].counters = Arc::clone(counters);
        let old = std::mem::take(&mut self.tables[index].disks);
        let mut new = vec![
            Slot::Empty;
            table
                .namespaces
                .last()
                .map_or(0, |e| e.namespace.nsid as usize)
        ];
        for entry in &table.namespaces {
            let slot = entry.namespace.nsid as usize - 1;
            let kept = old.get(slot).and_then(|slot| slot.disk());
            let kept = kept.filter(|&disk| self[disk].namespace.id == entry.namespace.id);
            let disk = match kept {
                Some(disk) => {
                    self[disk].view = entry.view;
                    Some(disk)
                }
                None => self.add(entry, counters, ports, ring),
            };
            new[slot] = disk.map_or(Slot::Empty, |disk| Slot::new(disk, entry));
        }
        for (slot, old) in old.into_iter().enumerate() {
            let stays = new.get(slot).and_then(|new| new.disk());
            if let Some(disk) = old.disk().filter(|disk| Some(*disk) != stays) {
                self[disk].retired = true;
                self.remove_if_unused(disk, ring);
            }
        }
        self.tables[index].disks = new;
    }

    /// The namespaces of all subsystems, as they came last, for a reactor that takes over.
    pub(super) fn sources(&self) -> Vec<(u32, Arc<IoCounters>, Arc<NamespaceTable>)> {
        let tables = self.tables.iter().enumerate();
        let source = |(index, table): (usize, &Table)| {
            let (counters, source) = (Arc::clone(&table.counters), Arc::clone(&table.source));
            (index as u32, counters, source)
        };
        tables.map(source).collect()
    }

    fn add(
        &mut self,
        entry: &Entry,
        smart: &Arc<IoCounters>,
        ports: &[(usize, Arc<dyn Device>)],
        ring: &mut Ring,
    ) -> Option<u32> {
        let namespace = &entry.namespace;
        let file = match namespace.backend.add_to(ring) {
            Ok(file) => file,
            Err(error) => {
                // Cause: the configuration, at a change or when a device is new.
                tracing::error!(nsid = namespace.nsid, %error, "a namespace cannot be served");
                return None;
            }
        };
        let mut disk = Disk {
            namespace: Arc::clone(namespace),
            view: entry.view,
            counters: Arc::clone(namespace.counters(self.reactor)),
            smart: Arc::clone(smart),
            file,
            regions: Default::default(),
            reported: None,
            users: 0,
            held: 0,
            last_begun: None,
            purse: Purse::default(),
            entrance: Box::new(Entrance::new(self.reactor, &namespace.depth)),
            oldest_ns: 0,
            retired: false,
        };
        for (port, device) in ports {
            disk.learn(*port, device);
        }
        // One before it, of a reactor that panicked, may have left something there.
        disk.show_users();
        disk.counters.oldest_ns.set(0);
        let free = self.disks.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.disks.push(None);
            self.disks.len() - 1
        });
        self.disks[index] = Some(disk);
        Some(index as u32)
    }

    /// A port opened: registers the memory there of the namespaces.
    pub(crate) fn port_opened(&mut self, port: usize, device: &Arc<dyn Device>) {
        for disk in self.disks.iter_mut().flatten() {
            disk.learn(port, device);
        }
    }

    /// A port closed.
    pub(crate) fn port_closed(&mut self, port: usize) {
        for disk in self.disks.iter_mut().flatten() {
            disk.regions[port] = None;
        }
    }

    /// The disk of a namespace, if the host of this association sees it.
    #[inline]
    pub(crate) fn find(&self, of: &Association, nsid: u32) -> Option<u32> {
        let table = self.tables.get(of.subsystem.id as usize)?;
        table.find(&of.controller, nsid)
    }

    /// Takes out requests that wait for their turn.
    pub(crate) fn take_waiting(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        for disk in self.disks.iter_mut().flatten() {
            let depth = &disk.namespace.depth;
            disk.entrance.take_out(depth, requests, &goes, &mut each);
        }
    }

    /// Whether a disk had a command when ages were last looked at.
    pub(crate) fn any_waits(&self) -> bool {
        let mut disks = self.disks.iter().flatten();
        disks.any(|disk| disk.oldest_ns != 0)
    }

    /// Ages are looked at anew.
    pub(crate) fn forget_ages(&mut self) {
        for disk in self.disks.iter_mut().flatten() {
            disk.oldest_ns = 0;
        }
    }

    /// A disk has had a command for so long.
    pub(crate) fn note_age(&mut self, disk: u32, age: Duration) {
        let disk = &mut self[disk];
        disk.oldest_ns = disk.oldest_ns.max(age.as_nanos() as u64);
    }

    /// Ages are known now: shows them, and hands more over at disks that are slow.
    pub(crate) fn show_ages(&mut self) {
        for disk in self.disks.iter_mut().flatten() {
            disk.counters.oldest_ns.set(disk.oldest_ns);
            if let Some(file) = disk.file {
                let slow = Duration::from_nanos(disk.oldest_ns) >= SLOW;
                disk.file = Some(disk.namespace.backend.slot_while(file, slow));
            }
        }
    }

    /// The first disk from this one on that the host of this association sees: (how many were
    /// passed, disk).
    pub(crate) fn next(&self, of: &Association, from: u32) -> Option<(u32, u32)> {
        let table = self.tables.get(of.subsystem.id as usize)?;
        let rest = from..table.disks.len() as u32;
        rest.filter_map(|slot| Some((slot + 1, table.find(&of.controller, slot + 1)?)))
            .next()
    }

    /// A request begins to work on a disk.
    #[inline]
    pub(crate) fn enter(&mut self, disk: u32) {
        self[disk].enter();
    }

    /// A request has ended its work on a disk.
    #[inline]
    pub(crate) fn leave(&mut self, disk: u32, ring: &mut Ring) {
        let left = &mut self[disk];
        left.users -= 1;
        left.show_users();
        if left.retired {
            self.remove_if_unused(disk, ring);
        }
    }

    fn remove_if_unused(&mut self, disk: u32, ring: &mut Ring) {
        if self[disk].users > 0 {
            return;
        }
        let removed = self.disks[disk as usize]
            .take()
            .expect("a disk that is there");
        if let Some(file) = removed.file
            && let Err(error) = ring.remove_file(file)
        {
            // Cause: the configuration, at a change or when a device is new.
            tracing::warn!(nsid = removed.namespace.nsid, %error, "a file stays open");
        }
    }

    /// An I/O command of an association begins: the disk of its namespace.
    #[inline(always)]
    pub(crate) fn io_begins(&mut self, of: &Association, nsid: u32) -> Option<u32> {
        let subsystem = of.subsystem.id;
        let table = &mut self.tables[subsystem as usize];
        table.active += 1;
        if !table.busy {
            table.busy = true;
            self.busy.push(subsystem);
        }
        table.find(&of.controller, nsid)
    }

    /// What this reactor has bought of a subsystem's limits.
    pub(super) fn purse(&mut self, subsystem: u32) -> &mut Purse {
        &mut self.tables[subsystem as usize].purse
    }

    /// Nothing of a request is left: neither its disk nor its subsystem counts it any longer.
    #[inline]
    pub(crate) fn end(&mut self, request: &mut Request, ring: &mut Ring) {
        if let Some(subsystem) = request.subsystem.take() {
            self.tables[subsystem as usize].active -= 1;
        }
        if let Some(disk) = request.disk.take() {
            self.leave(disk, ring);
        }
    }

    /// Time has passed since the last round: for those that had I/O commands in
    /// progress at its end it was busy time.
    #[inline]
    pub(crate) fn count_busy(&mut self, passed_ns: u64) {
        let mut place = 0;
        while let Some(&subsystem) = self.busy.get(place) {
            let table = &mut self.tables[subsystem as usize];
            table.busy = table.active > 0;
            if table.busy {
                table.counters.busy_ns.add(passed_ns);
                place += 1;
            } else {
                self.busy.swap_remove(place);
            }
        }
    }
}

impl std::ops::Index<u32> for Disks {
    type Output = Disk;

    #[inline(always)]
    fn index(&self, index: u32) -> &Disk {
        self.disks[index as usize]
            .as_ref()
            .expect("a disk stays while it is used")
    }
}

impl std::ops::IndexMut<u32> for Disks {
    #[inline(always)]
    fn index_mut(&mut self, index: u32) -> &mut Disk {
        self.disks[index as usize]
            .as_mut()
            .expect("a disk stays while it is used")
    }
}
