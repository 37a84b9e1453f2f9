pub(super) mod devices;
mod drives;
mod failures;
mod full;
mod images;
mod panics;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Clock, Mapping};

use super::{
    AdmittedPath, Backend, BlockFile, BlockIo, BlockOp, Claim, Drive, Errno, Formers, Kind,
    MemoryDisk, NullDisk, Progress,
};
use crate::ring::{FileSlot, Finished, Ring, Span};
use crate::simulated_disk::{Habits, SimulatedDisk};

const DISK_BYTES: u64 = 8 << 20;
const BUFFER_BYTES: u32 = 1 << 20;

const WRITE: BlockOp = BlockOp::Write { durable: false };

struct Rig {
    ring: Ring,
    buffer: Arc<Mapping>,
    slot: u16,
    backend: Backend,
    file: Option<FileSlot>,
}

impl Rig {
    fn new(backend: Backend) -> Self {
        let mut ring = drives::ring();
        let buffer = Arc::new(Mapping::anonymous(BUFFER_BYTES as usize).expect("memory"));
        let slot = ring.add_buffer(&buffer).expect("room for a buffer");
        let file = backend.add_to(&mut ring).expect("room for a file");
        Self {
            ring,
            buffer,
            slot,
            backend,
            file,
        }
    }

    fn span(&self, length: u32) -> Span {
        Span {
            buffer: self.slot,
            addr: self.buffer.addr(),
            length,
        }
    }

    fn run_all(&mut self, operations: &mut [BlockIo]) -> Vec<Result<(), Errno>> {
        let mut ended = HashMap::new();
        for (tag, io) in operations.iter_mut().enumerate() {
            let progress = self
                .backend
                .begin(io, &mut self.ring, self.file, tag as u64);
            if let Progress::Done(result) = progress {
                ended.insert(tag, result);
            }
        }
        while ended.len() < operations.len() {
            self.ring.wait(None).expect("io_uring works");
            while let Some(finished) = self.ring.pop() {
                let Finished::Operation { tag, result } = finished else {
                    panic!("this suite starts no polls: {finished:?}");
                };
                let io = &mut operations[tag as usize];
                let mut progress = self
                    .backend
                    .resume(io, result, &mut self.ring, self.file, tag);
                if progress == Progress::Later {
                    progress = self.backend.begin(io, &mut self.ring, self.file, tag);
                }
                if let Progress::Done(result) = progress {
                    assert_eq!(ended.insert(tag as usize, result), None, "ended twice");
                }
            }
        }
        assert_eq!(self.ring.in_flight(), 0);
        (0..operations.len()).map(|tag| ended[&tag]).collect()
    }

    fn run(
        &mut self,
        op: BlockOp,
        offset: u64,
        length: u64,
        span: Option<Span>,
    ) -> Result<(), Errno> {
        self.run_all(&mut [BlockIo::new(op, offset, length, span)])[0]
    }

    fn write(&mut self, op: BlockOp, offset: u64, bytes: &[u8]) {
        self.buffer.write(0, bytes);
        let span = self.span(bytes.len() as u32);
        assert_eq!(self.run(op, offset, bytes.len() as u64, Some(span)), Ok(()));
        self.buffer.fill(0, bytes.len(), 0x5a);
    }

    fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        let span = self.span(length);
        assert_eq!(
            self.run(BlockOp::Read, offset, u64::from(length), Some(span)),
            Ok(())
        );
        let mut bytes = vec![0; length as usize];
        self.buffer.read(0, &mut bytes);
        bytes
    }
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| (i / 512) as u8 ^ (i as u8).wrapping_mul(31) ^ seed)
        .collect()
}

