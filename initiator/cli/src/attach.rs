//! The command `attach`: a namespace as a disk of this machine.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cairn_attach::nbd::{self, Nbd};
use cairn_attach::vhost_user::{Serial, VhostUser};
use cairn_attach::{Disk, Front, Limits, Watch, run, ublk};
use cairn_base::local_socket;
use cairn_doctor::cli::print_message;
use cairn_initiator::multipath::{Multipath, PathEvent};
use cairn_initiator::{Event, Nqn};
use clap::{Args, ValueEnum};
use uuid::Uuid;

use super::Result;
use super::number::number;
use super::output::print;
use super::paths::Paths;
use super::session::{Found, Where, text};

/// Time for opening a block device.
const PATIENCE: Duration = Duration::from_secs(5);

const NO_DEVICE: &str = "a virtual machine has the disk at --socket, and no device here";

/// Driver of the block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Driver {
    /// Linux's ublk driver (ublk_drv), the faster one
    Ublk,
    /// Linux's NBD client (nbd), or others at --socket
    Nbd,
    /// A virtual machine of QEMU (vhost-user-blk), at --socket
    VhostUser,
}

impl Driver {
    /// Default: ublk where the kernel has it.
    fn or_default(driver: Option<Self>) -> Self {
        driver.unwrap_or(match ublk::is_available() {
            true => Self::Ublk,
            false => Self::Nbd,
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct Attach {
    /// Serve clients at this Unix socket, such as QEMU, instead of making a block device
    #[arg(long, value_name = "SOCKET", required_if_eq("driver", "vhost-user"))]
    socket: Option<PathBuf>,
    /// Driver of the disk [default: ublk if the kernel has it, else or with --socket nbd]
    #[arg(long = "as", value_enum, value_name = "DRIVER")]
    driver: Option<Driver>,
    /// Number of the block device, such as 0 for /dev/ublkb0 [default: an unused one]. A device left
    /// by a killed process is taken over
    #[arg(long, value_name = "N", conflicts_with = "socket", value_parser = number::<u32>)]
    device: Option<u32>,
    #[command(flatten)]
    paths: Paths,
    #[command(flatten)]
    place: Where,
}

/// Name of an attached namespace.
struct Name {
    nqn: Nqn,
    nsid: u32,
    limits: Limits,
    uuid: u128,
    /// Equal for each process that attaches the namespace.
    identifier: String,
}

/// Removes a block device, even if no process serves it any more.
#[derive(Debug, Args)]
pub(super) struct Detach {
    /// Number of the block device, such as 0 for /dev/ublkb0
    #[arg(long, value_name = "N", value_parser = number::<u32>)]
    device: u32,
    /// Driver of the block device [default: ublk if the kernel has it, else nbd]
    #[arg(long = "as", value_enum, value_name = "DRIVER")]
    driver: Option<Driver>,
    /// Permit the loss of data that a mounted file system has not written
    #[arg(long)]
    force: bool,
}

impl Detach {
    pub(super) fn run(&self) -> Result<()> {
        let (path, remove): (_, fn(u32) -> Result<()>) = match Driver::or_default(self.driver) {
            Driver::Ublk => (format!("/dev/ublkb{}", self.device), remove_ublk),
            Driver::Nbd => (format!("/dev/nbd{}", self.device), remove_nbd),
            Driver::VhostUser => return Err(NO_DEVICE.to_owned()),
        };
        if !self.force && !is_free(&path) {
            return Err(format!(
                "{path} is in use, or does not answer: unmount it, or lose its unwritten data by \
                 --force"
            ));
        }
        remove(self.device)
    }
}

fn remove_ublk(number: u32) -> Result<()> {
    let mut device = ublk::Device::open(Some(number), 0).map_err(text)?;
    device.stop().map_err(text)?;
    device.delete().map_err(text)
}

fn remove_nbd(number: u32) -> Result<()> {
    let mut device = nbd::Device::open(number).map_err(text)?;
    device.remove().map_err(text)
}

/// True if the device is mounted or otherwise held exclusively. Blocks until requests of the device
/// ended, because Linux reads the partition table at the first open.
fn is_held(path: &Path) -> bool {
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(libc::O_EXCL).open(path);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// Returns false for a device in use, or whose requests no process serves.
fn is_free(path: &str) -> bool {
    let path = PathBuf::from(path);
    let (answer, asked) = mpsc::channel();
    thread::spawn(move || answer.send(is_held(&path)));
    asked.recv_timeout(PATIENCE) == Ok(false)
}

impl Attach {
    pub(super) fn run(&self) -> Result<()> {
        let mut watch = Signals::register()?;
        match (&self.socket, self.driver) {
            (Some(path), None | Some(Driver::Nbd)) => {
                let nbd = |listener, _: &Name, _: &Disk<_>| Nbd::listening(listener).map_err(text);
                self.serve(path, &mut watch, nbd)
            }
            (Some(path), Some(Driver::VhostUser)) => {
                let guests = |listener, name: &Name, disk: &Disk<_>| {
                    VhostUser::listening(listener, name.serial(), disk).map_err(text)
                };
                self.serve(path, &mut watch, guests)
            }
            (Some(_), Some(Driver::Ublk)) => {
                Err("ublk has no clients: omit --socket, or --as ublk".to_owned())
            }
            (None, driver) => match Driver::or_default(driver) {
                Driver::Ublk => self.attach_ublk(&mut watch),
                Driver::Nbd => self.attach_nbd(&mut watch),
                Driver::VhostUser => Err(NO_DEVICE.to_owned()),
            },
        }
    }

    fn serve<F: Front>(
        &self,
        path: &Path,
        watch: &mut Signals,
        front: impl FnOnce(UnixListener, &Name, &Disk<F::Tag>) -> Result<F>,
    ) -> Result<()> {
        let (mut disk, name) = self.disk()?;
        let (listener, is_left) = listen(path)?;
        if is_left {
            // Clients of the killed process repeat their writes at this one.
            disk.paths().doubt_all_blocks();
        }
        let mut front = front(listener, &name, &disk)?;
        name.announce(path);
        let ended = run(&mut front, &mut disk, watch).map_err(text);
        let removed = fs::remove_file(path);
        ended?;
        removed.map_err(|error| format!("{}: {error}", path.display()))?;
        disk.close().map_err(text)
    }

    fn attach_nbd(&self, watch: &mut Signals) -> Result<()> {
        let (mut disk, name) = self.disk()?;
        let mut nbd = Nbd::default();
        let identifier = &name.identifier;
        let left = self
            .device
            .filter(|&n| nbd::Device::is_waiting(n, identifier));
        let (mut device, socket) = match left {
            Some(number) => {
                disk.paths().doubt_all_blocks();
                nbd::Device::take_over(number, identifier)
            }
            None => {
                let patience = self.place.address.patience_s();
                nbd::Device::create(self.device, &disk.limits(), identifier, patience)
            }
        }
        .map_err(text)?;
        nbd.connect(socket, &disk).map_err(text)?;
        name.announce(&device.path());
        run(&mut nbd, &mut disk, watch).map_err(text)?;
        if !nbd.is_over() {
            let end = move || match stays(&device.path()) {
                true => Ok(()),
                false => device.remove(),
            };
            beside(&mut nbd, &mut disk, end)?.map_err(text)?;
        }
        disk.close().map_err(text)
    }

    fn attach_ublk(&self, watch: &mut Signals) -> Result<()> {
        let (mut disk, name) = self.disk()?;
        let mark = Uuid::new_v5(&Uuid::NAMESPACE_URL, name.identifier.as_bytes());
        let mut device = ublk::Device::open(self.device, mark.as_u64_pair().0).map_err(text)?;
        if device.is_left() {
            disk.paths().doubt_all_blocks();
        }
        let mut queue = device.queue(&disk).map_err(text)?;
        let (mut device, started) = beside(&mut queue, &mut disk, move || {
            let started = device.start();
            (device, started)
        })?;
        started.map_err(text)?;
        name.announce(&device.path());
        run(&mut queue, &mut disk, watch).map_err(text)?;
        if queue.is_over() {
            return disk.close().map_err(text);
        }
        let stopped = beside(&mut queue, &mut disk, move || match stays(&device.path()) {
            true => Ok(None),
            false => device.stop().map(|()| Some(device)),
        })?;
        drop(queue);
        if let Some(mut device) = stopped.map_err(text)? {
            device.delete().map_err(text)?;
        }
        disk.close().map_err(text)
    }

    /// Connects all paths to the selected namespace.
    fn disk<T: Copy>(&self) -> Result<(Disk<T>, Name)> {
        let Found {
            session,
            subsystem: nqn,
            namespace: found,
            ..
        } = self.place.find()?;
        let options = session.options(nqn)?;
        let paths = self.paths.with(&self.place.address, options)?;
        let provider = session.provided.provider();
        let options = self.paths.options(found.nsid);
        let paths = Multipath::connect(&**provider, paths, options).map_err(text)?;
        let uuid = paths
            .namespace()
            .map(|one| u128::from_be_bytes(one.identity.uuid));
        let uuid = uuid.unwrap_or(0);
        let identifier = format!("{nqn} {} {uuid:032x}", found.nsid);
        let is_protected = found.identity.nsattr & 1 != 0;
        let disk = Disk::new(paths, is_protected).map_err(text)?;
        let name = Name {
            nqn,
            nsid: found.nsid,
            limits: disk.limits(),
            uuid,
            identifier,
        };
        Ok((disk, name))
    }
}

/// Creates the socket. The second result is true if a killed process left the file of a socket.
///
/// # Errors
/// Another process serves the socket, or the path leads to another kind of file, which stays.
fn listen(path: &Path) -> Result<(UnixListener, bool)> {
    let shown = path.display();
    let is_left = match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(format!(
                "{shown} exists and is not a socket: name another path"
            ));
        }
        Ok(_) => true,
        Err(_) => false,
    };
    if UnixStream::connect(path).is_ok() {
        return Err(format!("{shown}: another process serves this socket"));
    }
    let listener = local_socket::listen(path, None, 0o600);
    let listener = listener.map_err(|error| format!("{shown}: {error}"))?;
    Ok((listener, is_left))
}

impl Name {
    fn serial(&self) -> Serial {
        let uuid = match self.uuid {
            0 => Uuid::new_v5(&Uuid::NAMESPACE_URL, self.identifier.as_bytes()).as_u128(),
            uuid => uuid,
        };
        let digits = format!("{uuid:032x}");
        let serial = digits.as_bytes().first_chunk();
        *serial.expect("a UUID has 32 digits")
    }

    fn announce(&self, place: &Path) {
        print(&format!(
            "{}: namespace {} of {}, {} bytes in blocks of {}",
            place.display(),
            self.nsid,
            self.nqn,
            self.limits.bytes,
            self.limits.block_bytes
        ));
        let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    }
}

/// True, with a message, if the device of this ending process is in use and therefore stays.
fn stays(path: &Path) -> bool {
    let is_held = is_held(path);
    if is_held {
        print_message(format_args!(
            "{} is in use: it stays, and its I/O waits for the next attach with --device",
            path.display()
        ));
    }
    is_held
}

/// Runs work that may block until requests ended, while the front end serves requests.
fn beside<F: Front, T: Send + 'static>(
    front: &mut F,
    disk: &mut Disk<F::Tag>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (mut watch, stopper) = Signals::new()?;
    let worker = thread::spawn(move || {
        let result = work();
        stopper.stop();
        result
    });
    run(front, disk, &mut watch).map_err(text)?;
    Ok(worker.join().expect("the work does not panic"))
}

/// SIGINT and SIGTERM, and messages about paths.
struct Signals {
    is_stopped: Arc<AtomicBool>,
    wake: UnixStream,
    /// Time until which failures are not printed.
    quiet_until: Option<Instant>,
    has_lost_path: bool,
}

/// Ends the loop of a [`Signals`].
struct Stopper {
    is_stopped: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Stopper {
    fn stop(mut self) {
        self.is_stopped.store(true, Ordering::Release);
        let _ = self.wake.write(&[0]);
    }
}

impl Signals {
    fn new() -> Result<(Self, Stopper)> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (wake, stopper) = UnixStream::pair().map_err(|error| failed(&error))?;
        let stopper = Stopper {
            is_stopped: Arc::clone(&is_stopped),
            wake: stopper,
        };
        let signals = Self {
            is_stopped,
            wake,
            quiet_until: None,
            has_lost_path: false,
        };
        Ok((signals, stopper))
    }

    fn register() -> Result<Self> {
        let (signals, stopper) = Self::new()?;
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            let is_stopped = Arc::clone(&stopper.is_stopped);
            signal_hook::flag::register(signal, is_stopped).map_err(|error| failed(&error))?;
            let wake = stopper.wake.try_clone().map_err(|error| failed(&error))?;
            signal_hook::low_level::pipe::register(signal, wake).map_err(|error| failed(&error))?;
        }
        Ok(signals)
    }
}

fn failed(error: &std::io::Error) -> String {
    format!("signals: {error}")
}

impl Watch for Signals {
    fn command_failed(&mut self, failure: &str) {
        let now = Instant::now();
        if self.quiet_until.is_none_or(|until| until <= now) {
            self.quiet_until = Some(now + Duration::from_secs(1));
            print_message(failure);
        }
    }

