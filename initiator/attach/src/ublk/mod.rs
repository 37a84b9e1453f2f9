//! Block device of Linux's ublk driver (Documentation/block/ublk.rst).
//!
//! Linux keeps the device of a killed process, and sends its unanswered requests again to the
//! process that takes the device over.

mod control;
mod queue;

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::disk::Disk;
use crate::error::Error;

use control::Control;
pub use queue::Queue;

/// Requests of a device under way.
const DEPTH: u16 = 128;
/// Time in which Linux notices that the process of a device ended.
const NOTICE: Duration = Duration::from_secs(10);

/// Block device `/dev/ublkbN`, with one queue.
pub struct Device {
    control: Control,
    mark: u64,
    is_left: bool,
}

impl Device {
    /// Opens device `number`, or prepares a new one. `mark` identifies the namespace, so that no
    /// process takes over another namespace's device.
    ///
    /// # Errors
    /// The kernel lacks ublk, or the process lacks CAP_SYS_ADMIN.
    pub fn open(number: Option<u32>, mark: u64) -> Result<Self, Error> {
        let mut control = Control::open(number)?;
        Ok(Self {
            is_left: number.is_some() && control.is_left(mark),
            control,
            mark,
        })
    }

    /// True if a killed process left the device.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.is_left
    }

    /// Makes the device's queue, for [`run`](crate::run).
    ///
    /// # Errors
    /// The device exists with another mark, or its process still runs.
    pub fn queue(&mut self, disk: &Disk<u16>) -> Result<Queue, Error> {
        if !self.is_left {
            self.control.add(DEPTH, &disk.limits(), self.mark)?;
            let opened = Queue::open(self.control.number, DEPTH, disk);
            return opened.inspect_err(|_| {
                let _ = self.control.delete();
            });
        }
        let (depth, bytes) = self.control.depth()?;
        if bytes > disk.limits().piece_bytes {
            return Err(Error::Unsupported(format!(
                "ublk device {} transfers {bytes} bytes in a request, and the controller {} now: \
                 remove the device by cairn-initiator detach --device {0}",
                self.control.number,
                disk.limits().piece_bytes
            )));
        }
        let deadline = Instant::now() + NOTICE;
        while !self.control.is_quiesced() && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
        }
        self.control.begin_recovery()?;
        Queue::open(self.control.number, depth, disk)
    }

    /// Makes the block device usable. Blocks while its queue serves requests.
    pub fn start(&mut self) -> Result<(), Error> {
        match self.is_left {
            true => self.control.end_recovery(),
            false => self.control.start(),
        }
    }

    /// Removes the block device. Blocks while its queue serves the last requests, if a process
    /// serves it.
    pub fn stop(&mut self) -> Result<(), Error> {
        self.control.stop()
    }

    /// Removes the device after [`Self::stop`] and the end of its queue.
    pub fn delete(&mut self) -> Result<(), Error> {
        self.control.delete()
    }

    /// Path of the block device.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        format!("/dev/ublkb{}", self.control.number).into()
    }
}

/// True if the running kernel has ublk.
#[must_use]
pub fn is_available() -> bool {
    std::path::Path::new(control::CONTROL).exists()
}
