//! QEMU and a guest, simulated.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::sync::atomic::fence;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::message::{
    VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight, VhostUserProtocolFeatures,
};
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

pub(super) const QUEUE: u16 = 128;
pub(super) const SLOTS: u16 = 32;
pub(super) const SLOT_BYTES: usize = 256 << 10;
pub(super) const MEMORY: usize = 16 << 20;
const USER: u64 = 0x7f00_0000_0000;
const TABLE: usize = 0x1000;
const AVAILABLE: usize = 0x3000;
const USED: usize = 0x4000;
const HEADERS: usize = 0x8000;
const DATA: usize = 0x40_0000;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 2;
pub(super) const INDIRECT: u16 = 4;
const PROTOCOL: u64 = 1 << 30;
const EVENT_INDEX: u64 = 1 << 29;

pub(super) type Descriptor = (u64, u32, u16, u16);

pub(super) struct Guest {
    pub(super) file: File,
    memory: MmapRegion,
    inflight: Option<(VhostUserInflight, File)>,
    available: u16,
    used: u16,
    features: u64,
    pub(super) link: Option<Link>,
}

pub(super) struct Link {
    pub(super) front: Frontend,
    kick: EventFd,
    _call: EventFd,
    pub(super) error: EventFd,
}

fn event() -> EventFd {
    EventFd::new(EFD_NONBLOCK).unwrap()
}

pub(super) fn header(slot: u16) -> usize {
    HEADERS + usize::from(slot) * 64
}

pub(super) fn data(slot: u16) -> usize {
    DATA + usize::from(slot) * SLOT_BYTES
}