    fn path_event(&mut self, path: usize, event: PathEvent) {
        match event {
            PathEvent::Controller(Event::Lost(error)) => {
                self.has_lost_path = true;
                print_message(format_args!("path {path}: lost: {error}"));
            }
            PathEvent::Controller(Event::Live { .. }) if self.has_lost_path => {
                print_message(format_args!("path {path}: connected again"));
            }
            PathEvent::Controller(Event::Gone(Some(error))) => {
                print_message(format_args!("path {path}: given up: {error}"));
            }
            PathEvent::Refused(why) => print_message(format_args!("path {path}: refused: {why}")),
            _ => {}
        }
    }

    fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    fn stop_fd(&self) -> RawFd {
        self.wake.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_the_socket_of_an_ended_process_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        fs::write(&precious, "data").unwrap();
        let refused = listen(&precious).unwrap_err();
        assert!(refused.contains("is not a socket"), "{refused}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "data");

        let path = folder.path().join("disk.sock");
        let (served, is_left) = listen(&path).unwrap();
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!((is_left, mode & 0o777), (false, 0o600));
        let refused = listen(&path).unwrap_err();
        assert!(refused.contains("another process serves"), "{refused}");
        drop(served);
        let (_listener, is_left) = listen(&path).unwrap();
        assert!(is_left);
        UnixStream::connect(&path).unwrap();
    }
}
