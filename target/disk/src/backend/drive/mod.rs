//! NVMe namespaces by passthrough: an operation is one or more NVMe commands, and ends with the
//! drive's status.
//!
//! The drive's block device, open with `O_EXCL`, prevents mounts and reports the maximum command
//! size.

mod identify;
mod open;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use uuid::Uuid;

use super::closing::{FormerFile, OpenFile};
use super::formers::Formers;
use super::found::AdmittedPath;
use super::identity::{self, Scope};
use super::{
    Atomic, BlockIo, BlockOp, Claim, Errno, Geometry, Names, OpenError, Preferred, Progress,
    TRIES_MAX, pieces, queue_limits,
};
use crate::nvme::{BLOCKS_MAX, Blocks, Command};
use crate::ring::{FileSlot, Ring, Tags, ZEROES, can_poll_drives};
use identify::Identified;

pub(super) use open::is_drive;

/// Minimum alignment in bytes. The kernel copies less aligned buffers.
const MEMORY_ALIGNMENT: u32 = 4;

const TAGS_DEFAULT: u64 = 32;

const PIECE_DEFAULT: u64 = 64 << 10;

/// Maximum bytes of one deallocation step. A command can be cancelled only between two steps.
const DEALLOCATE_MAX: u64 = 1 << 30;

#[derive(Debug)]
pub(super) struct Drive {
    path: PathBuf,
    /// Declared before `file`, so that the closer thread of `file` drops the last reference.
    device: Arc<File>,
    file: OpenFile,
    nsid: u32,
    identified: Identified,
    blocks: AtomicU64,
    piece_bytes: u64,
    compares: bool,
    tags: Arc<Tags>,
}

impl Drive {
    pub(super) fn open(
        disk: &AdmittedPath,
        block_bytes: Option<u32>,
        claim: Claim,
        formers: &Formers,
    ) -> Result<Self, OpenError> {
        let open::Opened {
            file,
            device,
            nsid,
            identified,
        } = open::open(disk, claim, formers)?;
        let path = disk.path();
        let served = 1 << identified.block_shift;
        if let Some(asked) = block_bytes.filter(|asked| *asked != served) {
            return Err(OpenError::new(format!(
                "a block size of {asked} is not that of {}, whose blocks have {served} bytes: leave \
                 out block_size, or format the drive (`nvme format --block-size={asked}`, which \
                 erases it)",
                path.display()
            )));
        }
        if identified.blocks == 0 {
            return Err(OpenError::new(format!(
                "{} has no blocks: look at it by `nvme id-ns`",
                path.display()
            )));
        }
        let most = pieces::largest_command(&device).unwrap_or(PIECE_DEFAULT);
        let queues = queue_limits::folders(&device);
        let limit = |name| {
            let mut queues = queues.iter().flatten();
            queues.find_map(|queue| queue_limits::read_limit(queue, name))
        };
        let requests = limit("nr_requests").unwrap_or(TAGS_DEFAULT);
        let tags = requests.min(u32::MAX.into()) as u32;
        let can_poll = limit("io_poll") == Some(1) && can_poll_drives();
        Ok(Self {
            path: path.to_owned(),
            nsid,
            blocks: AtomicU64::new(identified.blocks),
            piece_bytes: most.min(u64::from(BLOCKS_MAX) << identified.block_shift),
            // Linux treats Compare as a write, which without CAP_SYS_ADMIN requires a device open
            // for writing.
            compares: identified.can_compare && !claim.read_only,
            tags: Arc::new(Tags::new(tags, can_poll)),
            file,
            device,
            identified,
        })
    }

    pub(super) fn former(&self) -> FormerFile {
        self.file.former()
    }

    pub(super) fn let_go(&self) {
        self.file.let_go();
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry {
            block_bytes: 1 << self.identified.block_shift,
            blocks: self.blocks.load(Ordering::Relaxed),
            memory_alignment: MEMORY_ALIGNMENT,
            boundary: self.identified.boundary,
        }
    }

    pub(super) fn deallocates_to_zeroes(&self) -> bool {
        let can = self.identified.can_deallocate && self.identified.zeroes_deallocate;
        can && self.identified.reads_zeroes
    }

    pub(super) fn can_poll(&self) -> bool {
        self.tags.can_poll()
    }

    #[inline]
    pub(super) fn compares(&self) -> bool {
        self.compares
    }

