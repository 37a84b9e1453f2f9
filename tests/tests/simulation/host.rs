//! A host and the commands it has under way, each checked when it ends.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_initiator::{
    Buffer, Data, Host, HostError, HostOptions, Loss, Response, Ticket, command,
};
use cairn_rdma::{Device, Provider};
use cairn_tests::harness::{NQN, host_nqn, nqn};
use cairn_tests::random::Random;
use nvme_proto::wire::{Sqe, Status};

use crate::disk::Disk;
use crate::sleeper::SleeperDevice;
use crate::world;

/// The longest that a command may take, and a host to connect.
const PATIENCE: Duration = Duration::from_secs(120);
/// Commands under way at a time, over all queues.
const SLOTS: usize = 24;

/// What is chosen of a host when it connects.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    pub(crate) number: u8,
    pub(crate) io_queues: u16,
    pub(crate) queue_entries: u16,
    pub(crate) kato_ms: u32,
    pub(crate) flow_control: bool,
    pub(crate) mdts_bytes: usize,
}

/// A connected host.
pub(crate) struct Simulated {
    pub(crate) host: Host,
    buffer: Buffer,
    mdts_bytes: usize,
    /// By its place in the buffer.
    slots: Vec<Option<Pending>>,
    next_seed: u64,
    /// Whether the network was cut between it and the target.
    pub(crate) was_cut_off: bool,
    /// How many commands have ended, and how many of them well.
    pub(crate) ended: u64,
    pub(crate) succeeded: u64,
}

/// A command under way.
struct Pending {
    ticket: Ticket,
    task: Task,
    disk: usize,
    range: Range<usize>,
    since: Instant,
    /// Memory whose key the command takes out of use.
    once: Option<Buffer>,
    may_be_aborted: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Read,
    Write { seed: u64 },
    WriteZeroes,
    Compare { equal: bool },
    Verify,
    Flush,
}

impl Task {
    fn writes(self) -> bool {
        matches!(self, Self::Write { .. } | Self::WriteZeroes)
    }

    fn random(random: &mut Random, seed: u64) -> Self {
        match random.below(20) {
            0..7 => Self::Read,
            7..14 => Self::Write { seed },
            14 => Self::WriteZeroes,
            15 => Self::Verify,
            16 => Self::Flush,
            17 => Self::Compare { equal: false },
            _ => Self::Compare { equal: true },
        }
    }
}

impl Simulated {
    /// Connects.
    pub(crate) fn connect(traits: &Traits) -> Result<Self, HostError> {
        let (soft, remote, local, clock) = world::with(|world| {
            let local = world.host_address(traits.number);
            (world.host_side(), world.remote(), local, world.clock())
        });
        let device = soft.device_for(remote, Some(local))?;
        let device: Arc<dyn Device> = Arc::new(SleeperDevice(device));
        let options = HostOptions {
            local: Some(local),
            io_queues: traits.io_queues,
            queue_entries: traits.queue_entries,
            kato_ms: traits.kato_ms,
            disable_sq_flow_control: !traits.flow_control,
            timeout: PATIENCE,
            clock,
            ..HostOptions::new(remote, nqn(NQN), host_nqn(&traits.number.to_string()))
        };
        let host = Host::connect_on(&device, options)?;
        Ok(Self {
            buffer: host.buffer(SLOTS * traits.mdts_bytes)?,
            mdts_bytes: traits.mdts_bytes,
            host,
            slots: (0..SLOTS).map(|_| None).collect(),
            next_seed: u64::from(traits.number) << 48,
            was_cut_off: false,
            ended: 0,
            succeeded: 0,
        })
    }