impl Guest {
    pub(super) fn new() -> Self {
        let file = File::from(memfd_create(c"guest", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(MEMORY as u64).unwrap();
        let same = FileOffset::new(file.try_clone().unwrap(), 0);
        Self {
            memory: MmapRegion::from_file(same, MEMORY).unwrap(),
            file,
            inflight: None,
            available: 0,
            used: 0,
            features: 0,
            link: None,
        }
    }

    pub(super) fn connect(&mut self, socket: &Path) {
        let mut front = self.negotiate(socket);
        if self.inflight.is_none() {
            let asked = VhostUserInflight::new(0, 0, 1, QUEUE);
            self.inflight = Some(front.get_inflight_fd(&asked).unwrap());
        }
        let (kept, file) = self.inflight.as_ref().unwrap();
        front.set_inflight_fd(kept, file.as_raw_fd()).unwrap();
        front.set_mem_table(&[self.region()]).unwrap();
        let link = Link {
            front,
            kick: event(),
            _call: event(),
            error: event(),
        };
        self.start(link);
    }

    pub(super) fn negotiate(&mut self, socket: &Path) -> Frontend {
        let mut front = Frontend::connect(socket, 64).unwrap();
        front.set_owner().unwrap();
        self.features = front.get_features().unwrap() & !EVENT_INDEX;
        let wanted = VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::INFLIGHT_SHMFD;
        assert!(front.get_protocol_features().unwrap().contains(wanted));
        front.set_protocol_features(wanted).unwrap();
        front.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        front.set_features(self.features | PROTOCOL).unwrap();
        front
    }

    pub(super) fn region(&self) -> VhostUserMemoryRegionInfo {
        VhostUserMemoryRegionInfo {
            guest_phys_addr: 0,
            memory_size: MEMORY as u64,
            userspace_addr: USER,
            mmap_offset: 0,
            mmap_handle: self.file.as_raw_fd(),
        }
    }

    fn start(&mut self, mut link: Link) {
        let front = &mut link.front;
        front.set_vring_num(0, QUEUE).unwrap();
        front.set_vring_base(0, self.used_index()).unwrap();
        front.set_vring_addr(0, &Self::queue()).unwrap();
        front.set_vring_err(0, &link.error).unwrap();
        front.set_vring_kick(0, &link.kick).unwrap();
        front.set_vring_call(0, &link._call).unwrap();
        front.set_vring_enable(0, true).unwrap();
        self.link = Some(link);
    }

    pub(super) fn queue() -> VringConfigData {
        VringConfigData {
            queue_max_size: QUEUE,
            queue_size: QUEUE,
            flags: 0,
            desc_table_addr: USER + TABLE as u64,
            used_ring_addr: USER + USED as u64,
            avail_ring_addr: USER + AVAILABLE as u64,
            log_addr: None,
        }
    }

    pub(super) fn config(&mut self, bytes: u32) -> Vec<u8> {
        let front = &mut self.link.as_mut().unwrap().front;
        let empty = vec![0; bytes as usize];
        let flags = VhostUserConfigFlags::empty();
        front.get_config(0, bytes, flags, &empty).unwrap().1
    }

    pub(super) fn left(&self) -> usize {
        let (kept, file) = self.inflight.as_ref().unwrap();
        let file = FileOffset::new(file.try_clone().unwrap(), 0);
        let record: MmapRegion = MmapRegion::from_file(file, kept.mmap_size as usize).unwrap();
        let record = record.as_volatile_slice();
        let marks = (0..usize::from(QUEUE)).map(|head| 16 + 16 * head);
        marks
            .filter(|&at| record.read_obj::<u8>(at).unwrap() == 1)
            .count()
    }

    pub(super) fn put(&self, at: usize, bytes: &[u8]) {
        self.memory
            .as_volatile_slice()
            .write_slice(bytes, at)
            .unwrap();
    }

    pub(super) fn get(&self, at: usize, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.memory
            .as_volatile_slice()
            .read_slice(&mut out, at)
            .unwrap();
        out
    }

    pub(super) fn describe(&self, at: usize, descriptors: &[Descriptor]) {
        for (index, &(address, bytes, flags, next)) in descriptors.iter().enumerate() {
            let at = at + 16 * index;
            self.put(at, &address.to_le_bytes());
            self.put(at + 8, &bytes.to_le_bytes());
            self.put(at + 12, &flags.to_le_bytes());
            self.put(at + 14, &next.to_le_bytes());
        }
    }

    pub(super) fn describe_in_table(&self, first: u16, descriptors: &[Descriptor]) {
        self.describe(TABLE + 16 * usize::from(first), descriptors);
    }

    pub(super) fn put_header(&self, slot: u16, kind: u32, sector: u64) {
        self.put(header(slot), &kind.to_le_bytes());
        self.put(header(slot) + 4, &[0; 4]);
        self.put(header(slot) + 8, &sector.to_le_bytes());
        self.put(header(slot) + 32, &[0xff]);
    }

    pub(super) fn ask(&mut self, slot: u16, kind: u32, sector: u64, bytes: usize, flags: u16) {
        self.put_header(slot, kind, sector);
        let head = 3 * slot;
        let header = header(slot) as u64;
        let mut chain = vec![(header, 16, NEXT, head + 1)];
        if bytes > 0 {
            chain.push((data(slot) as u64, bytes as u32, flags | NEXT, head + 2));
        }
        chain.push((header + 32, 1, WRITE, 0));
        self.describe_in_table(head, &chain);
        self.offer(head);
    }

    pub(super) fn offer(&mut self, head: u16) {
        let at = AVAILABLE + 4 + 2 * usize::from(self.available % QUEUE);
        self.put(at, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.set_available(self.available);
    }

    pub(super) fn set_available(&self, index: u16) {
        let memory = self.memory.as_volatile_slice();
        memory.store(index, AVAILABLE + 2, Release).unwrap();
        fence(AcqRel);
        if let Some(link) = &self.link {
            link.kick.write(1).unwrap();
        }
    }

    fn used_index(&self) -> u16 {
        let memory = self.memory.as_volatile_slice();
        memory.load(USED + 2, Acquire).unwrap()
    }

    pub(super) fn answer(&mut self) -> (u16, u32) {
        let deadline = Instant::now() + PATIENCE;
        while self.used_index() == self.used {
            assert!(Instant::now() < deadline, "no answer");
            std::thread::sleep(Duration::from_micros(50));
        }
        let entry = self.get(USED + 4 + 8 * usize::from(self.used % QUEUE), 8);
        self.used = self.used.wrapping_add(1);
        let number = |at: usize| u32::from_le_bytes(*entry[at..].first_chunk().unwrap());
        (number(0) as u16, number(4))
    }

    pub(super) fn status(&self, slot: u16) -> u8 {
        self.get(header(slot) + 32, 1)[0]
    }

    pub(super) fn run(&mut self, kind: u32, sector: u64, bytes: usize, flags: u16) -> u8 {
        self.ask(0, kind, sector, bytes, flags);
        assert_eq!(self.answer().0, 0);
        self.status(0)
    }

    pub(super) fn is_stopped(&self) {
        let deadline = Instant::now() + PATIENCE;
        while self.link.as_ref().unwrap().error.read().is_err() {
            assert!(Instant::now() < deadline, "the queue was not stopped");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
