//! Commands of I/O queues: from the parsed command to the backend and back.

use cairn_rdma::peer_line;
use nvme_proto::ana;
use nvme_proto::controller::error_log::Failure;
use nvme_proto::io::{
    DATASET_RANGE_BYTES, DATASET_RANGES_MAX, DatasetRanges, FlushScope, IoCommand, NamespaceView,
    Operation, ReadCommand,
};
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::{NvmOpcode, Sqe, Status};

use super::Reactor;
use super::disks::{Disk, Disks};
use super::predecessors::changes;
use super::turns::Turn;
use crate::backend::{BlockIo, BlockOp, Errno, Progress};
use crate::qpair::Association;
use crate::registry::ControllerShared;
use crate::request::{Request, RequestId, Stage, Task};
use crate::ring::Span;
use crate::work_id::{WorkId, WorkKind};

/// The largest buffer that a Verify reads through.
const VERIFY_BYTES: u32 = 64 << 10;

/// Works out what the backend is to do for a request, which bytes the device moves
/// by itself, and which buffers the rest takes.
fn plan(
    request: &mut Request,
    command: IoCommand,
    disk: Option<&Disk>,
    port: usize,
    controller: &ControllerShared,
) {
    let (operation, transfer) = (command.operation, command.transfer);
    request.task = Task::Io(operation);
    request.transfer = transfer;
    let access = match operation {
        Operation::Read(access)
        | Operation::Write(access)
        | Operation::Compare(access)
        | Operation::Verify(access)
        | Operation::WriteZeroes { access, .. } => access,
        Operation::DatasetManagement { .. } => {
            let kept = matches!(transfer, DataTransfer::InCapsule(_));
            request.wants = (if kept { 0 } else { transfer.length() }, 0);
            return;
        }
        Operation::Flush(_) => return,
    };
    let durable = access.fua || !controller.write_cache();
    let op = match operation {
        Operation::Write(_) => BlockOp::Write { durable },
        Operation::Verify(_) => BlockOp::Verify,
        Operation::WriteZeroes { deallocate, .. } => BlockOp::WriteZeroes {
            deallocate,
            durable,
        },
        _ => BlockOp::Read,
    };
    let disk = disk.expect("a command with blocks has a disk");
    let offset = access.range.slba << disk.view.lbads;
    let length = disk.view.bytes(access.range.blocks);
    request.disk_bytes = length;
    request.window = match (operation, transfer) {
        (Operation::Write(_), DataTransfer::FromHost(_)) => {
            disk.window(port, true, offset, length as u32)
        }
        _ => None,
    };
    if request.window.is_none() {
        request.block = Some(BlockIo::new(op, offset, length, None));
        request.wants = buffers_for(operation, transfer, disk, length as u32);
    }
}

/// Bytes of buffers that a command wants without a window: (data, scratch). MDTS
/// keeps the length within 32 bits.
fn buffers_for(
    operation: Operation,
    transfer: DataTransfer,
    disk: &Disk,
    length: u32,
) -> (u32, u32) {
    let is_asked = disk.backend().is_asked();
    match (operation, transfer) {
        (Operation::Verify(_), _) if is_asked => (length.min(VERIFY_BYTES), 0),
        (Operation::Verify(_) | Operation::WriteZeroes { .. }, _) => (0, 0),
        (Operation::Compare(_), DataTransfer::InCapsule(_)) => (0, length),
        (Operation::Compare(_), _) => (length, length),
        (_, DataTransfer::InCapsule(slice)) => {
            let alignment = disk.backend().geometry().memory_alignment;
            let usable = slice.offset.is_multiple_of(alignment);
            (if usable { 0 } else { length }, 0)
        }
        _ => (length, 0),
    }
}

/// How an I/O command begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    /// A read, which is done: the device takes the bytes from the disk's memory by
    /// itself, as it sends them.
    Read,
    /// It goes on with what it wants.
    Other,
}

