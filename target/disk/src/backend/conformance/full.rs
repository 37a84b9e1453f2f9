//! Sparse files on a full file system (a small tmpfs), and deallocation.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use rustix::fs::FallocateFlags;

use super::*;

const SPACE: u64 = DISK_BYTES / 2;

struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let size = format!("size={SPACE}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "cairn-full"]);
        cairn_skips::can(mount.arg(folder.path())).then(|| Self(folder))
    }
}

#[track_caller]
pub(super) fn has_holes(folder: &Path) -> bool {
    let file = tempfile::tempfile_in(folder).unwrap();
    file.set_len(8192).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(&file, punch, 0, 4096) {
        Ok(()) => true,
        Err(error @ rustix::io::Errno::OPNOTSUPP) => {
            let folder = folder.display();
            cairn_skips::skip(format_args!("a hole in a file in {folder}: {error}"));
            false
        }
        Err(error) => panic!("a hole in a file in {}: {error}", folder.display()),
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[test]
fn a_file_without_space_takes_writes_again_when_there_is_some() {
    let Some(system) = Tmpfs::new() else {
        return;
    };
    let path = image(system.0.path());
    let mut rig = Rig::new(Backend::open_file(&path, Some(4096), Claim::default()).unwrap());
    let step = u64::from(BUFFER_BYTES);
    let write = |rig: &mut Rig, offset: u64| {
        let span = rig.span(BUFFER_BYTES);
        rig.run(WRITE, offset, step, Some(span))
    };
    let bytes = pattern(1, BUFFER_BYTES as usize);
    rig.write(WRITE, 0, &bytes);
    let mut offsets = (1..DISK_BYTES / step).map(|number| number * step);
    let refused = offsets.find_map(|offset| write(&mut rig, offset).err().map(|e| (offset, e)));
    let (offset, error) = refused.expect("the file is larger than its file system");
    assert_eq!(error, Errno(libc::ENOSPC));
    assert!(
        !rig.backend.is_failed(),
        "nothing that was acknowledged is lost"
    );
    assert_eq!(rig.read(0, BUFFER_BYTES), bytes);
    assert_eq!(rig.run(BlockOp::Flush, 0, 0, None), Ok(()));

    assert_eq!(rig.run(BlockOp::Deallocate, step, step, None), Ok(()));
    rig.write(WRITE, offset, &bytes);
    assert_eq!(rig.read(offset, BUFFER_BYTES), bytes);
}

#[test]
fn a_file_gives_back_what_is_deallocated() {
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    if !has_holes(folder.path()) {
        return;
    }
    let path = image(folder.path());
    let mut rig = Rig::new(Backend::open_file(&path, Some(4096), Claim::default()).unwrap());
    let bytes = pattern(1, BUFFER_BYTES as usize);
    rig.write(WRITE, 0, &bytes);
    assert_eq!(rig.run(BlockOp::Flush, 0, 0, None), Ok(()));
    let allocated = || std::fs::metadata(&path).unwrap().blocks() * 512;
    let before = allocated();
    let half = u64::from(BUFFER_BYTES) / 2;
    assert_eq!(rig.run(BlockOp::Deallocate, half, half, None), Ok(()));
    let Kind::File(disk) = &rig.backend.0 else {
        unreachable!("opened as a file")
    };
    assert!(disk.can_deallocate());
    assert_eq!(before - allocated(), half);
    let after = rig.read(0, BUFFER_BYTES);
    assert_eq!(after[..half as usize], bytes[..half as usize]);
    assert!(after[half as usize..].iter().all(|&byte| byte == 0));
}
