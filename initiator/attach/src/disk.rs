//! Namespace that executes requests of local disks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cairn_base::slab::{Key, Reuse, Slab};
use cairn_initiator::multipath::{Multipath, PathTicket};
use cairn_initiator::{Buffer, Data, Ended, HostError, Status, command};
use nvme_proto::wire::Sqe;

use crate::request::{Done, Errno, Limits, Operation, Request};

/// Maximum size of a piece of memory.
const PIECE_BYTES_MAX: u32 = 256 << 10;
/// Maximum blocks of a command with a 16-bit count.
const BLOCKS_MAX: u32 = 1 << 16;
/// Maximum requests of all front ends.
pub(crate) const REQUESTS_MAX: u32 = 4096;
/// Timeout of [`Disk::close`].
const CLOSE: Duration = Duration::from_secs(10);
/// Result of a command that no controller answered.
const NO_ANSWER: Errno = Errno(libc::EIO);
/// Size of a range of Dataset Management.
const RANGE_BYTES: usize = 16;

/// Namespace behind one or several paths, with the requests under way.
///
/// A request becomes as many commands as its size needs. A request ends once, after all of its
/// commands ended.
#[derive(Debug)]
pub struct Disk<T> {
    paths: Multipath,
    limits: Limits,
    jobs: Slab<Job<T>>,
    /// Requests with commands not yet submitted.
    unsent: VecDeque<Key>,
    /// Job and piece of each submitted command, by [`PathTicket::slot`].
    commands: Vec<Option<(Key, usize)>>,
    /// Memory for ranges of Dataset Management.
    ranges: Vec<Buffer>,
    done: VecDeque<Done<T>>,
    failure: Option<String>,
}

#[derive(Debug)]
struct Job<T> {
    tag: T,
    operation: Operation,
    bytes: u64,
    start: u64,
    /// Next block without a command.
    next: u64,
    end: u64,
    is_sent: bool,
    in_flight: usize,
    result: Result<(), Errno>,
    memory: Vec<Option<Buffer>>,
}

impl<T: Copy> Disk<T> {
    /// Takes requests for the namespace behind `paths`, which have identified it.
    ///
    /// # Errors
    /// No path has identified the namespace.
    pub fn new(paths: Multipath, read_only: bool) -> Result<Self, HostError> {
        let known = paths.namespace().copied();
        let namespace = known.ok_or_else(|| {
            HostError::Unsupported("no path has identified the namespace".to_owned())
        })?;
        let oncs = |path: usize| paths.controller(path).identity().oncs.get();
        let live = paths.paths().enumerate().filter(|(_, path)| path.usable);
        let oncs = live.fold(u16::MAX, |all, (path, _)| all & oncs(path));
        let oncs = nvme_proto::wire::identify::Oncs(oncs);
        let block_bytes = namespace.block_bytes;
        let piece = paths.transfer_max().min(PIECE_BYTES_MAX) / block_bytes * block_bytes;
        Ok(Self {
            limits: Limits {
                block_bytes,
                bytes: namespace.blocks * u64::from(block_bytes),
                piece_bytes: piece.max(block_bytes),
                zero_bytes: paths.transfer_max(),
                read_only,
                discards: oncs.dataset_management(),
                zeroes: oncs.write_zeroes(),
            },
            paths,
            jobs: Slab::with_limit(REQUESTS_MAX, Reuse::Latest),
            unsent: VecDeque::new(),
            commands: Vec::new(),
            ranges: Vec::new(),
            done: VecDeque::new(),
            failure: None,
        })
    }

    /// Properties of the namespace.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Paths to the namespace.
    pub fn paths(&mut self) -> &mut Multipath {
        &mut self.paths
    }

    /// Allocates memory of `pieces` pieces.
    pub fn memory(&self, pieces: usize) -> Result<Vec<Buffer>, HostError> {
        let piece = self.limits.piece_bytes as usize;
        Ok(self.paths.buffer(pieces * piece)?.split(piece))
    }

