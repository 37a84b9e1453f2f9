//! Access to one namespace through several controllers.
//!
//! A [`Multipath`] is polled like a [`Controller`], and gives each command exactly one result. Path
//! selection and failover follow Linux's native multipath ([`nvme_proto::host::multipath`]):
//!
//! - [`Policy`] selects among paths in ANA Optimized state or, without such paths, in ANA
//!   Non-Optimized state.
//! - A command is sent on another path after a path related status, or if its connection breaks.
//!   Writes that the target may still execute, and other writes of their blocks, wait first
//!   ([details](nvme_proto::host::multipath#writes-with-unknown-outcome)).
//! - Without a usable path, commands wait within [`Recovery::ctrl_loss_tmo`] and
//!   [`Recovery::fast_io_fail_tmo`], and then end in [`HostError::NoPath`].
//!
//! All paths must report equal size and equal identifiers (UUID, NGUID, EUI-64), at least one of
//! them nonzero. A different path is refused. Each reconnection and reported change repeats this
//! check.
//!
//! [`Recovery::ctrl_loss_tmo`]: crate::Recovery::ctrl_loss_tmo
//! [`Recovery::fast_io_fail_tmo`]: crate::Recovery::fast_io_fail_tmo

mod blocking;
mod cross_reset;
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

use crate::buffer::{Buffer, Data};
use crate::command;
use crate::controller::Controller;
use crate::error::HostError;
use crate::event::Event;
use crate::options::HostOptions;
use crate::queue::{Ended, Unsent};

use cross_reset::CrossReset;
use ios::Ios;
use path::Path;

pub use crate::namespace::DiskIdentity as Identity;
pub use ios::PathTicket;
pub use nvme_proto::host::multipath::{Link, Policy};

/// Maximum queued events; a further event replaces the oldest.
const EVENTS_MAX: usize = 256;

/// Options common to the paths of a [`Multipath`].
#[derive(Debug, Clone, Copy)]
pub struct MultipathOptions {
    /// NSID, equal at every controller.
    pub nsid: u32,
    /// Required UUID, if any.
    pub uuid: Option<[u8; 16]>,
    /// Policy among paths with equal ANA state.
    pub policy: Policy,
    /// Maximum commands whose results were not taken.
    pub depth: u16,
    /// Delay after a connection closed, before another path sends its unanswered writes. `None` and
    /// zero mean the same as in [`HostOptions::write_hold`].
    pub write_hold: Option<Duration>,
}

impl MultipathOptions {
    /// Creates options for namespace `nsid`, with round robin and 128 commands.
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

/// Properties of a namespace, equal on all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// NSID, equal at every controller.
    pub nsid: u32,
    /// UUID, NGUID and EUI-64.
    pub identity: Identity,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Logical block size in bytes.
    pub block_bytes: u32,
}

/// State of a path, from [`Multipath::paths`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathState {
    /// Target address.
    pub remote: SocketAddr,
    /// Connection state of the controller.
    pub link: Link,
    /// ANA state of the namespace, if known.
    pub ana: Option<AnaState>,
    /// True if the path takes commands.
    pub usable: bool,
    /// Commands in flight.
    pub outstanding: u32,
    /// Commands sent in total.
    pub commands: u64,
    /// Reason for which the path is refused, if any.
    pub refused: Option<String>,
}

/// Event of a path, from [`Multipath::take_event`].
#[derive(Debug)]
pub enum PathEvent {
    /// Event of the controller.
    Controller(Event),
    /// New ANA state, or `None` if unknown.
    Ana(Option<AnaState>),
    /// The path leads to another namespace or is unusable.
    Refused(String),
}

/// Namespace behind several paths.
#[derive(Debug)]
pub struct Multipath {
    paths: Vec<Path>,
    set: PathSet,
    ios: Ios,
    doubts: Doubts,
    resets: Vec<CrossReset>,
    eras: u64,
    options: MultipathOptions,
    namespace: Option<Namespace>,
    events: VecDeque<(usize, PathEvent)>,
    transfer_max: u32,
    timeout: Duration,
    origin: Instant,
    now: Instant,
}

