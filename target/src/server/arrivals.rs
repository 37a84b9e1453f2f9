//! Kernel reports after which a missing part may open: files, devices and folders (inotify(7)),
//! addresses and links (rtnetlink(7)), and RDMA devices (uevents). A report only triggers another
//! attempt.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::future::pending;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_base::netlink;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::files;

const READ_BYTES: usize = 4096;

/// Maximum reads per call, so that a busy folder cannot block the control plane.
const READS_MAX: usize = 64;

/// Maximum symbolic links in a path, as in the kernel.
const LINKS_MAX: usize = 40;

#[derive(Debug, Default)]
pub(crate) struct Arrivals {
    paths: Option<Paths>,
    addresses: Option<Readable>,
    rdma_devices: Option<Readable>,
}

/// Descriptor that becomes readable when a report arrives. The first wait registers it with tokio.
#[derive(Debug)]
enum Readable {
    New(OwnedFd),
    Known(AsyncFd<OwnedFd>),
    Broken,
}

/// Watch descriptor of a folder, and the awaited file name; `None` for any name.
type Watch = (i32, Option<OsString>);

#[derive(Debug)]
struct Paths {
    inotify: Readable,
    watches: Arc<Mutex<Vec<Watch>>>,
    /// `None` once all folders are watched.
    setup: Option<Setup>,
}

struct Setup(Pin<Box<dyn Future<Output = ()> + Send>>);

impl fmt::Debug for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Setup")
    }
}

impl Arrivals {
    /// Watches `paths` from the first [`next`](Self::next) on and, if `addresses`, also network
    /// addresses and RDMA devices. Ignores failures, because missing parts are also retried
    /// periodically.
    pub(super) fn of(paths: &[PathBuf], addresses: bool) -> Self {
        let watched = || Paths::of(paths, false).ok();
        let routes = || netlink::address_reports().ok();
        let devices = || netlink::device_reports().ok();
        Self {
            paths: (!paths.is_empty()).then(watched).flatten(),
            addresses: addresses.then(routes).flatten().map(Readable::New),
            rdma_devices: addresses.then(devices).flatten().map(Readable::New),
        }
    }

    /// Watches these folders for all changes. On return, all watches exist, except in file systems
    /// that do not answer.
    pub(crate) async fn in_folders(folders: &[PathBuf]) -> Self {
        let watched = || Paths::of(folders, true).ok();
        let mut this = Self {
            paths: (!folders.is_empty()).then(watched).flatten(),
            ..Self::default()
        };
        this.begun().await;
        this
    }

    async fn begun(&mut self) {
        if let Some(paths) = &mut self.paths {
            Paths::begin(&mut paths.setup).await;
        }
    }

    pub(crate) async fn next(&mut self) {
        let Self {
            paths,
            addresses,
            rdma_devices,
        } = self;
        let path = async {
            match paths {
                Some(paths) => paths.next().await,
                None => pending().await,
            }
        };
        let address = async {
            match addresses {
                Some(addresses) => addresses.drained(drain).await,
                None => pending().await,
            }
        };
        let rdma_device = async {
            match rdma_devices {
                Some(devices) => devices.drained(has_rdma_device).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = path => {}
            () = address => {}
            () = rdma_device => {}
        }
    }
}

/// Kernel reports of block devices with a new size. The kernel sends them to its first network namespace alone.
pub(super) struct Resizes(Readable);

impl Resizes {
    pub(super) fn of_devices() -> io::Result<Self> {
        netlink::device_reports().map(|fd| Self(Readable::New(fd)))
    }