    /// Starts a request; [`Self::take`] returns it.
    pub fn begin(&mut self, request: Request<T>) {
        let (offset, bytes) = (request.offset, request.bytes);
        let result = self.limits.check(request.operation, offset, bytes);
        let has_memory = request.memory.len() >= self.limits.pieces(bytes);
        assert!(has_memory || !request.operation.has_data() || result.is_err());
        let block = u64::from(self.limits.block_bytes);
        let is_range = request.operation != Operation::Flush && result.is_ok();
        let (next, end) = match is_range {
            true => (offset / block, (offset + bytes) / block),
            false => (0, 0),
        };
        let key = self.jobs.insert(Job {
            tag: request.tag,
            operation: request.operation,
            bytes,
            start: next,
            next,
            end,
            is_sent: result.is_err(),
            in_flight: 0,
            result,
            memory: request.memory.into_iter().map(Some).collect(),
        });
        match result {
            Ok(()) => self.unsent.push_back(key),
            Err(_) => self.finish_if_ended(key),
        }
    }

    /// Does pending work without waiting. Returns true if there was work.
    pub fn poll(&mut self, now: Instant) -> bool {
        let mut progress = self.send();
        progress |= self.paths.poll(now);
        while let Some((ticket, ended)) = self.paths.reap() {
            self.command_ended(ticket, ended);
            progress = true;
        }
        progress | self.send()
    }

    /// Takes the oldest ended request.
    pub fn take(&mut self) -> Option<Done<T>> {
        self.done.pop_front()
    }

    /// Takes the description of a failed command; further failures before this call are dropped.
    pub fn take_failure(&mut self) -> Option<String> {
        self.failure.take()
    }

    /// Shuts down the controllers. Requests under way are left.
    pub fn close(mut self) -> Result<(), HostError> {
        self.paths.set_timeout(CLOSE);
        self.paths.close()
    }

    fn send(&mut self) -> bool {
        let mut progress = false;
        while let Some(&key) = self.unsent.front() {
            while !self.jobs.get(key).is_none_or(|job| job.is_sent) {
                if !self.paths.has_room() {
                    return progress;
                }
                self.send_next(key);
                progress = true;
            }
            self.unsent.pop_front();
            self.finish_if_ended(key);
        }
        progress
    }

    /// Submits the next command of a request.
    fn send_next(&mut self, key: Key) {
        let limits = self.limits;
        let job = self.jobs.get_mut(key).expect("an unsent request");
        let step = job.step(&limits);
        let data = match job.operation {
            Operation::Flush | Operation::Zero { .. } => Ok(Data::None),
            Operation::Discard => range(&mut self.ranges, &self.paths, &step),
            Operation::Read | Operation::Write { .. } => {
                let piece = job.memory[step.piece].take();
                let piece = piece.expect("each command has its own piece");
                Ok(Data::start_of(piece, step.blocks * limits.block_bytes))
            }
        };
        job.next += u64::from(step.blocks);
        job.is_sent = job.next == job.end;
        let sent = data.and_then(|data| {
            let sent = self.paths.submit(job.operation.command(&step), data);
            sent.map_err(|unsent| unsent.error)
        });
        match sent {
            Ok(ticket) => {
                let slot = usize::from(ticket.slot());
                if self.commands.len() <= slot {
                    self.commands.resize(slot + 1, None);
                }
                self.commands[slot] = Some((key, step.piece));
                job.in_flight += 1;
            }
            Err(_) => job.fail(NO_ANSWER),
        }
    }

    fn command_ended(&mut self, ticket: PathTicket, ended: Ended) {
        let slot = usize::from(ticket.slot());
        let command = self.commands[slot].take();
        let (key, piece) = command.expect("only submitted commands end");
        let job = self
            .jobs
            .get_mut(key)
            .expect("a request waits for its commands");
        job.in_flight -= 1;
        match job.operation {
            Operation::Discard => self.ranges.extend(ended.buffer),
            _ if ended.buffer.is_some() => job.memory[piece] = ended.buffer,
            _ => {}
        }
        let result = match &ended.answer {
            Ok(response) => {
                let status = response.cqe.status();
                errno_of_status(status).map_err(|errno| (errno, status.to_string()))
            }
            Err(error) => Err((NO_ANSWER, error.to_string())),
        };
        if let Err((errno, why)) = result {
            let Job {
                operation,
                end,
                start,
                ..
            } = *job;
            self.failure.get_or_insert_with(|| {
                format!(
                    "{operation:?} of {} blocks from {start}: {why}",
                    end - start
                )
            });
            job.fail(errno);
        }
        self.finish_if_ended(key);
    }