/// Parses a command, finds its disk, and plans what it needs.
// Inlined, as what it calls: what they find out then stays in registers.
#[inline(always)]
pub(super) fn begin_io(
    request: &mut Request,
    association: &Association,
    port: usize,
    disks: &mut Disks,
) -> Result<Begun, Status> {
    let (controller, subsystem) = (&*association.controller, &*association.subsystem);
    request.busy = Some(subsystem.id);
    let found = disks.io_begins(subsystem.id, request.sqe.nsid.get());
    let disk = found.map(|found| &mut disks[found]);
    if let Some(disk) = &disk {
        check_access(controller, disk)?;
    }
    let (limits, view) = (subsystem.io_limits(), disk.as_ref().map(|disk| &disk.view));
    let is_read = NvmOpcode(request.sqe.opc) == NvmOpcode::READ;
    if is_read {
        let read = ReadCommand::parse(&request.sqe, view, limits)?;
        plan_read(request, read, disk.as_deref(), port);
    } else {
        let command = parse(&request.sqe, request.in_capsule_bytes, view, limits)?;
        check_predecessors(controller, command.operation, request.sqe.nsid.get())?;
        plan(request, command, disk.as_deref(), port, controller);
    }
    request.disk = found;
    if let Some(disk) = disk {
        disk.enter();
    }
    if is_read && request.window.is_some() {
        Ok(Begun::Read)
    } else {
        Ok(Begun::Other)
    }
}

/// The same for a read.
#[inline(always)]
fn plan_read(request: &mut Request, read: ReadCommand, disk: Option<&Disk>, port: usize) {
    request.task = Task::Io(Operation::Read(read.access));
    request.transfer = DataTransfer::ToHost(read.buffer);
    let disk = disk.expect("a command with blocks has a disk");
    let offset = read.access.range.slba << disk.view.lbads;
    // All that is read goes to the host.
    let length = read.buffer.length;
    request.disk_bytes = u64::from(length);
    request.window = disk.window(port, false, offset, length);
    if request.window.is_none() {
        let block = BlockIo::new(BlockOp::Read, offset, u64::from(length), None);
        request.block = Some(block);
        request.wants = (length, 0);
    }
}

impl Reactor {
    /// The buffers are there, and the host's data in them: asks the backend.
    pub(super) fn execute_io(&mut self, id: RequestId, operation: Operation) {
        match operation {
            Operation::Read(_) | Operation::Write(_) => {
                let request = &self.requests[id];
                let span = match (request.data.is_some(), request.transfer) {
                    (true, _) => self.data_span(id),
                    (false, DataTransfer::InCapsule(_)) => self.capsule_span(id),
                    // The device moved the data, or will: there is nothing to do.
                    (false, _) => return self.succeed_io(id),
                };
                self.begin_block(id, Some(span));
            }
            Operation::Compare(_) => self.begin_block(id, Some(self.scratch_span(id))),
            Operation::Verify(_) => {
                let span = self.requests[id].data.is_some().then(|| self.data_span(id));
                self.begin_block(id, span);
            }
            Operation::WriteZeroes { .. } => self.begin_block(id, None),
            Operation::Flush(scope) => self.flush_disks(id, scope),
            Operation::DatasetManagement { deallocate, .. } => self.deallocate(id, deallocate),
        }
    }

    /// Asks the backend, and goes on if it is done at once.
    pub(super) fn begin_block(&mut self, id: RequestId, span: Option<Span>) {
        if let Progress::Done(result) = self.start_block(id, span) {
            self.block_ended(id, result);
        }
    }

    /// Asks the backend: either it has the request now, or it is done.
    fn start_block(&mut self, id: RequestId, span: Option<Span>) -> Progress {
        let block = self.requests[id].block.as_mut();
        block.expect("block I/O is planned").span = span;
        if self.waits_for_turn(id) {
            return Progress::Pending;
        }
        self.hand_over(id)
    }

    /// Hands a request to the backend: it is its turn.
    pub(super) fn hand_over(&mut self, id: RequestId) -> Progress {
        let tag = self.requests.work_id(id, WorkKind::Block);
        let request = &mut self.requests[id];
        let disk = &mut self.disks[request.disk.expect("block I/O has a disk")];
        let block = request.block.as_mut().expect("block I/O is planned");
        if block.op.changes() {
            self.ring
                .set_lease(self.qpairs[request.qpair].lease_end_ns());
        }
        let progress = disk
            .namespace
            .backend
            .begin(block, &mut self.ring, disk.file, tag);
        if progress == Progress::Pending {
            if let Some(turn) = Turn::of(block.op) {
                disk.turns.begins(turn);
            }
            self.requests
                .set_stage(id, Stage::Running, Stage::InBackend);
        }
        progress
    }

