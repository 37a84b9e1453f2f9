//! Tests read the queued commands of a simulated drive and choose results.

use cairn_base::Mapping;

use super::*;
use crate::Span;
use crate::backend::closing::Guard;
use crate::nvme::{COMMAND_BYTES, Hints, Protection, STATUS};

const NSID: u32 = 3;
const TAG: u64 = 9;
const UNCORRECTABLE: BlockOp = BlockOp::WriteUncorrectable;

struct Rig {
    ring: Ring,
    drive: Drive,
    slot: FileSlot,
}

impl Rig {
    fn new(uncorrectable_max: Option<u32>) -> Self {
        let device = Arc::new(tempfile::tempfile().unwrap());
        let guard = Guard::Device(Arc::clone(&device));
        let file = OpenFile::new(tempfile::tempfile().unwrap(), guard, (0, 0));
        let drive = Drive {
            path: PathBuf::from("/dev/ng0n3"),
            device,
            file,
            nsid: NSID,
            identified: Identified {
                blocks: 1000,
                block_shift: 12,
                protection: Protection::default(),
                names: Names::default(),
                write_protected: false,
                preferred: None,
                atomic: Atomic::BLOCK,
                boundary: 0,
                zeroes_max: None,
                verify_max: None,
                uncorrectable_max,
                can_compare: false,
                can_deallocate: false,
                zeroes_deallocate: false,
                reads_zeroes: false,
            },
            blocks: AtomicU64::new(1000),
            piece_bytes: PIECE_DEFAULT,
            compares: false,
            tags: Arc::new(Tags::new(32, false)),
        };
        let mut ring = Ring::new(8).unwrap();
        let slot = drive.add_to(&mut ring).unwrap();
        Self { ring, drive, slot }
    }

    fn begin(&mut self, io: &mut BlockIo) -> Progress {
        self.drive.step(io, &mut self.ring, self.slot, TAG)
    }

    fn end(&mut self, io: &mut BlockIo, result: Result<u32, i32>) -> Progress {
        let (ring, slot) = (&mut self.ring, self.slot);
        self.drive.resume(io, result, ring, slot, TAG)
    }

    fn last(&self) -> [u8; COMMAND_BYTES] {
        let commands = self.ring.commands_for_drives();
        *commands.last().expect("a command waits")
    }
}

fn marked() -> BlockIo {
    BlockIo::new(UNCORRECTABLE, 7 << 12, 20 << 12, None)
}

fn blocks(first: u64, count: u32) -> [u8; COMMAND_BYTES] {
    Command::write_uncorrectable(NSID, Blocks { first, count }).encode(0, 0)
}

#[test]
fn write_uncorrectable_goes_to_the_drive_in_pieces_that_it_takes() {
    let mut rig = Rig::new(Some(8));
    assert!(rig.drive.writes_uncorrectable());
    let mut io = marked();
    assert_eq!(rig.begin(&mut io), Progress::Pending);
    assert_eq!(rig.last(), blocks(7, 8));
    assert_eq!(rig.end(&mut io, Ok(0)), Progress::Pending);
    assert_eq!(rig.last(), blocks(15, 8));
    assert_eq!(rig.end(&mut io, Ok(0)), Progress::Pending);
    assert_eq!(rig.last(), blocks(23, 4));
    assert_eq!(rig.end(&mut io, Ok(0)), Progress::Done(Ok(())));
}

#[test]
fn write_uncorrectable_ends_with_the_drives_status() {
    const LBA_OUT_OF_RANGE: u16 = 0x4080;
    let mut rig = Rig::new(Some(8));
    let mut io = marked();
    assert_eq!(rig.begin(&mut io), Progress::Pending);
    let ended = rig.end(&mut io, Err(STATUS + i32::from(LBA_OUT_OF_RANGE)));
    let Progress::Done(Err(errno)) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(errno.drive_status(), Some(LBA_OUT_OF_RANGE));
}

#[test]
fn write_uncorrectable_is_refused_without_the_drives_command() {
    let mut rig = Rig::new(None);
    assert!(!rig.drive.writes_uncorrectable());
    let refused = Progress::Done(Err(Errno(libc::EOPNOTSUPP)));
    assert_eq!(rig.begin(&mut marked()), refused);
    assert!(rig.ring.commands_for_drives().is_empty());
}

#[test]
fn write_uncorrectable_does_not_begin_after_its_lease() {
    let mut rig = Rig::new(Some(8));
    let clock = cairn_base::Clock::simulated();
    rig.ring.set_clock(clock.clone(), clock.now());
    clock.advance_to(clock.now() + std::time::Duration::from_millis(2));
    rig.ring.set_lease(1);
    let mut io = marked();
    assert_eq!(rig.begin(&mut io), Progress::Pending);
    rig.ring.submit().unwrap();
    let ended = rig.ring.pop();
    let late = crate::Finished::Operation {
        tag: TAG,
        result: Err(libc::ECANCELED),
    };
    assert_eq!(ended, Some(late));
}

