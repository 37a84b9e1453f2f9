use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cairn_base::Clock;
use cairn_disk::{Arena, Idle, Ring};
use cairn_rdma::Completion;
use rustix::thread::{CpuSet, sched_setaffinity};
use tokio::sync::mpsc::UnboundedSender;

use super::Reactor;
use super::Sizes;
use super::TICK;
use super::aborts::Aborts;
use super::control::ControlLink;
use super::disks::Disks;
use super::io::Io;
use super::older::Older;
use super::queueing::limited::Limited;
use super::queues::Queues;
use super::retry::Retries;
use super::shares::Shares;
use super::stages::admission;
use super::time::{Now, Time};
use crate::audit::Audit;
use crate::capsules::response_bytes;
use crate::metrics::{Doing, ReactorCounters};
use crate::registry::{ControlMessage, Inbox, Registry};
use crate::request::List;
use cairn_base::panics::{self, Panic, Panics, REPORT};

const RING_SPARE: u32 = 64;

const POLL_BATCH: usize = 64;

const JOIN_STEP: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub struct ReactorHandle {
    thread: JoinHandle<()>,
}

impl ReactorHandle {
    pub fn join_until(self, deadline: Instant) -> Result<(), String> {
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

pub struct Start {
    pub index: usize,
    pub core: Option<usize>,
    pub sizes: Sizes,
    pub registry: Arc<Registry>,
    pub inbox: Inbox,
    pub control: UnboundedSender<ControlMessage>,
    pub audit: Audit,
    pub clock: Clock,
    /// Origin of all reactors' times in nanoseconds.
    pub started: Instant,
    pub counters: Arc<ReactorCounters>,
}

pub fn start(begin: Start, panics: Arc<Panics>) -> io::Result<ReactorHandle> {
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

fn live(mut reactor: Reactor, panics: &Panics) {
    while let Err(panic) = panics::confine(|| reactor.run()) {
        panics.survive(&panic);
        reactor = match panics::confine(|| reactor.rebuild(&panic)) {
            Ok(Ok(new)) => new,
            Ok(Err(error)) => give_up(&panic, &format!("cannot rebuild it: {error}")),
            Err(second) => give_up(
                &panic,
                &format!("and panicked again while it ended: {second}"),
            ),
        };
    }
}

fn give_up(panic: &Panic, trouble: &str) -> ! {
    panics::end_process(&format!(
        "a reactor panicked ({panic}), {trouble}. {REPORT}"
    ));
}

impl Reactor {
    /// Must be called on the reactor's thread.
    pub fn new(begin: Start) -> io::Result<Self> {
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
            control: ControlLink::new(index, sizes, registry, inbox, control, audit),
            batch: vec![Completion::EMPTY; POLL_BATCH].into(),
        })
    }
}

/// Only logs a failure, because a container's cpuset may forbid pinning.
fn pin(core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    if let Err(error) = sched_setaffinity(None, &cores) {
        // Logged at the start.
        tracing::warn!(core, %error, "cannot pin a reactor to its core");
    }
}
