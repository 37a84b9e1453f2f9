//! Opens a drive: its character device for commands, and its block device to exclude other users.
//!
//! Why `unsafe` here: NVMe's ioctls have no safe wrapper.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::identify::{self, Identified, Layout, PAGE, Page, Pages};
use crate::backend::closing::{Guard, OpenFile, Place};
use crate::backend::formers::Formers;
use crate::backend::found::{AdmittedPath, FoundPath};
use crate::backend::open::{Refusal, explain_open, open_when_left, refuse_open};
use crate::backend::remedy::permission;
use crate::backend::{Claim, OpenError};
use crate::nvme::{ADMIN_CMD, Command, GET_NSID};

const DROP_IN: &str = "/usr/share/doc/cairn/nvme-drives.conf";

pub(super) struct Opened {
    pub(super) file: OpenFile,
    pub(super) device: Arc<File>,
    pub(super) nsid: u32,
    pub(super) identified: Identified,
}

struct Devices {
    block: AdmittedPath,
    block_sysfs: PathBuf,
}

pub(in crate::backend) fn is_drive(disk: &AdmittedPath) -> bool {
    sysfs(disk).is_some()
}

fn sysfs(disk: &AdmittedPath) -> Option<PathBuf> {
    if !disk.kind().is_char_device() {
        return None;
    }
    let number = disk.number();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let device = fs::canonicalize(format!("/sys/dev/char/{major}:{minor}")).ok()?;
    let class = fs::canonicalize(device.join("subsystem")).ok()?;
    (class.file_name()? == "nvme-generic").then_some(device)
}

pub(super) fn open(
    disk: &AdmittedPath,
    claim: Claim,
    formers: &Formers,
) -> Result<Opened, OpenError> {
    let path = disk.path();
    crate::ring::check_drives().map_err(|error| cannot(path, &error))?;
    let devices = find(disk)?;
    let place = devices.block.place();
    open_when_left(path, place, claim, || {
        open_at(disk, &devices, place, claim, formers)
    })
}

fn open_at(
    disk: &AdmittedPath,
    devices: &Devices,
    place: Place,
    claim: Claim,
    formers: &Formers,
) -> Result<Opened, Refusal> {
    let path = disk.path();
    check_holders(path, devices)?;
    let mut options = File::options();
    let options = options.read(true).custom_flags(libc::O_EXCL);
    let exclusive = devices.block.open(options);
    let device = exclusive.map(Arc::new).or_else(|error| {
        let is_busy = error.raw_os_error() == Some(libc::EBUSY);
        let former = is_busy.then(|| formers.device(place)).flatten();
        former.ok_or_else(|| refuse_open(devices.block.path(), &error))
    })?;
    let file = disk
        .open(File::options().read(true).write(!claim.read_only))
        .map_err(|error| explain_device(path, &error))?;
    let nsid = nsid(&file).map_err(|error| cannot(path, &error))?;
    if nsid_differs(nsid, &device) {
        return Err(OpenError::new(format!(
            "{} and {} are not the same namespace: a drive was replaced meanwhile; try again",
            path.display(),
            devices.block.path().display()
        ))
        .into());
    }
    let pages = identify_all(&file, nsid).map_err(|error| explain_identify(path, &error))?;
    let refuse = |why| OpenError::new(format!("{} cannot be exported: {why}", path.display()));
    let identified = Identified::parse(&pages).map_err(refuse)?;
    if identified.write_protected && !claim.read_only {
        return Err(OpenError::new(format!(
            "{} is write protected: export it read-only, or take the protection away by `nvme \
             set-feature --feature-id=0x84 --value=0`",
            path.display()
        ))
        .into());
    }
    Ok(Opened {
        file: OpenFile::new(file, Guard::Device(Arc::clone(&device)), place),
        device,
        nsid,
        identified,
    })
}

pub(super) fn measure(file: &File, nsid: u32) -> io::Result<Layout> {
    let page = identify(file, nsid, identify::NAMESPACE)?;
    identify::layout(&page).map_err(io::Error::other)
}

fn find(disk: &AdmittedPath) -> Result<Devices, OpenError> {
    let path = disk.path();
    let none = |why: &str| {
        OpenError::new(format!(
            "{} {why}: export a namespace of an NVMe drive as /dev/ng0n1 (`nvme list -v` shows \
             all), or its block device",
            path.display()
        ))
    };
    let device = sysfs(disk).ok_or_else(|| none("is no namespace of an NVMe drive"))?;
    let name = device.file_name().and_then(|name| name.to_str());
    let rest = name.and_then(|name| name.strip_prefix("ng"));
    let block = format!("nvme{}", rest.ok_or_else(|| none("has an unknown name"))?);
    let block_sysfs = PathBuf::from("/sys/class/block").join(&block);
    if !block_sysfs.exists() {
        return Err(none(
            "has no block device, by which Cairn sees that nothing else uses it: Linux makes none \
             for formats and command sets that it does not know",
        ));
    }
    let beside = disk.location().map_err(|error| cannot(path, &error))?;
    Ok(Devices {
        block: find_block(path, &beside.with_file_name(block), &block_sysfs)?,
        block_sysfs,
    })
}