    pub(super) fn writes_uncorrectable(&self) -> bool {
        self.identified.uncorrectable_max.is_some()
    }

    pub(super) fn takes_advice(&self) -> bool {
        self.identified.can_deallocate
    }

    pub(super) fn preferred(&self) -> Option<Preferred> {
        self.identified.preferred
    }

    pub(super) fn atomic(&self) -> Atomic {
        let most = (self.piece_bytes >> self.identified.block_shift) as u32;
        let of_drive = self.identified.atomic;
        Atomic {
            normal: of_drive.normal.min(most),
            power_fail: of_drive.power_fail.min(most),
            ..of_drive
        }
    }

    pub(super) fn names(&self) -> Names {
        self.identified.names
    }

    pub(super) fn identity(&self, scope: Scope<'_>) -> io::Result<Uuid> {
        let names = self.identified.names;
        let derived = |kind: &str, name: &[u8]| {
            let digits: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
            identity::derived(&format!("nvme {kind} {digits}"))
        };
        let nguid = || names.nguid.map(|nguid| derived("nguid", &nguid));
        let eui64 = || names.eui64.map(|eui64| derived("eui64", &eui64));
        match names.uuid.or_else(nguid).or_else(eui64) {
            Some(uuid) => Ok(uuid),
            None => identity::of(&self.device, &self.path, scope),
        }
    }

    pub(super) fn place(&self) -> (u64, u64) {
        self.file.place()
    }

    pub(super) fn measure(&self) -> io::Result<u64> {
        let layout = open::measure(&self.file, self.nsid)?;
        let served = &self.identified;
        if (layout.shift, layout.protection) != (served.block_shift, served.protection) {
            return Err(io::Error::other(format!(
                "{} was formatted to blocks of {} bytes, or other protection information: remove \
                 the namespace, reload, and add it again",
                self.path.display(),
                1_u64 << layout.shift
            )));
        }
        Ok(layout.blocks << layout.shift)
    }

    pub(super) fn accept_size(&self, bytes: u64) -> bool {
        let blocks = bytes >> self.identified.block_shift;
        self.blocks.swap(blocks, Ordering::Relaxed) != blocks
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.device.sync_data()
    }

    pub(super) fn add_to(&self, ring: &mut Ring) -> io::Result<FileSlot> {
        ring.add_drive(self.file.keep(), &self.device, &self.tags)
    }

    pub(super) fn step(
        &self,
        io: &mut BlockIo,
        ring: &mut Ring,
        file: FileSlot,
        tag: u64,
    ) -> Progress {
        let (_, rest) = io.rest();
        if io.is_stopped() && (rest > 0 || io.op == BlockOp::Flush) {
            return Progress::Done(Err(Errno(libc::ECANCELED)));
        }
        if rest == 0 && io.op != BlockOp::Flush {
            return Progress::Done(Ok(()));
        }
        io.pieces.begin();
        match io.op {
            BlockOp::Flush => {
                io.pieces.add(0);
                ring.command(tag, file, &Command::flush(self.nsid), None, false);
            }
            BlockOp::Compare if !self.compares => {
                return Progress::Done(Err(Errno(libc::EOPNOTSUPP)));
            }
            BlockOp::Read | BlockOp::Compare | BlockOp::Write { .. } => {
                self.move_data(io, ring, file, tag);
            }
            BlockOp::Verify => self.verify(io, ring, file, tag),
            BlockOp::WriteZeroes {
                deallocate,
                durable,
            } => {
                let deallocate = deallocate && self.identified.zeroes_deallocate;
                let Some(most) = self.identified.zeroes_max else {
                    let (blocks, bytes) = self.next(io, u64::from(ZEROES).min(self.piece_bytes));
                    let command = Command::write(self.nsid, blocks, durable)
                        .with(io.hints)
                        .moving(self.identified.protection);
                    ring.command(tag, file, &command, Some(ring.zeroes(bytes)), true);
                    return Progress::Pending;
                };
                let (blocks, _) = self.next(io, self.bytes(most));
                let command = Command::write_zeroes(self.nsid, blocks, deallocate, durable)
                    .with(io.hints)
                    .inserting(self.identified.protection);
                ring.command(tag, file, &command, None, true);
            }
            BlockOp::WriteUncorrectable => {
                let Some(most) = self.identified.uncorrectable_max else {
                    return Progress::Done(Err(Errno(libc::EOPNOTSUPP)));
                };
                let (blocks, _) = self.next(io, self.bytes(most));
                let command = Command::write_uncorrectable(self.nsid, blocks);
                ring.command(tag, file, &command, None, true);
            }
            BlockOp::Deallocate if self.identified.can_deallocate => {
                let (blocks, _) = self.next(io, DEALLOCATE_MAX);
                ring.deallocate(tag, file, &Command::deallocate(self.nsid), blocks);
            }
            BlockOp::Advise if self.identified.can_deallocate => {
                let ranges = io.whole();
                io.pieces.add(ranges.length);
                let command = Command::advise(self.nsid, ranges.length, io.hints);
                ring.command(tag, file, &command, Some(ranges), false);
            }
            BlockOp::Deallocate | BlockOp::Advise => return Progress::Done(Ok(())),
        }
        Progress::Pending
    }

