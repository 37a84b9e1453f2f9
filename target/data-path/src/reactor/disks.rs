//! Namespaces of a reactor, with their files in its ring and memory regions on its devices.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_base::log::{LogLine, Topic};
use cairn_disk::{Backend, FileSlot, Ring};
use cairn_rdma::{Device, Region, Sge};
use nvme_proto::ana;
use nvme_proto::io::{NamespaceView, OperationKind};
use nvme_proto::reservation::Reservations;
use nvme_proto::wire::Status;

use super::port::PORTS_MAX;
use super::queueing::depth_queues::DepthQueues;
use crate::limits::Tokens;
use crate::metrics::NamespaceCounters;
use crate::namespace::{Entry, Namespace, NamespaceTable};
use crate::order::DiskOrder;
use crate::qpair::Association;
use crate::registry::{ControllerShared, IoCounters};
use crate::request::{Request, RequestId, RequestTable};
use crate::reservations::Restriction;

const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Age of the oldest command at which a disk counts as slow.
const SLOW: Duration = Duration::from_millis(100);

const _: () = assert!(size_of::<Option<Disk>>() == 256);

/// Namespace as used by one reactor. The size is a power of two, so that indexing takes one
/// instruction.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Disk {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) view: NamespaceView,
    pub(crate) counters: Arc<NamespaceCounters>,
    pub(crate) smart: Arc<IoCounters>,
    pub(crate) file: Option<FileSlot>,
    regions: [Option<Arc<Region>>; PORTS_MAX],
    reported: Box<Option<(Instant, u64)>>,
    users: u32,
    pub(super) held: usize,
    pub(super) last_begun: Option<Instant>,
    pub(super) tokens: Tokens,
    pub(super) depth_queues: Box<DepthQueues>,
    oldest_ns: u64,
    retired: bool,
    reservation: Option<Arc<Reservations>>,
    /// Whether each change must be registered in the disk's order, for exclusive commands.
    pub(super) is_exclusive: bool,
}

impl Disk {
    pub(crate) fn backend(&self) -> &Backend {
        &self.namespace.backend
    }

    /// Returns the disk memory that the device of `port` can send for a read of `length` bytes.
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

    pub(super) fn has_limit(&self, of: &Association) -> bool {
        self.namespace.limiter.is_limited()
            || of.subsystem.limiter.is_limited()
            || of.controller.limiter.is_limited()
    }

    #[inline(always)]
    pub(super) fn check_access(&self, controller: &ControllerShared) -> Result<(), Status> {
        ana::check_access(controller.ana_state(self.namespace.anagrpid()))
    }

    #[inline(always)]
    pub(super) fn check_reservation(
        &self,
        controller: &ControllerShared,
        kind: OperationKind,
    ) -> Result<(), Status> {
        match &self.reservation {
            None => Ok(()),
            Some(reservation) => check_reserved(reservation, controller, kind),
        }
    }

    /// Returns the log line for a failure, with the number of suppressed lines before it; `None` to
    /// suppress this line.
    pub(crate) fn failure_to_report(&mut self, now: Instant) -> Option<LogLine> {
        let due = self
            .reported
            .is_none_or(|(at, _)| now >= at + REPORT_INTERVAL);
        let unreported = self.reported.map_or(0, |(_, unreported)| unreported);
        let line = due.then(|| LogLine::about(Topic::Disk)).flatten();
        *self.reported = match (&line, *self.reported) {
            (None, Some((at, _))) => Some((at, unreported + 1)),
            (None, None) => Some((now, 1)),
            (Some(_), _) => Some((now, 0)),
        };
        Some(line?.after(unreported))
    }

    #[inline]
    pub(crate) fn enter(&mut self) {
        self.users += 1;
        self.show_users();
    }

    pub(super) fn users(&self) -> u32 {
        self.users
    }

    fn show_users(&self) {
        self.counters.in_progress.set(u64::from(self.users));
    }

    fn learn(&mut self, port: usize, device: &Arc<dyn Device>) {
        match self.namespace.region(device) {
            Ok(region) => self.regions[port] = region,
            // Logged after a configuration change or for a new device.
            Err(error) => tracing::warn!(
                nsid = self.namespace.nsid, device = device.name(), %error,
                "cannot register the memory of a namespace: its data is copied instead"
            ),
        }
    }
}

#[cold]
#[inline(never)]
fn check_reserved(
    reservation: &Reservations,
    controller: &ControllerShared,
    kind: OperationKind,
) -> Result<(), Status> {
    match reservation.forbids(controller.hostid(), kind.access()) {
        true => Err(Status::RESERVATION_CONFLICT.with_dnr()),
        false => Ok(()),
    }
}

#[derive(Debug, Clone, Copy, Default)]
enum Slot {
    #[default]
    Empty,
    Open(u32),
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

#[derive(Debug, Default)]
struct Table {
    source: Arc<NamespaceTable>,
    /// Indexed by NSID - 1.
    disks: Vec<Slot>,
    counters: Arc<IoCounters>,
    tokens: Tokens,
    active: u32,
    busy: bool,
}

impl Table {
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

#[derive(Debug)]
pub(crate) struct Disks {
    reactor: usize,
    disks: Vec<Option<Disk>>,
    tables: Vec<Table>,
    /// Number of epochs begun, modulo 2^32; see [`super::stages::decisions`].
    epoch: u32,
    busy: Vec<u32>,
}

impl Disks {
    pub(crate) fn new(reactor: usize) -> Self {
        Self {
            reactor,
            disks: Vec::new(),
            tables: Vec::new(),
            epoch: 0,
            busy: Vec::new(),
        }
    }