fn find_block(path: &Path, block: &Path, block_sysfs: &Path) -> Result<AdmittedPath, OpenError> {
    let found = FoundPath::find(block).map_err(|error| {
        OpenError::new(format!(
            "{} is the block device of {}, which Cairn opens to check that nothing else uses the \
             drive: {error}: make it visible (in a container, both devices)",
            block.display(),
            path.display()
        ))
    })?;
    // The device number must match sysfs, which proves that this block device belongs to the
    // admitted drive.
    let found = found.admit(|_| Ok(true))?;
    let number = found.number();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let expected = fs::read_to_string(block_sysfs.join("dev")).unwrap_or_default();
    if !found.kind().is_block_device() || expected.trim() != format!("{major}:{minor}") {
        return Err(OpenError::new(format!(
            "{} is not the block device of {}: it is device {major}:{minor}, and {} was expected",
            block.display(),
            path.display(),
            expected.trim()
        )));
    }
    Ok(found)
}

fn check_holders(path: &Path, devices: &Devices) -> Result<(), OpenError> {
    let holders = fs::read_dir(devices.block_sysfs.join("holders"));
    let holders: Vec<String> = holders
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    if holders.is_empty() {
        return Ok(());
    }
    Err(OpenError::new(format!(
        "{} is in use: {} is part of {}; `lsblk {}` shows more",
        path.display(),
        devices.block.path().display(),
        holders.join(", "),
        devices.block.path().display()
    )))
}

fn cannot(path: &Path, error: &io::Error) -> OpenError {
    OpenError::new(format!("cannot export {}: {error}", path.display()))
}

fn explain_device(path: &Path, error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => OpenError::new(format!(
            "no permission to open {}: {}",
            path.display(),
            permission(&format!(
                "copy {DROP_IN} to /etc/systemd/system/cairn-target.service.d and give the device to the \
                 group disk, as it says"
            ))
        )),
        _ => explain_open(path, error),
    }
}

fn explain_identify(path: &Path, error: &io::Error) -> OpenError {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => OpenError::new(format!(
            "no permission to send commands to {}: Linux requires CAP_SYS_ADMIN: {}",
            path.display(),
            permission(&format!(
                "permit it to the service with the drop-in {DROP_IN}"
            ))
        )),
        _ => OpenError::new(format!(
            "{} does not answer Identify: {error}: inspect it with `nvme id-ns`",
            path.display()
        )),
    }
}

fn nsid(file: &File) -> io::Result<u32> {
    // SAFETY: the request takes no argument.
    let nsid = unsafe { libc::ioctl(file.as_raw_fd(), GET_NSID) };
    u32::try_from(nsid).map_err(|_| io::Error::last_os_error())
}

fn nsid_differs(expected: u32, block: &File) -> bool {
    nsid(block).map_or(true, |nsid| nsid != expected)
}

fn identify_all(file: &File, nsid: u32) -> io::Result<Pages> {
    Ok(Pages {
        controller: identify(file, 0, identify::CONTROLLER)?,
        namespace: identify(file, nsid, identify::NAMESPACE)?,
        descriptors: optional(identify(file, nsid, identify::DESCRIPTORS))?,
        formats: optional(identify(file, nsid, identify::NAMESPACE_NVM))?,
        limits: optional(identify(file, 0, identify::CONTROLLER_NVM))?,
    })
}

/// Returns `None` if the drive refuses the page. A system error stays an error, because a missing
/// page would change the drive's names or command set.
fn optional(page: io::Result<Box<Page>>) -> io::Result<Option<Box<Page>>> {
    match page {
        Ok(page) => Ok(Some(page)),
        Err(error) if error.raw_os_error().is_none() => Ok(None),
        Err(error) => Err(error),
    }
}

fn identify(file: &File, nsid: u32, cns: u8) -> io::Result<Box<Page>> {
    let mut page = Box::new([0; PAGE]);
    let addr = page.as_mut_ptr() as u64;
    let mut command = Command::identify(nsid, cns).encode(addr, PAGE as u32);
    // SAFETY: the kernel reads and writes the command, and writes `PAGE` bytes to the page; both
    // outlive the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), ADMIN_CMD, command.as_mut_ptr()) };
    match status {
        0 => Ok(page),
        1.. => Err(io::Error::other(format!(
            "Identify ended with status {status:#x}"
        ))),
        _ => Err(io::Error::last_os_error()),
    }
}
