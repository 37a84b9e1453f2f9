//! Front ends at a Unix socket.

use std::io::{self, ErrorKind};
use std::mem::{swap, take};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cairn_base::wake::{poll, pollfd, readable};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::ioctl_fionread;
use rustix::net::{RecvFlags, recv};
use vhost::vhost_user::BackendReqHandler;

use super::chain::Chain;
use super::config::{REQUEST_BYTES_MAX, Serial};
use super::device::Device;
use super::queue::{Pool, Queue, Tag};
use super::ring::Ring;
use crate::disk::Disk;
use crate::error::Error;
use crate::front::Front;
use crate::request::{Done, Limits};

const PIECES: usize = 128;
const ROUNDS: u32 = 64;
const HEADER_BYTES: usize = 12;

/// Server of vhost-user-blk, for one front end.
pub struct VhostUser {
    listener: UnixListener,
    limits: Limits,
    serial: Serial,
    connection: Option<Connection>,
    pool: Pool,
    failure: Option<String>,
    awake: OwnedFd,
    has_slept: bool,
    rounds: u32,
}

struct Connection {
    socket: UnixStream,
    messages: BackendReqHandler<Mutex<Device>>,
    /// Holds the device while a message is handled.
    lent: Arc<Mutex<Device>>,
    device: Device,
    /// True while a message waits for the requests under way, and no other begins.
    has_message: bool,
    /// Its requests must end before the next guest changes the disk.
    is_over: bool,
}

impl VhostUser {
    /// Serves front ends at a bound socket.
    pub fn listening(
        listener: UnixListener,
        serial: Serial,
        disk: &Disk<Tag>,
    ) -> Result<Self, Error> {
        let limits = disk.limits();
        let set = listener.set_nonblocking(true);
        set.map_err(|error| Error::os("making a socket non-blocking", error))?;
        let awake = eventfd(1, EventfdFlags::CLOEXEC);
        Ok(Self {
            listener,
            limits,
            serial,
            connection: None,
            pool: Pool {
                spare: disk.memory(PIECES.max(limits.pieces(REQUEST_BYTES_MAX)))?,
                under_way: 0,
                chain: Chain::default(),
            },
            failure: None,
            awake: awake.map_err(|error| Error::os("eventfd", error))?,
            has_slept: true,
            rounds: 0,
        })
    }

    fn converse(&mut self, disk: &mut Disk<Tag>) -> bool {
        let mut progress = false;
        if let Some(connection) = &mut self.connection {
            while let Some(end) = connection.next_message(self.pool.under_way) {
                progress = true;
                if let Err(Some(why)) = end {
                    let why = || format!("the front end was disconnected: {why}");
                    self.failure.get_or_insert_with(why);
                }
                if take(&mut connection.device.has_left) {
                    // The target may still execute their first commands.
                    disk.paths().doubt_all_blocks();
                }
            }
            if connection.is_over && self.pool.under_way == 0 {
                self.connection = None;
                progress = true;
            }
        }
        progress | self.accept()
    }

    fn accept(&mut self) -> bool {
        let Ok((socket, _)) = self.listener.accept() else {
            return false;
        };
        match &self.connection {
            Some(first) if !first.is_over => {
                let why = || "a second front end was refused".to_owned();
                self.failure.get_or_insert_with(why);
            }
            Some(_) => {}
            None => self.connection = Connection::new(socket, self.limits, self.serial).ok(),
        }
        true
    }

    fn serve(&mut self, disk: &mut Disk<Tag>, has_slept: bool) -> bool {
        let connection = self.connection.as_mut().filter(|one| !one.is_over);
        let Some(connection) = connection else {
            return false;
        };
        let mut progress = false;
        for index in 0..connection.device.rings.len() {
            let Some(mut queue) = Queue::of(&mut connection.device, index) else {
                break;
            };
            queue.ring.announce(queue.memory);
            let cleared = match has_slept {
                true => queue.ring.clear_kicks(),
                false => Ok(()),
            };
            let taken = cleared.and_then(|()| match connection.has_message {
                true => Ok(false),
                false => queue.ring.take(queue.memory, queue.region),
            });
            let begun = taken.and_then(|_| queue.begin(&mut self.pool, disk));
            progress |= queue.checked(begun, &mut self.failure).unwrap_or(true);
        }
        progress
    }
}