fn keeps_what_was_written(backend: Backend) {
    let mut rig = Rig::new(backend);
    let block = rig.backend.geometry().block_bytes as usize;
    assert_eq!(rig.backend.geometry().blocks, DISK_BYTES / block as u64);

    for (seed, length) in [block, 3 * block, 64 << 10, BUFFER_BYTES as usize]
        .into_iter()
        .enumerate()
    {
        for offset in [0, 5 * block as u64, DISK_BYTES - length as u64] {
            let bytes = pattern(seed as u8, length);
            rig.write(
                BlockOp::Write {
                    durable: seed % 2 == 0,
                },
                offset,
                &bytes,
            );
            assert_eq!(
                rig.read(offset, length as u32),
                bytes,
                "{length} bytes at {offset}"
            );
        }
    }
    assert_eq!(rig.run(BlockOp::Flush, 0, 0, None), Ok(()));

    let before = rig.read(0, 64 << 10);
    rig.write(WRITE, 2 * block as u64, &pattern(0x77, block));
    let after = rig.read(0, 64 << 10);
    assert_eq!(after[..2 * block], before[..2 * block]);
    assert_eq!(after[3 * block..], before[3 * block..]);

    let span = rig.span(64 << 10);
    assert_eq!(rig.run(BlockOp::Verify, 0, DISK_BYTES, Some(span)), Ok(()));
}

fn zeroes_a_range(backend: Backend) {
    let mut rig = Rig::new(backend);
    let block = u64::from(rig.backend.geometry().block_bytes);
    for (deallocate, durable) in [(false, false), (true, false), (false, true)] {
        rig.write(WRITE, 0, &pattern(1, BUFFER_BYTES as usize));
        let op = BlockOp::WriteZeroes {
            deallocate,
            durable,
        };
        let (offset, length) = (block, u64::from(BUFFER_BYTES) - 3 * block);
        assert_eq!(rig.run(op, offset, length, None), Ok(()));
        let (start, end) = (offset as usize, (offset + length) as usize);
        let bytes = rig.read(0, BUFFER_BYTES);
        assert_eq!(bytes[..start], pattern(1, BUFFER_BYTES as usize)[..start]);
        assert!(
            bytes[start..end].iter().all(|&b| b == 0),
            "deallocate {deallocate}"
        );
        assert_eq!(bytes[end..], pattern(1, BUFFER_BYTES as usize)[end..]);
    }
}

fn deallocate_touches_nothing_else(backend: Backend) {
    let mut rig = Rig::new(backend);
    let bytes = pattern(9, 256 << 10);
    rig.write(WRITE, 0, &bytes);
    assert_eq!(
        rig.run(BlockOp::Deallocate, 64 << 10, 64 << 10, None),
        Ok(())
    );
    let after = rig.read(0, 256 << 10);
    assert_eq!(after[..64 << 10], bytes[..64 << 10]);
    assert_eq!(after[128 << 10..], bytes[128 << 10..]);
}

fn advice_changes_nothing(backend: Backend) {
    let mut rig = Rig::new(backend);
    let bytes = pattern(4, 64 << 10);
    rig.write(WRITE, 0, &bytes);
    rig.buffer.write(0, &[0; 32]);
    rig.buffer.write(4, &[1]);
    let span = rig.span(32);
    assert_eq!(rig.run(BlockOp::Advise, 0, 32, Some(span)), Ok(()));
    assert_eq!(rig.read(0, 64 << 10), bytes);
}

fn many_at_a_time(backend: Backend) {
    let mut rig = Rig::new(backend);
    let (count, size) = (64u32, 16u32 << 10);
    let bytes = pattern(3, (count * size) as usize);
    rig.buffer.write(0, &bytes);
    let whole = rig.span(count * size);
    for op in [WRITE, BlockOp::Read] {
        let mut operations: Vec<BlockIo> = (0..count)
            .map(|i| {
                let span = whole.part(i * size, size);
                BlockIo::new(op, u64::from(i * size), u64::from(size), Some(span))
            })
            .collect();
        assert!(
            rig.run_all(&mut operations)
                .into_iter()
                .all(|result| result == Ok(()))
        );
    }
    assert_eq!(rig.read(0, count * size), bytes);
}

fn suite(open: impl Fn() -> Backend) {
    keeps_what_was_written(open());
    zeroes_a_range(open());
    deallocate_touches_nothing_else(open());
    advice_changes_nothing(open());
    many_at_a_time(open());
}

fn image(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("disk.img");
    std::fs::File::create(&path)
        .unwrap()
        .set_len(DISK_BYTES)
        .unwrap();
    path
}

