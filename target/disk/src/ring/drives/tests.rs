//! Tests with a regular file as drive: the kernel rejects each command.

use super::*;
use crate::nvme::COMMAND_BYTES;
use crate::timely::Look;

const REFUSED: Result<u32, i32> = Err(libc::EOPNOTSUPP);
const LATE: Result<u32, i32> = Err(libc::ECANCELED);

const BLOCK: Blocks = Blocks { first: 0, count: 1 };

struct Rig {
    ring: Ring,
    clock: Clock,
    drive: FileSlot,
    span: Span,
    tags: u64,
}

impl Ring {
    fn by_interrupts(&self) -> &Drives {
        let rings = self.drives.as_ref().expect("a drive was added");
        rings[BY_INTERRUPTS].as_ref().expect("no drive is polled")
    }

    pub(crate) fn commands_for_drives(&self) -> Vec<[u8; COMMAND_BYTES]> {
        const COMMAND_AT: usize = 48;
        let drives = self.by_interrupts();
        let waiting = drives.places.iter().flatten().flat_map(|it| &it.waiting);
        let bytes = waiting.map(|waiting| {
            // SAFETY: an entry is the 128 bytes that the kernel reads, without padding.
            let entry: &[u8; 128] = unsafe { &*std::ptr::from_ref(&waiting.entry).cast() };
            let command = &entry[COMMAND_AT..COMMAND_AT + COMMAND_BYTES];
            command.try_into().expect("the bytes of a command")
        });
        bytes.collect()
    }
}

impl Rig {
    fn new() -> Self {
        let clock = Clock::simulated();
        let mut ring = Ring::new(64).unwrap();
        ring.set_clock(clock.clone(), clock.now());
        let buffer = Arc::new(Mapping::anonymous(4096).unwrap());
        let span = Span {
            buffer: ring.add_buffer(&buffer).unwrap(),
            addr: buffer.addr(),
            length: 4096,
        };
        let [file, claim] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let tags = Arc::new(Tags::new(1000, false));
        let drive = ring.add_drive(Arc::new(file), &claim, &tags).unwrap();
        Self {
            ring,
            clock,
            drive,
            span,
            tags: 0,
        }
    }

    fn write(&mut self, until_ms: u64) {
        self.ring.set_lease(until_ms * 1_000_000);
        let command = Command::write(1, BLOCK, false);
        let span = Some(self.span);
        self.ring
            .command(self.tags, self.drive, &command, span, true);
        self.tags += 1;
    }

    fn pass(&mut self, time: Duration) {
        self.clock.advance_to(self.clock.now() + time);
    }

    fn stop_after_the_look(&mut self) {
        let Ring {
            drives, outgoing, ..
        } = &mut self.ring;
        let drives = drives.as_mut().unwrap()[BY_INTERRUPTS].as_mut().unwrap();
        drives.release(
            u64::MAX,
            || outgoing.now_ns(),
            |tag| panic!("{tag} is in time"),
        );
        drives.look = Some(Look::long_ago());
    }

    fn ended(&mut self) -> Vec<(u64, Result<u32, i32>)> {
        self.ring.submit().unwrap();
        let mut ended = Vec::new();
        while let Some(finished) = self.ring.pop() {
            let Finished::Operation { tag, result } = finished else {
                panic!("{finished:?}");
            };
            ended.push((tag, result));
        }
        ended.sort_unstable();
        ended
    }
}

