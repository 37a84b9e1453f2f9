//! Decisions on which a plan depends: size, position on disk, access, reservations, write
//! protection, durability.
//!
//! Each change begins an epoch ([`Disks::epoch`]). A command planned in an older epoch is decided
//! again directly before its disk receives it.

use cairn_disk::BlockOp;
use nvme_proto::io::{IoCommand, IoLimits, NamespaceView, Operation, OperationKind};
use nvme_proto::wire::{FabricsType, Sqe, Status};

use crate::qpair::Association;
use crate::reactor::disks::{Disk, Disks};
use crate::registry::ControllerShared;
use crate::request::{Request, Task};

#[inline(always)]
pub(in crate::reactor) fn check_writable(disk: Option<&Disk>) -> Result<(), Status> {
    if disk.is_some_and(|disk| disk.namespace.is_protected()) {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    Ok(())
}

/// Refuses Fabrics commands: a second Connect is out of sequence (Base, 6.3), and
/// [`super::gates::resume`] handles authentication.
#[inline(always)]
pub(in crate::reactor) fn parse(
    sqe: &Sqe,
    in_capsule_bytes: u32,
    view: Option<&NamespaceView>,
    limits: &IoLimits,
) -> Result<IoCommand, Status> {
    if sqe.is_fabrics() {
        return Err(match sqe.fctype() {
            FabricsType::CONNECT => Status::COMMAND_SEQUENCE_ERROR.with_dnr(),
            _ => Status::INVALID_OPCODE.with_dnr(),
        });
    }
    IoCommand::parse(sqe, in_capsule_bytes, view, limits)
}

/// Decides again on a command of an older epoch. With an error, the command must complete with that
/// status instead of reaching its disk.
#[cold]
pub(in crate::reactor) fn renew(
    request: &mut Request,
    association: &Association,
    disks: &Disks,
) -> Result<(), Status> {
    request.epoch = disks.epoch();
    let Task::Io(kind) = request.task else {
        return Ok(());
    };
    let (controller, nsid) = (&*association.controller, request.sqe.nsid.get());
    if matches!(kind, OperationKind::Flush(_)) {
        let disk = request.disk.expect("a flush at a disk");
        return disks[disk].check_reservation(controller, kind);
    }
    // A command whose NSID now belongs to another disk fails, as without a namespace.
    let found = disks.find(association, nsid);
    let disk = found.filter(|found| request.disk == Some(*found));
    let disk = disk.map(|disk| &disks[disk]);
    let (view, limits) = (
        disk.map(|disk| &disk.view),
        association.subsystem.io_limits(),
    );
    let command = parse(&request.sqe, request.in_capsule_bytes, view, limits)?;
    let Some(disk) = disk else {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr());
    };
    disk.check_access(controller)?;
    disk.check_reservation(controller, kind)?;
    if kind.changes() {
        check_writable(Some(disk))?;
    }
    let fua = match command.operation {
        Operation::Write(access) | Operation::WriteZeroes { access, .. } => access.fua,
        Operation::Copy(copy) => copy.fua,
        _ => return Ok(()),
    };
    let op = request.block.as_mut().map(|block| &mut block.op);
    if let Some(BlockOp::Write { durable } | BlockOp::WriteZeroes { durable, .. }) = op {
        *durable = must_be_durable(fua, controller);
    }
    Ok(())
}

#[inline(always)]
pub(in crate::reactor) fn must_be_durable(fua: bool, controller: &ControllerShared) -> bool {
    fua || !controller.write_cache()
}
