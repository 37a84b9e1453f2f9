//! A namespace by way of several controllers.
//!
//! A [`Multipath`] takes commands for one namespace as a [`Controller`] does for one
//! controller: it never blocks, looks at no clock, and gives each command exactly one
//! answer. Which path a command takes, and what becomes of it when that path fails,
//! follows Linux's native multipath ([`nvme_proto::host::multipath`]):
//!
//! - Paths in ANA Optimized are used, in turn or by their load ([`Policy`]); without
//!   one, those in ANA Non-Optimized; no other ones.
//! - A command that a path did not carry out for the path's sake goes to another one:
//!   it was refused with a path related status, or its connection broke. The caller
//!   sees neither. The second leaves open whether a write was carried out, so that one
//!   waits first ([why](nvme_proto::host::multipath#a-write-in-doubt)), and so do writes
//!   of the same blocks.
//! - Without a path commands wait, as long as there is a controller that may come back
//!   ([`Recovery::ctrl_loss_tmo`]) and for which they are to wait
//!   ([`Recovery::fast_io_fail_tmo`]); then they end in [`HostError::NoPath`].
//!
//! Every path must lead to the same namespace: same identifiers (UUID, NGUID, EUI-64;
//! at least one), same size. One that does not is refused and never used. That is
//! checked again whenever its controller is back or reports a change.
//!
//! Data is in [`PathBuffer`]s, memory that is registered for every path.
//! [`Multipath::connect`] and [`Multipath::run`] block; the rest is for programs with a
//! clock and a loop of their own.
//!
//! [`Recovery::ctrl_loss_tmo`]: crate::Recovery::ctrl_loss_tmo
//! [`Recovery::fast_io_fail_tmo`]: crate::Recovery::fast_io_fail_tmo

mod blocking;
mod buffer;
mod ios;
mod path;
mod polling;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::Device;
use nvme_proto::host::multipath::{Doubts, PathSet};
use nvme_proto::wire::Sqe;
use nvme_proto::wire::log::AnaState;

use crate::controller::Controller;
use crate::error::HostError;
use crate::event::Event;
use crate::options::HostOptions;

use buffer::Part;
use ios::Ios;
use path::Path;

pub use crate::namespace::DiskIdentity as Identity;
pub use buffer::PathBuffer;
pub use ios::{Ended, PathTicket};
pub use nvme_proto::host::multipath::{Link, Policy};

/// Events that wait to be taken, at most. Past that, the oldest go.
const EVENTS_MAX: usize = 256;

/// Which namespace, and how to use its paths.
#[derive(Debug, Clone, Copy)]
pub struct MultipathOptions {
    /// NSID: a shared namespace has the same on every controller of its subsystem.
    pub nsid: u32,
    /// Its UUID, if it must be this one.
    pub uuid: Option<[u8; 16]>,
    /// How to choose among equally good paths.
    pub policy: Policy,
    /// Commands that it holds at a time.
    pub depth: u16,
    /// How long a write whose path was lost waits before it is sent by another one, from
    /// the close of the lost connection on. `None`: until the lost controller cannot
    /// carry it out any more, by KATO and CQT. Zero: not at all, as Linux does; then a
    /// target that was only paused may carry it out over newer data.
    pub write_hold: Option<Duration>,
}

impl MultipathOptions {
    /// Namespace `nsid`, round robin, 128 commands.
    #[must_use]
    pub fn new(nsid: u32) -> Self {
        Self {
            nsid,
            uuid: None,
            policy: Policy::default(),
            depth: 128,
            write_hold: None,
        }
    }
}

/// A namespace, as all its paths see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// NSID.
    pub nsid: u32,
    /// Its identifiers.
    pub identity: Identity,
    /// Logical blocks.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_bytes: u32,
}

/// How a path is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathState {
    /// Where it leads.
    pub remote: SocketAddr,
    /// Whether its controller is there.
    pub link: Link,
    /// What ANA says of it, if that is known.
    pub ana: Option<AnaState>,
    /// Whether commands may take it.
    pub usable: bool,
    /// Commands on it.
    pub outstanding: u32,
    /// Commands that it was ever given.
    pub commands: u64,
    /// Why it is not used though its controller may be there.
    pub refused: Option<String>,
}

/// Something happened to a path.
#[derive(Debug)]
pub enum PathEvent {
    /// To its controller.
    Controller(Event),
    /// Its ANA state is this now, or is not known.
    Ana(Option<AnaState>),
    /// It does not lead to the namespace, or cannot be used.
    Refused(String),
}

/// A namespace, and the controllers that lead to it.
#[derive(Debug)]
pub struct Multipath {
    paths: Vec<Path>,
    set: PathSet,
    ios: Ios,
    doubts: Doubts,
    options: MultipathOptions,
    namespace: Option<Namespace>,
    events: VecDeque<(usize, PathEvent)>,
    /// The smallest of what the controllers carry in one command.
    transfer_max: u32,
    timeout: Duration,
    origin: Instant,
    now: Instant,
}

