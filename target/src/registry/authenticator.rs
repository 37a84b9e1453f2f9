//! The thread that computes what authentications take: exponentiations of up to 8192 bits would
//! hold up all that a reactor serves.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cairn_rdma::address::Payer;
use crossbeam_channel::{Receiver, Sender, unbounded};
use nvme_auth::controller::Authentication;
use nvme_auth::{Names, Policy, Secrets};
use nvme_proto::wire::Nqn;

use super::{Mailbox, Message, QueueAddress, SubsystemShared};
use crate::ids::QpairId;

/// Steps that wait. Beyond them the [`Payer`] that has most loses its last one: that connection
/// ends, or its reauthentication does. Each host has at most one step for each queue here, and
/// hosts that do not authenticate just now have none.
const JOBS_MAX: usize = 256;
/// Steps of one payer that wait. A connection beyond them ends, and its host tries again.
const JOBS_OF_PAYER_MAX: usize = 128;

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

    /// Whether this host has a key.
    fn has(&self, host: &Nqn) -> bool {
        self.others.is_some() || self.hosts.contains_key(host)
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

/// Steps that wait, by payer. Payers take turns, so that a flood from one of them delays the
/// step of another by one step.
#[derive(Debug)]
struct Line<T> {
    /// Never empty for a payer.
    waiting: HashMap<Payer, VecDeque<T>>,
    /// The payers, the next one first.
    turns: VecDeque<Payer>,
    count: usize,
}

impl<T> Line<T> {
    /// Adds one. `Some`: this one, or the last of the payer that has most, does not wait.
    fn push(&mut self, payer: Payer, job: T) -> Option<T> {
        let own = self.waiting.get(&payer).map_or(0, VecDeque::len);
        if own >= JOBS_OF_PAYER_MAX {
            return Some(job);
        }
        let mut displaced = None;
        if self.count >= JOBS_MAX {
            let most = self.waiting.iter();
            let most = most.max_by_key(|(payer, jobs)| (jobs.len(), **payer));
            let (&largest, held) = most.expect("the line is full");
            if held.len() <= own + 1 {
                return Some(job);
            }
            displaced = self.pop(largest, VecDeque::pop_back);
        }
        if own == 0 {
            self.turns.push_back(payer);
        }
        self.waiting.entry(payer).or_default().push_back(job);
        self.count += 1;
        displaced
    }

    /// The oldest one of the payer whose turn it is.
    fn next(&mut self) -> Option<T> {
        let payer = self.turns.pop_front()?;
        self.turns.push_back(payer);
        self.pop(payer, VecDeque::pop_front)
    }

    fn pop(
        &mut self,
        payer: Payer,
        which: impl FnOnce(&mut VecDeque<T>) -> Option<T>,
    ) -> Option<T> {
        let jobs = self.waiting.get_mut(&payer)?;
        let job = which(jobs)?;
        self.count -= 1;
        if jobs.is_empty() {
            self.waiting.remove(&payer);
            self.turns.retain(|other| *other != payer);
        }
        Some(job)
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            count: 0,
        }
    }
}

/// The way to the thread. It ends with the last of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Authenticator {
    /// A panic leaves it whole: nothing between two changes of it can fail.
    line: Arc<Mutex<Line<Job>>>,
    /// Wakes the thread, once for each job. `None` until a host has a key.
    wake: Arc<Mutex<Option<Sender<()>>>>,
}

impl Job {
    /// Reports to the queue's reactor how it ended.
    fn end(self, answer: Option<Vec<u8>>) {
        self.reply.send(Message::Computed(Box::new(Computed {
            qpair: self.address.qpair,
            exchange: self.exchange,
            answer,
        })));
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Job({:?})", self.address)
    }
}

impl Authenticator {
    /// Starts the thread, once. Not on a reactor: the thread would be pinned to its core.
    pub(crate) fn start(&self) -> io::Result<()> {
        let mut wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        if wake.is_none() {
            let (sender, receiver) = unbounded();
            let line = Arc::clone(&self.line);
            let thread = std::thread::Builder::new().name("authentication".into());
            thread.spawn(move || run(&line, &receiver))?;
            *wake = Some(sender);
        }
        Ok(())
    }

