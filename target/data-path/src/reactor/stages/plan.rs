//! Stage 2: plans an I/O command: disk, operation, buffer sizes.

use cairn_disk::{BlockIo, BlockOp, Hints};
use nvme_proto::io::{IoCommand, Operation};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::{Sqe, Status};

use super::buffers;
use super::decisions::{check_writable, must_be_durable, parse};
use super::lists;
use crate::qpair::Association;
use crate::reactor::command::{Command, Stop};
use crate::reactor::copying;
use crate::reactor::disks::{Disk, Disks};
use crate::reactor::io::Io;
use crate::reactor::time::Now;
use crate::request::{Request, Task};

#[cold]
pub(in crate::reactor) fn one_of_pair(
    command: &mut Command<'_>,
    io: &mut Io,
) -> Result<bool, Status> {
    slowly(command, io).or_else(|refused| over_list(command, io, refused))
}

/// Plans a `refused` command again if its SGL is in the capsule.
#[cold]
pub(in crate::reactor) fn over_list(
    command: &mut Command<'_>,
    io: &mut Io,
    refused: Status,
) -> Result<bool, Status> {
    let is_list = refused.code() == Status::SGL_DESCRIPTOR_TYPE_INVALID && lists::fold(command)?;
    if !is_list {
        return Err(refused);
    }
    io.disks.end(command.request, &mut io.ring);
    let planned = slowly(command, io)?;
    lists::spread(command.request);
    Ok(planned)
}

fn slowly(command: &mut Command<'_>, io: &mut Io) -> Result<bool, Status> {
    let queue = &*command.queue;
    let association = queue.association.as_ref();
    let association = association.expect("only commands of I/O queues are planned");
    plan(command.request, association, queue.port, &mut io.disks)
}

const VERIFY_BYTES: u32 = 64 << 10;

#[inline(always)]
pub(in crate::reactor) fn pass(command: Command<'_>, io: &mut Io, now: &Now) -> Stop {
    let queue = &*command.queue;
    let association = match &queue.association {
        Some(association) if association.qid != 0 => association,
        _ => return Stop::NotIo,
    };
    match plan(command.request, association, queue.port, &mut io.disks) {
        Ok(false) => buffers::pass(command, io, now),
        Ok(true) => Stop::Limit,
        Err(status) => Stop::Refused(status),
    }
}

/// Returns true if the command may wait for a limit or is ordered.
#[inline(always)]
fn plan(
    request: &mut Request,
    association: &Association,
    port: usize,
    disks: &mut Disks,
) -> Result<bool, Status> {
    let (controller, subsystem) = (&*association.controller, &*association.subsystem);
    request.subsystem = Some(subsystem.id);
    request.epoch = disks.epoch();
    let found = disks.io_begins(association, request.sqe.nsid.get());
    let disk = found.map(|found| &mut disks[found]);
    if let Some(disk) = &disk {
        disk.check_access(controller)?;
    }
    let (limits, view) = (subsystem.io_limits(), disk.as_ref().map(|disk| &disk.view));
    let command = parse(&request.sqe, request.in_capsule_bytes, view, limits)?;
    let kind = command.operation.kind();
    let mut stops = false;
    if kind.changes() {
        check_writable(disk.as_deref())?;
        stops = disk.as_ref().is_some_and(|disk| disk.is_exclusive);
    }
    if let Some(disk) = &disk {
        disk.check_reservation(controller, kind)?;
    }
    request.task = Task::Io(kind);
    request.transfer = command.transfer;
    plan_blocks(request, command, disk.as_deref(), port, association);
    request.disk = found;
    let Some(disk) = disk else {
        return Ok(false);
    };
    disk.enter();
    stops |= disk.namespace.limiter.stops();
    Ok(stops | subsystem.limiter.stops() | controller.limiter.stops())
}

#[inline(always)]
fn plan_blocks(
    request: &mut Request,
    command: IoCommand,
    disk: Option<&Disk>,
    port: usize,
    association: &Association,
) {
    let (operation, transfer) = (command.operation, command.transfer);
    let access = match operation {
        Operation::Read(access)
        | Operation::Write(access)
        | Operation::Compare(access)
        | Operation::Verify(access)
        | Operation::WriteZeroes { access, .. }
        | Operation::WriteUncorrectable(access) => access,
        Operation::DatasetManagement { .. } => {
            let kept = matches!(transfer, DataTransfer::InCapsule(_));
            request.buffer_bytes = (if kept { 0 } else { transfer.length() }, 0);
            return;
        }
        Operation::Copy(_) => {
            let kept = matches!(transfer, DataTransfer::InCapsule(_));
            let piece = copying::PIECE_BYTES.min(association.subsystem.io_limits().mdts_bytes);
            request.buffer_bytes = (if kept { 0 } else { transfer.length() }, piece);
            return;
        }
        Operation::Flush(_) => return,
    };
    let disk = disk.expect("a command with blocks has a disk");
    let offset = access.range.slba << disk.view.lbads;
    let length = disk.view.bytes(access.range.blocks);
    request.disk_bytes = length;
    request.window = match operation {
        Operation::Read(_) => disk.window(port, length as u32),
        _ => None,
    };
    if request.window.is_none() {
        let durable = must_be_durable(access.fua, &association.controller);
        let op = match operation {
            Operation::Write(_) => BlockOp::Write { durable },
            Operation::Compare(_) if disk.backend().compares() => BlockOp::Compare,
            Operation::Verify(_) => BlockOp::Verify,
            Operation::WriteZeroes { deallocate, .. } => BlockOp::WriteZeroes {
                deallocate,
                durable,
            },
            Operation::WriteUncorrectable(_) => BlockOp::WriteUncorrectable,
            _ => BlockOp::Read,
        };
        let block = BlockIo::new(op, offset, length, None);
        request.plan(block.with_hints(hints(&request.sqe, operation, access.fua)));
        request.buffer_bytes = buffers_for(operation, transfer, disk, length as u32);
    }
}

/// Returns LR from CDW12, and for Read and Write also DSM from CDW13 (NVM, 3.3.4 and 3.3.6).
#[inline(always)]
fn hints(sqe: &Sqe, operation: Operation, fua: bool) -> Hints {
    let moves_data = matches!(operation, Operation::Read(_) | Operation::Write(_));
    Hints {
        fua,
        limited_retry: sqe.cdw12.get() >> 31 != 0,
        attributes: if moves_data { sqe.cdw13.get() as u8 } else { 0 },
    }
}

/// Returns the sizes of the data and scratch buffers in bytes, which MDTS limits to 32 bits.
fn buffers_for(
    operation: Operation,
    transfer: DataTransfer,
    disk: &Disk,
    length: u32,
) -> (u32, u32) {
    let uses_ring = disk.backend().uses_ring();
    match (operation, transfer) {
        (Operation::Verify(_), _) if uses_ring => (length.min(VERIFY_BYTES), 0),
        (
            Operation::Verify(_) | Operation::WriteZeroes { .. } | Operation::WriteUncorrectable(_),
            _,
        ) => (0, 0),
        (Operation::Compare(_), _) if !disk.backend().compares() => {
            let kept = matches!(transfer, DataTransfer::InCapsule(_));
            (if kept { 0 } else { length }, length)
        }
        (_, DataTransfer::InCapsule(slice)) => {
            let alignment = disk.backend().geometry().memory_alignment;
            let usable = slice.offset.is_multiple_of(alignment);
            (if usable { 0 } else { length }, 0)
        }
        _ => (length, 0),
    }
}