    /// The ring finished a step of block I/O.
    pub(super) fn block_step_ended(&mut self, work: WorkId, result: Result<u32, i32>) {
        let id = self.requests.find(work);
        let tag = work.encode();
        let result = match result {
            Err(libc::ECANCELED) => Err(self.why_cancelled(id)),
            result => result,
        };
        let request = &mut self.requests[id];
        assert_eq!(request.stage(), Stage::InBackend, "{id:?}");
        let disk = &self.disks[request.disk.expect("block I/O has a disk")];
        let block = request.block.as_mut().expect("block I/O is planned");
        if !self.qpairs[request.qpair].is_open() {
            // Nobody waits for it, and the memory of its device may be gone.
            block.stop();
        }
        if block.op.changes() {
            self.ring
                .set_lease(self.qpairs[request.qpair].lease_end_ns());
        }
        let progress = disk
            .backend()
            .resume(block, result, &mut self.ring, disk.file, tag);
        let (ended, stopped) = match progress {
            Progress::Done(result) => (Some(result), block.is_stopped()),
            Progress::Pending => return,
            Progress::Later => (None, false),
        };
        if let (Some(turn), Some(disk)) = (Turn::of(block.op), request.disk) {
            self.turn_ended(disk, turn, ended);
        }
        let Some(result) = ended else {
            return self.retry_later(id);
        };
        self.requests
            .set_stage(id, Stage::InBackend, Stage::Running);
        let is_open = self.qpairs[self.requests[id].qpair].is_open();
        let cancelled = stopped && result == Err(Errno(libc::ECANCELED));
        if !is_open {
            self.abandon(id);
        } else if cancelled && self.is_aborting(tag) {
            self.finish(id, Status::ABORT_REQUESTED, 0);
        } else {
            self.block_ended(id, result);
        }
        if stopped {
            self.abort_ended(tag, cancelled);
        }
    }

    /// Nobody took this operation back: then it was a change whose lease had ended before it
    /// could begin. The association ends now, before an answer could leave. If its host was
    /// heard in time, while the change waited for its turn, it is tried again.
    #[cold]
    fn why_cancelled(&mut self, id: RequestId) -> i32 {
        let request = &self.requests[id];
        let block = request.block.as_ref().expect("block I/O is planned");
        let qpair = request.qpair;
        if block.is_stopped() || !self.qpairs[qpair].is_open() {
            return libc::ECANCELED;
        }
        let now_ns = self.clock.now().duration_since(self.started).as_nanos() as u64;
        if !self.qpairs[qpair].is_over(now_ns) {
            return libc::EAGAIN;
        }
        self.expire(qpair);
        libc::ECANCELED
    }

    /// The backend is done with what it was asked for.
    pub(super) fn block_ended(&mut self, id: RequestId, result: Result<(), Errno>) {
        if let Err(errno) = result {
            return self.fail_block(id, errno);
        }
        let Task::Io(operation) = self.requests[id].task else {
            unreachable!("only I/O commands have block I/O")
        };
        match operation {
            Operation::Compare(_) if !self.matches(id) => {
                self.fail_io(id, Status::COMPARE_FAILURE);
            }
            Operation::Flush(FlushScope::All) => self.flush_all(id),
            Operation::DatasetManagement { deallocate, .. } => self.deallocate(id, deallocate),
            _ => self.succeed_io(id),
        }
    }

    fn flush_disks(&mut self, id: RequestId, scope: FlushScope) {
        match scope {
            FlushScope::Namespace => {
                self.requests[id].block = Some(BlockIo::new(BlockOp::Flush, 0, 0, None));
                self.begin_block(id, None);
            }
            FlushScope::All => self.flush_all(id),
        }
    }

    /// Flushes the namespaces that are left, one after another.
    fn flush_all(&mut self, id: RequestId) {
        let subsystem = self.subsystem_id(id);
        loop {
            self.leave_disk(id);
            let next = self.disks.next(subsystem, self.requests[id].steps_done);
            let Some((passed, disk)) = next else {
                return self.succeed_io(id);
            };
            let queue = &self.qpairs[self.requests[id].qpair];
            let association = queue.association.as_ref();
            let controller = &association.expect("an I/O queue is connected").controller;
            if let Err(status) = check_access(controller, &self.disks[disk]) {
                return self.fail_io(id, status);
            }
            self.disks.enter(disk);
            let request = &mut self.requests[id];
            request.steps_done = passed;
            request.disk = Some(disk);
            request.block = Some(BlockIo::new(BlockOp::Flush, 0, 0, None));
            match self.start_block(id, None) {
                Progress::Pending | Progress::Later => return,
                Progress::Done(Ok(())) => {}
                Progress::Done(Err(errno)) => return self.fail_block(id, errno),
            }
        }
    }