    pub(super) fn reactor(&self) -> usize {
        self.reactor
    }

    #[inline(always)]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn begin_epoch(&mut self) -> u32 {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch
    }

    pub(super) fn go_on_from(&mut self, epoch: u32) {
        self.epoch = epoch;
    }

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
            // Allocated here, because I/O must not allocate.
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
                // Logged after a configuration change or for a new device.
                tracing::error!(nsid = namespace.nsid, %error, "cannot open a namespace");
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
            reported: Box::default(),
            users: 0,
            held: 0,
            last_begun: None,
            tokens: Tokens::default(),
            depth_queues: Box::new(DepthQueues::new(self.reactor, &namespace.depth)),
            oldest_ns: 0,
            retired: false,
            reservation: namespace.reserving().in_force(),
            is_exclusive: namespace.order.is_exclusive(),
        };
        for (port, device) in ports {
            disk.learn(*port, device);
        }
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

    pub(super) fn restrict(&mut self, restriction: &Restriction) {
        for disk in self.disks.iter_mut().flatten() {
            if Arc::ptr_eq(disk.namespace.reserving(), &restriction.reserving) {
                disk.reservation = restriction.reserving.in_force();
            }
        }
    }

    pub(super) fn begin_exclusion(&mut self, order: &Arc<DiskOrder>) {
        for disk in self.disks.iter_mut().flatten() {
            disk.is_exclusive |= Arc::ptr_eq(&disk.namespace.order, order);
        }
    }

    pub(super) fn end_exclusion(&mut self, now_ns: u64) {
        let disks = self.disks.iter_mut().flatten();
        for disk in disks.filter(|disk| disk.is_exclusive) {
            disk.is_exclusive = disk.namespace.order.stays_exclusive(now_ns);
        }
    }

    pub(super) fn orders(&self) -> impl Iterator<Item = &Arc<DiskOrder>> {
        let disks = self.disks.iter().flatten();
        disks.map(|disk| &disk.namespace.order)
    }

    pub(crate) fn port_opened(&mut self, port: usize, device: &Arc<dyn Device>) {
        for disk in self.disks.iter_mut().flatten() {
            disk.learn(port, device);
        }
    }

    pub(crate) fn port_closed(&mut self, port: usize) {
        for disk in self.disks.iter_mut().flatten() {
            disk.regions[port] = None;
        }
    }

    #[inline]
    pub(crate) fn find(&self, of: &Association, nsid: u32) -> Option<u32> {
        let table = self.tables.get(of.subsystem.id as usize)?;
        table.find(&of.controller, nsid)
    }

    pub(crate) fn take_waiting(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        for disk in self.disks.iter_mut().flatten() {
            let depth = &disk.namespace.depth;
            disk.depth_queues
                .take_out(depth, requests, &goes, &mut each);
        }
    }

    pub(crate) fn any_waits(&self) -> bool {
        let mut disks = self.disks.iter().flatten();
        disks.any(|disk| disk.oldest_ns != 0)
    }

    pub(crate) fn forget_ages(&mut self) {
        for disk in self.disks.iter_mut().flatten() {
            disk.oldest_ns = 0;
        }
    }

    pub(crate) fn note_age(&mut self, disk: u32, age: Duration) {
        let disk = &mut self[disk];
        disk.oldest_ns = disk.oldest_ns.max(age.as_nanos() as u64);
    }

    pub(crate) fn show_ages(&mut self) {
        for disk in self.disks.iter_mut().flatten() {
            disk.counters.oldest_ns.set(disk.oldest_ns);
            if let Some(file) = disk.file {
                let slow = Duration::from_nanos(disk.oldest_ns) >= SLOW;
                disk.file = Some(disk.namespace.backend.slot_while(file, slow));
            }
        }
    }

    /// Returns (following slot, disk) of the next accessible disk from slot `from` on.
    pub(crate) fn next(&self, of: &Association, from: u32) -> Option<(u32, u32)> {
        let table = self.tables.get(of.subsystem.id as usize)?;
        let rest = from..table.disks.len() as u32;
        rest.filter_map(|slot| Some((slot + 1, table.find(&of.controller, slot + 1)?)))
            .next()
    }

    #[inline]
    pub(crate) fn enter(&mut self, disk: u32) {
        self[disk].enter();
    }

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
            // Logged after a configuration change or for a new device.
            tracing::warn!(nsid = removed.namespace.nsid, %error, "a file stays open");
        }
    }

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

    pub(super) fn tokens(&mut self, subsystem: u32) -> &mut Tokens {
        &mut self.tables[subsystem as usize].tokens
    }

    #[inline]
    pub(crate) fn end(&mut self, request: &mut Request, ring: &mut Ring) {
        if let Some(subsystem) = request.subsystem.take() {
            self.tables[subsystem as usize].active -= 1;
        }
        if let Some(disk) = request.disk.take() {
            self.leave(disk, ring);
        }
    }

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