    pub(super) async fn next(&mut self) {
        self.0.drained(has_resize).await;
    }
}

impl Readable {
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
                Self::Broken => return pending().await,
                Self::Known(fd) => {
                    // The descriptor is stored first, because this future may be dropped during the
                    // wait.
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

fn drain(fd: &OwnedFd) -> bool {
    read_reports(fd, |_| ());
    true
}

fn has_rdma_device(fd: &OwnedFd) -> bool {
    has_report_with(fd, b"infiniband")
}

fn has_resize(fd: &OwnedFd) -> bool {
    has_report_with(fd, b"RESIZE=1")
}

/// True if a report contains `text`, or if reports are lost.
fn has_report_with(fd: &OwnedFd, text: &[u8]) -> bool {
    let mut found = false;
    read_reports(fd, |report| {
        found |= report.is_none_or(|report| {
            let mut places = report.windows(text.len());
            places.any(|place| place == text)
        });
    });
    found
}

/// Passes each report to `look`, and `None` if reports are lost or remain after `READS_MAX` reads.
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

fn lock(watches: &Mutex<Vec<Watch>>) -> MutexGuard<'_, Vec<Watch>> {
    // Poisoning is harmless, because entries are only added.
    watches.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Paths {
    fn of(paths: &[PathBuf], is_whole: bool) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let mut folders: BTreeMap<PathBuf, Vec<PathBuf>> = BTreeMap::new();
        for path in paths {
            let folder = path.parent().filter(|_| !is_whole).unwrap_or(path);
            let of_folder = folders.entry(folder.to_owned()).or_default();
            of_folder.push(path.clone());
        }
        let watches = Arc::default();
        let setup = set_up(
            inotify.try_clone()?,
            folders,
            is_whole,
            Arc::clone(&watches),
        );
        Ok(Self {
            inotify: Readable::New(inotify),
            watches,
            setup: Some(Setup(Box::pin(setup))),
        })
    }

    async fn begin(setup: &mut Option<Setup>) {
        if let Some(Setup(running)) = setup {
            running.as_mut().await;
        }
        *setup = None;
    }

    async fn next(&mut self) {
        let Self {
            inotify,
            watches,
            setup,
        } = self;
        let begin = async {
            Self::begin(setup).await;
            pending::<()>().await;
        };
        tokio::select! {
            () = inotify.drained(|fd| is_awaited(fd, &lock(watches))) => {}
            () = begin => {}
        }
    }
}

/// Watches the folders one after another. A folder that does not answer in time stays unwatched;
/// periodic attempts notice its changes.
async fn set_up(
    inotify: OwnedFd,
    folders: BTreeMap<PathBuf, Vec<PathBuf>>,
    is_whole: bool,
    watches: Arc<Mutex<Vec<Watch>>>,
) {
    let inotify = Arc::new(inotify);
    for (folder, paths) in folders {
        let inotify = Arc::clone(&inotify);
        let watch = move |_: &Path| {
            let mut new = Vec::new();
            for path in &paths {
                watch_path(&inotify, path, &mut new);
                if is_whole && let Ok(watch) = inotify::add_watch(&inotify, path, all_reports()) {
                    new.push((watch, None));
                }
            }
            new
        };
        if let Ok(new) = files::call(&folder, watch).await {
            lock(&watches).extend(new);
        }
    }
}

/// Watches a path and the targets of its symbolic links, as in /dev/disk/by-id. May block.
#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
fn watch_path(inotify: &OwnedFd, path: &Path, watches: &mut Vec<Watch>) {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        if let Some((folder, name)) = first_missing(&path)
            && let Ok(watch) = inotify::add_watch(inotify, folder, reports())
        {
            watches.push((watch, Some(name)));
        }
        let Ok(target) = std::fs::read_link(&path) else {
            break;
        };
        path = path.parent().map_or(target.clone(), |at| at.join(&target));
    }
}

/// Returns the events after which a disk may be usable: created, replaced, or permissions changed.
/// `CLOSE_WRITE` is left out, because each attempt closes the file and would trigger the next
/// attempt.
fn reports() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::MOVED_TO
        | WatchFlags::ATTRIB
        | WatchFlags::DELETE_SELF
        | WatchFlags::MOVE_SELF
        | WatchFlags::ONLYDIR
        | WatchFlags::MASK_ADD
}

/// Returns [`reports`] plus removals of files and closes after writing. Single writes are left out,
/// because they are frequent.
fn all_reports() -> WatchFlags {
    reports() | WatchFlags::MOVED_FROM | WatchFlags::DELETE | WatchFlags::CLOSE_WRITE
}

/// True if a report concerns an awaited name or a watch not yet in `watches`, or if reports are
/// lost or unread.
fn is_awaited(fd: &OwnedFd, watches: &[Watch]) -> bool {
    let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
    let mut reader = Reader::new(fd, &mut buffer);
    let mut found = false;
    for _ in 0..READS_MAX * 64 {
        let Ok(event) = reader.next() else {
            return found;
        };
        let overflow = event.events().contains(ReadFlags::QUEUE_OVERFLOW);
        found |= overflow
            || event.file_name().is_none_or(|name| {
                let mut of_watch = watches.iter().filter(|(watch, _)| *watch == event.wd());
                let mut is_known = false;
                let is_it = of_watch.any(|(_, awaited)| {
                    is_known = true;
                    let bytes = awaited.as_ref().map(|awaited| awaited.as_bytes());
                    bytes.is_none_or(|awaited| awaited == name.to_bytes())
                });
                is_it || !is_known
            });
    }
    true
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
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
            arrivals.begun().await;
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
        let mut paths = Paths::of(&[disk], false).unwrap();
        files::wait_for(Paths::begin(&mut paths.setup)).unwrap();
        std::fs::write(folder.path().join("another"), "").unwrap();
        let Readable::New(inotify) = &paths.inotify else {
            panic!("it is new")
        };
        assert!(!is_awaited(inotify, &lock(&paths.watches)));
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
        assert!(!report(b"remove@/devices/virtual/net/eth7\0"));
        write
            .send(b"change@/devices/virtual/block/loop0\0RESIZE=1\0")
            .unwrap();
        assert!(has_resize(&read));
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
