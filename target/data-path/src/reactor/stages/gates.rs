//! Gates at which a command may wait; `docs/walk.md` lists them.
//!
//! A Copy passes the rate limits once its ranges are known. Gates with keys use
//! [`FairQueue`](crate::fair_queue::FairQueue), other gates a list. Reactors share only the token
//! buckets of rate limits ([`crate::limits`]).

use nvme_proto::controller::AuthenticationRequest;
use nvme_proto::io::Cancel;
use nvme_proto::reservation;
use nvme_proto::wire::Status;

use super::{budget, buffers, disk, fetch, plan, respond, throttle};
use crate::reactor::command::Stop;
use crate::reactor::copying;
use crate::reactor::io::Io;
use crate::reactor::queues::Queues;
use crate::reactor::time::Now;
use crate::request::RequestId;

/// Continues a stopped command until it waits, is at the disk, or completes.
pub(in crate::reactor) fn resume(
    queues: &mut Queues,
    io: &mut Io,
    now: &Now,
    id: RequestId,
    mut stop: Stop,
) {
    loop {
        stop = match stop {
            Stop::Nowhere => return,
            Stop::NotIo => return budget::enter(queues, io, now, id),
            Stop::Refused(status) => refused(queues, io, now, id, status),
            Stop::Limit => throttle::enter(queues, io, now, id),
            Stop::Buffers => buffers::enter(queues, io, now, id),
            Stop::Fetch => fetch::enter(queues, io, now, id),
            Stop::Disk => return disk::enter(queues, io, now, id),
            Stop::Respond => return respond::enter(queues, io, now, id),
        }
    }
}

#[cold]
fn refused(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId, status: Status) -> Stop {
    let status = match plan::over_list(&mut queues.command(id), io, status) {
        Ok(true) => return Stop::Limit,
        Ok(false) => return buffers::pass(queues.command(id), io, now),
        Err(status) => status,
    };
    let sqe = &queues.requests[id].sqe;
    let is_later = AuthenticationRequest::is_one(sqe)
        || reservation::Request::is_one(sqe)
        || Cancel::is_one(sqe);
    match is_later {
        true => budget::enter(queues, io, now, id),
        false => respond::fail(queues, io, now, id, status),
    }
    Stop::Nowhere
}

pub(in crate::reactor) fn acquire(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let stop = buffers::pass(queues.command(id), io, now);
    resume(queues, io, now, id, stop);
}

#[inline(always)]
pub(in crate::reactor) fn serve_limited(queues: &mut Queues, io: &mut Io, now: &Now) -> bool {
    now.ns >= io.limited.next_ns && serve_due(queues, io, now)
}

#[cold]
fn serve_due(queues: &mut Queues, io: &mut Io, now: &Now) -> bool {
    throttle::wake(queues, io);
    let mut any = false;
    while let Some(id) = throttle::next(queues, io, now) {
        let request = &mut queues.requests[id];
        if copying::has_ranges(request) {
            // `io_timeout` begins now.
            request.times.fetched(now.ns);
            resume(queues, io, now, id, Stop::Disk);
        } else {
            acquire(queues, io, now, id);
        }
        any = true;
    }
    any
}

pub(in crate::reactor) fn serve_buffers(queues: &mut Queues, io: &mut Io, now: &Now) {
    while let Some(id) = io.shares.next(&mut queues.requests, &mut io.disks) {
        let stop = buffers::take(queues, io, now, id);
        resume(queues, io, now, id, stop);
    }
    while let Some(id) = buffers::next(queues, io, now) {
        fetch_data(queues, io, now, id);
    }
}

pub(in crate::reactor) fn pass_by(queues: &mut Queues, io: &mut Io, now: &Now) -> bool {
    let served = buffers::pass_by(queues, io, now);
    for &id in &served {
        fetch_data(queues, io, now, id);
    }
    !served.is_empty()
}

fn fetch_data(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    let stop = fetch::pass(queues.command(id), io, now);
    resume(queues, io, now, id, stop);
}