#[test]
fn what_the_host_says_beside_goes_to_the_drive() {
    let mut rig = Rig::new(None);
    let hints = Hints {
        fua: true,
        limited_retry: true,
        attributes: 0x31,
    };
    let blocks = Blocks { first: 7, count: 2 };
    let plain = Command::verify(NSID, blocks).encode(0, 0);
    rig.drive.identified.verify_max = Some(8);
    let mut io = BlockIo::new(BlockOp::Verify, 7 << 12, 2 << 12, None).with_hints(hints);
    assert_eq!(rig.begin(&mut io), Progress::Pending);
    let last = rig.last();
    assert_eq!(last, Command::verify(NSID, blocks).with(hints).encode(0, 0));
    assert_ne!(last, plain);
}

#[test]
fn advice_is_one_command_of_the_drive() {
    let mut rig = Rig::new(None);
    let buffer = Arc::new(Mapping::anonymous(4096).unwrap());
    let span = Span {
        buffer: rig.ring.add_buffer(&buffer).unwrap(),
        addr: buffer.addr() + 64,
        length: 48,
    };
    let hints = Hints {
        attributes: 0b11,
        ..Hints::default()
    };
    let mut io = BlockIo::new(BlockOp::Advise, 0, 48, Some(span)).with_hints(hints);
    assert_eq!(
        rig.begin(&mut io),
        Progress::Done(Ok(())),
        "a drive that has no use for it"
    );
    assert!(rig.ring.commands_for_drives().is_empty());
    rig.drive.identified.can_deallocate = true;
    assert!(rig.drive.takes_advice());
    assert_eq!(rig.begin(&mut io), Progress::Pending);
    let expected = Command::advise(NSID, 48, hints).encode(span.addr, 48);
    assert_eq!(rig.last(), expected);
    assert_eq!(rig.end(&mut io, Ok(0)), Progress::Done(Ok(())));
}

#[test]
fn each_piece_of_a_protected_namespace_has_its_reference_tag() {
    let mut rig = Rig::new(None);
    let buffer = Arc::new(Mapping::anonymous(4 * 4096).unwrap());
    let whole = Span {
        buffer: rig.ring.add_buffer(&buffer).unwrap(),
        addr: buffer.addr(),
        length: 4 * 4096,
    };
    let protection = Protection::of_type(1).unwrap();
    rig.drive.identified.protection = protection;
    rig.drive.piece_bytes = 2 * 4096;
    let first = u64::from(u32::MAX) + 7;
    let at = |first| Blocks { first, count: 2 };
    let parts = [0, 2 * 4096].map(|offset| whole.part(offset, 2 * 4096));
    for op in [BlockOp::Read, BlockOp::Write { durable: true }] {
        let command = |first| match op {
            BlockOp::Read => Command::read(NSID, at(first)).moving(protection),
            _ => Command::write(NSID, at(first), true).moving(protection),
        };
        let mut io = BlockIo::new(op, first << 12, 4 * 4096, Some(whole));
        assert_eq!(rig.begin(&mut io), Progress::Pending);
        let commands = rig.ring.commands_for_drives();
        let expected = [(first, parts[0]), (first + 2, parts[1])]
            .map(|(first, part)| command(first).encode(part.addr, part.length));
        assert_eq!(commands[commands.len() - 2..], expected, "{op:?}");
    }
    rig.drive.identified.verify_max = Some(2);
    let mut verify = BlockIo::new(BlockOp::Verify, first << 12, 2 * 4096, Some(whole));
    assert_eq!(rig.begin(&mut verify), Progress::Pending);
    let command = Command::verify(NSID, at(first)).checking(protection);
    assert_eq!(rig.last(), command.encode(0, 0));
    rig.drive.identified.zeroes_max = Some(2);
    let op = BlockOp::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    let mut zeroes = BlockIo::new(op, first << 12, 2 * 4096, None);
    assert_eq!(rig.begin(&mut zeroes), Progress::Pending);
    let command = Command::write_zeroes(NSID, at(first), false, false).inserting(protection);
    assert_eq!(rig.last(), command.encode(0, 0));
}

#[test]
fn a_drive_without_verify_and_write_zeroes_reads_and_writes_with_protection() {
    let mut rig = Rig::new(None);
    let buffer = Arc::new(Mapping::anonymous(8192).unwrap());
    let span = Span {
        buffer: rig.ring.add_buffer(&buffer).unwrap(),
        addr: buffer.addr(),
        length: 8192,
    };
    let protection = Protection::of_type(3).unwrap();
    rig.drive.identified.protection = protection;
    let blocks = Blocks { first: 7, count: 2 };
    let mut verify = BlockIo::new(BlockOp::Verify, 7 << 12, 8192, Some(span));
    assert_eq!(rig.begin(&mut verify), Progress::Pending);
    let read = Command::read(NSID, blocks).moving(protection);
    assert_eq!(rig.last(), read.encode(span.addr, 8192));
    let op = BlockOp::WriteZeroes {
        deallocate: true,
        durable: true,
    };
    let mut zeroes = BlockIo::new(op, 7 << 12, 8192, None);
    assert_eq!(rig.begin(&mut zeroes), Progress::Pending);
    let write = Command::write(NSID, blocks, true).moving(protection);
    assert_eq!(rig.last(), write.encode(rig.ring.zeroes(8192).addr, 8192));
}
