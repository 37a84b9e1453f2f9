//! Thread that owns the host of an [`AsyncHost`](super::AsyncHost).

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use cairn_base::wake::Wake;
use cairn_rdma::{Device, sleep_until_ready_or_woken};
use nvme_proto::wire::Sqe;

use super::Ready;
use super::answer::Promise;
use crate::buffer::Data;
use crate::host::Host;
use crate::namespace::Command;
use crate::options::HostOptions;
use crate::queue::{Ended, IoQueue, Ticket, Unsent};

const SPIN: Duration = Duration::from_micros(50);
const SLEEP_MAX: Duration = Duration::from_secs(60);

pub(super) enum Order {
    Submit(Submission),
    Work(Box<dyn FnOnce(&mut Host) + Send>),
    Shutdown(Promise<()>),
    Leave,
}

pub(super) struct Submission {
    pub(super) to: To,
    pub(super) data: Data<'static>,
    pub(super) promise: Promise<Ended>,
}

#[derive(Clone, Copy)]
pub(super) enum To {
    Admin(Sqe),
    Io(IoQueue, Command),
}

impl To {
    fn qid(&self) -> u16 {
        match self {
            Self::Admin(_) => 0,
            Self::Io(queue, _) => queue.qid(),
        }
    }

    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    fn submit(self, host: &mut Host, data: Data<'_>) -> Result<Ticket, Unsent> {
        match self {
            Self::Admin(sqe) => host.submit_admin(sqe, data),
            Self::Io(queue, command) => host.submit_on(queue, command, data),
        }
    }
}

pub(super) struct Worker {
    inbox: Receiver<Order>,
    wake: Arc<Wake>,
    /// For each queue, commands that wait because it is full, oldest first.
    backlogs: Vec<VecDeque<Submission>>,
    waiting: Vec<Vec<Option<Promise<Ended>>>>,
}

enum End {
    Shutdown(Promise<()>),
    Leave,
}

impl Worker {
    pub(super) fn new(inbox: Receiver<Order>, wake: Arc<Wake>) -> Self {
        Self {
            inbox,
            wake,
            backlogs: Vec::new(),
            waiting: Vec::new(),
        }
    }

    pub(super) fn run(mut self, device: &Arc<dyn Device>, options: HostOptions, ready: Ready) {
        let mut host = match Host::connect_on(device, options) {
            Ok(host) => host,
            Err(error) => return ready.keep(Err(error)),
        };
        ready.keep(Ok((
            host.io_queues().len() as u16,
            Arc::clone(host.device()),
        )));
        let end = self.serve(&mut host);
        // Dropping `self` reports an error to each task whose command has not ended.
        match end {
            End::Shutdown(promise) => promise.keep(host.shutdown()),
            End::Leave => {
                let _ = host.disconnect();
            }
        }
    }

    fn serve(&mut self, host: &mut Host) -> End {
        let mut idle_since = Instant::now();
        loop {
            self.wake.clear();
            let mut busy = false;
            loop {
                match self.inbox.try_recv() {
                    Ok(Order::Submit(submission)) => self.take(submission),
                    Ok(Order::Work(work)) => work(host),
                    Ok(Order::Shutdown(promise)) => return End::Shutdown(promise),
                    Ok(Order::Leave) | Err(TryRecvError::Disconnected) => return End::Leave,
                    Err(TryRecvError::Empty) => break,
                }
                busy = true;
            }
            self.submit(host);
            busy |= host.poll();
            busy |= self.reap(host);
            let now = Instant::now();
            if busy {
                idle_since = now;
            } else if now - idle_since > SPIN {
                let latest = now + SLEEP_MAX;
                let wake = host
                    .controller()
                    .next_deadline()
                    .unwrap_or(latest)
                    .min(latest);
                let _ =
                    sleep_until_ready_or_woken(host.controller_mut().endpoint(), &self.wake, wake);
            }
        }
    }

    fn take(&mut self, submission: Submission) {
        let qid = usize::from(submission.to.qid());
        if self.backlogs.len() <= qid {
            self.backlogs.resize_with(qid + 1, VecDeque::new);
        }
        self.backlogs[qid].push_back(submission);
    }

    fn submit(&mut self, host: &mut Host) {
        for qid in 0..self.backlogs.len() {
            self.submit_to(host, qid);
        }
    }

    fn submit_to(&mut self, host: &mut Host, qid: usize) {
        while !host.controller().has_no_room(qid as u16) {
            let Some(submission) = self.backlogs[qid].pop_front() else {
                return;
            };
            match submission.to.submit(host, submission.data) {
                Ok(ticket) => {
                    let (qid, cid) = (usize::from(ticket.qid()), usize::from(ticket.cid()));
                    if self.waiting.len() <= qid {
                        self.waiting.resize_with(qid + 1, Vec::new);
                    }
                    let queue = &mut self.waiting[qid];
                    if queue.len() <= cid {
                        queue.resize_with(cid + 1, || None);
                    }
                    queue[cid] = Some(submission.promise);
                }
                Err(Unsent { error, buffer }) => {
                    let answer = Err(error);
                    submission.promise.keep(Ok(Ended { answer, buffer }));
                }
            }
        }
    }

    fn reap(&mut self, host: &mut Host) -> bool {
        let mut any = false;
        for qid in 0..self.waiting.len() as u16 {
            while let Some((ticket, ended)) = host.controller_mut().reap_from(qid) {
                any = true;
                let queue = &mut self.waiting[usize::from(qid)];
                let promise = queue.get_mut(usize::from(ticket.cid()));
                if let Some(promise) = promise.and_then(Option::take) {
                    promise.keep(Ok(ended));
                }
            }
        }
        any
    }
}