    /// Deallocates the ranges that are left, one after another; all of them are
    /// checked before the first is acted on.
    fn deallocate(&mut self, id: RequestId, deallocate: bool) {
        let mut bytes = [0; DATASET_RANGES_MAX * DATASET_RANGE_BYTES];
        let data = &mut bytes[..self.requests[id].transfer.length() as usize];
        self.ring.peek(self.input_span(id), data);
        let disk = self.requests[id].disk;
        let view = self.disks[disk.expect("a command with ranges has a disk")].view;
        let ranges = match DatasetRanges::parse(data, &view) {
            Ok(ranges) => ranges,
            Err(status) => return self.fail_io(id, status),
        };
        let left = ranges.iter().skip(self.requests[id].steps_done as usize);
        for range in left.filter(|_| deallocate) {
            let (offset, length) = (range.slba << view.lbads, view.bytes(range.blocks));
            let request = &mut self.requests[id];
            request.steps_done += 1;
            request.block = Some(BlockIo::new(BlockOp::Deallocate, offset, length, None));
            match self.start_block(id, None) {
                Progress::Pending | Progress::Later => return,
                Progress::Done(Ok(())) => {}
                Progress::Done(Err(errno)) => return self.fail_block(id, errno),
            }
        }
        self.succeed_io(id);
    }

    /// Whether the disk has what the host sent.
    fn matches(&self, id: RequestId) -> bool {
        self.ring.equal(self.input_span(id), self.scratch_span(id))
    }

    #[inline]
    fn succeed_io(&mut self, id: RequestId) {
        self.finish(id, Status::SUCCESS, 0);
    }

    fn fail_block(&mut self, id: RequestId, errno: Errno) {
        let block = self.requests[id].block.expect("block I/O was planned");
        // Why it was cancelled is in the log already.
        if errno != Errno(libc::ECANCELED) {
            self.association(id)
                .subsystem
                .counters(self.index)
                .media_errors
                .add(1);
            self.report_failure(id, block, errno);
            let disk = self.requests[id].disk.expect("block I/O has a disk");
            if self.disks[disk].backend().is_failed() {
                self.association(id).subsystem.show_losses();
            }
        }
        self.fail_io(id, status_of(block.op, errno));
    }

    /// A disk that fails fails often: one line a second tells as much as all.
    fn report_failure(&mut self, id: RequestId, block: BlockIo, errno: Errno) {
        let disk = self.requests[id].disk.expect("block I/O has a disk");
        let Some(line) = self.disks[disk].failure_to_report(self.now) else {
            return;
        };
        let queue = &self.qpairs[self.requests[id].qpair];
        peer_line!(warn, line,
            host = queue.host_nqn(), subsystem = queue.subsystem_nqn(),
            nsid = self.requests[id].sqe.nsid.get(), op = ?block.op, offset = block.offset,
            length = block.length, error = %std::io::Error::from_raw_os_error(errno.0),
            "the disk failed a command"
        );
    }

    /// Ends a command with an error, which the host finds in its error log too.
    pub(super) fn fail_io(&mut self, id: RequestId, status: Status) {
        let sqe = &self.requests[id].sqe;
        let association = self.association(id);
        let of_blocks =
            self.requests[id].block.is_some() || status.code() == Status::LBA_OUT_OF_RANGE;
        let failure = Failure {
            sqid: association.qid,
            cid: sqe.cid.get(),
            status,
            byte: None,
            lba: if of_blocks { sqe.cdw10_11() } else { 0 },
            nsid: sqe.nsid.get(),
        };
        association.controller.record_failure(failure);
        self.finish(id, status.with_more(), 0);
    }

    /// Aborts a command that has not got anywhere yet. A host that breaks the rules has
    /// several of one CID: each that was taken out is answered.
    pub(super) fn abort(&mut self, qpair: crate::ids::QpairId, cid: u16, abort_cid: u16) {
        let Some(queue) = self.qpairs.get(qpair) else {
            return;
        };
        let Some(association) = queue.association.clone() else {
            return;
        };
        let victim = |request: &Request| request.qpair == qpair && request.cid() == cid;
        let mut found = Vec::new();
        let mut take = |id| found.push(id);
        self.requests
            .take_out(&mut self.awaiting_buffer, victim, &mut take);
        self.shares.take_out(&mut self.requests, victim, &mut take);
        let reads = &mut self.qpairs[qpair].awaiting_read;
        self.requests.take_out(reads, victim, &mut take);
        self.take_from_backend(qpair, cid)
            .into_iter()
            .for_each(take);
        let aborted = !found.is_empty();
        if !aborted && self.abort_in_backend(qpair, cid, abort_cid) {
            return;
        }
        for id in found {
            self.finish(id, Status::ABORT_REQUESTED, 0);
        }
        let cntlid = association.controller.cntlid();
        association.subsystem.abort_done(cntlid, abort_cid, aborted);
    }

