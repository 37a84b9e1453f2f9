//! The thread that computes what authentications take: exponentiations of up to 8192 bits would
//! hold up all that a reactor serves.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded};
use nvme_auth::controller::Authentication;
use nvme_auth::{Names, Policy, Secrets};
use nvme_proto::wire::Nqn;

use super::{Mailbox, Message, QueueAddress, SubsystemShared};
use crate::ids::QpairId;

/// Steps that wait. A connection beyond them ends, and its host tries again: each host has at
/// most one step for each queue here, and hosts that are connected have none.
const JOBS_MAX: usize = 256;

/// How much the thread gives way to reactors: a flood of strangers must not cost hosts that are
/// connected their processors.
const NICENESS: i32 = 10;

/// What a host's commands ask of an authentication.
#[derive(Debug)]
pub(crate) enum Step {
    /// This message came.
    Send(Vec<u8>),
    /// A message of at most so many bytes is asked for.
    Receive(usize),
}

/// A step that was computed.
#[derive(Debug)]
pub(crate) struct Computed {
    /// The queue.
    pub(crate) qpair: QpairId,
    /// Its authentication.
    pub(crate) exchange: Box<Authentication>,
    /// What the host's buffer is filled with, or nothing; `None` if the step cannot be computed.
    pub(crate) answer: Option<Vec<u8>>,
}

/// The keys of a subsystem's hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostKeys {
    /// Of hosts without keys of their own.
    pub(crate) others: Option<Secrets>,
    /// By HOSTNQN.
    pub(crate) hosts: HashMap<Nqn, Secrets>,
    /// What is accepted, the best first.
    pub(crate) policy: Policy,
}

impl HostKeys {
    /// What a queue of this host has to go through, if it has a key.
    pub(crate) fn exchange(&self, host: &Nqn, subsystem: &Nqn) -> Option<Authentication> {
        let secrets = self.hosts.get(host).or(self.others.as_ref())?;
        let names = Names {
            host: host.raw().to_owned(),
            subsystem: subsystem.raw().to_owned(),
        };
        let policy = self.policy.clone();
        Some(Authentication::new(names, secrets.clone(), policy))
    }

    /// Whether no host has a key.
    pub(crate) fn is_empty(&self) -> bool {
        self.others.is_none() && self.hosts.is_empty()
    }
}

struct Job {
    address: QueueAddress,
    reply: Mailbox,
    exchange: Box<Authentication>,
    step: Step,
}

/// The way to the thread. It ends with the last of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Authenticator {
    /// `None` until a host has a key.
    jobs: Arc<Mutex<Option<Sender<Job>>>>,
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({:?})", self.address)
    }
}

impl Authenticator {
    /// Starts the thread, once. Not on a reactor: the thread would be pinned to its core.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        if jobs.is_none() {
            let (sender, receiver) = bounded(JOBS_MAX);
            let thread = std::thread::Builder::new().name("authentication".into());
            thread.spawn(move || run(&receiver))?;
            *jobs = Some(sender);
        }
        Ok(())
    }

    /// Has a step computed; [`Message::Computed`] follows. `false` if too many wait.
    pub(crate) fn compute(
        &self,
        address: QueueAddress,
        reply: &Mailbox,
        exchange: Box<Authentication>,
        step: Step,
    ) -> bool {
        let job = Job {
            address,
            reply: reply.clone(),
            exchange,
            step,
        };
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.as_ref().is_some_and(|jobs| jobs.try_send(job).is_ok())
    }
}

/// Hosts of a subsystem authenticate.
impl SubsystemShared {
    /// Has a step of a queue's authentication computed; the queue's reactor receives the result.
    /// `false` if too many wait.
    pub(crate) fn compute(
        &self,
        queue: QueueAddress,
        exchange: Box<Authentication>,
        step: Step,
    ) -> bool {
        let reply = &self.reactors[queue.reactor];
        self.authenticator.compute(queue, reply, exchange, step)
    }

    /// Connects from now on take these keys. Queues that are connected stay.
    pub(crate) fn set_keys(&self, keys: HostKeys) {
        self.lock().keys = keys;
    }
}

fn run(jobs: &Receiver<Job>) {
    // Without it, authentications compete as equals.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut seqnum: u32 = 0;
    for job in jobs {
        // Not 0, and another one for each challenge.
        seqnum = seqnum.wrapping_add(1).max(1);
        let Job {
            address,
            reply,
            mut exchange,
            step,
        } = job;
        let answer = compute(&mut exchange, step, seqnum);
        reply.send(Message::Computed(Box::new(Computed {
            qpair: address.qpair,
            exchange,
            answer,
        })));
    }
}

fn compute(exchange: &mut Authentication, step: Step, seqnum: u32) -> Option<Vec<u8>> {
    match step {
        Step::Send(message) => {
            exchange.send(&message);
            Some(Vec::new())
        }
        Step::Receive(bytes) => {
            let mut failed = false;
            let message = exchange.receive(bytes, seqnum, &mut |bytes| {
                failed |= getrandom::fill(bytes).is_err();
            });
            // All of the buffer goes to the host: what it held before must not.
            let mut message = message.ok().filter(|_| !failed)?;
            message.resize(bytes, 0);
            Some(message)
        }
    }
}
