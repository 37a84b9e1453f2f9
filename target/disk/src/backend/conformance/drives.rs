//! NVMe drives by passthrough, emulated in a virtual machine.

use super::*;

/// Environment variable with the character devices of drives to erase, separated by commas.
const DRIVES: &str = "CAIRN_TEST_DRIVES";

/// Environment variable set if drives are polled and their driver has poll queues.
const POLLED: &str = "CAIRN_TEST_POLLED";

/// Environment variable set if the drives have protection information.
const PROTECTED: &str = "CAIRN_TEST_PROTECTED";

#[test]
#[ignore = "erases the drives in CAIRN_TEST_DRIVES: `cargo xtask vm passthrough` has some"]
fn drives_past_the_block_layer() {
    let drives = std::env::var(DRIVES).expect("CAIRN_TEST_DRIVES has /dev/ng0n1 or more");
    for drive in drives.split(',').map(Path::new) {
        let open = || Backend::open_file(drive, None, Claim::default()).unwrap();
        suite(open);
        zeroes_without_the_drives_command(drive);
        claims(drive);
        if std::env::var_os(PROTECTED).is_some() {
            assert!(!open().compares(), "hosts have no metadata to compare");
        } else {
            compares_by_itself(open());
        }
        ends_with_the_drives_status(open());
        lets_no_stale_write_begin(open());
        is_polled_if_asked(open());
    }
}

fn zeroes_without_the_drives_command(drive: &Path) {
    let open = || {
        let path = AdmittedPath::any(drive).unwrap();
        let drive = Drive::open(&path, None, Claim::default(), &Formers::default()).unwrap();
        Backend(Kind::Drive(drive.without_optional_commands()))
    };
    zeroes_a_range(open());
    keeps_what_was_written(open());
}

fn claims(drive: &Path) {
    let block = drive.to_str().unwrap().replace("/ng", "/nvme");
    let first = Backend::open_file(drive, None, Claim::default()).unwrap();
    for other in [drive, Path::new(&block)] {
        let error = Backend::open_file(other, None, Claim::default()).unwrap_err();
        assert!(error.to_string().contains("is in use"), "{error}");
    }
    let block_bytes = first.geometry().block_bytes;
    drop(first);
    let other = 512 + 4096 - block_bytes;
    let error = Backend::open_file(drive, Some(other), Claim::default()).unwrap_err();
    assert!(
        error.to_string().contains("leave out block_size"),
        "{error}"
    );
    Backend::open_file(drive, Some(block_bytes), Claim::default()).unwrap();
}

fn compares_by_itself(backend: Backend) {
    const COMPARE_FAILURE: u16 = 0x285;
    assert!(backend.compares());
    let mut rig = Rig::new(backend);
    let length = BUFFER_BYTES as usize;
    let mut bytes = pattern(6, length);
    rig.write(WRITE, 4096, &bytes);
    let mut compare = |bytes: &[u8]| {
        rig.buffer.write(0, bytes);
        let span = Some(rig.span(bytes.len() as u32));
        rig.run(BlockOp::Compare, 4096, bytes.len() as u64, span)
    };
    assert_eq!(compare(&bytes), Ok(()));
    for place in [0, length / 2, length - 1] {
        bytes[place] ^= 1;
        let status = compare(&bytes).unwrap_err().drive_status();
        let status = status.expect("a drive's status");
        assert_eq!(status & 0x7ff, COMPARE_FAILURE, "byte {place}");
        bytes[place] ^= 1;
    }
    assert_eq!(compare(&bytes), Ok(()));
}

fn ends_with_the_drives_status(backend: Backend) {
    const LBA_OUT_OF_RANGE: u16 = 0x80;
    let compares = backend.compares();
    let mut rig = Rig::new(backend);
    let span = rig.span(8192);
    let zeroes = BlockOp::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    for op in [
        BlockOp::Read,
        WRITE,
        BlockOp::Compare,
        BlockOp::Verify,
        zeroes,
    ] {
        if op == BlockOp::Compare && !compares {
            continue;
        }
        let ended = rig.run(op, DISK_BYTES - 4096, 8192, Some(span));
        let status = ended.unwrap_err().drive_status().expect("a drive's status");
        assert_eq!(status & 0x7ff, LBA_OUT_OF_RANGE, "{op:?}");
    }
    rig.write(WRITE, 0, &pattern(4, 8192));
    assert_eq!(rig.read(0, 8192), pattern(4, 8192));
}

pub(super) fn ring() -> Ring {
    let mut ring = Ring::new(64).expect("io_uring");
    if std::env::var_os(POLLED).is_some() {
        ring.poll_drives();
    }
    ring
}

fn is_polled_if_asked(backend: Backend) {
    let polled = std::env::var_os(POLLED).is_some();
    assert_eq!(!backend.lacks_poll_queues(), polled);
    let mut rig = Rig::new(backend);
    let mut read = BlockIo::new(BlockOp::Read, 0, 4096, Some(rig.span(4096)));
    assert!(!rig.ring.must_poll());
    let progress = rig.backend.begin(&mut read, &mut rig.ring, rig.file, 0);
    assert_eq!(progress, Progress::Pending);
    rig.ring.submit().unwrap();
    assert_eq!(rig.ring.must_poll(), polled);
    while rig.ring.pop().is_none() {
        rig.ring.wait(None).unwrap();
    }
    assert!(!rig.ring.must_poll());
}

fn lets_no_stale_write_begin(backend: Backend) {
    let mut rig = Rig::new(backend);
    rig.write(WRITE, 0, &pattern(1, 4096));
    let started = std::time::Instant::now();
    rig.ring.set_clock(Clock::default(), started);
    std::thread::sleep(Duration::from_millis(2));
    let zeroes = BlockOp::WriteZeroes {
        deallocate: false,
        durable: false,
    };
    let span = Some(rig.span(4096));
    rig.ring.set_lease(1);
    for op in [WRITE, zeroes, BlockOp::Deallocate] {
        let ended = rig.run(op, 0, 4096, span);
        assert_eq!(ended, Err(Errno(libc::ECANCELED)), "{op:?}");
    }
    assert_eq!(rig.read(0, 4096), pattern(1, 4096), "reads have no lease");
    rig.ring.set_lease(u64::MAX);
    rig.write(WRITE, 0, &pattern(2, 4096));
    assert_eq!(rig.read(0, 4096), pattern(2, 4096));
}