    /// The request has nothing more to do with its disk.
    #[inline]
    pub(super) fn leave_disk(&mut self, id: RequestId) {
        if let Some(disk) = self.requests[id].disk.take() {
            self.disks.leave(disk, &mut self.ring);
        }
    }

    fn association(&self, id: RequestId) -> &Association {
        let association = self.qpairs[self.requests[id].qpair].association.as_ref();
        association.expect("an I/O queue is connected")
    }

    fn subsystem_id(&self, id: RequestId) -> u32 {
        self.association(id).subsystem.id
    }
}

/// Whether the disk can be used by way of this controller (Base, 8.1.3).
#[inline(always)]
fn check_access(controller: &ControllerShared, disk: &Disk) -> Result<(), Status> {
    ana::check_access(controller.ana_state(disk.namespace.anagrpid()))
}

/// Whether no command of a former association of the host may still land on the
/// namespace after this one. Without DNR: it will be so.
#[inline(always)]
fn check_predecessors(
    controller: &ControllerShared,
    operation: Operation,
    nsid: u32,
) -> Result<(), Status> {
    match controller.ward() {
        Some(ward) if changes(operation) && ward.blocks(nsid) => Err(Status::NAMESPACE_NOT_READY),
        _ => Ok(()),
    }
}

/// Fabrics commands have no place on an I/O queue that is connected: a second
/// Connect is out of sequence (Base, 6.3), the others are not supported there.
#[inline]
fn parse(
    sqe: &Sqe,
    in_capsule_bytes: u32,
    view: Option<&NamespaceView>,
    limits: &nvme_proto::io::IoLimits,
) -> Result<IoCommand, Status> {
    use nvme_proto::wire::FabricsType;
    if sqe.is_fabrics() {
        return Err(match sqe.fctype() {
            FabricsType::CONNECT => Status::COMMAND_SEQUENCE_ERROR.with_dnr(),
            _ => Status::INVALID_OPCODE.with_dnr(),
        });
    }
    IoCommand::parse(sqe, in_capsule_bytes, view, limits)
}

/// What a disk's error is in NVMe's terms. Without DNR where another try, or
/// another path, may do better.
fn status_of(op: BlockOp, errno: Errno) -> Status {
    match (errno.0, op) {
        (libc::ENOSPC | libc::EDQUOT | libc::EFBIG, _) => Status::CAPACITY_EXCEEDED.with_dnr(),
        (libc::EROFS | libc::EPERM | libc::EACCES | libc::EBADF, _) => {
            Status::NAMESPACE_WRITE_PROTECTED.with_dnr()
        }
        // Another path may lead to a client that the cluster has not shut out.
        (libc::ESHUTDOWN, _) => Status::INTERNAL_PATH_ERROR,
        (libc::EOPNOTSUPP, _) => Status::INVALID_OPCODE.with_dnr(),
        (
            libc::EIO | libc::EILSEQ | libc::ENODATA | libc::EREMOTEIO,
            BlockOp::Read | BlockOp::Verify,
        ) => Status::UNRECOVERED_READ_ERROR,
        (libc::EIO | libc::EILSEQ | libc::ENODATA | libc::EREMOTEIO, _) => Status::WRITE_FAULT,
        (
            libc::ENODEV
            | libc::ENXIO
            | libc::ENOMEDIUM
            | libc::EAGAIN
            | libc::EINTR
            | libc::ECANCELED,
            _,
        ) => Status::NAMESPACE_NOT_READY,
        _ => Status::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_disk_in_nvme_terms() {
        let write = BlockOp::Write { durable: false };
        assert_eq!(status_of(write, Errno(libc::EIO)), Status::WRITE_FAULT);
        assert_eq!(
            status_of(BlockOp::Read, Errno(libc::EIO)),
            Status::UNRECOVERED_READ_ERROR
        );
        assert_eq!(
            status_of(write, Errno(libc::ENOSPC)),
            Status::CAPACITY_EXCEEDED.with_dnr()
        );
        assert_eq!(
            status_of(BlockOp::Flush, Errno(libc::ENOMEM)),
            Status::INTERNAL_ERROR
        );
    }
}
