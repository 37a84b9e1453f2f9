//! Control commands of ublk (linux/ublk_cmd.h), at `/dev/ublk-control`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::process;

use io_uring::squeue::Entry128;
use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::error::Error;
use crate::request::Limits;

pub(super) const CONTROL: &str = "/dev/ublk-control";

const fn code(direction: u32, number: u32, bytes: usize) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

/// Number of an ioctl that reads and writes (_IOWR).
pub(super) const fn read_write<T>(number: u32) -> u32 {
    code(3, number, size_of::<T>())
}

const fn read<T>(number: u32) -> u32 {
    code(2, number, size_of::<T>())
}

const GET_DEV_INFO: u32 = read::<Command>(0x02);
const ADD_DEV: u32 = read_write::<Command>(0x04);
const DEL_DEV: u32 = read_write::<Command>(0x05);
const START_DEV: u32 = read_write::<Command>(0x06);
const STOP_DEV: u32 = read_write::<Command>(0x07);
const SET_PARAMS: u32 = read_write::<Command>(0x08);
const START_USER_RECOVERY: u32 = read_write::<Command>(0x10);
const END_USER_RECOVERY: u32 = read_write::<Command>(0x11);

/// The device outlives its process, and Linux sends its requests again to the next one.
const RECOVERY: u64 = 1 << 3 | 1 << 4;
/// Control codes are ioctl numbers.
const IOCTL_ENCODE: u64 = 1 << 6;

const STATE_QUIESCED: u16 = 2;
const ANY: u32 = u32::MAX;
const NO_QUEUE: u16 = u16::MAX;

const ATTRIBUTE_READ_ONLY: u32 = 1;
const ATTRIBUTE_CACHE_AND_FUA: u32 = 1 << 2 | 1 << 3;
const TYPE_BASIC: u32 = 1;
const TYPE_DISCARD: u32 = 1 << 1;
/// Maximum sectors of a discard or Write Zeroes: 1 GiB.
const CHANGE_SECTORS_MAX: u32 = 1 << 21;
pub(super) const SECTOR_SHIFT: u32 = 9;

/// `struct ublksrv_ctrl_cmd`.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Command {
    dev_id: u32,
    queue_id: u16,
    len: u16,
    addr: u64,
    data: u64,
    dev_path_len: u16,
    pad: u16,
    reserved: u32,
}

/// `struct ublksrv_ctrl_dev_info`.
#[derive(Debug, Clone, IntoBytes, FromBytes, Immutable)]
#[repr(C)]
struct Info {
    nr_hw_queues: u16,
    queue_depth: u16,
    state: u16,
    pad0: u16,
    max_io_buf_bytes: u32,
    dev_id: u32,
    ublksrv_pid: i32,
    pad1: u32,
    flags: u64,
    /// Not used by the kernel.
    ublksrv_flags: u64,
    owner_uid: u32,
    owner_gid: u32,
    reserved: [u64; 2],
}

/// `struct ublk_params` with its parts for all disks and for discards.
#[derive(IntoBytes, Immutable)]
#[repr(C)]
struct Parameters {
    len: u32,
    types: u32,
    attrs: u32,
    logical_bs_shift: u8,
    physical_bs_shift: u8,
    io_opt_shift: u8,
    io_min_shift: u8,
    max_sectors: u32,
    chunk_sectors: u32,
    dev_sectors: u64,
    virt_boundary_mask: u64,
    discard_alignment: u32,
    discard_granularity: u32,
    max_discard_sectors: u32,
    max_write_zeroes_sectors: u32,
    max_discard_segments: u16,
    reserved0: u16,
    padding: u32,
}

impl Parameters {
    fn of(limits: &Limits) -> Self {
        let shift = limits.block_bytes.trailing_zeros() as u8;
        let read_only = if limits.read_only {
            ATTRIBUTE_READ_ONLY
        } else {
            0
        };
        let most = |is_supported: bool| if is_supported { CHANGE_SECTORS_MAX } else { 0 };
        let types = match limits.discards || limits.zeroes {
            true => TYPE_BASIC | TYPE_DISCARD,
            false => TYPE_BASIC,
        };
        Self {
            len: size_of::<Self>() as u32,
            types,
            attrs: ATTRIBUTE_CACHE_AND_FUA | read_only,
            logical_bs_shift: shift,
            physical_bs_shift: shift,
            io_opt_shift: shift.max(12),
            io_min_shift: shift,
            max_sectors: limits.piece_bytes >> SECTOR_SHIFT,
            chunk_sectors: 0,
            dev_sectors: limits.bytes >> SECTOR_SHIFT,
            virt_boundary_mask: 0,
            discard_alignment: 0,
            discard_granularity: if limits.discards {
                limits.block_bytes
            } else {
                0
            },
            max_discard_sectors: most(limits.discards),
            max_write_zeroes_sectors: most(limits.zeroes),
            max_discard_segments: 1,
            reserved0: 0,
            padding: 0,
        }
    }
}

/// Connection to `/dev/ublk-control`, for one device.
pub(super) struct Control {
    file: File,
    ring: IoUring<Entry128, cqueue::Entry>,
    pub(super) number: u32,
}

