//! Stage 3: assignment of data buffers to a request.

use std::time::Duration;

use cairn_disk::{Arena, UNIT};

use super::fetch;
use crate::qpair::QueuePair;
use crate::reactor::command::{Command, Stop};
use crate::reactor::io::Io;
use crate::reactor::queues::{Queues, Wait};
use crate::reactor::time::Now;
use crate::request::{Request, RequestId, Stage, Task};

/// Period of [`others_pass`].
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

pub(in crate::reactor) fn stopped(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    stop: Stop,
) {
    if stop != Stop::Buffers {
        return fetch::stopped(queues, io, now, id, stop);
    }
    if claim_share(queues, io, id) {
        acquire_promised(queues, io, now, id);
    }
}

pub(in crate::reactor) fn acquire(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let stop = pass(queues.command(id), io, now);
    stopped(queues, io, now, id, stop);
}

fn go_on(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let stop = fetch::pass(queues.command(id), io, now);
    fetch::stopped(queues, io, now, id, stop);
}

/// Assigns the spare buffer, for the sole command of an admin queue or a connection without
/// association.
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
    let behind = io.shares.has_line(share, request.disk);
    if !behind && io.shares.promise(request, share, &mut io.disks) {
        return true;
    }
    queues.count_wait(id, Wait::Share);
    io.shares.wait(&mut queues.requests, id, share);
    false
}

fn acquire_promised(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let first = io.awaiting_buffer.is_empty() || others_pass(io, now);
    if first && take_both(&mut io.arena, &mut queues.requests[id]) {
        return go_on(queues, io, now, id);
    }
    queues.count_wait(id, Wait::Pool);
    let waiting = &mut io.awaiting_buffer;
    queues
        .requests
        .push_back(waiting, id, Stage::AwaitingBuffer);
}

/// Takes both buffers or none, because waiting for the second one could deadlock.
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

pub(in crate::reactor) fn serve_shares(queues: &mut Queues, io: &mut Io, now: &Now) {
    while let Some(id) = io.shares.next(&mut queues.requests, &mut io.disks) {
        acquire_promised(queues, io, now, id);
    }
}

pub(in crate::reactor) fn serve_pool(queues: &mut Queues, io: &mut Io, now: &Now) {
    while let Some(id) = io.awaiting_buffer.front() {
        if !take_both(&mut io.arena, &mut queues.requests[id]) {
            io.buffers_short.get_or_insert(now.at);
            return;
        }
        io.buffers_short = None;
        queues.requests.pop_front(&mut io.awaiting_buffer);
        go_on(queues, io, now, id);
    }
    io.buffers_short = None;
}

/// Returns true in every second period of [`PASS_BY`]: requests may pass the first waiting one,
/// which may need a hanging request's buffer, but must not starve.
fn others_pass(io: &Io, now: &Now) -> bool {
    io.buffers_short.is_some_and(|since| {
        let turns = now.at.duration_since(since).as_nanos() / PASS_BY.as_nanos();
        turns % 2 == 1
    })
}

pub(in crate::reactor) fn pass_by(queues: &mut Queues, io: &mut Io, now: &Now) -> bool {
    if io.awaiting_buffer.is_empty() || !others_pass(io, now) {
        return false;
    }
    let (mut waiting, mut served) = (std::mem::take(&mut io.awaiting_buffer), Vec::new());
    let requests = &mut queues.requests;
    while let Some(id) = requests.pop_front(&mut waiting) {
        if take_both(&mut io.arena, &mut requests[id]) {
            served.push(id);
        } else {
            requests.push_back(&mut io.awaiting_buffer, id, Stage::AwaitingBuffer);
        }
    }
    for &id in &served {
        go_on(queues, io, now, id);
    }
    !served.is_empty()
}
