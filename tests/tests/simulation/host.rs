//! Simulated host that checks the result of each command.

use std::ops::Range;
use std::time::{Duration, Instant};

use cairn_initiator::{
    Buffer, Controller, Data, Event, HostError, HostOptions, Identity, Loss, Recovery, Response,
    Ticket, Unsent, command,
};
use cairn_rdma::Provider;
use cairn_sim::Random;
use cairn_tests::harness::{NQN, host_nqn, nqn};
use nvme_proto::host::AssociationState;
use nvme_proto::wire::{Sqe, Status};

use crate::disk::Disk;
use crate::world;

const PATIENCE: Duration = Duration::from_secs(900);
const SLOTS: usize = 24;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Traits {
    pub(crate) number: u8,
    pub(crate) io_queues: u16,
    pub(crate) queue_entries: u16,
    pub(crate) kato_ms: u32,
    pub(crate) flow_control: bool,
    pub(crate) mdts_bytes: usize,
    /// Whether the host reconnects, and repeats commands safe to repeat.
    pub(crate) recovers: bool,
}

pub(crate) struct Simulated {
    pub(crate) controller: Controller,
    buffers: Vec<Option<Buffer>>,
    traits: Traits,
    slots: Vec<Option<Pending>>,
    aborts: Vec<(Ticket, Ticket)>,
    next_seed: u64,
    pub(crate) excused: bool,
}

struct Pending {
    ticket: Ticket,
    task: Task,
    disk: usize,
    range: Range<usize>,
    since: Instant,
    key: Option<u32>,
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
    pub(crate) fn connect(traits: &Traits, excused: bool) -> Result<Self, HostError> {
        let (soft, remote, local) = world::with(|world| {
            let local = world.host_address(traits.number);
            (world.host_side(), world.remote(), local)
        });
        let device = soft.device_for(remote, Some(local))?;
        let options = HostOptions {
            local: Some(local),
            io_queues: traits.io_queues,
            queue_entries: traits.queue_entries,
            kato_ms: traits.kato_ms,
            disable_sq_flow_control: !traits.flow_control,
            timeout: Duration::from_secs(20),
            command_timeout: Duration::from_secs(60),
            recovery: if traits.recovers {
                Recovery::default()
            } else {
                Recovery::NONE
            },
            requeue: traits.recovers,
            ..HostOptions::new(
                remote,
                nqn(NQN),
                Identity::named(host_nqn(&traits.number.to_string())),
            )
        };
        let controller = Controller::begin(&device, options, world::now())?;
        let buffers = controller.buffer(SLOTS * traits.mdts_bytes)?;
        let buffers = buffers.split(traits.mdts_bytes);
        let mut this = Self {
            buffers: buffers.into_iter().map(Some).collect(),
            traits: *traits,
            controller,
            slots: (0..SLOTS).map(|_| None).collect(),
            aborts: Vec::new(),
            next_seed: u64::from(traits.number) << 48,
            excused,
        };
        while !this.controller.is_live() {
            this.step(&mut [], world::now() + PATIENCE)?;
        }
        Ok(this)
    }

    pub(crate) fn pending(&self) -> usize {
        self.slots.iter().flatten().count() + self.aborts.len()
    }

    pub(crate) fn step(&mut self, disks: &mut [Disk], latest: Instant) -> Result<(), HostError> {
        let now = world::now();
        let mut busy = true;
        while busy {
            busy = self.controller.poll(now);
            self.collect(disks);
            self.take_events()?;
            busy |= self.controller.endpoint().arm()?;
        }
        let deadline = self.controller.next_deadline().unwrap_or(latest);
        world::with(|world| world.advance(latest.min(deadline)));
        Ok(())
    }

    fn take_events(&mut self) -> Result<(), HostError> {
        while let Some(event) = self.controller.take_event() {
            world::note(|| format!("host: {event:?}"));
            match event {
                Event::Lost(error) | Event::TryFailed { error, .. } => self.check(&error),
                Event::Gone(Some(error)) => {
                    self.check(&error);
                    return Err(error);
                }
                Event::NotReauthenticated(error) => self.check(&error),
                Event::Gone(None)
                | Event::Live { .. }
                | Event::FailFast
                | Event::Notice(_)
                | Event::Reauthenticated => {}
            }
        }
        Ok(())
    }