#[test]
fn what_the_kernel_did_not_get_soon_after_the_look_is_looked_at_again() {
    let mut rig = Rig::new();
    for until_ms in [100, 200, u64::MAX / 1_000_000] {
        rig.write(until_ms);
    }
    rig.stop_after_the_look();
    rig.pass(Duration::from_millis(150));
    assert_eq!(rig.ended(), [(0, LATE), (1, REFUSED), (2, REFUSED)]);
    assert_eq!(rig.ring.in_flight(), 0);

    rig.write(160);
    rig.write(400);
    rig.stop_after_the_look();
    rig.pass(Duration::from_millis(150));
    assert_eq!(rig.ended(), [(3, LATE), (4, REFUSED)]);
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn the_look_at_a_new_command_does_not_cover_an_expired_one_in_the_queue() {
    let mut rig = Rig::new();
    rig.write(100);
    rig.stop_after_the_look();
    rig.pass(Duration::from_millis(150));
    rig.write(1000);
    assert_eq!(rig.ended(), [(0, LATE), (1, REFUSED)]);
}

#[test]
fn a_command_whose_lease_ends_before_the_look_does_not_reach_the_kernel() {
    let mut rig = Rig::new();
    rig.write(100);
    rig.write(200);
    rig.pass(Duration::from_millis(150));
    assert_eq!(rig.ended(), [(0, LATE), (1, REFUSED)]);
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn after_a_gap_changes_wait_until_the_reactor_knows_who_has_left() {
    let mut rig = Rig::new();
    let gap_ns = ROUND_GAP.as_nanos() as u64;
    rig.ring.begin_round(0);
    for until_ms in [u64::MAX / 1_000_000, 1000, 60] {
        rig.write(until_ms);
    }
    rig.pass(ROUND_GAP);
    assert_eq!(rig.ended(), []);
    assert!(rig.ring.keeps_changes());
    assert_eq!(rig.ended(), []);
    assert_eq!(rig.ring.in_flight(), 3);
    rig.ring.take_back(1);
    rig.pass(Duration::from_millis(20));
    rig.ring.begin_round(gap_ns + 20_000_000);
    assert_eq!(rig.ended(), [(0, REFUSED), (1, LATE), (2, LATE)]);
    assert!(!rig.ring.keeps_changes());
    assert_eq!(rig.ring.in_flight(), 0);
}

#[test]
fn more_commands_than_the_queue_has_room_for_end_once() {
    let mut rig = Rig::new();
    let count = u64::from(SUBMISSIONS) * 3;
    for _ in 0..count {
        rig.write(100);
    }
    let mut ended = Vec::new();
    while (ended.len() as u64) < count {
        let more = rig.ended();
        assert!(!more.is_empty(), "{} of {count} have ended", ended.len());
        ended.extend(more);
    }
    ended.sort_unstable();
    let expected: Vec<_> = (0..count).map(|tag| (tag, REFUSED)).collect();
    assert_eq!(ended, expected);
}

fn linux_since(major: u32, minor: u32) -> (String, bool) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    let running: [u32; 2] = [(); 2].map(|()| numbers.next().unwrap().parse().unwrap());
    (release.trim().to_owned(), running >= [major, minor])
}

#[test]
fn buffers_are_those_of_the_reactors_ring() {
    let mut rig = Rig::new();
    let pinned = |rig: &Rig| rig.ring.by_interrupts().pinned;
    let (release, has_fixed_buffers) = linux_since(6, 1);
    if !has_fixed_buffers {
        return cairn_skips::skip(format_args!(
            "Linux {release} has no fixed buffers for drives, which came with 6.1"
        ));
    }
    assert!(rig.ring.by_interrupts().can_pin, "Linux {release}");
    let first = usize::from(rig.span.buffer);
    assert!(pinned(&rig)[first] && pinned(&rig)[usize::from(ZEROES_SLOT)]);
    let later = Arc::new(Mapping::anonymous(8192).unwrap());
    let slot = rig.ring.add_buffer(&later).unwrap();
    assert!(pinned(&rig)[usize::from(slot)]);
    rig.ring.remove_buffer(slot).unwrap();
    assert!(!pinned(&rig)[usize::from(slot)]);
    rig.write(100);
    assert_eq!(rig.ended(), [(0, REFUSED)]);
}

#[test]
fn the_claim_of_a_drive_ends_no_earlier_than_the_ring_lets_go_of_it() {
    use rustix::fs::FlockOperation::NonBlockingLockExclusive;
    let mut rig = Rig::new();
    let path = tempfile::NamedTempFile::new().unwrap();
    let open = || File::open(path.path()).unwrap();
    let claim = open();
    rustix::fs::flock(&claim, NonBlockingLockExclusive).unwrap();
    let tags = Arc::new(Tags::new(1, false));
    let drive = Arc::new(tempfile::tempfile().unwrap());
    let slot = rig.ring.add_drive(drive, &claim, &tags).unwrap();
    drop(claim);
    let is_free = || rustix::fs::flock(open(), NonBlockingLockExclusive).is_ok();
    assert!(!is_free());
    rig.ring.remove_file(slot).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_free() {
        assert!(Instant::now() < deadline, "the claim stays");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_command_that_the_kernel_left_does_not_go_out_for_a_closed_queue() {
    let mut rig = Rig::new();
    rig.ring.begin_round(0);
    (0..3).for_each(|_| rig.write(1000));
    let Ring {
        drives, outgoing, ..
    } = &mut rig.ring;
    let drives = drives.as_mut().unwrap()[BY_INTERRUPTS].as_mut().unwrap();
    let late = |tag| panic!("{tag} is in time");
    drives.release(outgoing.known_until_ns(), || outgoing.now_ns(), late);
    rig.ring.take_back(1);
    let ended = rig.ended();
    assert_eq!(ended, [(0, REFUSED), (1, LATE), (2, REFUSED)]);
    assert_eq!(rig.ring.in_flight(), 0);
}