#[test]
fn operations_that_find_out_together_that_a_disk_cannot_zero() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for deallocate in [false, true] {
        let path = image(folder.path());
        let backend = Backend::open_file(&path, Some(512), Claim::default()).unwrap();
        let mut rig = Rig::new(backend);
        let mut operations: Vec<BlockIo> = (0..16)
            .map(|n| {
                let op = BlockOp::WriteZeroes {
                    deallocate: deallocate && n % 2 == 0,
                    durable: false,
                };
                BlockIo::new(op, n * 4096, 4096, None)
            })
            .collect();
        let ended = rig.run_all(&mut operations);
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    }
}

#[test]
fn a_file_past_the_page_cache() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = image(folder.path());
    suite(|| Backend::open_file(&path, None, Claim::default()).unwrap());
    let smallest = Backend::open_file(&path, None, Claim::default())
        .unwrap()
        .geometry()
        .block_bytes;
    if smallest == 512 {
        suite(|| Backend::open_file(&path, Some(4096), Claim::default()).unwrap());
    }
}

fn in_pieces(path: &Path) -> Backend {
    let path = AdmittedPath::any(path).unwrap();
    let disk = BlockFile::open(&path, Some(4096), Claim::default(), &Formers::default()).unwrap();
    Backend(Kind::File(disk.with_requests_of(8192)))
}

#[test]
fn a_disk_of_small_requests() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = image(folder.path());
    suite(|| in_pieces(&path));
    let mut rig = Rig::new(in_pieces(&path));
    let bytes = pattern(7, 41 * 4096);
    rig.write(WRITE, 4096, &bytes);
    assert_eq!(rig.read(4096, 41 * 4096), bytes);
}

#[test]
fn a_file_in_memory() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = image(folder.path());
    suite(|| Backend::open_file(&path, Some(512), Claim::default()).unwrap());
}

#[test]
fn a_simulated_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = image(folder.path());
    let disk = SimulatedDisk::register(&path, &Clock::default(), 1).unwrap();
    let open = || Backend::open_file(&path, Some(512), Claim::default()).unwrap();
    suite(open);
    disk.set_habits(Habits {
        delay: Duration::ZERO..Duration::from_millis(1),
        short: 300,
        again: 30,
        ..Habits::default()
    });
    suite(open);
}

#[test]
fn memory() {
    for block_bytes in [512, 4096] {
        suite(|| {
            Backend(Kind::Memory(
                MemoryDisk::new(DISK_BYTES + 100, block_bytes).unwrap(),
            ))
        });
    }
}

#[test]
fn null_reads_zeroes_and_forgets() {
    let mut rig = Rig::new(Backend(Kind::Null(
        NullDisk::new(1 << 50, 4096, BUFFER_BYTES).unwrap(),
    )));
    assert_eq!(rig.backend.geometry().blocks, 1 << 38);
    rig.write(WRITE, 1 << 40, &pattern(1, 8192));
    assert!(rig.read(1 << 40, 8192).iter().all(|&byte| byte == 0));
    for op in [BlockOp::Flush, BlockOp::Deallocate, BlockOp::Verify] {
        assert_eq!(rig.run(op, 0, 4096, None), Ok(()));
    }
}

#[test]
fn windows_are_where_no_buffer_is_needed() {
    let memory = Backend(Kind::Memory(MemoryDisk::new(DISK_BYTES, 512).unwrap()));
    assert!(memory.window(512).is_none(), "a block would be torn");
    let null = Backend(Kind::Null(NullDisk::new(DISK_BYTES, 512, 8192).unwrap()));
    assert!(null.window(8192).is_some());
}

#[test]
fn a_file_that_was_cut_fails_its_reads() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = image(folder.path());
    let whole = Backend::open_file(&path, None, Claim::default()).unwrap();
    fails_when_cut(whole, &path);
}

#[test]
fn a_file_that_was_cut_fails_its_reads_in_pieces_too() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = image(folder.path());
    fails_when_cut(in_pieces(&path), &path);
}

