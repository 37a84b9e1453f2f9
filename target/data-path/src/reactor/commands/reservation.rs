//! Reservation commands of I/O queues: rare, so they may lock and allocate.

use std::sync::Arc;

use nvme_proto::reservation::Request;
use nvme_proto::transfer::DataTransfer;
use nvme_proto::wire::Status;

use crate::namespace::Namespace;
use crate::qpair::Association;
use crate::reactor::Reactor;
use crate::reactor::ordering;
use crate::reactor::stages::{gates, lists, respond};
use crate::request::{RequestId, Task};

impl Reactor {
    pub(in crate::reactor) fn begin_reservation(&mut self, id: RequestId) {
        let subsystem = Arc::clone(&self.queues.association(id).subsystem);
        let mut command = self.queues.command(id);
        let parsed = Request::parse(&command.request.sqe, subsystem.io_limits());
        let parsed = parsed.and_then(|parsed| {
            let is_list = lists::fold(&mut command)?;
            let request = &mut *command.request;
            request.transfer = parsed.locate(&request.sqe, request.in_capsule_bytes)?;
            if is_list {
                lists::spread(request);
            }
            Ok((parsed, request.transfer))
        });
        match parsed {
            Ok((command, transfer)) => {
                let request = &mut self.queues.requests[id];
                request.task = Task::Reservation(command);
                let in_capsule = matches!(transfer, DataTransfer::InCapsule(_));
                request.buffer_bytes = (if in_capsule { 0 } else { transfer.length() }, 0);
                gates::acquire(&mut self.queues, &mut self.io, &self.time.now, id);
            }
            Err(status) => self.refuse_reservation(id, status),
        }
    }

    pub(in crate::reactor) fn execute_reservation(&mut self, id: RequestId, command: Request) {
        let association = self.queues.association(id).clone();
        let namespace = match self.reservable(&association, id) {
            Ok(namespace) => namespace,
            Err(status) => return self.refuse_reservation(id, status),
        };
        if let Request::Report(length) = command {
            let mut out = vec![0; length as usize];
            namespace.reserving().answered().report(&mut out);
            if let Some(buffer) = &self.queues.requests[id].data {
                self.io.arena.write(buffer, &out);
            }
            return self.finish(id, Status::SUCCESS, 0);
        }
        let request = &self.queues.requests[id];
        let (cid, address) = (request.cid(), self.control.address(request.qpair));
        let mut data = vec![0; request.transfer.length() as usize];
        let span = ordering::input_span(&self.queues, &self.io, id);
        self.io.ring.peek(span, &mut data);
        let change = command.change(&data).expect("a report changes nothing");
        // A message completes the command, in this round at the earliest.
        self.park(id);
        let controller = &association.controller;
        association
            .subsystem
            .reserve(&namespace, controller, address, cid, change);
    }

    fn reservable(
        &self,
        association: &Association,
        id: RequestId,
    ) -> Result<Arc<Namespace>, Status> {
        let nsid = self.queues.requests[id].sqe.nsid.get();
        let found = self.io.disks.find(association, nsid);
        let disk = &self.io.disks[found.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT.with_dnr())?];
        disk.check_access(&association.controller)?;
        if !disk.namespace.is_reservable() {
            return Err(Status::INVALID_OPCODE.with_dnr());
        }
        Ok(Arc::clone(&disk.namespace))
    }

    fn refuse_reservation(&mut self, id: RequestId, status: Status) {
        respond::fail(&mut self.queues, &mut self.io, &self.time.now, id, status);
    }
}