impl Control {
    /// Opens the control file for device `number`.
    pub(super) fn open(number: Option<u32>) -> Result<Self, Error> {
        let file = OpenOptions::new().read(true).write(true).open(CONTROL);
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Unsupported(format!(
                "{CONTROL} does not exist: modprobe ublk_drv (Linux 6.3 or newer), or attach by \
                 --as nbd"
            )),
            _ => Error::os(CONTROL, error),
        })?;
        let ring = IoUring::builder().build(4);
        Ok(Self {
            file,
            ring: ring.map_err(|error| Error::os("io_uring for ublk", error))?,
            number: number.unwrap_or(ANY),
        })
    }

    fn call(&mut self, operation: u32, buffer: (*mut u8, usize), data: u64) -> io::Result<()> {
        let command = Command {
            dev_id: self.number,
            queue_id: NO_QUEUE,
            len: buffer.1 as u16,
            addr: buffer.0 as u64,
            data,
            dev_path_len: 0,
            pad: 0,
            reserved: 0,
        };
        let mut bytes = [0; 80];
        bytes[..size_of::<Command>()].copy_from_slice(command.as_bytes());
        let fd = Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd80::new(fd, operation).cmd(bytes).build();
        // SAFETY: the file is open, and `buffer` stays valid until the completion below.
        unsafe { self.ring.submission().push(&entry) }.expect("the ring is empty");
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => {
                    result?;
                }
            }
            if let Some(completion) = self.ring.completion().next() {
                return match completion.result() {
                    code @ ..0 => Err(io::Error::from_raw_os_error(-code)),
                    _ => Ok(()),
                };
            }
        }
    }

    fn info(&mut self) -> io::Result<Info> {
        let mut info = Info::new_zeroed();
        let bytes = info.as_mut_bytes();
        let buffer = (bytes.as_mut_ptr(), bytes.len());
        self.call(GET_DEV_INFO, buffer, 0)?;
        Ok(info)
    }

    /// Adds the device, with one queue. `mark` can be read by [`Self::is_left`].
    pub(super) fn add(&mut self, depth: u16, limits: &Limits, mark: u64) -> Result<(), Error> {
        let mut info = Info {
            nr_hw_queues: 1,
            queue_depth: depth,
            max_io_buf_bytes: limits.piece_bytes,
            dev_id: self.number,
            flags: RECOVERY | IOCTL_ENCODE,
            ublksrv_flags: mark,
            ..Info::new_zeroed()
        };
        let bytes = info.as_mut_bytes();
        let added = self.call(ADD_DEV, (bytes.as_mut_ptr(), bytes.len()), 0);
        added.map_err(|error| {
            let what = match (self.number, error.raw_os_error()) {
                (ANY, _) => "adding a ublk device".to_owned(),
                (number, Some(libc::EEXIST)) => format!(
                    "ublk device {number} exists: choose another --device, or remove it by \
                     cairn-initiator detach --device {number}"
                ),
                (number, _) => format!("adding ublk device {number}"),
            };
            Error::os(what, error)
        })?;
        self.number = info.dev_id;
        let mut parameters = Parameters::of(limits);
        let bytes = (
            std::ptr::from_mut(&mut parameters).cast(),
            size_of::<Parameters>(),
        );
        let set = self.call(SET_PARAMS, bytes, 0);
        set.map_err(|error| self.failed("setting the limits of", error))
    }

    /// Makes the block device. Blocks until the queue is served, and meanwhile sends requests.
    pub(super) fn start(&mut self) -> Result<(), Error> {
        let started = self.call(START_DEV, NOTHING, process::id().into());
        started.map_err(|error| self.failed("starting", error))
    }

    /// True if a killed process left the device with this mark.
    pub(super) fn is_left(&mut self, mark: u64) -> bool {
        self.info().is_ok_and(|info| info.ublksrv_flags == mark)
    }

    /// True once the kernel has noticed that the device's process ended.
    pub(super) fn is_quiesced(&mut self) -> bool {
        self.info().is_ok_and(|info| info.state == STATE_QUIESCED)
    }

    pub(super) fn depth(&mut self) -> Result<(u16, u32), Error> {
        let info = self.info();
        let info = info.map_err(|error| self.failed("asking for", error))?;
        Ok((info.queue_depth, info.max_io_buf_bytes))
    }

    pub(super) fn begin_recovery(&mut self) -> Result<(), Error> {
        let begun = self.call(START_USER_RECOVERY, NOTHING, 0);
        begun.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => Error::Unsupported(format!(
                "/dev/ublkb{}: another process serves it",
                self.number
            )),
            _ => self.failed("taking over", error),
        })
    }

    /// Blocks until the queue is served.
    pub(super) fn end_recovery(&mut self) -> Result<(), Error> {
        let ended = self.call(END_USER_RECOVERY, NOTHING, process::id().into());
        ended.map_err(|error| self.failed("taking over", error))
    }

    /// Removes the block device. Blocks until its requests ended, which must still be served.
    pub(super) fn stop(&mut self) -> Result<(), Error> {
        let stopped = self.call(STOP_DEV, NOTHING, 0);
        stopped.map_err(|error| self.failed("stopping", error))
    }

    /// Removes the device. Blocks until no process has opened its character device.
    pub(super) fn delete(&mut self) -> Result<(), Error> {
        let deleted = self.call(DEL_DEV, NOTHING, 0);
        deleted.map_err(|error| self.failed("removing", error))
    }

    fn failed(&self, step: &str, error: io::Error) -> Error {
        Error::os(format!("{step} ublk device {}", self.number), error)
    }
}

const NOTHING: (*mut u8, usize) = (std::ptr::null_mut(), 0);

const _: () =
    assert!(size_of::<Command>() == 32 && size_of::<Info>() == 64 && size_of::<Parameters>() == 64);
