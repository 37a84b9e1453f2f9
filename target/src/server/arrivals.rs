//! Kernel reports of changes that may provide missing parts: files, devices and folders
//! (inotify(7)), addresses and links (rtnetlink(7)), RDMA devices (uevents). A report only triggers
//! another attempt.
//!
//! Contains one unsafe call: tokio requires a promise that a descriptor stays open.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cairn_rdma::netlink;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

const READ_BYTES: usize = 4096;

/// Maximum reads per call, so that a busy folder does not block the control plane.
const READS_MAX: usize = 64;

/// Maximum symbolic links followed in a path; the kernel has the same limit.
const LINKS_MAX: usize = 40;

/// Sources of the awaited kernel reports; none by default.
#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    paths: Option<Paths>,
    addresses: Option<Readable>,
    rdma_devices: Option<Readable>,
}

/// Descriptor to wait on until readable. The first wait requires tokio's runtime.
#[derive(Debug)]
enum Readable {
    New(OwnedFd),
    Known(AsyncFd<OwnedFd>),
    /// Waiting failed; only periodic attempts remain.
    Broken,
}

/// Watched folders, and the awaited names in each.
#[derive(Debug)]
struct Paths {
    inotify: Readable,
    awaited: Vec<(i32, OsString)>,
    /// Folders in which any name is awaited.
    whole: Vec<i32>,
}

impl Arrivals {
    /// Watches these paths, and addresses if `addresses`. Failures are ignored: periodic attempts
    /// cover them.
    pub(super) fn of(paths: &[PathBuf], addresses: bool) -> Self {
        let watched = || Paths::of(paths).ok();
        let routes = || netlink::address_reports().ok();
        let devices = || netlink::device_reports().ok();
        Self {
            paths: (!paths.is_empty()).then(watched).flatten(),
            addresses: addresses.then(routes).flatten().map(Readable::New),
            rdma_devices: addresses.then(devices).flatten().map(Readable::New),
        }
    }

    /// Watches all changes in these folders, and the folders themselves.
    pub(crate) fn in_folders(folders: &[PathBuf]) -> Self {
        let watched = || {
            let mut paths = Paths::of(folders)?;
            for folder in folders {
                if let Readable::New(inotify) = &paths.inotify
                    && let Ok(watch) = inotify::add_watch(inotify, folder, all_reports())
                {
                    paths.whole.push(watch);
                }
            }
            Ok::<_, io::Error>(paths)
        };
        Self {
            paths: (!folders.is_empty()).then(watched).and_then(Result::ok),
            ..Self::default()
        }
    }

    /// Returns when something may have arrived.
    pub(crate) async fn next(&mut self) {
        let Self {
            paths,
            addresses,
            rdma_devices,
        } = self;
        let path = async {
            match paths {
                Some(paths) => paths.next().await,
                None => std::future::pending().await,
            }
        };
        let address = async {
            match addresses {
                Some(addresses) => addresses.drained(drain).await,
                None => std::future::pending().await,
            }
        };
        let rdma_device = async {
            match rdma_devices {
                Some(devices) => devices.drained(has_rdma_device).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = path => {}
            () = address => {}
            () = rdma_device => {}
        }
    }
}

impl Readable {
    /// Waits until `take` accepts a report.
    async fn drained(&mut self, mut take: impl FnMut(&OwnedFd) -> bool) {
        loop {
            match std::mem::replace(self, Self::Broken) {
                Self::New(fd) => {
                    // SAFETY: an OwnedFd keeps its descriptor open and unchanged until dropped, and
                    // the AsyncFd that owns it drops it last.
                    let known = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
                    if let Ok(known) = known {
                        *self = Self::Known(known);
                    }
                }
                Self::Broken => return std::future::pending().await,
                Self::Known(fd) => {
                    // The descriptor is stored again before the wait, because this future may be
                    // dropped while it waits.
                    *self = Self::Known(fd);
                    let Self::Known(fd) = self else { return };
                    let Ok(mut ready) = fd.readable().await else {
                        *self = Self::Broken;
                        continue;
                    };
                    let found = take(ready.get_inner());
                    ready.clear_ready();
                    if found {
                        return;
                    }
                }
            }
        }
    }
}

/// Reads and discards all pending reports.
fn drain(fd: &OwnedFd) -> bool {
    read_reports(fd, |_| ());
    true
}

/// True if a report is about an RDMA device: its path or subsystem contains "infiniband".
fn has_rdma_device(fd: &OwnedFd) -> bool {
    const CLASS: &[u8] = b"infiniband";
    let mut found = false;
    read_reports(fd, |report| {
        found |= report.is_none_or(|report| {
            let mut places = report.windows(CLASS.len());
            places.any(|place| place == CLASS)
        });
    });
    found
}

/// Passes each report to `look`; `None` stands for lost reports or for more than `READS_MAX`.
fn read_reports(fd: &OwnedFd, mut look: impl FnMut(Option<&[u8]>)) {
    let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
    for _ in 0..READS_MAX {
        match rustix::io::read(fd, &mut buffer) {
            Ok((report, _)) if !report.is_empty() => look(Some(report)),
            Err(rustix::io::Errno::NOBUFS) => look(None),
            _ => return,
        }
    }
    look(None);
}

impl Paths {
    fn of(paths: &[PathBuf]) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut awaited = Vec::new();
        for path in paths {
            // Watches the target of each symbolic link, too: /dev/disk/by-id has links.
            let mut path = path.clone();
            for _ in 0..LINKS_MAX {
                if let Some((folder, name)) = first_missing(&path)
                    && let Ok(watch) = inotify::add_watch(&inotify, folder, reports())
                {
                    awaited.push((watch, name));
                }
                let Ok(target) = std::fs::read_link(&path) else {
                    break;
                };
                path = path.parent().map_or(target.clone(), |at| at.join(&target));
            }
        }
        Ok(Self {
            inotify: Readable::New(inotify),
            awaited,
            whole: Vec::new(),
        })
    }

