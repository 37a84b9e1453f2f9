//! Decisions that a command is planned with: its size and place on the disk, whether its host sees the
//! namespace and may write to it, and whether a write must be durable.
//!
//! A command may wait for a limit, for buffers or for its data, and meanwhile a decision changes. So a reactor
//! counts an epoch ([`Disks::epoch`]), which each such change begins anew, and a command is tagged with the
//! epoch that it was planned in. Directly before its disk gets the command the two are compared, and a command
//! of an older epoch is decided on again.

use cairn_disk::BlockOp;
use nvme_proto::io::{IoCommand, IoLimits, NamespaceView, Operation, OperationKind};
use nvme_proto::wire::{FabricsType, Sqe, Status};

use super::disks::{Disk, Disks};
use crate::qpair::Association;
use crate::registry::ControllerShared;
use crate::request::{Request, Task};

/// Whether hosts have not protected the namespace from writes.
#[inline(always)]
pub(super) fn check_writable(disk: Option<&Disk>) -> Result<(), Status> {
    if disk.is_some_and(|disk| disk.namespace.is_protected()) {
        return Err(Status::NAMESPACE_WRITE_PROTECTED.with_dnr());
    }
    Ok(())
}

/// Fabrics commands have no place on an I/O queue that is connected: a second
/// Connect is out of sequence (Base, 6.3), the others are not supported there. Those of
/// authentication go on from there ([`super::plan::stopped`]).
#[inline(always)]
pub(super) fn parse(
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

/// Decides again on a command of an older epoch, which belongs to the present one from then on.
///
/// # Errors
/// The status that the command ends with: its disk must not get it.
#[cold]
pub(super) fn renew(
    request: &mut Request,
    association: &Association,
    disks: &Disks,
) -> Result<(), Status> {
    request.epoch = disks.epoch();
    let Task::Io(kind) = request.task else {
        return Ok(());
    };
    if matches!(kind, OperationKind::Flush(_)) {
        return Ok(());
    }
    let (controller, nsid) = (&*association.controller, request.sqe.nsid.get());
    // Another disk that has the NSID by now is not the one that the host meant.
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
    if kind.changes() {
        check_writable(Some(disk))?;
    }
    let (Operation::Write(access) | Operation::WriteZeroes { access, .. }) = command.operation
    else {
        return Ok(());
    };
    let op = request.block.as_mut().map(|block| &mut block.op);
    if let Some(BlockOp::Write { durable } | BlockOp::WriteZeroes { durable, .. }) = op {
        *durable = must_be_durable(access.fua, controller);
    }
    Ok(())
}

/// Whether a write completes only once it is durable.
#[inline(always)]
pub(super) fn must_be_durable(fua: bool, controller: &ControllerShared) -> bool {
    fua || !controller.write_cache()
}
