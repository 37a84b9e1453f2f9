//! Opens and locks disks. Data bypasses the page cache if the file system allows it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

use super::claim::Claim;
use super::closing::{self, Guard, OpenFile, Place};
use super::error::OpenError;
use super::formers::Formers;
use super::found::AdmittedPath;
use super::lock::{Lock, is_direct};
use super::{loops, queue_limits, remedy};

const BLOCK_SIZES: [u32; 2] = [512, 4096];

/// Time for which an open is retried while the disk is in use.
pub const IN_USE_PATIENCE: Duration = Duration::from_secs(2);

const IN_USE_INTERVAL: Duration = Duration::from_millis(5);

pub(super) struct Opened {
    pub(super) file: OpenFile,
    pub(super) is_device: bool,
    pub(super) direct: bool,
}

pub(super) enum Refusal {
    /// Another process or disk uses the disk. The open may be retried.
    InUse(OpenError),
    Other(OpenError),
}

impl From<OpenError> for Refusal {
    fn from(error: OpenError) -> Self {
        Self::Other(error)
    }
}

pub(super) fn open(
    disk: &AdmittedPath,
    claim: Claim,
    formers: &Formers,
) -> Result<Opened, OpenError> {
    check_kind(disk)?;
    check_expected(disk, claim)?;
    open_when_left(disk.path(), disk.place(), claim, || {
        open_at(disk, claim, formers)
    })
}

/// Calls `open`, and repeats the call while the disk is in use, until the claim's `trial_until` or
/// for [`IN_USE_PATIENCE`]. The kernel may use a killed process's disk until it has torn down the
/// io_uring. If this target has removed the disk, also waits until the reactors have dropped it.
pub(super) fn open_when_left<T>(
    path: &Path,
    place: Place,
    claim: Claim,
    open: impl Fn() -> Result<T, Refusal>,
) -> Result<T, OpenError> {
    // Read first, because the removed disk may close during the first call of `open`.
    let is_leaving = closing::is_leaving(place);
    wait_for_close(path, place)?;
    let mut opened = open();
    if matches!(opened, Err(Refusal::InUse(_))) && is_leaving {
        if !closing::wait_until_left(place) {
            return Err(still_in_use(path));
        }
        opened = open();
    }
    let end = claim
        .trial_until
        .unwrap_or_else(|| Instant::now() + IN_USE_PATIENCE);
    while matches!(opened, Err(Refusal::InUse(_))) && Instant::now() < end {
        thread::sleep(IN_USE_INTERVAL);
        opened = open();
    }
    opened.map_err(|refusal| match refusal {
        Refusal::InUse(error) | Refusal::Other(error) => error,
    })
}

fn open_at(disk: &AdmittedPath, claim: Claim, formers: &Formers) -> Result<Opened, Refusal> {
    let (path, place) = (disk.path(), disk.place());
    let is_device = disk.kind().is_block_device();
    // `O_EXCL` fails for a block device that is mounted, part of another device, or claimed by a
    // target.
    let is_claimed = is_device && !claim.read_only && !claim.shared;
    if is_device && claim.shared && !claim.read_only && formers.claimed(place).is_none() {
        check_not_held(disk).map_err(|error| refuse_open(path, &error))?;
    }
    let opened = open_direct(disk, claim, is_claimed);
    let file = opened.or_else(|error| {
        let is_busy = is_claimed && error.raw_os_error() == Some(libc::EBUSY);
        let former = is_busy.then(|| formers.claimed(place)).flatten();
        former.ok_or_else(|| refuse_open(path, &error))
    })?;
    if is_device && queue_limits::has_sequential_zones(&file) {
        return Err(zoned(path).into());
    }
    if claim.shared && !is_direct(&file) {
        check_coherent(path, &file)?;
    }
    let (file, guard) = match (is_claimed, is_device) {
        (true, _) => {
            let locks = loops::lock(disk.number(), claim);
            let locks = locks.map_err(|file| Refusal::InUse(locked(&file)))?;
            (file, Guard::Claim { _behind: locks })
        }
        (false, true) => (file, Guard::None),
        (false, false) => lock(path, file, place, claim, formers)?,
    };
    if !is_device
        && !claim.read_only
        && let Some(device) = loops::used_over(place)
    {
        return Err(Refusal::InUse(used_by_loop(path, &device)));
    }
    Ok(Opened {
        direct: is_direct(&file),
        file: OpenFile::new(file, guard, place),
        is_device,
    })
}

/// Refuses a device that is mounted or part of another device, because hosts' writes would damage
/// the file system or that device.
fn check_not_held(disk: &AdmittedPath) -> io::Result<()> {
    let mut options = File::options();
    let options = options.read(true).custom_flags(libc::O_EXCL);
    disk.open(options).map(drop)
}