fn fails_when_cut(backend: Backend, path: &Path) {
    let mut rig = Rig::new(backend);
    std::fs::File::options()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(4096)
        .unwrap();
    let span = rig.span(16384);
    assert_eq!(
        rig.run(BlockOp::Read, 0, 16384, Some(span)),
        Err(Errno(libc::EIO))
    );
    assert_eq!(
        rig.run(BlockOp::Read, 65536, 4096, Some(span)),
        Err(Errno(libc::EIO))
    );
}

fn on_disk_and_in_memory(test: impl Fn(&Path, Backend)) {
    for folder in [env!("CARGO_MANIFEST_DIR"), "/dev/shm"] {
        let folder = tempfile::tempdir_in(folder).unwrap();
        let path = image(folder.path());
        test(
            &path,
            Backend::open_file(&path, Some(4096), Claim::default()).unwrap(),
        );
    }
}

fn cut(path: &Path, bytes: u64) {
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

#[test]
fn a_file_that_was_cut_is_not_made_longer_again() {
    let zeroes = BlockOp::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    let durable = BlockOp::Write { durable: true };
    let last = DISK_BYTES - 4096;
    for (first, offset, length) in [
        (WRITE, last, 4096),
        (WRITE, 4096, 4096),
        (WRITE, 0, 16384),
        (durable, last, 4096),
        (zeroes, last, 4096),
        (BlockOp::Deallocate, last, 4096),
        (BlockOp::Read, last, 4096),
        (BlockOp::Verify, 0, 16384),
        (BlockOp::Flush, 0, 0),
    ] {
        on_disk_and_in_memory(|path, backend| {
            let mut rig = Rig::new(backend);
            rig.write(WRITE, 0, &pattern(1, 65536));
            cut(path, 4096);
            let span = Some(rig.span(16384));
            let eio = Err(Errno(libc::EIO));
            let part = span.map(|span| span.part(0, length as u32));
            assert_eq!(rig.run(first, offset, length, part), eio, "{first:?}");
            assert_eq!(std::fs::metadata(path).unwrap().len(), 4096, "{first:?}");
            for op in [BlockOp::Read, WRITE, zeroes, BlockOp::Flush] {
                let span = span.map(|span| span.part(0, 4096));
                assert_eq!(rig.run(op, 0, 4096, span), eio, "{op:?} after {first:?}");
            }
            assert!(rig.backend.is_failed() && rig.backend.flush().is_err());
        });
    }
}

#[test]
fn a_file_that_was_cut_stays_failed_after_it_has_grown_again() {
    on_disk_and_in_memory(|path, backend| {
        let mut rig = Rig::new(backend);
        cut(path, 4096);
        assert!(rig.run(BlockOp::Flush, 0, 0, None).is_err());
        cut(path, DISK_BYTES);
        assert!(rig.run(BlockOp::Flush, 0, 0, None).is_err());
    });
}

#[test]
fn what_cannot_be_opened_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let error = |path: &Path, block| {
        Backend::open_file(path, block, Claim::default())
            .unwrap_err()
            .to_string()
    };

    let missing = error(&folder.path().join("none.img"), None);
    assert!(
        missing.contains("does not exist") && missing.contains("is mounted"),
        "{missing}"
    );
    let directory = error(folder.path(), None);
    assert!(directory.contains("is a directory"), "{directory}");
    let device = error(Path::new("/dev/null"), None);
    assert!(device.contains("no file or block device"), "{device}");

    let empty = folder.path().join("empty.img");
    std::fs::File::create(&empty).unwrap();
    let empty = error(&empty, None);
    assert!(empty.contains("less than one block"), "{empty}");

    let twice = image(folder.path());
    let open = |claim| Backend::open_file(&twice, None, claim);
    let first = open(Claim::default()).unwrap();
    let second = error(&twice, None);
    assert!(second.contains("already exported"), "{second}");
    let shared = Claim {
        shared: true,
        ..Claim::default()
    };
    assert!(open(shared).is_err());
    drop(first);
    let _first = open(shared).unwrap();
    let _second = open(shared).unwrap();
    let third = error(&twice, None);
    assert!(third.contains("already exported"), "{third}");
}