impl Connection {
    fn new(socket: UnixStream, limits: Limits, serial: Serial) -> io::Result<Self> {
        let lent = Arc::new(Mutex::new(Device::new(limits, serial)));
        Ok(Self {
            messages: BackendReqHandler::from_stream(socket.try_clone()?, Arc::clone(&lent)),
            socket,
            lent,
            device: Device::new(limits, serial),
            has_message: false,
            is_over: false,
        })
    }

    /// The error of a front end that left is `None`.
    fn next_message(&mut self, under_way: usize) -> Option<Result<(), Option<String>>> {
        let is_idle = under_way == 0 && !self.device.rings.iter().any(Ring::has_waiting);
        if self.is_over || (self.has_message && !is_idle) {
            return None;
        }
        let handled = match self.arrived() {
            Ok(false) => {
                self.has_message = false;
                return None;
            }
            Ok(true) if !is_idle => {
                self.has_message = true;
                return None;
            }
            Ok(true) => self.handle(),
            Err(why) => Err(why),
        };
        self.has_message = false;
        if handled.is_err() {
            self.is_over = true;
            let _ = self.socket.shutdown(Shutdown::Both);
        }
        Some(handled)
    }

    /// Checks for a whole message and room to answer, without which [`BackendReqHandler`] blocks.
    fn arrived(&self) -> Result<bool, Option<String>> {
        let mut header = [0; HEADER_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let bytes = match recv(&self.socket, &mut header, flags).map_err(io::Error::from) {
            Ok((0, _)) => return Err(None),
            Ok((bytes, _)) => bytes,
            Err(error) => {
                return match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(false),
                    _ => Err(None),
                };
            }
        };
        let size = u32::from_le_bytes(*header.last_chunk().expect("four bytes"));
        let whole = HEADER_BYTES as u64 + u64::from(size);
        let arrived = ioctl_fionread(&self.socket).unwrap_or(0);
        if bytes < HEADER_BYTES || arrived < whole {
            return Err(Some("it sent part of a message".to_owned()));
        }
        let mut writable = readable(self.socket.as_raw_fd());
        writable.events = libc::POLLOUT;
        let mut writable = [writable];
        if !poll(&mut writable, Some(Duration::ZERO)) || writable[0].revents & libc::POLLOUT == 0 {
            return Err(Some("it does not read its answers".to_owned()));
        }
        Ok(true)
    }

    fn handle(&mut self) -> Result<(), Option<String>> {
        let lent = || self.lent.lock().expect("no other thread uses the device");
        swap(&mut *lent(), &mut self.device);
        let handled = self.messages.handle_request();
        swap(&mut *lent(), &mut self.device);
        handled.map_err(|error| Some(error.to_string()))
    }
}

impl Front for VhostUser {
    type Tag = Tag;

    fn poll(&mut self, disk: &mut Disk<Tag>) -> Result<bool, Error> {
        let has_slept = take(&mut self.has_slept);
        self.rounds = self.rounds.wrapping_add(1);
        let waits = |connection: &Connection| connection.has_message || connection.is_over;
        let mut progress = false;
        if has_slept
            || self.rounds.is_multiple_of(ROUNDS)
            || self.connection.as_ref().is_some_and(waits)
        {
            progress |= self.converse(disk);
        }
        Ok(progress | self.serve(disk, has_slept))
    }

    fn done(&mut self, done: Done<Tag>) {
        self.pool.under_way -= 1;
        let connection = self.connection.as_mut().filter(|one| !one.is_over);
        if let Some(connection) = connection {
            let index = done.tag.ring;
            if let Some(mut queue) = Queue::of(&mut connection.device, index) {
                let answered = queue.done(&done);
                queue.checked(answered, &mut self.failure);
            }
        }
        self.pool.spare.extend(done.memory);
    }

    fn waits_for(&mut self, fds: &mut Vec<pollfd>) {
        self.has_slept = true;
        fds.push(readable(self.listener.as_raw_fd()));
        let connection = self.connection.as_mut().filter(|one| !one.is_over);
        let Some(connection) = connection else {
            return;
        };
        if connection.has_message {
            return;
        }
        fds.push(readable(connection.socket.as_raw_fd()));
        let device = &mut connection.device;
        let Some(memory) = &device.memory else {
            return;
        };
        for ring in &mut device.rings {
            if !ring.waits_for(memory, fds) {
                fds.push(readable(self.awake.as_raw_fd()));
            }
        }
    }

    fn is_over(&self) -> bool {
        false
    }

    fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }
}
