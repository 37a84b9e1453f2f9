//! Thread that computes authentication messages: exponentiations of up to 8192 bits.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use cairn_base::address::Payer;
use crossbeam_channel::{Receiver, Sender, unbounded};
use nvme_auth::controller::Authentication;
use nvme_auth::{Names, Policy, Secrets};
use nvme_proto::wire::Nqn;

use super::{Mailbox, Message, QueueAddress, SubsystemShared};
use crate::fair_queue::{FairQueue, TURN};
use crate::ids::QpairId;

/// Maximum queued steps. A further step displaces the last step of the [`Payer`] with the most
/// steps, whose connection or reauthentication then ends.
const JOBS_MAX: usize = 256;
/// Maximum queued steps of a payer. A further step is refused, with the same effect.
const JOBS_OF_PAYER_MAX: usize = 128;

/// Niceness of the thread, because unauthenticated hosts must not take time from reactors.
const NICENESS: i32 = 10;

#[derive(Debug)]
pub enum Step {
    Send(Vec<u8>),
    /// Maximum length of the message that the host accepts, in bytes.
    Receive(usize),
}

#[derive(Debug)]
pub struct Computed {
    pub(crate) qpair: QpairId,
    pub(crate) exchange: Box<Authentication>,
    /// Message for the host, possibly empty; `None` if not computable.
    pub(crate) answer: Option<Vec<u8>>,
}

#[derive(Debug, Clone, Default)]
pub struct HostKeys {
    pub others: Option<Secrets>,
    pub hosts: HashMap<Nqn, Secrets>,
    pub policy: Policy,
    /// Members of `hosts` whose secret is random, because their key was removed or is unreadable.
    pub keyless: HashSet<Nqn>,
    /// True if no key is configured for hosts outside `hosts`, or if it is unreadable. The secret
    /// in `others`, if any, is then random.
    pub are_others_keyless: bool,
}

impl HostKeys {
    pub(crate) fn exchange(&self, host: &Nqn, subsystem: &Nqn) -> Option<Authentication> {
        let secrets = self.hosts.get(host).or(self.others.as_ref())?;
        let names = Names {
            host: host.raw().to_owned(),
            subsystem: subsystem.raw().to_owned(),
        };
        let policy = self.policy.clone();
        Some(Authentication::new(names, secrets.clone(), policy))
    }

    fn has(&self, host: &Nqn) -> bool {
        self.others.is_some() || self.hosts.contains_key(host)
    }

    fn lacks(&self, host: &Nqn) -> bool {
        match self.hosts.contains_key(host) {
            true => self.keyless.contains(host),
            false => self.are_others_keyless,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.others.is_none() && self.hosts.is_empty()
    }
}

struct Job {
    address: QueueAddress,
    reply: Mailbox,
    exchange: Box<Authentication>,
    step: Step,
}

/// Queue served round robin by payer, so that many steps of a payer delay another payer by one
/// step.
#[derive(Debug)]
struct StepQueue<T> {
    waiting: FairQueue<Payer, T>,
}

impl<T> StepQueue<T> {
    /// Queues a step. Without room, returns this step, or the displaced last step of the payer with
    /// the most steps.
    fn push(&mut self, payer: Payer, job: T) -> Option<T> {
        let own = self.waiting.count(&payer);
        if own >= JOBS_OF_PAYER_MAX {
            return Some(job);
        }
        let mut displaced = None;
        if self.waiting.len() >= JOBS_MAX {
            let most = self.waiting.keys();
            let most = most.max_by_key(|(payer, jobs)| (jobs.len(), **payer));
            let (&largest, held) = most.expect("the queue is full");
            if held.len() <= own + 1 {
                return Some(job);
            }
            displaced = self.waiting.pop_back(&largest);
        }
        self.waiting.push(payer, job);
        displaced
    }

