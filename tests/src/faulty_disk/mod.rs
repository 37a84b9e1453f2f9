//! A disk with faults that a test chooses: holds them, fails them, delays
//! them, cuts them short. To other programs it is a regular file.
//!
//! ```no_run
//! use cairn_tests::faulty_disk::{Fault, FaultyDisk, Op, Rule};
//! use cairn_tests::harness::TestTarget;
//!
//! let Some(disk) = FaultyDisk::mount("slow", 1 << 20) else {
//!     return; // It said why.
//! };
//! let target = TestTarget::with_namespaces(&[&disk.export(4096)]);
//! disk.begin(Rule::new(Op::Write, Fault::Hold).within(0..4096).times(1));
//! // ... a host writes block 0 ...
//! disk.wait_until_waiting(Op::Write, 1);
//! disk.release();
//! # drop(target);
//! ```
//!
//! It is a FUSE file system of one file, served by two threads of this process. Its
//! contents are memory. It is always open for direct I/O, so nothing is cached, and the
//! kernel passes each call on as it comes. How a held read or write burdens its caller is
//! the disk's [`Nature`]. An fsync always occupies a thread, and writes wait for it: FUSE
//! holds the file's lock meanwhile.
//!
//! Mounting requires root. Without it [`FaultyDisk::mount`] prints the reason and returns
//! `None`, and the test ends; with [`VARIABLE`] set it panics instead.
//!
//! Release or fail what the disk holds before the target stops: the target waits for its
//! I/O, and the disk is dropped after the target if it was declared before.

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

/// Set to "required", a disk that cannot be mounted fails its test.
pub const VARIABLE: &str = "CAIRN_FUSE";

/// How long a test waits for an operation to reach the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Unmounts the disk when its standard input has been silent for some seconds. This process
/// cannot always do so: the kernel does not end a process while the disk holds I/O of its
/// io_uring, and closes its files, /dev/fuse among them, only after that I/O.
const CARETAKER: &str = "while read -r -t 20; do :; done; umount -c -i -f -l \"$0\"; rm -f \"$0\"";

/// A folder that answers nothing, mounted on another one. Dropped, it is gone, and what waits for it fails.
#[derive(Debug)]
pub struct HangingFolder {
    place: PathBuf,
    _device: File,
}

impl HangingFolder {
    /// Mounted here; `None` where it cannot be, which is recorded as a skip.
    ///
    /// # Panics
    /// If it cannot be mounted and [`VARIABLE`] is "required".
    #[must_use]
    pub fn mount(place: &Path) -> Option<Self> {
        let mount = || {
            let device = open_device()?;
            mount_on(place, &device, mounting::FOLDER)?;
            let place = place.to_owned();
            Ok(Self {
                place,
                _device: device,
            })
        };
        or_skip(mount())
    }
}

impl Drop for HangingFolder {
    fn drop(&mut self) {
        unmount(&self.place);
    }
}

fn open_device() -> io::Result<File> {
    let opened = File::options().read(true).write(true).open("/dev/fuse");
    opened.map_err(|error| io::Error::new(error.kind(), format!("/dev/fuse: {error}")))
}

fn or_skip<T>(mounted: io::Result<T>) -> Option<T> {
    match mounted {
        Ok(mounted) => Some(mounted),
        Err(error) => {
            let required = std::env::var(VARIABLE).is_ok_and(|value| value == "required");
            assert!(!required, "FUSE is required: {error}");
            cairn_skips::skip(format_args!("FUSE cannot be mounted here: {error}"));
            None
        }
    }
}

/// A disk under fault. Dropped, it fails what it holds, and vanishes.
#[derive(Debug)]
pub struct FaultyDisk {
    // Where it is mounted: on a file.
    place: Scratch,
    server: Arc<Server>,
    threads: Vec<JoinHandle<()>>,
    caretaker: Child,
}

impl FaultyDisk {
    /// A disk of so many bytes, all zero; `None` where it cannot be mounted, which is
    /// recorded as a skip.
    ///
    /// # Panics
    /// If it cannot be mounted and [`VARIABLE`] is "required".
    #[must_use]
    pub fn mount(name: &str, length: u64) -> Option<Self> {
        Self::mount_as(Nature::Disk, name, length)
    }

    /// The same, of this nature.
    ///
    /// # Panics
    /// As [`mount`](Self::mount).
    #[must_use]
    pub fn mount_as(nature: Nature, name: &str, length: u64) -> Option<Self> {
        or_skip(Self::try_mount(nature, name, length))
    }

    fn try_mount(nature: Nature, name: &str, length: u64) -> io::Result<Self> {
        let device = open_device()?;
        let place = Scratch::new(&format!("faulty-{name}"), 0);
        mount_on(place.path(), &device, mounting::FILE)?;
        let mut caretaker = Command::new("bash")
            .args(["-c", CARETAKER])
            .arg(place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // What ends a test that hangs ends its whole process group.
            .process_group(0)
            .spawn()?;
        let sign = caretaker.stdin.take().expect("its input is a pipe");
        let server = Arc::new(Server::new(device, nature, length));
        let threads = vec![
            thread("disk", &server, |server| server.serve())?,
            thread("disk's time", &server, move |server| server.keep_time(sign))?,
        ];
        // The kernel takes the file for empty until it has asked.
        std::fs::metadata(place.path())?;
        Ok(Self {
            place,
            server,
            threads,
            caretaker,
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// It as an export, for [`namespace`](crate::harness::namespace).
    #[must_use]
    pub fn export(&self, block_size: u32) -> String {
        self.place.export(block_size)
    }

    /// From now on this rule holds, after those that hold already: the first that
    /// matches decides.
    pub fn begin(&self, rule: Rule) {
        self.server.state().rules.push(rule);
    }

    /// No rule holds any more. What waits goes on waiting.
    pub fn end_faults(&self) {
        self.server.state().rules.clear();
    }

    /// Carries out what waits, in the order in which it came. The rules stay.
    pub fn release(&self) {
        self.server.release(None);
    }

    /// Fails what waits. The rules stay.
    pub fn fail_waiting(&self, errno: i32) {
        self.server.release(Some(errno));
    }

    /// No rules, and nothing waits.
    pub fn heal(&self) {
        self.end_faults();
        self.release();
    }

    /// How many operations of a kind wait now.
    #[must_use]
    pub fn waiting(&self, op: Op) -> usize {
        self.server.state().waiting(op)
    }

    /// How many operations of a kind were carried out.
    #[must_use]
    pub fn done(&self, op: Op) -> u64 {
        self.server.state().done(op)
    }

    /// Blocks until so many operations of a kind wait.
    ///
    /// # Panics
    /// If that takes longer than half a minute.
    pub fn wait_until_waiting(&self, op: Op, count: usize) {
        let wait = |state: &server::State| state.waiting(op) >= count;
        assert!(
            self.server.wait(PATIENCE, wait),
            "{} {op:?}s wait, not {count}",
            self.waiting(op)
        );
    }

    /// What it contains there.
    #[must_use]
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.server.state().contents[offset..offset + length].to_vec()
    }

    /// Makes it longer, by zeroes, or cuts it short.
    pub fn set_length(&self, length: usize) {
        self.server.state().contents.resize(length, 0);
    }
}

impl Drop for FaultyDisk {
    fn drop(&mut self) {
        // What is held fails first: unmounting may wait for it.
        self.end_faults();
        self.fail_waiting(libc::EIO);
        unmount(self.place.path());
        // Before the threads end, and with them its input: it would unmount the next disk here.
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
