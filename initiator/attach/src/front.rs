//! Loop that connects a front end with a disk.

use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use cairn_base::wake::{pollfd, readable};
use cairn_initiator::multipath::{Link, PathEvent};

use crate::disk::Disk;
use crate::error::Error;
use crate::request::Done;

/// Time without work after which the thread sleeps.
const SPIN: Duration = Duration::from_micros(20);
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// Source of requests, such as an NBD server.
pub trait Front {
    /// Identifies a request.
    type Tag: Copy;

    /// Starts the waiting requests. Returns true if there was work.
    fn poll(&mut self, disk: &mut Disk<Self::Tag>) -> Result<bool, Error>;

    /// Takes an ended request.
    fn done(&mut self, done: Done<Self::Tag>);

    /// Appends the events that [`Self::poll`] waits for (poll(2)).
    fn waits_for(&mut self, fds: &mut Vec<pollfd>);

    /// True if no request can follow.
    fn is_over(&self) -> bool;

    /// Takes the description of an error.
    fn take_failure(&mut self) -> Option<String> {
        None
    }
}

/// Observer of an attached disk.
pub trait Watch {
    /// Called with a description of a failed command, or an error of the front end.
    fn command_failed(&mut self, failure: &str);

    /// Called with the index of a path and its event.
    fn path_event(&mut self, path: usize, event: PathEvent);

    /// True if the disk is to be detached.
    fn is_stopped(&self) -> bool;

    /// Descriptor that is readable once [`Self::is_stopped`] is true.
    fn stop_fd(&self) -> RawFd;
}

/// Executes requests until `watch` stops the loop, which may leave requests under way, or until the
/// front end is over.
///
/// # Errors
/// No path will return, or the front end fails.
pub fn run<F: Front>(
    front: &mut F,
    disk: &mut Disk<F::Tag>,
    watch: &mut dyn Watch,
) -> Result<(), Error> {
    let mut fds = Vec::new();
    let mut idle_since = Instant::now();
    while !watch.is_stopped() && !front.is_over() {
        let now = Instant::now();
        let mut progress = front.poll(disk)?;
        progress |= disk.poll(now);
        while let Some(done) = disk.take() {
            front.done(done);
            progress = true;
        }
        if let Some(failure) = front.take_failure().or_else(|| disk.take_failure()) {
            watch.command_failed(&failure);
        }
        while let Some((path, event)) = disk.paths().take_event() {
            watch.path_event(path, event);
        }
        if progress {
            idle_since = now;
            continue;
        }
        if now - idle_since < SPIN {
            std::hint::spin_loop();
            continue;
        }
        if disk.paths().paths().all(|path| path.link == Link::Lost) {
            return Err(Error::Unsupported(
                "every path to the namespace is lost".to_owned(),
            ));
        }
        fds.clear();
        fds.push(readable(watch.stop_fd()));
        front.waits_for(&mut fds);
        disk.paths().sleep_beside(&fds, now + SLEEP_MAX)?;
    }
    Ok(())
}
