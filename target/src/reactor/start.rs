//! How a reactor begins: on its own thread, which the ring and the endpoints
//! never leave.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_disk::{Arena, Idle, Ring};
use cairn_rdma::{Clock, Completion};
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::sync::mpsc::UnboundedSender;

use super::aborts::Aborts;
use super::admission;
use super::control::Control;
use super::disks::Disks;
use super::io::Io;
use super::limited::Limited;
use super::older::Older;
use super::queues::Queues;
use super::retry::Retries;
use super::shares::Shares;
use super::time::{Now, Time};
use super::{Reactor, Sizes, TICK};
use crate::audit::Audit;
use crate::capsules::response_bytes;
use crate::metrics::{Doing, ReactorCounters};
use crate::panics::{self, Panic, Panics, REPORT};
use crate::registry::{ControlMessage, Inbox, Registry};
use crate::request::List;

/// Entries that the ring needs beside one for each request: its polls.
const RING_SPARE: u32 = 64;

/// Completions taken from a device at a time.
const POLL_BATCH: usize = 64;

/// How often to look whether a reactor has ended.
const JOIN_STEP: Duration = Duration::from_millis(5);

/// A running reactor.
#[derive(Debug)]
pub(crate) struct ReactorHandle {
    thread: JoinHandle<()>,
}

impl ReactorHandle {
    /// Waits for its end, until then; an error if it panicked or goes on.
    pub(crate) fn join_until(self, deadline: Instant) -> Result<(), String> {
        while !self.thread.is_finished() {
            if Instant::now() >= deadline {
                return Err("a reactor still waits for its disks or devices".to_owned());
            }
            std::thread::sleep(JOIN_STEP);
        }
        self.thread.join().map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&s| s.to_owned()));
            text.unwrap_or_else(|| "a reactor panicked".to_owned())
        })
    }
}

/// What a reactor needs to begin.
pub(crate) struct Start {
    /// Its number.
    pub(crate) index: usize,
    /// The core to pin it to, if one was chosen.
    pub(crate) core: Option<usize>,
    /// How large things are.
    pub(crate) sizes: Sizes,
    /// Where to look for subsystems.
    pub(crate) registry: Arc<Registry>,
    /// Its mailbox.
    pub(crate) inbox: Inbox,
    /// The control plane.
    pub(crate) control: UnboundedSender<ControlMessage>,
    /// Where it records who connects.
    pub(crate) audit: Audit,
    /// Its clock.
    pub(crate) clock: Clock,
    /// What its times are counted from, as those of all others are.
    pub(crate) started: Instant,
    /// Where it counts.
    pub(crate) counters: Arc<ReactorCounters>,
}

/// Starts a reactor, and returns once it runs.
pub(crate) fn start(begin: Start, panics: Arc<Panics>) -> io::Result<ReactorHandle> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let name = format!("reactor-{}", begin.index);
    let thread =
        std::thread::Builder::new()
            .name(name)
            .spawn(move || match Reactor::new(begin) {
                Ok(reactor) => {
                    let _ = ready.send(Ok(()));
                    live(reactor, &panics);
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            })?;
    is_ready
        .recv()
        .map_err(|_| io::Error::other("a reactor panicked at its start"))??;
    Ok(ReactorHandle { thread })
}

/// Runs a reactor to its end, and the one that takes its place if it panics.
fn live(mut reactor: Reactor, panics: &Panics) {
    while let Err(panic) = panics::confine(|| reactor.run()) {
        panics.survive(&panic);
        reactor = match panics::confine(|| reactor.rebuild(&panic)) {
            Ok(Ok(new)) => new,
            Ok(Err(error)) => give_up(&panic, &format!("it cannot be rebuilt: {error}")),
            Err(second) => give_up(&panic, &format!("and again as it ended: {second}")),
        };
    }
}

fn give_up(panic: &Panic, trouble: &str) -> ! {
    panics::end_process(&format!(
        "a reactor panicked ({panic}), {trouble}. {REPORT}"
    ));
}

impl Reactor {
    /// A reactor for the calling thread, which its ring and its endpoints never
    /// leave.
    pub(crate) fn new(begin: Start) -> io::Result<Self> {
        let Start {
            index,
            core,
            sizes,
            registry,
            inbox,
            control,
            audit,
            clock,
            started,
            counters,
        } = begin;
        if let Some(core) = core {
            pin(core);
        }
        let requests = sizes.requests();
        let reserve = admission::reserve(requests as usize);
        let mut ring = Ring::new(requests + RING_SPARE)?;
        ring.set_clock(clock.clone(), started);
        if sizes.poll_drives {
            ring.poll_drives();
        }
        let mut arena = Arena::new(
            response_bytes(requests as usize),
            sizes.data_bytes,
            sizes.transfer_bytes,
        )?;
        arena.set_slot(ring.add_buffer(arena.mapping())?);
        counters.requests_max.set(requests.into());
        counters.buffer_bytes.set(arena.data_bytes() as u64);
        counters.forget_former();
        let now = clock.now();
        Ok(Self {
            queues: Queues::new(requests, reserve, counters),
            io: Io {
                limited: Limited::new(requests),
                shares: Shares::new(arena.data_bytes()),
                ring,
                arena,
                disks: Disks::new(index),
                awaiting_buffer: List::default(),
                buffers_short: None,
                retries: Retries::default(),
                older: Older::default(),
                aborts: Aborts::default(),
            },
            time: Time {
                clock,
                started,
                now: Now {
                    at: now,
                    ns: now.duration_since(started).as_nanos() as u64,
                },
                doing: Doing::Poll,
                asleep: false,
                next_tick: now + TICK,
                next_check: now,
                idle: Idle::new(sizes.poll_idle),
            },
            control: Control::new(index, sizes, registry, inbox, control, audit),
            batch: vec![Completion::EMPTY; POLL_BATCH].into(),
        })
    }
}

/// Keeps the thread on one core. Where that is not allowed (a container's
/// cpuset), it runs all the same.
fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    if let Err(error) = sched_setaffinity(None, &cores) {
        // Cause: the start.
        tracing::warn!(core, %error, "a reactor could not be pinned to its core");
    }
}