    fn next(&mut self) -> Option<T> {
        self.waiting.first()?;
        Some(self.waiting.pop(TURN))
    }
}

impl<T> Default for StepQueue<T> {
    fn default() -> Self {
        let waiting = FairQueue::default();
        Self { waiting }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Authenticator {
    /// Poisoning is harmless: no panic can occur while a push changes the queue.
    queue: Arc<Mutex<StepQueue<Job>>>,
    /// Wakes the thread, once per job. `None` until a host has a key.
    wake: Arc<Mutex<Option<Sender<()>>>>,
}

impl Job {
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
    /// Must not be called on a reactor, whose core affinity the thread would inherit.
    pub fn start(&self) -> io::Result<()> {
        let mut wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        if wake.is_none() {
            let (sender, receiver) = unbounded();
            let queue = Arc::clone(&self.queue);
            let thread = std::thread::Builder::new().name("authentication".into());
            thread.spawn(move || run(&queue, &receiver))?;
            *wake = Some(sender);
        }
        Ok(())
    }

    /// The thread sends the answer as [`Message::Computed`]. A displaced job ends without an
    /// answer.
    fn compute(&self, payer: Payer, job: Job) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let displaced = queue.push(payer, job);
        drop(queue);
        if let Some(displaced) = displaced {
            displaced.end(None);
        }
        let wake = self.wake.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wake) = &*wake {
            // Sending succeeds, because the thread receives until this sender is dropped.
            let _ = wake.send(());
        }
    }
}

impl SubsystemShared {
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

    pub(crate) fn renewal(&self, host: &Nqn) -> Option<Authentication> {
        let state = self.lock();
        state.keys.exchange(host, state.subsystem_nqn())
    }

    pub(crate) fn has_key_of(&self, host: &Nqn) -> bool {
        self.lock().keys.has(host)
    }

    /// True if the host must authenticate, and the target has no key for it.
    pub(crate) fn lacks_key_of(&self, host: &Nqn) -> bool {
        self.lock().keys.lacks(host)
    }

    /// Sets the keys for later Connects and reauthentications.
    pub fn set_keys(&self, keys: HostKeys) {
        self.lock().keys = keys;
    }
}

fn run(queue: &Mutex<StepQueue<Job>>, wake: &Receiver<()>) {
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let mut seqnum: u32 = 0;
    for () in wake {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some(mut job) = job else { continue };
        // Not zero, and different in each challenge.
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
        let mut queue = StepQueue::default();
        for job in 0..5 {
            assert_eq!(queue.push(address(1), job), None);
        }
        assert_eq!(queue.push(address(2), 20), None);
        assert_eq!(queue.push(address(2), 21), None);
        assert_eq!(queue.push(address(3), 30), None);
        let order: Vec<i32> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(order, [0, 20, 30, 1, 21, 2, 3, 4]);
        assert!(queue.waiting.is_empty());
    }

    #[test]
    fn a_flood_of_one_address_refuses_its_own_steps() {
        let mut queue = StepQueue::default();
        let flood = (0..1000).filter(|job| queue.push(address(1), *job).is_none());
        assert_eq!(flood.count(), JOBS_OF_PAYER_MAX);
        assert_eq!(queue.push(address(2), 5000), None);
        queue.next();
        assert_eq!(queue.next(), Some(5000));
    }

    #[test]
    fn floods_of_several_addresses_lose_places_to_a_new_one() {
        let mut queue = StepQueue::default();
        for job in 0..1000 {
            let own = address(1 + (job % 4) as u8);
            queue.push(own, job);
        }
        assert_eq!(queue.waiting.len(), JOBS_MAX);
        for host in 10..40 {
            let displaced = queue.push(address(host), 5000 + i32::from(host));
            assert!(displaced.is_some_and(|job| job < 1000));
            assert_eq!(queue.waiting.len(), JOBS_MAX);
        }
        let first = queue.waiting.count(&address(1)) as i32;
        assert!((50..64).contains(&first), "{first}");
        let mut served = Vec::new();
        for _ in 0..34 {
            served.extend(queue.next());
        }
        assert_eq!(served.iter().filter(|job| **job >= 5000).count(), 30);
    }
}
