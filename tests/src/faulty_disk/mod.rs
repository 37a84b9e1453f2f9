//! Disk that holds, fails, delays or truncates operations on request.
//!
//! The disk is a FUSE file system with one file in memory, served by two threads of this process
//! without caching. [`Nature`] selects whether held reads and writes block their callers. Mounting
//! requires root.
//!
//! A stopping target waits for its I/O, so a test must first release or fail held operations. It
//! must declare the disk before the target: Rust drops variables in reverse order.

mod faults;
mod mounting;
mod server;
mod wire;

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::harness::Scratch;
pub use faults::{Fault, Nature, Op, Rule};
use mounting::{mount_on, unmount};
use server::Server;

/// Environment variable; if "required", a failed mount causes a panic.
pub const VARIABLE: &str = "CAIRN_FUSE";

const PATIENCE: Duration = Duration::from_secs(30);

/// Script that unmounts the disk after 20 s without input. After a killed test, held I/O keeps
/// /dev/fuse open, so that the mount would otherwise remain.
const CARETAKER: &str = "while read -r -t 20; do :; done; umount -c -i -f -l \"$0\"; rm -f \"$0\"";

/// Mounted folder whose operations never complete; dropping the folder fails them.
#[derive(Debug)]
pub struct HangingFolder {
    place: PathBuf,
    _device: File,
}

impl HangingFolder {
    /// Mounts the folder at `place`. Without /dev/fuse or the privilege to mount, records a skip
    /// and returns `None`.
    ///
    /// # Panics
    /// If mounting fails for another reason, or at all with [`VARIABLE`] "required".
    #[must_use]
    #[track_caller]
    pub fn mount(place: &Path) -> Option<Self> {
        let device = open_device()?;
        mount_or_skip(place, &device, mounting::FOLDER).then(|| Self {
            place: place.to_owned(),
            _device: device,
        })
    }
}

impl Drop for HangingFolder {
    fn drop(&mut self) {
        unmount(&self.place);
    }
}

#[track_caller]
fn open_device() -> Option<File> {
    use libc::{EACCES, ENODEV, ENOENT, ENXIO, EPERM};
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    or_skip("/dev/fuse", opened, &[ENOENT, ENODEV, ENXIO, EPERM, EACCES])
}

#[track_caller]
fn mount_or_skip(place: &Path, device: &File, mode: &str) -> bool {
    or_skip("mount(2)", mount_on(place, device, mode), &[libc::EPERM]).is_some()
}

#[track_caller]
fn or_skip<T>(what: &str, result: io::Result<T>, lacks: &[i32]) -> Option<T> {
    let error = match result {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    let is_required = std::env::var(VARIABLE).is_ok_and(|value| value == "required");
    let is_lack = error
        .raw_os_error()
        .is_some_and(|errno| lacks.contains(&errno));
    assert!(
        is_lack && !is_required,
        "FUSE cannot be mounted: {what}: {error}"
    );
    cairn_skips::skip(format_args!("FUSE cannot be mounted here: {what}: {error}"));
    None
}

/// Disk with fault injection; dropping it fails waiting operations and unmounts the disk.
#[derive(Debug)]
pub struct FaultyDisk {
    place: Scratch,
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
    caretaker: Child,
}

impl FaultyDisk {
    /// Mounts a disk of `length` zero bytes. Records a skip, returns `None` or panics like
    /// [`HangingFolder::mount`].
    #[must_use]
    #[track_caller]
    pub fn mount(name: &str, length: u64) -> Option<Self> {
        Self::mount_as(Nature::Disk, name, length)
    }

    #[must_use]
    #[track_caller]
    pub fn mount_as(nature: Nature, name: &str, length: u64) -> Option<Self> {
        let device = open_device()?;
        let place = Scratch::new(&format!("faulty-{name}"), 0);
        mount_or_skip(place.path(), &device, mounting::FILE)
            .then(|| Self::serve(device, place, nature, length).expect("the disk is served"))
    }

    fn serve(device: File, place: Scratch, nature: Nature, length: u64) -> io::Result<Self> {
        let mut caretaker = Command::new("bash")
            .args(["-c", CARETAKER])
            .arg(place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Test runners kill the process group of a hung test, but must not kill this script.
            .process_group(0)
            .spawn()?;
        let sign = caretaker.stdin.take().expect("its input is a pipe");
        let server = Arc::new(Server::new(device, nature, length));
        let threads = vec![
            thread("disk", &server, |server| server.serve())?,
            thread("disk's time", &server, move |server| server.keep_time(sign))?,
        ];
        std::fs::metadata(place.path())?;
        Ok(Self {
            place,
            server,
            threads,
            caretaker,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    #[must_use]
    pub fn export(&self, block_size: u32) -> String {
        self.place.export(block_size)
    }

    /// Appends a rule; the first matching rule applies.
    pub fn begin(&self, rule: Rule) {
        self.server.state().rules.push(rule);
    }

    /// Removes the rules; waiting operations keep waiting.
    pub fn end_faults(&self) {
        self.server.state().rules.clear();
    }

    /// Executes waiting operations in order.
    pub fn release(&self) {
        self.server.release(None);
    }

    pub fn fail_waiting(&self, errno: i32) {
        self.server.release(Some(errno));
    }

    pub fn heal(&self) {
        self.end_faults();
        self.release();
    }

    #[must_use]
    pub fn waiting(&self, op: Op) -> usize {
        self.server.state().waiting(op)
    }

    #[must_use]
    pub fn done(&self, op: Op) -> u64 {
        self.server.state().done(op)
    }

    /// Blocks until at least `count` operations of a type wait.
    ///
    /// # Panics
    /// After 30 s.
    pub fn wait_until_waiting(&self, op: Op, count: usize) {
        let wait = |state: &server::DiskState| state.waiting(op) >= count;
        assert!(
            self.server.wait(PATIENCE, wait),
            "{} {op:?}s wait, not {count}",
            self.waiting(op)
        );
    }

    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.server.state().contents[offset..offset + length].to_vec()
    }

    pub fn set_length(&self, length: usize) {
        self.server.state().contents.resize(length, 0);
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        self.end_faults();
        self.fail_waiting(libc::EIO);
        unmount(self.place.path());
        let _ = self.caretaker.kill();
        let _ = self.caretaker.wait();
        self.server.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn thread(
    name: &str,
    server: &Arc<Server>,
    life: impl FnOnce(&Server) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let server = Arc::clone(server);
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || life(&server))
}
