//! Data in several pieces of host memory, described by an SGL in the capsule.
//!
//! The capsule is released at once, so that a hanging disk keeps no receives. The pieces are
//! transferred in as many steps as credits and requests require; the last work request of
//! a step completes all.

use std::time::Instant;

use cairn_disk::Arena;
use cairn_rdma::{Operation, RemoteBuffer, SendWork, Sge, SgeList};
use nvme_proto::transfer::{DataTransfer, Direction, LIST_BYTES_MAX, Piece, SglList};
use nvme_proto::wire::Status;

use crate::qpair::QueuePair;
use crate::reactor::command::Command;
use crate::reactor::io::Io;
use crate::request::{OWN_WORK, Request, Stage};
use crate::work_id::WorkKind;

/// Moves an SGL from the capsule to the request; returns false without one.
#[cold]
pub(in crate::reactor) fn fold(command: &mut Command<'_>) -> Result<bool, Status> {
    let request = &*command.request;
    let Some(descriptors) = SglList::locate(&request.sqe, request.in_capsule_bytes)? else {
        return Ok(false);
    };
    let slot = request.receive.expect("a capsule with data has a slot");
    let mut bytes = [0; LIST_BYTES_MAX];
    let bytes = &mut bytes[..descriptors.length as usize];
    let direction = Direction::of(&request.sqe);
    let port = command.port().expect("an open queue pair has a port");
    port.slots()
        .read_data(slot, descriptors.offset as usize, bytes);
    let list = SglList::parse(bytes, direction)?;
    command.release_receive();
    let request = &mut *command.request;
    request.sqe.dptr = list.as_one();
    match &mut request.list {
        Some(kept) => **kept = list,
        none => *none = Some(Box::new(list)),
    }
    Ok(true)
}

#[cold]
pub(in crate::reactor) fn spread(request: &mut Request) {
    request.transfer = request.transfer.over(list_of(request));
}

fn list_of(request: &Request) -> &SglList {
    request.list.as_ref().expect("a list was folded")
}

#[inline]
pub(super) fn is_response(request: &Request) -> bool {
    matches!(request.transfer, DataTransfer::ToHostList(_))
}

#[inline]
pub(super) fn may_respond(queue: &QueuePair) -> bool {
    queue.send_credits >= OWN_WORK
}

/// Posts WRITEs after [`may_respond`]. Returns true if the response may follow.
#[cold]
pub(super) fn write(command: &mut Command<'_>, arena: &Arena, now: Instant) -> bool {
    let Command {
        request,
        queue,
        free,
        ..
    } = command;
    let left = pieces_left(request);
    let work = free.lend((left + 1).min(queue.send_credits));
    queue.send_credits -= work;
    request.send_work = work as u8;
    let ends = work > left;
    let writes = work.min(left);
    command.make_room(work as usize);
    command.mark_dirty();
    let (id, lkey) = (command.id, lkey_of(command));
    let Command { request, queue, .. } = command;
    let mut bytes = 0;
    for (piece, is_last) in next_pieces(request, writes) {
        bytes += piece.buffer.length;
        let signaled = is_last && !ends;
        let kind = match signaled {
            true => WorkKind::LastWrite,
            false => WorkKind::Write,
        };
        let write = SendWork {
            id: request.work_id(id, kind),
            op: Operation::Write(remote(&piece)),
            sges: part(request, arena, lkey, &piece),
            signaled,
        };
        queue.outbox.push_write(write, piece.buffer.length);
    }
    request.steps_done += writes;
    if ends {
        queue.outbox.add_data(bytes);
    } else {
        queue.work_posted(now);
        request.set_stage(Stage::Running, Stage::Writing);
    }
    ends
}

#[cold]
pub(super) fn begin_reads(mut command: Command<'_>, io: &Io, now: Instant) {
    command.queue.work_posted(now);
    let Command {
        request,
        queue,
        free,
        ..
    } = &mut command;
    let most = queue.read_credits.min(queue.send_credits);
    let reads = free.lend(pieces_left(request).min(most));
    queue.read_credits -= reads;
    queue.send_credits -= reads;
    request.send_work = reads as u8;
    request.set_stage(Stage::Running, Stage::Reading);
    command.make_room(reads as usize);
    command.mark_dirty();
    let (id, lkey) = (command.id, lkey_of(&command));
    let Command { request, queue, .. } = &mut command;
    for (piece, is_last) in next_pieces(request, reads) {
        let kind = match is_last {
            true => WorkKind::LastRead,
            false => WorkKind::CoveredRead,
        };
        queue.outbox.push_other(SendWork {
            id: request.work_id(id, kind),
            op: Operation::Read(remote(&piece)),
            sges: part(request, &io.arena, lkey, &piece),
            signaled: is_last,
        });
    }
    request.steps_done += reads;
}

/// Returns the credits of all READs but one. Returns true if pieces remain.
#[cold]
pub(super) fn reads_ended(command: &mut Command<'_>) -> bool {
    let Command {
        request,
        queue,
        free,
        ..
    } = command;
    let reads = request.send_work.into();
    queue.read_credits += reads - 1;
    queue.send_credits += reads - 1;
    free.give_back(reads);
    let remain = pieces_left(request) > 0;
    if !remain {
        // The disk counts its own steps.
        request.steps_done = 0;
    }
    remain
}

fn pieces_left(request: &Request) -> u32 {
    match request.transfer {
        DataTransfer::ToHostList(list) | DataTransfer::FromHostList(list) => {
            u32::from(list.pieces) - request.steps_done
        }
        _ => unreachable!("only lists have pieces"),
    }
}

fn next_pieces(request: &Request, count: u32) -> impl Iterator<Item = (Piece, bool)> {
    let all = list_of(request).pieces(request.transfer.length());
    let next = all.skip(request.steps_done as usize).zip(1..=count);
    next.map(move |(piece, number)| (piece, number == count))
}

fn lkey_of(command: &Command<'_>) -> u32 {
    let port = command.ports[command.queue.port].as_ref();
    port.expect("an open queue pair has a port").arena_lkey()
}

fn part(request: &Request, arena: &Arena, lkey: u32, piece: &Piece) -> SgeList {
    let whole = request.local_data(arena, lkey, request.transfer.length());
    SgeList::one(Sge {
        addr: whole.addr + u64::from(piece.at),
        length: piece.buffer.length,
        lkey: whole.lkey,
    })
}

fn remote(piece: &Piece) -> RemoteBuffer {
    RemoteBuffer {
        addr: piece.buffer.address,
        rkey: piece.buffer.rkey,
    }
}
