//! Admin commands: rare, so they may lock and allocate.

use nvme_proto::controller::{AdminCommand, Outcome, Refusal, Transfer};
use nvme_proto::wire::Status;

use crate::reactor::Reactor;

use crate::reactor::stages::{gates, sent};

use crate::request::{RequestId, Task};

impl Reactor {
    pub(in crate::reactor) fn begin_admin(&mut self, id: RequestId) {
        let request = &mut self.queues.requests[id];
        let association = self.queues.qpairs[request.qpair].association.as_ref();
        let subsystem = &association.expect("an admin queue is connected").subsystem;
        let sqe = &request.sqe;
        let parsed = AdminCommand::parse(sqe, subsystem.io_limits().mdts_bytes)
            .and_then(|command| Ok((command, command.locate(sqe)?)));
        match parsed {
            Ok((command, transfer)) => {
                request.task = Task::Admin(command);
                request.transfer = transfer;
                request.buffer_bytes = (transfer.length(), 0);
                gates::acquire(&mut self.queues, &mut self.io, &self.time.now, id);
            }
            Err(refusal) => self.refuse_admin(id, refusal),
        }
    }

    pub(in crate::reactor) fn execute_admin(&mut self, id: RequestId, command: &AdminCommand) {
        let request = &self.queues.requests[id];
        let (cid, qpair) = (request.cid(), request.qpair);
        let Some(association) = self.queues.qpairs[qpair].association.clone() else {
            unreachable!("an admin queue is connected")
        };
        let (mut data_in, mut data_out) = (Vec::new(), Vec::new());
        match command.transfer() {
            Transfer::None => {}
            Transfer::FromHost { length } => {
                data_in.resize(length as usize, 0);
                let span = self.io.data_span(&self.queues.requests[id]);
                self.io.ring.peek(span, &mut data_in);
            }
            Transfer::ToHost { length } => data_out.resize(length as usize, 0),
        }
        let cntlid = association.controller.cntlid();
        let outcome = association
            .subsystem
            .execute(cntlid, cid, command, &data_in, &mut data_out);
        if let Some(buffer) = &self.queues.requests[id].data
            && !data_out.is_empty()
        {
            self.io.arena.write(buffer, &data_out);
        }
        // Messages caused by the command are handled before its response.
        self.read_inbox();
        match outcome {
            Outcome::Complete(completion) => self.finish(id, completion.status, completion.result),
            Outcome::Parked => self.park(id),
        }
    }

    pub(super) fn park(&mut self, id: RequestId) {
        let mut command = self.queues.command(id);
        command.release_receive();
        command.request.take_permit().parked();
        command.queue.command_ends();
        sent::free(command, &mut self.io);
    }

    fn refuse_admin(&mut self, id: RequestId, refusal: Refusal) {
        let request = &self.queues.requests[id];
        let association = self.queues.qpairs[request.qpair].association.as_ref();
        let association = association.expect("an admin queue is connected");
        let cntlid = association.controller.cntlid();
        let completion = association.subsystem.refuse(cntlid, request.cid(), refusal);
        debug_assert_ne!(completion.status, Status::SUCCESS);
        self.finish(id, completion.status, completion.result);
    }
}
