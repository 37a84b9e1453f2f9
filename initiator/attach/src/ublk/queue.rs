//! Queue of a ublk device: requests of the block device, by tag.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use cairn_base::wake::{pollfd, readable};
use cairn_initiator::Buffer;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use zerocopy::{Immutable, IntoBytes};

use super::control::{SECTOR_SHIFT, read_write};
use crate::disk::Disk;
use crate::error::Error;
use crate::front::Front;
use crate::request::{Done, Errno, Operation, Request};

const FETCH_REQ: u32 = read_write::<IoCommand>(0x20);
const COMMIT_AND_FETCH_REQ: u32 = read_write::<IoCommand>(0x21);

const OP_READ: u8 = 0;
const OP_WRITE: u8 = 1;
const OP_FLUSH: u8 = 2;
const OP_DISCARD: u8 = 3;
const OP_WRITE_ZEROES: u8 = 5;
const FLAG_FUA: u32 = 1 << 13;
const FLAG_NOUNMAP: u32 = 1 << 15;

/// `struct ublksrv_io_desc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Descriptor {
    op_flags: u32,
    sectors: u32,
    start_sector: u64,
    addr: u64,
}

/// `struct ublksrv_io_cmd`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct IoCommand {
    q_id: u16,
    tag: u16,
    result: i32,
    addr: u64,
}

/// Descriptors of all tags, written by the kernel.
#[derive(Debug)]
struct Descriptors {
    start: NonNull<Descriptor>,
    bytes: usize,
    depth: u16,
}

impl Descriptors {
    fn map(file: &File, depth: u16) -> io::Result<Self> {
        let bytes = usize::from(depth) * size_of::<Descriptor>();
        // SAFETY: the kernel chooses the address of a new mapping of an open file.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast()).expect("mmap returns an address"),
            bytes,
            depth,
        })
    }

    /// Copies a descriptor, whose request the kernel has passed to this process.
    fn get(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth);
        // SAFETY: the tag is inside of the mapping, and the kernel does not write the descriptor
        // of a request that this process has.
        unsafe { self.start.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping exists.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Queue with memory for each tag.
///
/// The kernel copies the data of a write into the tag's memory before it passes the request, and
/// the data of a read out of it when the request is committed. The memory is registered for RDMA,
/// so the data is not copied again.
pub struct Queue {
    ring: IoUring,
    descriptors: Descriptors,
    file: File,
    memory: Vec<Vec<Buffer>>,
    /// Number of tags that the kernel has not taken back.
    served: usize,
}

impl Queue {
    /// Opens the queue of device `number` and passes all tags to the kernel.
    pub(super) fn open(number: u32, depth: u16, disk: &Disk<u16>) -> Result<Self, Error> {
        let path = format!("/dev/ublkc{number}");
        let file = OpenOptions::new().read(true).write(true).open(&path);
        let file = file.map_err(|error| Error::os(&path, error))?;
        let descriptors = Descriptors::map(&file, depth);
        let ring = IoUring::builder().build(depth.into());
        let mut memory = Vec::new();
        for _ in 0..depth {
            memory.push(disk.memory(1)?);
        }
        let mut queue = Self {
            ring: ring.map_err(|error| Error::os("io_uring for ublk", error))?,
            descriptors: descriptors.map_err(|error| Error::os(&path, error))?,
            file,
            memory,
            served: depth.into(),
        };
        for tag in 0..depth {
            queue.push(FETCH_REQ, tag, 0);
        }
        queue.submit()?;
        Ok(queue)
    }

    fn push(&mut self, operation: u32, tag: u16, result: i32) {
        let memory = self.memory[usize::from(tag)].first();
        let command = IoCommand {
            q_id: 0,
            tag,
            result,
            addr: memory.map_or(0, |buffer| buffer.region().mapping().addr()),
        };
        let mut bytes = [0; size_of::<IoCommand>()];
        bytes.copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd16::new(Fd(self.file.as_raw_fd()), operation)
            .cmd(bytes)
            .build()
            .user_data(tag.into());
        // SAFETY: the file is open, and the tag's memory belongs to the queue until the kernel
        // passes the tag's next request.
        unsafe { self.ring.submission().push(&entry) }.expect("the ring has an entry for each tag");
    }

    fn submit(&mut self) -> Result<(), Error> {
        match self.ring.submit() {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                Err(Error::os("submitting to ublk", error))
            }
            _ => Ok(()),
        }
    }
}

impl Descriptor {
    /// Returns `None` for an operation that the device does not announce.
    fn operation(&self) -> Option<Operation> {
        let fua = self.op_flags & FLAG_FUA != 0;
        Some(match self.op_flags as u8 {
            OP_READ => Operation::Read,
            OP_WRITE => Operation::Write { fua },
            OP_FLUSH => Operation::Flush,
            OP_DISCARD => Operation::Discard,
            OP_WRITE_ZEROES => Operation::Zero {
                unmap: self.op_flags & FLAG_NOUNMAP == 0,
                fua,
            },
            _ => return None,
        })
    }
}

impl Front for Queue {
    type Tag = u16;

    fn poll(&mut self, disk: &mut Disk<u16>) -> Result<bool, Error> {
        if !self.ring.submission().is_empty() {
            self.submit()?;
        }
        let mut progress = false;
        loop {
            let completion = self.ring.completion().next();
            let Some(completion) = completion else {
                return Ok(progress);
            };
            progress = true;
            let tag = completion.user_data() as u16;
            match completion.result() {
                0.. => {}
                // The block device is being removed.
                code if code == -libc::ENODEV => {
                    self.served -= 1;
                    continue;
                }
                code => {
                    let source = io::Error::from_raw_os_error(-code);
                    return Err(Error::os(format!("ublk refused tag {tag}"), source));
                }
            }
            let descriptor = self.descriptors.get(tag);
            let memory = std::mem::take(&mut self.memory[usize::from(tag)]);
            match descriptor.operation() {
                Some(operation) => disk.begin(Request {
                    tag,
                    operation,
                    offset: descriptor.start_sector << SECTOR_SHIFT,
                    bytes: u64::from(descriptor.sectors) << SECTOR_SHIFT,
                    memory,
                }),
                None => self.done(Done {
                    tag,
                    bytes: 0,
                    result: Err(Errno(libc::EOPNOTSUPP)),
                    memory,
                }),
            }
        }
    }

    fn done(&mut self, done: Done<u16>) {
        let result = match done.result {
            Ok(()) => done.bytes as i32,
            Err(Errno(code)) => -code,
        };
        self.memory[usize::from(done.tag)] = done.memory;
        self.push(COMMIT_AND_FETCH_REQ, done.tag, result);
    }

    fn waits_for(&mut self, fds: &mut Vec<pollfd>) {
        fds.push(readable(self.ring.as_raw_fd()));
    }

    fn is_over(&self) -> bool {
        self.served == 0
    }
}