fn check_expected(disk: &AdmittedPath, claim: Claim) -> Result<(), OpenError> {
    let Some(expected) = claim.expected else {
        return Ok(());
    };
    if disk.place() == expected && disk.kind().is_file() {
        return Ok(());
    }
    Err(OpenError::new(format!(
        "{} is not the file that was found in its directory: another one took its name, or a \
         link; the directory is looked at again when it changes",
        disk.path().display()
    )))
}

pub(super) fn wait_for_close(path: &Path, place: Place) -> Result<(), OpenError> {
    if closing::wait_for(place) {
        return Ok(());
    }
    Err(OpenError::new(format!(
        "{} was removed before, and its close(2) has not returned yet: look in the kernel's log \
         for a disk that hangs, and try again when it has recovered",
        path.display()
    )))
}

fn still_in_use(path: &Path) -> OpenError {
    OpenError::new(format!(
        "{} was removed before, and has not ended the commands that hosts sent it: look in the \
         kernel's log for a disk that hangs, and try again when it has recovered",
        path.display()
    ))
}

fn zoned(path: &Path) -> OpenError {
    let shown = path.display();
    OpenError::new(format!(
        "{shown} is a zoned device (host-managed): it takes writes only in the order of its \
         zones, and a namespace takes them anywhere: make a file system for zoned devices on it \
         (btrfs, f2fs), and export a file of that"
    ))
}

/// Refuses to share a file accessed through the page cache, which does not show other targets'
/// writes.
fn check_coherent(path: &Path, file: &File) -> Result<(), OpenError> {
    // `f_type` of tmpfs, which is coherent: its files exist only in the page cache.
    const TMPFS_MAGIC: u32 = 0x0102_1994;
    let system = rustix::fs::fstatfs(file).map(|statfs| statfs.f_type as u32);
    if system == Ok(TMPFS_MAGIC) {
        return Ok(());
    }
    Err(OpenError::new(format!(
        "{} cannot be shared: its file system refuses O_DIRECT, and behind the page cache a \
         target does not see what another one writes: put it on ext4, XFS or a block device, or \
         leave out shared",
        path.display()
    )))
}

fn check_kind(disk: &AdmittedPath) -> Result<(), OpenError> {
    let (shown, kind) = (disk.path().display(), disk.kind());
    if !kind.is_file() && !kind.is_block_device() {
        let what = if kind.is_dir() {
            "a directory"
        } else {
            "no file or block device"
        };
        return Err(OpenError::new(format!(
            "{shown} is {what}: export a regular file, a block device, or a namespace of an NVMe \
             drive (/dev/ng0n1)"
        )));
    }
    Ok(())
}

fn open_direct(disk: &AdmittedPath, claim: Claim, is_claimed: bool) -> io::Result<File> {
    let exclusive = if is_claimed { libc::O_EXCL } else { 0 };
    let open = |flags: i32| {
        let mut options = File::options();
        options.read(true);
        options.write(!claim.read_only && claim.trial_until.is_none());
        disk.open(options.custom_flags(flags | exclusive))
    };
    match open(libc::O_DIRECT) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let file = open(0)?;
            // Logged once for each disk and kind of operation.
            tracing::warn!(
                path = %disk.path().display(),
                "the file system refuses O_DIRECT: data goes through the page cache"
            );
            Ok(file)
        }
        opened => opened,
    }
}

pub(super) fn refuse_open(path: &Path, error: &io::Error) -> Refusal {
    let explained = explain_open(path, error);
    match error.raw_os_error() {
        Some(libc::EBUSY) => Refusal::InUse(explained),
        _ => Refusal::Other(explained),
    }
}

pub(super) fn explain_open(path: &Path, error: &io::Error) -> OpenError {
    let shown = path.display();
    OpenError::new(match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            format!(
                "no permission to open {shown}: {}",
                remedy::for_denied(path)
            )
        }
        Some(libc::EROFS) => format!("{shown} cannot be written: export it read-only"),
        Some(libc::EBUSY) => format!(
            "{shown} is in use: it is mounted, or part of a RAID or volume group; \
             `lsblk {shown}` shows by whom"
        ),
        Some(libc::EMFILE) => format!(
            "cannot open {shown}: the process has as many files open as it may: raise LimitNOFILE \
             in the service, or run `ulimit -n`"
        ),
        _ => format!("cannot open {shown}: {error}"),
    })
}