    /// Commands under way.
    pub(crate) fn pending(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Lets the world go on by one thing that happens, and looks at what ended.
    pub(crate) fn step(&mut self, disks: &mut [Disk], latest: Instant) -> Result<(), HostError> {
        self.host.poll();
        let result = self.collect(disks);
        if self.host.poll() {
            return result;
        }
        world::with(|world| world.advance(latest));
        self.host.poll();
        result
    }

    /// Begins a command, if there is room for the one that chance wants.
    pub(crate) fn begin(
        &mut self,
        disks: &mut [Disk],
        random: &mut Random,
    ) -> Result<(), HostError> {
        let qid = 1 + random.below(self.host.io_queues().into()) as u16;
        let free = self.slots.iter().position(Option::is_none);
        let Some(slot) = free.filter(|_| self.host.is_up(qid)) else {
            return Ok(());
        };
        let task = Task::random(random, self.next_seed);
        let at = random.below(disks.len() as u64) as usize;
        let disk = &mut disks[at];
        let range = self.range(disk, task, random);
        if !disk.is_free(&range, task.writes()) {
            return Ok(());
        }
        let sqe = sqe_of(task, disk, &range, random);
        let length = range.len() * disk.block_bytes as usize;
        let bytes = match task {
            Task::Write { seed } => {
                self.next_seed += range.len() as u64;
                Some(disk.fresh(&range, seed))
            }
            Task::Compare { equal } => match disk.bytes(&range) {
                Some(mut bytes) => {
                    if !equal {
                        bytes[length / 2] ^= 0x10;
                    }
                    Some(bytes)
                }
                None => return Ok(()),
            },
            _ => None,
        };
        let once = (random.below(10) == 0 && length > 0).then(|| self.host.buffer(length));
        let once = once.transpose()?;
        let start = slot * self.mdts_bytes;
        let data = match (&bytes, &once) {
            (Some(bytes), _)
                if bytes.len() <= self.host.in_capsule_max(qid) && random.below(4) > 0 =>
            {
                Data::InCapsule(bytes)
            }
            (Some(bytes), Some(once)) => {
                once.write(0, bytes);
                Data::once(once, length as u32)
            }
            (Some(bytes), None) => {
                self.buffer.write(start, bytes);
                Data::part_of(&self.buffer, start, length as u32)
            }
            (None, _) if task != Task::Read => Data::None,
            (None, Some(once)) => {
                once.write(0, &vec![0xee; length]);
                Data::once(once, length as u32)
            }
            (None, None) => {
                self.buffer.write(start, &vec![0xee; length]);
                Data::part_of(&self.buffer, start, length as u32)
            }
        };
        let invalidates = matches!(
            data,
            Data::Keyed {
                invalidate: true,
                ..
            }
        );
        let ticket = match self.host.submit(qid, sqe, data) {
            Ok(ticket) => ticket,
            Err(HostError::QueueFull { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        disk.take(&range, task.writes());
        world::note(|| format!("{ticket:?}: {task:?} of {range:?} on {}", disk.nsid));
        self.slots[slot] = Some(Pending {
            ticket,
            task,
            disk: at,
            range,
            since: world::now(),
            once: once.filter(|_| invalidates),
            may_be_aborted: false,
        });
        Ok(())
    }

    /// Some blocks, mostly few.
    fn range(&self, disk: &Disk, task: Task, random: &mut Random) -> Range<usize> {
        if task == Task::Flush {
            return 0..0;
        }
        let most = (self.mdts_bytes / disk.block_bytes as usize).min(disk.blocks());
        let most = match random.below(8) {
            0 => most,
            1 | 2 => most.min(16),
            _ => most.min(4),
        };
        let count = 1 + random.below(most as u64) as usize;
        let first = random.below((disk.blocks() - count + 1) as u64) as usize;
        first..first + count
    }

    /// Asks for a command that is under way to be aborted.
    pub(crate) fn abort(&mut self, random: &mut Random) -> Result<(), HostError> {
        let pending: Vec<usize> = (0..SLOTS).filter(|&at| self.slots[at].is_some()).collect();
        if pending.is_empty() {
            return Ok(());
        }
        let at = pending[random.below(pending.len() as u64) as usize];
        let victim = self.slots[at].as_mut().expect("it is under way");
        victim.may_be_aborted = true;
        let ticket = victim.ticket;
        world::note(|| format!("abort of {ticket:?}"));
        let aborted = self.host.abort(ticket)?;
        world::note(|| format!("abort of {ticket:?}: {aborted}"));
        Ok(())
    }

    /// Takes the answers that have come.
    fn collect(&mut self, disks: &mut [Disk]) -> Result<(), HostError> {
        for slot in 0..SLOTS {
            let Some(pending) = &self.slots[slot] else {
                continue;
            };
            let Some(answer) = self.host.take(pending.ticket) else {
                let took = world::now().duration_since(pending.since);
                let overdue = took >= PATIENCE;
                assert!(
                    !overdue || self.was_cut_off,
                    "{:?} takes {took:?}",
                    pending.ticket
                );
                if overdue {
                    // The target has given up on the connection meanwhile, and its
                    // goodbye was lost, too: only patience tells.
                    return Err(HostError::Timeout {
                        what: format!("{:?}", pending.ticket),
                        timeout: PATIENCE,
                    });
                }
                continue;
            };
            let pending = self.slots[slot].take().expect("it was just seen");
            let disk = &mut disks[pending.disk];
            disk.give_back(&pending.range, pending.task.writes());
            self.ended += 1;
            match answer {
                Ok(response) => self.answered(slot, &pending, &response, disk),
                Err(error) => {
                    world::note(|| format!("{:?}: {error}", pending.ticket));
                    if pending.task.writes() {
                        disk.lost(&pending.range);
                    }
                    check_loss(&error);
                }
            }
        }
        let lost = (0..=self.host.io_queues()).find(|&qid| !self.host.is_up(qid));
        match lost {
            Some(qid) => Err(HostError::Lost {
                qid,
                loss: Loss::Closed,
            }),
            None => Ok(()),
        }
    }

    fn answered(&mut self, slot: usize, pending: &Pending, response: &Response, disk: &mut Disk) {
        let Pending {
            task,
            range,
            ticket,
            ..
        } = pending;
        let status = response.cqe.status();
        world::note(|| format!("{ticket:?}: {status}"));
        let key = pending.once.as_ref().map(|once| once.region().rkey());
        assert_eq!(response.invalidated_rkey, key, "{ticket:?} {task:?}");
        if pending.may_be_aborted && status.code() == Status::ABORT_REQUESTED.code() {
            if task.writes() {
                disk.lost(range);
            }
            return;
        }
        let expected = match task {
            Task::Compare { equal: false } => Status::COMPARE_FAILURE,
            _ => Status::SUCCESS,
        };
        assert_eq!(
            status.code(),
            expected.code(),
            "{ticket:?} {task:?} {range:?}: {status}"
        );
        self.succeeded += 1;
        match *task {
            Task::Write { seed } => disk.written(range, seed),
            Task::WriteZeroes => disk.zeroed(range),
            Task::Read => {
                let length = range.len() * disk.block_bytes as usize;
                let found = match &pending.once {
                    Some(once) => once.bytes(0, length),
                    None => self.buffer.bytes(slot * self.mdts_bytes, length),
                };
                if let Some(block) = disk.differs(range, &found) {
                    panic!(
                        "{ticket:?} read {range:?} of {}: block {block} is wrong",
                        disk.nsid
                    );
                }
            }
            Task::Compare { .. } | Task::Verify | Task::Flush => {}
        }
    }

    /// Waits for all that is under way.
    pub(crate) fn finish(&mut self, disks: &mut [Disk]) -> Result<(), HostError> {
        while self.pending() > 0 {
            self.step(disks, world::now() + Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Does nothing for a while, but what keeps it alive.
    pub(crate) fn idle(&mut self, disks: &mut [Disk], time: Duration) -> Result<(), HostError> {
        let until = world::now() + time;
        while world::now() < until {
            let latest = until.min(world::now() + Duration::from_millis(500));
            self.step(disks, latest)?;
        }
        Ok(())
    }

    /// Reads everything and compares it.
    pub(crate) fn read_all(&mut self, disks: &[Disk]) -> Result<(), HostError> {
        for disk in disks {
            let chunk = self.mdts_bytes / disk.block_bytes as usize;
            for first in (0..disk.blocks()).step_by(chunk) {
                let range = first..(first + chunk).min(disk.blocks());
                let length = range.len() * disk.block_bytes as usize;
                let sqe = command::read(disk.nsid, first as u64, range.len() as u32);
                let data = Data::start_of(&self.buffer, length as u32);
                self.host.run(1, sqe, data)?;
                if let Some(block) = disk.differs(&range, &self.buffer.bytes(0, length)) {
                    panic!(
                        "block {block} of namespace {} is wrong in the end",
                        disk.nsid
                    );
                }
            }
        }
        Ok(())
    }

    /// It is no more: what it had under way may or may not be carried out.
    pub(crate) fn forget(self, disks: &mut [Disk]) {
        for pending in self.slots.into_iter().flatten() {
            let disk = &mut disks[pending.disk];
            disk.give_back(&pending.range, pending.task.writes());
            if pending.task.writes() {
                disk.lost(&pending.range);
            }
        }
    }
}

/// A connection may end; nobody may ever break the protocol.
pub(crate) fn check_loss(error: &HostError) {
    if let HostError::Lost {
        loss: loss @ Loss::Protocol(_),
        qid,
    } = error
    {
        panic!("queue {qid}: {loss}");
    }
}

fn sqe_of(task: Task, disk: &Disk, range: &Range<usize>, random: &mut Random) -> Sqe {
    let (nsid, slba, blocks) = (disk.nsid, range.start as u64, range.len() as u32);
    let sqe = match task {
        Task::Flush => return command::flush(nsid),
        Task::Read => command::read(nsid, slba, blocks),
        Task::Write { .. } => command::write(nsid, slba, blocks),
        Task::WriteZeroes => command::write_zeroes(nsid, slba, blocks, false),
        Task::Compare { .. } => command::compare(nsid, slba, blocks),
        Task::Verify => command::verify(nsid, slba, blocks),
    };
    if random.below(8) == 0 && task != Task::Verify {
        command::with_fua(sqe)
    } else {
        sqe
    }
}