    fn finish_if_ended(&mut self, key: Key) {
        let is_ended = |job: &Job<T>| job.is_sent && job.in_flight == 0;
        if !self.jobs.get(key).is_some_and(is_ended) {
            return;
        }
        let job = self.jobs.remove(key).expect("the request was just found");
        self.done.push_back(Done {
            tag: job.tag,
            bytes: job.bytes,
            result: job.result,
            memory: job.memory.into_iter().flatten().collect(),
        });
    }
}

/// Part of a request that one command executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    slba: u64,
    blocks: u32,
    /// Index in the request's memory.
    piece: usize,
}

impl<T> Job<T> {
    fn step(&self, limits: &Limits) -> Step {
        let piece_blocks = limits.piece_bytes / limits.block_bytes;
        let blocks_max = match self.operation {
            Operation::Read | Operation::Write { .. } => piece_blocks.min(BLOCKS_MAX),
            // Linux limits Write Zeroes like transfers too, without WZSL.
            Operation::Zero { .. } => (limits.zero_bytes / limits.block_bytes).min(BLOCKS_MAX),
            Operation::Discard | Operation::Flush => u32::MAX,
        };
        let left = self.end - self.next;
        Step {
            slba: self.next,
            blocks: u32::try_from(left).unwrap_or(u32::MAX).min(blocks_max),
            piece: ((self.next - self.start) / u64::from(piece_blocks)) as usize,
        }
    }

    /// Records the first error; no further command is sent.
    fn fail(&mut self, errno: Errno) {
        self.result = self.result.and(Err(errno));
        self.is_sent = true;
    }
}

impl Operation {
    /// Returns the command without NSID, which [`Multipath::submit`] sets.
    fn command(self, step: &Step) -> Sqe {
        let &Step { slba, blocks, .. } = step;
        let with_fua = |sqe: Sqe, fua: bool| if fua { command::with_fua(sqe) } else { sqe };
        match self {
            Self::Read => command::read(0, slba, blocks),
            Self::Write { fua } => with_fua(command::write(0, slba, blocks), fua),
            Self::Zero { unmap, fua } => {
                with_fua(command::write_zeroes(0, slba, blocks, unmap), fua)
            }
            Self::Discard => command::deallocate(0, 1),
            Self::Flush => command::flush(0),
        }
    }
}

/// Fills memory with the range of a Dataset Management command (NVM Command Set, 3.2.3).
fn range(
    spare: &mut Vec<Buffer>,
    paths: &Multipath,
    step: &Step,
) -> Result<Data<'static>, HostError> {
    let mut buffer = match spare.pop() {
        Some(buffer) => buffer,
        None => paths.buffer(RANGE_BYTES)?,
    };
    let mut range = [0; RANGE_BYTES];
    range[4..8].copy_from_slice(&step.blocks.to_le_bytes());
    range[8..].copy_from_slice(&step.slba.to_le_bytes());
    buffer.write(0, &range);
    Ok(Data::whole(buffer))
}

fn errno_of_status(status: Status) -> Result<(), Errno> {
    // Linux maps these status codes to the same errors (nvme_error_status and blk_errors).
    Err(Errno(match status.code() {
        status if status.is_success() => return Ok(()),
        Status::NAMESPACE_WRITE_PROTECTED => libc::EPERM,
        Status::RESERVATION_CONFLICT => libc::EBADE,
        Status::CAPACITY_EXCEEDED => libc::ENOSPC,
        Status::INVALID_OPCODE => libc::EOPNOTSUPP,
        Status::UNRECOVERED_READ_ERROR => libc::ENODATA,
        _ => libc::EIO,
    }))
}