    #[cfg(test)]
    pub(super) fn without_optional_commands(mut self) -> Self {
        self.compares = false;
        self.identified = Identified {
            zeroes_max: None,
            verify_max: None,
            uncorrectable_max: None,
            can_deallocate: false,
            zeroes_deallocate: false,
            ..self.identified
        };
        self
    }

    pub(super) fn resume(
        &self,
        io: &mut BlockIo,
        result: Result<u32, i32>,
        ring: &mut Ring,
        file: FileSlot,
        tag: u64,
    ) -> Progress {
        let Some(result) = io.pieces.end_whole(result.map(drop)) else {
            return Progress::Pending;
        };
        match result {
            // The kernel cancels commands when it resets the drive.
            Err(libc::EINTR | libc::EAGAIN) if io.is_stopped() => {}
            Err(libc::EINTR | libc::EAGAIN) if io.tries < TRIES_MAX => {
                io.tries += 1;
                return Progress::Later;
            }
            Err(errno) => return Progress::Done(Err(Errno(errno))),
            Ok(_) if io.op == BlockOp::Flush => return Progress::Done(Ok(())),
            Ok(bytes) => {
                io.done += u64::from(bytes);
                io.tries = 0;
            }
        }
        self.step(io, ring, file, tag)
    }

    fn move_data(&self, io: &mut BlockIo, ring: &mut Ring, file: FileSlot, tag: u64) {
        let protection = self.identified.protection;
        let mut done = io.done;
        while done < io.length && io.pieces.may_add() {
            let (blocks, bytes) = self.piece(io, done, self.piece_bytes);
            let span = Some(io.memory().part(done as u32, bytes));
            done += u64::from(bytes);
            match io.op {
                BlockOp::Write { durable } => {
                    let command = Command::write(self.nsid, blocks, durable).with(io.hints);
                    ring.command(tag, file, &command.moving(protection), span, true);
                }
                BlockOp::Compare => {
                    let command = Command::compare(self.nsid, blocks).with(io.hints);
                    ring.command(tag, file, &command, span, false);
                }
                _ => {
                    let command = Command::read(self.nsid, blocks).with(io.hints);
                    ring.command(tag, file, &command.moving(protection), span, false);
                }
            }
        }
    }

    fn verify(&self, io: &mut BlockIo, ring: &mut Ring, file: FileSlot, tag: u64) {
        let protection = self.identified.protection;
        if let Some(most) = self.identified.verify_max {
            let (blocks, _) = self.next(io, self.bytes(most));
            let command = Command::verify(self.nsid, blocks).with(io.hints);
            return ring.command(tag, file, &command.checking(protection), None, false);
        }
        let span = io.memory();
        let (blocks, bytes) = self.next(io, self.piece_bytes.min(span.length.into()));
        let command = Command::read(self.nsid, blocks)
            .with(io.hints)
            .moving(protection);
        ring.command(tag, file, &command, Some(span.part(0, bytes)), false);
    }

    fn next(&self, io: &mut BlockIo, most_bytes: u64) -> (Blocks, u32) {
        self.piece(io, io.done, most_bytes)
    }

    fn piece(&self, io: &mut BlockIo, done: u64, most_bytes: u64) -> (Blocks, u32) {
        let bytes = (io.length - done).min(most_bytes) as u32;
        io.pieces.add(bytes);
        let shift = self.identified.block_shift;
        let blocks = Blocks {
            first: (io.offset + done) >> shift,
            count: bytes >> shift,
        };
        (blocks, bytes)
    }

    fn bytes(&self, blocks: u32) -> u64 {
        u64::from(blocks) << self.identified.block_shift
    }
}