    async fn next(&mut self) {
        let Self {
            inotify,
            awaited,
            whole,
        } = self;
        inotify.drained(|fd| is_awaited(fd, awaited, whole)).await;
    }
}

/// Events after which a disk may be usable: created, replaced, or permissions changed.
///
/// Writes are excluded: each attempt would trigger the next one by closing the file.
fn reports() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::MOVED_TO
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
}

/// Returns the events of a folder watched as a whole: also removals, and files closed after
/// writing. Writes themselves are excluded, because hosts write all the time.
fn all_reports() -> WatchFlags {
    reports() | WatchFlags::MOVED_FROM | WatchFlags::DELETE | WatchFlags::CLOSE_WRITE
}

/// True if a report concerns an awaited name or a folder watched as a whole.
fn is_awaited(fd: &OwnedFd, awaited: &[(i32, OsString)], whole: &[i32]) -> bool {
    let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
    let mut reader = Reader::new(fd, &mut buffer);
    let mut found = false;
    for _ in 0..READS_MAX * 64 {
        let Ok(event) = reader.next() else {
            return found;
        };
        let overflow = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
        found |= overflow
            || match event.file_name() {
                None => true,
                Some(_) if whole.contains(&event.wd()) => true,
                Some(name) => awaited.iter().any(|(watch, awaited)| {
                    *watch == event.wd() && awaited.as_bytes() == name.to_bytes()
                }),
            };
    }
    true
}

/// Deepest existing folder of a path, and the next name in it.
fn first_missing(path: &Path) -> Option<(&Path, OsString)> {
    let mut at = path;
    loop {
        let folder = at.parent()?;
        let name = at.file_name()?;
        if folder.is_dir() {
            return Some((folder, name.to_owned()));
        }
        at = folder;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn next_of(arrivals: &mut Arrivals, change: impl FnOnce()) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            change();
            tokio::time::timeout(PATIENCE, arrivals.next())
                .await
                .is_ok()
        })
    }

    #[test]
    fn a_file_its_folder_and_its_permissions_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("a/b");
        let disk = deep.join("disk");
        let mut arrivals = Arrivals::of(std::slice::from_ref(&disk), false);
        assert!(next_of(&mut arrivals, || {
            std::fs::create_dir_all(&deep).unwrap();
        }));
        let mut arrivals = Arrivals::of(std::slice::from_ref(&disk), false);
        assert!(next_of(&mut arrivals, || {
            std::fs::write(deep.join("another"), "").unwrap();
            std::fs::write(&disk, "").unwrap();
        }));
        let mut arrivals = Arrivals::of(std::slice::from_ref(&disk), false);
        assert!(next_of(&mut arrivals, || {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&disk, std::fs::Permissions::from_mode(0o600)).unwrap();
        }));
    }

    #[test]
    fn other_files_of_the_folder_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        let paths = Paths::of(&[disk]).unwrap();
        std::fs::write(folder.path().join("another"), "").unwrap();
        let Readable::New(inotify) = &paths.inotify else {
            panic!("it is new")
        };
        assert!(!is_awaited(inotify, &paths.awaited, &[]));
    }

    #[test]
    fn reports_of_rdma_devices_are_told_from_others() {
        let (read, write) = std::os::unix::net::UnixDatagram::pair().unwrap();
        read.set_nonblocking(true).unwrap();
        let read = OwnedFd::from(read);
        let report = |text: &[u8]| {
            write.send(text).unwrap();
            has_rdma_device(&read)
        };
        assert!(!report(b"add@/devices/virtual/net/eth7\0SUBSYSTEM=net\0"));
        assert!(report(b"add@/devices/virtual/infiniband/rxe0\0"));
        // The earlier reports were read, so the result depends on this one only.
        assert!(!report(b"remove@/devices/virtual/net/eth7\0"));
    }

    #[test]
    fn a_link_to_nothing_waits_for_what_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let (link, disk) = (folder.path().join("link"), folder.path().join("sdb"));
        std::os::unix::fs::symlink("sdb", &link).unwrap();
        let mut arrivals = Arrivals::of(&[link], false);
        assert!(next_of(&mut arrivals, || {
            std::fs::write(&disk, "").unwrap();
        }));
    }
}