    /// Has a step computed at this one's expense; [`Message::Computed`] follows, without an answer if too
    /// many wait.
    fn compute(&self, payer: Payer, job: Job) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let displaced = line.push(payer, job);
        drop(line);
        if let Some(displaced) = displaced {
            displaced.end(None);
        }
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wake) = &*wake {
            // The thread is there as long as this is.
            let _ = wake.send(());
        }
    }
}

/// Hosts of a subsystem authenticate.
impl SubsystemShared {
    /// Has a step of a queue's authentication computed; the queue's reactor receives the result.
    pub(crate) fn compute(
        &self,
        address: QueueAddress,
        payer: Payer,
        exchange: Box<Authentication>,
        step: Step,
    ) {
        let job = Job {
            address,
            reply: self.reactors[address.reactor].clone(),
            exchange,
            step,
        };
        self.authenticator.compute(payer, job);
    }

    /// What a live queue of this host goes through when it authenticates again, if the host has a
    /// key now.
    pub(crate) fn renewal(&self, host: &Nqn) -> Option<Authentication> {
        let state = self.lock();
        state.keys.exchange(host, state.subsystem_nqn())
    }

    /// Whether [`Self::renewal`] has one.
    pub(crate) fn has_key_of(&self, host: &Nqn) -> bool {
        self.lock().keys.has(host)
    }

    /// Connects and reauthentications from now on take these keys. Queues that are connected stay.
    pub(crate) fn set_keys(&self, keys: HostKeys) {
        self.lock().keys = keys;
    }
}

fn run(line: &Mutex<Line<Job>>, wake: &Receiver<()>) {
    // Without it, authentications compete as equals.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut seqnum: u32 = 0;
    for () in wake {
        let job = line.lock().unwrap_or_else(PoisonError::into_inner).next();
        // It was displaced.
        let Some(mut job) = job else { continue };
        // Not 0, and another one for each challenge.
        seqnum = seqnum.wrapping_add(1).max(1);
        let answer = compute(&mut job.exchange, &job.step, seqnum);
        job.end(answer);
    }
}

fn compute(exchange: &mut Authentication, step: &Step, seqnum: u32) -> Option<Vec<u8>> {
    match step {
        Step::Send(message) => {
            exchange.send(message);
            Some(Vec::new())
        }
        &Step::Receive(bytes) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Payer {
        Payer::stranger([192, 0, 2, last].into())
    }

    #[test]
    fn addresses_take_turns() {
        let mut line = Line::default();
        for job in 0..5 {
            assert_eq!(line.push(address(1), job), None);
        }
        assert_eq!(line.push(address(2), 20), None);
        assert_eq!(line.push(address(2), 21), None);
        assert_eq!(line.push(address(3), 30), None);
        let order: Vec<i32> = std::iter::from_fn(|| line.next()).collect();
        assert_eq!(order, [0, 20, 30, 1, 21, 2, 3, 4]);
        assert_eq!(
            (line.count, line.turns.len(), line.waiting.len()),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_flood_of_one_address_refuses_its_own_steps() {
        let mut line = Line::default();
        let flood = (0..1000).filter(|job| line.push(address(1), *job).is_none());
        assert_eq!(flood.count(), JOBS_OF_PAYER_MAX);
        assert_eq!(line.push(address(2), 5000), None);
        line.next();
        assert_eq!(line.next(), Some(5000));
    }

    #[test]
    fn floods_of_several_addresses_lose_places_to_a_new_one() {
        let mut line = Line::default();
        for job in 0..1000 {
            let own = address(1 + (job % 4) as u8);
            line.push(own, job);
        }
        assert_eq!(line.count, JOBS_MAX);
        // The last of one of those that have most.
        for host in 10..40 {
            let displaced = line.push(address(host), 5000 + i32::from(host));
            assert!(displaced.is_some_and(|job| job < 1000));
            assert_eq!(line.count, JOBS_MAX);
        }
        // None has more than its share: the own one goes.
        let first = line.waiting[&address(1)].len() as i32;
        assert!((50..64).contains(&first), "{first}");
        let mut served = Vec::new();
        for _ in 0..34 {
            served.extend(line.next());
        }
        assert_eq!(served.iter().filter(|job| **job >= 5000).count(), 30);
    }
}