impl Multipath {
    /// Starts to connect a controller for each of `paths` through its device. [`Self::poll`]
    /// continues.
    ///
    /// [`HostOptions::requeue`] is ignored, because other paths take a lost controller's commands.
    ///
    /// # Panics
    /// If `paths` is empty.
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
            resets: Vec::new(),
            eras: 0,
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
                // `Multipath` itself delays unanswered writes for all paths.
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

    /// Namespace, once a path has identified it.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// Maximum data of a command in bytes: the minimum of all controllers that were live.
    #[must_use]
    pub fn transfer_max(&self) -> u32 {
        self.transfer_max
    }

    /// States of the paths, in their order at creation.
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

    /// Controller at index `path` of [`paths`](Self::paths).
    #[must_use]
    pub fn controller(&self, path: usize) -> &Controller {
        &self.paths[path].controller
    }

    /// Number of commands not yet ended.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.ios.outstanding()
    }

    /// Commands that wait, because no path is usable, an unanswered write may still be executed, or
    /// a retry is delayed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.ios.waiting()
    }

    /// Takes the oldest event, with the index of its path.
    pub fn take_event(&mut self) -> Option<(usize, PathEvent)> {
        self.events.pop_front()
    }

    /// Allocates memory registered with the device of each path.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        let devices = self.paths.iter().map(|path| path.controller.device());
        Ok(Buffer::for_paths(devices, length)?)
    }

    /// Sends a command on the best path, or queues it. Fills in NSID, CID, PSDT and data pointer.
    ///
    /// # Errors
    /// No room is left for a command ([`has_room`](Self::has_room)), or the data is
    /// [`Data::InCapsule`].
    ///
    /// # Panics
    /// If the buffer was not created by [`Self::buffer`].
    #[expect(
        clippy::result_large_err,
        reason = "the buffer comes back without an allocation"
    )]
    pub fn submit(&mut self, mut sqe: Sqe, data: Data<'_>) -> Result<PathTicket, Unsent> {
        let part = match data {
            Data::None => None,
            Data::Registered(part) => {
                let known = part.buffer.has_paths(self.paths.len());
                assert!(
                    known,
                    "the buffer is not registered for the paths of this disk"
                );
                Some(part)
            }
            Data::InCapsule(_) => {
                let why = "a command of several paths has its data in a buffer, not in a capsule";
                let error = HostError::Unsupported(why.to_owned());
                return Err(Unsent {
                    error,
                    buffer: None,
                });
            }
        };
        sqe.nsid.set(self.options.nsid);
        if !self.ios.has_room() {
            return Err(Unsent {
                error: HostError::QueueFull { qid: 0 },
                buffer: part.map(|part| part.buffer),
            });
        }
        let ticket = self.ios.add(sqe, part).expect("there is room");
        self.dispatch();
        Ok(ticket)
    }

    /// True if another command may be submitted.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.ios.has_room()
    }

    /// Takes the result and voids the ticket, or returns `None` if the command has not ended.
    pub fn take(&mut self, ticket: PathTicket) -> Option<Ended> {
        self.ios.take(ticket)
    }

    /// Takes the oldest result with its ticket.
    pub fn reap(&mut self) -> Option<(PathTicket, Ended)> {
        self.ios.take_oldest()
    }

    /// Abandons a command and discards its result. A waiting command is not sent. A command in
    /// flight is not sent again, and its buffer is dropped when it ends.
    pub fn forget(&mut self, ticket: PathTicket) {
        self.ios.forget(ticket);
    }

    /// Shuts down the controllers. [`Event::Gone`] follows for each.
    pub fn shutdown(&mut self) {
        for path in &mut self.paths {
            path.controller.shutdown();
        }
    }

    /// Delays commands that change data, as if a connection with unanswered writes to all blocks had
    /// just closed. A program calls this if a killed process of the same host may have sent writes
    /// that the target still executes.
    pub fn doubt_all_blocks(&mut self) {
        let hold = self.options.write_hold;
        let known = |path: &&Path| path.controller.is_live();
        let longest = self.paths.iter().filter(known).map(Path::time_in_doubt);
        let hold = hold.or_else(|| longest.max()).unwrap_or_default();
        let everywhere = command::deallocate(self.options.nsid, 1);
        self.doubts.add(&everywhere, self.time() + hold);
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