    fn check(&self, error: &HostError) {
        let of_protocol = matches!(
            error,
            HostError::Lost {
                loss: Loss::Protocol(_),
                ..
            }
        );
        assert!(!of_protocol, "{error}");
        assert!(self.excused, "{error}, though nothing happened");
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each operation")]
    pub(crate) fn begin(
        &mut self,
        disks: &mut [Disk],
        random: &mut Random,
    ) -> Result<(), HostError> {
        let queues = self.controller.io_queues().len() as u64;
        let queue = self.controller.io_queue(random.below(queues) as usize);
        let free = self.slots.iter().position(Option::is_none);
        let Some(slot) = free.filter(|_| self.controller.is_live()) else {
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
        let once = (random.below(10) == 0 && length > 0).then(|| self.controller.buffer(length));
        let mut once = once.transpose()?;
        let key = once.as_ref().and_then(|once| once.region().rkey());
        let mut invalidates = false;
        let data = match &bytes {
            Some(bytes)
                if bytes.len() <= self.controller.in_capsule_max(queue) && random.below(4) > 0 =>
            {
                Data::InCapsule(bytes)
            }
            None if task != Task::Read => Data::None,
            bytes => {
                let fill = bytes
                    .as_ref()
                    .map_or_else(|| vec![0xee; length], |bytes| bytes.to_vec());
                invalidates = once.is_some();
                let home = &mut self.buffers[slot];
                let buffer = once.take().or_else(|| home.take());
                let mut buffer = buffer.expect("no command has it");
                buffer.write(0, &fill);
                match invalidates {
                    true => Data::once(buffer, length as u32),
                    false => Data::start_of(buffer, length as u32),
                }
            }
        };
        let ticket = match self.controller.submit_on(queue, sqe, data) {
            Ok(ticket) => ticket,
            Err(Unsent { error, buffer }) => {
                if !invalidates {
                    let home = &mut self.buffers[slot];
                    *home = buffer.or(home.take());
                }
                return match error {
                    HostError::QueueFull { .. } => Ok(()),
                    error => Err(error),
                };
            }
        };
        disk.take(&range, task.writes());
        world::note(|| format!("{ticket:?}: {task:?} of {range:?} on {}", disk.nsid));
        self.slots[slot] = Some(Pending {
            ticket,
            task,
            disk: at,
            range,
            since: world::now(),
            key: key.filter(|_| invalidates),
            may_be_aborted: self
                .aborts
                .iter()
                .any(|(_, victim)| (victim.qid(), victim.cid()) == (ticket.qid(), ticket.cid())),
        });
        Ok(())
    }

    fn range(&self, disk: &Disk, task: Task, random: &mut Random) -> Range<usize> {
        if task == Task::Flush {
            return 0..0;
        }
        let most = (self.traits.mdts_bytes / disk.block_bytes as usize).min(disk.blocks());
        let most = match random.below(8) {
            0 => most,
            1 | 2 => most.min(16),
            _ => most.min(4),
        };
        let count = 1 + random.below(most as u64) as usize;
        let first = random.below((disk.blocks() - count + 1) as u64) as usize;
        first..first + count
    }

    pub(crate) fn abort(&mut self, random: &mut Random) {
        let pending: Vec<usize> = (0..SLOTS).filter(|&at| self.slots[at].is_some()).collect();
        if pending.is_empty() {
            return;
        }
        let at = pending[random.below(pending.len() as u64) as usize];
        let victim = self.slots[at].as_mut().expect("it is under way");
        victim.may_be_aborted = true;
        let ticket = victim.ticket;
        world::note(|| format!("abort of {ticket:?}"));
        let sqe = command::abort(ticket.qid(), ticket.cid());
        match self.controller.submit_admin(sqe, Data::None) {
            Ok(abort) => self.aborts.push((abort, ticket)),
            Err(unsent) => match unsent.error {
                HostError::QueueFull { .. } => {}
                error => self.check(&error),
            },
        }
    }

    fn collect(&mut self, disks: &mut [Disk]) {
        self.collect_aborts();
        for slot in 0..SLOTS {
            let Some(pending) = &self.slots[slot] else {
                continue;
            };
            let Some(ended) = self.controller.take(pending.ticket) else {
                let took = world::now().duration_since(pending.since);
                assert!(took < PATIENCE, "{:?} takes {took:?}", pending.ticket);
                continue;
            };
            let pending = self.slots[slot].take().expect("it was just seen");
            let disk = &mut disks[pending.disk];
            disk.give_back(&pending.range, pending.task.writes());
            let read = ended.buffer.as_ref().filter(|_| pending.task == Task::Read);
            let found = read.map(|buffer| buffer.bytes(0, buffer.len()));
            if pending.key.is_none() {
                let home = &mut self.buffers[slot];
                *home = ended.buffer.or(home.take());
            }
            match ended.answer {
                Ok(response) => self.answered(&pending, &response, found, disk),
                Err(error) => {
                    world::note(|| format!("{:?}: {error}", pending.ticket));
                    if pending.task.writes() {
                        disk.lost(&pending.range);
                    }
                    self.check(&error);
                }
            }
        }
    }

    fn collect_aborts(&mut self) {
        for index in (0..self.aborts.len()).rev() {
            let Some(ended) = self.controller.take(self.aborts[index].0) else {
                continue;
            };
            self.aborts.swap_remove(index);
            match ended.answer {
                Ok(response) => {
                    let status = response.cqe.status();
                    let fine = [Status::SUCCESS, Status::ABORT_COMMAND_LIMIT_EXCEEDED];
                    assert!(fine.contains(&status), "an Abort: {status}");
                }
                Err(error) => self.check(&error),
            }
        }
    }

    fn answered(
        &mut self,
        pending: &Pending,
        response: &Response,
        data: Option<Vec<u8>>,
        disk: &mut Disk,
    ) {
        let Pending {
            task,
            range,
            ticket,
            ..
        } = pending;
        let status = response.cqe.status();
        world::note(|| format!("{ticket:?}: {status}"));
        assert_eq!(
            response.invalidated_rkey, pending.key,
            "{ticket:?} {task:?}"
        );
        let may_be_aborted = pending.may_be_aborted || self.excused;
        if may_be_aborted && status.code() == Status::ABORT_REQUESTED.code() {
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
        match *task {
            Task::Write { seed } => disk.written(range, seed),
            Task::WriteZeroes => disk.zeroed(range),
            Task::Read => {
                let length = range.len() * disk.block_bytes as usize;
                let found = data.expect("a Read has a buffer");
                if let Some(block) = disk.differs(range, &found[..length]) {
                    panic!(
                        "{ticket:?} read {range:?} of {}: block {block} is wrong",
                        disk.nsid
                    );
                }
            }
            Task::Compare { .. } | Task::Verify | Task::Flush => {}
        }
    }

    pub(crate) fn finish(&mut self, disks: &mut [Disk]) -> Result<(), HostError> {
        while self.pending() > 0 {
            self.step(disks, world::now() + Duration::from_millis(100))?;
        }
        Ok(())
    }

    pub(crate) fn idle(&mut self, disks: &mut [Disk], time: Duration) -> Result<(), HostError> {
        let until = world::now() + time;
        while world::now() < until {
            let latest = until.min(world::now() + Duration::from_millis(500));
            self.step(disks, latest)?;
        }
        Ok(())
    }

    pub(crate) fn read_all(&mut self, disks: &[Disk]) -> Result<(), HostError> {
        for disk in disks {
            let chunk = self.traits.mdts_bytes / disk.block_bytes as usize;
            for first in (0..disk.blocks()).step_by(chunk) {
                let range = first..(first + chunk).min(disk.blocks());
                let length = range.len() * disk.block_bytes as usize;
                let sqe = command::read(disk.nsid, first as u64, range.len() as u32);
                let buffer = self.controller.buffer(length)?;
                let buffer = self
                    .run(sqe, Data::whole(buffer))?
                    .expect("a Read has a buffer");
                if let Some(block) = disk.differs(&range, &buffer.bytes(0, length)) {
                    panic!(
                        "block {block} of namespace {} is wrong in the end",
                        disk.nsid
                    );
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, sqe: Sqe, data: Data<'_>) -> Result<Option<Buffer>, HostError> {
        let ticket = self.controller.submit(sqe, data)?;
        loop {
            if let Some(ended) = self.controller.take(ticket) {
                let status = ended.answer?.cqe.status();
                assert!(status.is_success(), "{status}");
                return Ok(ended.buffer);
            }
            self.step(&mut [], world::now() + PATIENCE)?;
        }
    }

    pub(crate) fn shutdown(&mut self, disks: &mut [Disk]) -> Result<(), HostError> {
        self.controller.shutdown();
        while self.controller.state() != AssociationState::Gone {
            self.step(disks, world::now() + PATIENCE)?;
        }
        Ok(())
    }

    pub(crate) fn reset(&mut self, disks: &mut [Disk]) -> Result<(), HostError> {
        let excused = std::mem::replace(&mut self.excused, true);
        self.controller.reset();
        while !self.controller.is_live() {
            self.step(disks, world::now() + PATIENCE)?;
        }
        self.excused = excused;
        Ok(())
    }

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
