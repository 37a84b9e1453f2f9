//! Stage 3: assignment of data buffers to a request.

use std::time::Duration;

use cairn_disk::{Arena, UNIT};

use super::fetch;
use crate::qpair::QueuePair;
use crate::reactor::command::{Command, Stop};
use crate::reactor::io::Io;
use crate::reactor::queueing::limited::HostDisk;
use crate::reactor::queues::{Queues, Wait};
use crate::reactor::time::Now;
use crate::request::{Request, RequestId, Stage, Task};

pub(in crate::reactor) const PASS_BY: Duration = Duration::from_millis(100);

#[inline(always)]
pub(in crate::reactor) fn pass(command: Command<'_>, io: &mut Io, now: &Now) -> Stop {
    if command.request.buffer_bytes == (0, 0)
        || take_spare(&mut io.arena, command.request, command.queue)
    {
        return fetch::pass(command, io, now);
    }
    Stop::Buffers
}

pub(in crate::reactor) fn enter(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
) -> Stop {
    match claim_share(queues, io, id) {
        true => take(queues, io, now, id),
        false => Stop::Nowhere,
    }
}

fn take_spare(arena: &mut Arena, request: &mut Request, queue: &QueuePair) -> bool {
    let is_io = matches!(request.task, Task::Io(_));
    let (data, scratch) = request.buffer_bytes;
    let small = data as usize <= UNIT && scratch == 0;
    if is_io || !small || queue.requests > 1 {
        return false;
    }
    request.data = arena.take_spare();
    request.data.is_some()
}

/// Reserves buffers within the shares of host and disk, or queues the request and returns false.
fn claim_share(queues: &mut Queues, io: &mut Io, id: RequestId) -> bool {
    let command = queues.command(id);
    let (share, request) = (command.share(), command.request);
    let disk = request.disk;
    let key = HostDisk { share, disk };
    if !io.shares.has_queued(&key) && io.shares.promise(request, share, &mut io.disks) {
        return true;
    }
    queues.count_wait(id, Wait::Share);
    io.shares.wait(&mut queues.requests, id, key);
    false
}

pub(in crate::reactor) fn take(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) -> Stop {
    let first = io.awaiting_buffer.is_empty() || others_pass(io, now);
    if first && take_both(&mut io.arena, &mut queues.requests[id]) {
        return fetch::pass(queues.command(id), io, now);
    }
    queues.count_wait(id, Wait::Pool);
    let waiting = &mut io.awaiting_buffer;
    queues
        .requests
        .push_back(waiting, id, Stage::AwaitingBuffer);
    Stop::Nowhere
}

/// Takes both buffers or none, because waiting for the second could deadlock.
fn take_both(arena: &mut Arena, request: &mut Request) -> bool {
    let (data, scratch) = request.buffer_bytes;
    let pool = arena.pool();
    let data = match data {
        0 => None,
        length => match pool.take(length as usize) {
            Some(buffer) => Some(buffer),
            None => return false,
        },
    };
    if scratch > 0 {
        let Some(buffer) = pool.take(scratch as usize) else {
            if let Some(data) = data {
                pool.give(data);
            }
            return false;
        };
        request.scratch = Some(buffer);
    }
    request.data = data;
    true
}

pub(in crate::reactor) fn next(queues: &mut Queues, io: &mut Io, now: &Now) -> Option<RequestId> {
    let first = io.awaiting_buffer.front();
    let next = first.filter(|&id| take_both(&mut io.arena, &mut queues.requests[id]));
    if first.is_some() && next.is_none() {
        io.buffers_short.get_or_insert(now.at);
        return None;
    }
    io.buffers_short = None;
    queues.requests.pop_front(&mut io.awaiting_buffer)
}

/// True in every second period of [`PASS_BY`]: later requests may overtake the first waiting
/// request, which may need the buffer of a hanging request. In the other periods they wait, so that
/// the first request does not starve.
fn others_pass(io: &Io, now: &Now) -> bool {
    io.buffers_short.is_some_and(|since| {
        let turns = now.at.duration_since(since).as_nanos() / PASS_BY.as_nanos();
        turns % 2 == 1
    })
}

pub(in crate::reactor) fn pass_by(queues: &mut Queues, io: &mut Io, now: &Now) -> Vec<RequestId> {
    let mut served = Vec::new();
    if io.awaiting_buffer.is_empty() || !others_pass(io, now) {
        return served;
    }
    let mut waiting = std::mem::take(&mut io.awaiting_buffer);
    let requests = &mut queues.requests;
    while let Some(id) = requests.pop_front(&mut waiting) {
        if take_both(&mut io.arena, &mut requests[id]) {
            served.push(id);
        } else {
            requests.push_back(&mut io.awaiting_buffer, id, Stage::AwaitingBuffer);
        }
    }
    served
}