impl Multipath {
    /// Begins to connect to a controller for each of `paths`, by the adapter beside it.
    /// [`Self::poll`] goes on with it. What the options say of requeueing is not
    /// heeded: a lost controller's commands are other paths' business.
    ///
    /// # Errors
    /// There is no memory for their queues.
    ///
    /// # Panics
    /// If there is no path.
    pub fn begin(
        paths: impl IntoIterator<Item = (Arc<dyn Device>, HostOptions)>,
        options: MultipathOptions,
        now: Instant,
    ) -> Result<Self, HostError> {
        let mut multipath = Self {
            paths: Vec::new(),
            set: PathSet::new(options.policy),
            ios: Ios::new(options.depth),
            doubts: Doubts::new(usize::from(options.depth).max(1)),
            options,
            namespace: None,
            events: VecDeque::new(),
            transfer_max: u32::MAX,
            timeout: Duration::ZERO,
            origin: now,
            now,
        };
        for (device, host) in paths {
            multipath.timeout = multipath.timeout.max(host.timeout);
            let host = HostOptions {
                requeue: false,
                // A lost write waits here, for all paths.
                write_hold: Some(Duration::ZERO),
                ..host
            };
            let controller = Controller::begin(&device, host, now)?;
            multipath.paths.push(Path::new(controller, options.nsid)?);
            multipath.set.add();
        }
        assert!(!multipath.paths.is_empty(), "a namespace needs a path");
        Ok(multipath)
    }

    /// The namespace, once a path has led to it.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// The longest data that one command may have on every path that was live so far,
    /// in bytes.
    #[must_use]
    pub fn transfer_max(&self) -> u32 {
        self.transfer_max
    }

    /// The paths, in the order they were given.
    pub fn paths(&self) -> impl Iterator<Item = PathState> {
        self.paths
            .iter()
            .enumerate()
            .map(|(index, path)| PathState {
                remote: path.controller.options().remote,
                link: self.set.link(index),
                ana: self.set.ana(index),
                usable: self.set.is_usable(index),
                outstanding: self.set.outstanding(index),
                commands: path.commands,
                refused: path.refused.clone(),
            })
    }

    /// A path's controller, to ask it things.
    #[must_use]
    pub fn controller(&self, path: usize) -> &Controller {
        &self.paths[path].controller
    }

    /// Commands without an answer.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.ios.outstanding()
    }

    /// Commands that wait for a path, or for the end of a doubt about a lost one.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.ios.waiting()
    }

    /// The oldest event that was not taken, and which path it is about.
    pub fn take_event(&mut self) -> Option<(usize, PathEvent)> {
        self.events.pop_front()
    }

    /// Memory that every path's controller may read and write.
    ///
    /// # Errors
    /// The system has no such memory, or cannot lock it.
    pub fn buffer(&self, length: usize) -> Result<PathBuffer, HostError> {
        let devices = self.paths.iter().map(|path| path.controller.device());
        Ok(PathBuffer::new(devices, length)?)
    }

    /// Sends a command by the best path, or has it wait for one: NSID, CID, PSDT and
    /// data pointer are filled in. Its data are `length` bytes of a buffer from an
    /// offset on, if it has any. The command owns the buffer until its end.
    ///
    /// # Errors
    /// As many commands are outstanding as [`MultipathOptions::depth`] says
    /// ([`has_room`](Self::has_room)). The buffer is dropped.
    ///
    /// # Panics
    /// If the data lie outside their buffer.
    pub fn submit(
        &mut self,
        mut sqe: Sqe,
        data: Option<(PathBuffer, usize, u32)>,
    ) -> Result<PathTicket, HostError> {
        let part = data.map_or_else(Part::default, |(buffer, offset, length)| {
            let end = offset.checked_add(length as usize);
            assert!(
                end.is_some_and(|end| end <= buffer.len()),
                "data outside their buffer"
            );
            let buffer = Some(buffer);
            Part {
                buffer,
                offset,
                length,
            }
        });
        sqe.nsid.set(self.options.nsid);
        let full = HostError::QueueFull { qid: 0 };
        let ticket = self.ios.add(sqe, part).ok_or(full)?;
        self.dispatch();
        Ok(ticket)
    }

    /// Whether another command may be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.ios.has_room()
    }

    /// The end of a command, once it has come. It voids the ticket.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn take(&mut self, ticket: PathTicket) -> Option<Ended> {
        self.ios.take(ticket)
    }

    /// The oldest end that was not taken, and the command's ticket.
    pub fn reap(&mut self) -> Option<(PathTicket, Ended)> {
        self.ios.take_oldest()
    }

    /// Gives a command up. One that waits is never sent; one that is on its way is sent by no
    /// other path, and its buffer is dropped at its end.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn forget(&mut self, ticket: PathTicket) {
        self.ios.forget(ticket);
    }

    /// Shuts all controllers down in order; [`Event::Gone`] follows for each.
    pub fn shutdown(&mut self) {
        for path in &mut self.paths {
            path.controller.shutdown();
        }
    }

    fn report(&mut self, path: usize, event: PathEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back((path, event));
    }

    fn time(&self) -> Duration {
        self.now.saturating_duration_since(self.origin)
    }
}