fn lock(
    path: &Path,
    file: File,
    place: Place,
    claim: Claim,
    formers: &Formers,
) -> Result<(File, Guard), Refusal> {
    let (lock, file) = match Lock::take(&file, claim) {
        Ok(lock) => (lock, file),
        Err(error) if error != Errno::WOULDBLOCK => return Ok((file, Guard::None)),
        Err(_) => match formers.lock(place, &file, claim) {
            Some(Ok(shared)) => shared,
            Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                return Err(refuse_open(path, &error));
            }
            Some(Err(_)) | None => return Err(Refusal::InUse(locked(path))),
        },
    };
    Ok((file, Guard::Lock(lock)))
}

fn locked(path: &Path) -> OpenError {
    OpenError::new(format!(
        "{} is already exported, by another namespace of this target (export it once) or by another \
         process (two targets that are two paths to it both need shared = true); a process that was killed keeps \
         it until its disk has ended what it had: the kernel's log shows a disk that hangs",
        path.display()
    ))
}

fn used_by_loop(path: &Path, device: &Path) -> OpenError {
    let (shown, device) = (path.display(), device.display());
    OpenError::new(format!(
        "{shown} is the disk of {device}, which is mounted, or part of a RAID or volume group: a \
         host would write over its data; `lsblk {device}` shows by whom"
    ))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Alignment {
    pub(super) offset: u32,
    pub(super) memory: u32,
}

impl Alignment {
    pub(super) const NONE: Self = Self {
        offset: 1,
        memory: 1,
    };

    pub(super) fn of(file: &File, is_device: bool) -> Self {
        let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
        if let Ok(statx) = statx
            && statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0
            && statx.stx_dio_offset_align != 0
        {
            return Self {
                offset: statx.stx_dio_offset_align,
                memory: statx.stx_dio_mem_align,
            };
        }
        let sector = if is_device {
            rustix::fs::ioctl_blksszget(file.as_fd()).ok()
        } else {
            None
        };
        let sector = sector.unwrap_or(512);
        Self {
            offset: sector,
            memory: sector,
        }
    }
}

pub(super) fn choose_block_bytes(
    path: &Path,
    asked: Option<u32>,
    alignment: u32,
) -> Result<u32, OpenError> {
    let smallest = BLOCK_SIZES
        .into_iter()
        .find(|size| size.is_multiple_of(alignment.max(1)));
    let shown = path.display();
    match (asked, smallest) {
        (_, None) => Err(OpenError::new(format!(
            "{shown} needs direct I/O in units of {alignment} bytes; 4096 at most can be served"
        ))),
        (None, Some(smallest)) => Ok(smallest),
        (Some(asked), Some(smallest)) if asked < smallest => Err(OpenError::new(format!(
            "a block size of {asked} is smaller than the {alignment} bytes in which {shown} can be \
             read and written: set block_size = {smallest}"
        ))),
        (Some(asked), Some(_)) => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    fn open(path: &Path, claim: Claim, formers: &Formers) -> Result<Opened, OpenError> {
        super::open(&AdmittedPath::any(path)?, claim, formers)
    }

    #[test]
    fn a_trial_waits_for_a_disk_in_use_no_longer_than_its_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let place = AdmittedPath::any(&path).unwrap().place();
        let tries = std::cell::Cell::new(0);
        let over = Claim {
            trial_until: Some(Instant::now()),
            ..Claim::default()
        };
        let opened = open_when_left(&path, place, over, || -> Result<(), _> {
            tries.set(tries.get() + 1);
            Err(Refusal::InUse(still_in_use(&path)))
        });
        assert!(opened.is_err());
        assert_eq!(tries.get(), 1);
    }

    #[test]
    fn a_file_whose_name_was_taken_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [disk, other] = ["disk", "other"].map(|name| folder.path().join(name));
        for path in [&disk, &other] {
            File::create(path).unwrap().set_len(1 << 20).unwrap();
        }
        let none = Formers::default();
        let found = fs::metadata(&disk).unwrap();
        let claim = Claim {
            expected: Some((found.dev(), found.ino())),
            ..Claim::default()
        };
        assert!(open(&disk, claim, &none).is_ok());
        fs::remove_file(&disk).unwrap();
        std::os::unix::fs::symlink(&other, &disk).unwrap();
        let refused = open(&disk, claim, &none).map(drop).unwrap_err().to_string();
        assert!(refused.contains("took its name"), "{refused}");
        assert!(open(&disk, Claim::default(), &none).is_ok());
    }

    #[test]
    fn a_disk_that_is_in_use_for_a_moment_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let dead = Lock::take(&file, Claim::default()).unwrap();
        let kernel = thread::spawn(move || {
            thread::sleep(IN_USE_INTERVAL * 10);
            drop(dead);
        });
        assert!(open(&path, Claim::default(), &Formers::default()).is_ok());
        kernel.join().unwrap();
    }
}
