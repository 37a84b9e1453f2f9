//! Access to a namespace through several controllers.
//!
//! A [`Multipath`] takes commands for one namespace like a [`Controller`]: it never blocks, reads
//! no clock, and gives each command exactly one result. Path selection and failover follow Linux's
//! native multipath ([`nvme_proto::host::multipath`]):
//!
//! - Paths in ANA Optimized are used, in rotation or by load ([`Policy`]). Without any, those in
//!   ANA Non-Optimized are used, and no others.
//! - A command that failed because of its path goes to another one: it was refused with a path
//!   related status, or its connection broke. The caller sees neither. After a broken connection it
//!   is unknown whether a write was executed, so the write and other writes of its blocks wait
//!   first ([why](nvme_proto::host::multipath#a-write-in-doubt)).
//! - Without a path, commands wait while a controller may come back ([`Recovery::ctrl_loss_tmo`])
//!   and commands may wait for it ([`Recovery::fast_io_fail_tmo`]). Then they end in
//!   [`HostError::NoPath`].
//!
//! Every path must lead to the same namespace, with equal size and identifiers (UUID, NGUID,
//! EUI-64; at least one). Any other path is refused and never used. This is checked again whenever
//! its controller is back or reports a change.
//!
//! Data is in [`Buffer`]s that are registered for every path. [`Multipath::connect`] and
//! [`Multipath::run`] block; the rest is for programs with their own clock and event loop.
//!
//! [`Recovery::ctrl_loss_tmo`]: crate::Recovery::ctrl_loss_tmo
//! [`Recovery::fast_io_fail_tmo`]: crate::Recovery::fast_io_fail_tmo

mod blocking;
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
use crate::controller::Controller;
use crate::error::HostError;
use crate::event::Event;
use crate::options::HostOptions;
use crate::queue::{Ended, Unsent};

use ios::Ios;
use path::Path;

pub use crate::namespace::DiskIdentity as Identity;
pub use ios::PathTicket;
pub use nvme_proto::host::multipath::{Link, Policy};

/// Maximum pending events; beyond that, the oldest are dropped.
const EVENTS_MAX: usize = 256;

/// Selection of the namespace, and use of its paths.
#[derive(Debug, Clone, Copy)]
pub struct MultipathOptions {
    /// NSID; a shared namespace has the same NSID on every controller of its subsystem.
    pub nsid: u32,
    /// Required UUID, if any.
    pub uuid: Option<[u8; 16]>,
    /// Policy among equally good paths.
    pub policy: Policy,
    /// Maximum commands in flight.
    pub depth: u16,
    /// Time that a write of a lost path waits before another path sends it, from the close of the
    /// lost connection.
    ///
    /// `None`: until the lost controller cannot execute it any more, by KATO and CQT. Zero: no
    /// wait, as in Linux; then a target that was only paused may execute it over newer data.
    pub write_hold: Option<Duration>,
}

impl MultipathOptions {
    /// Options for namespace `nsid`: round robin, 128 commands.
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

/// Namespace as reported by all its paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// NSID of the namespace.
    pub nsid: u32,
    /// Identifiers of the namespace.
    pub identity: Identity,
    /// Size in logical blocks.
    pub blocks: u64,
    /// Logical block size in bytes.
    pub block_bytes: u32,
}

/// State of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathState {
    /// Address of the path's target.
    pub remote: SocketAddr,
    /// Connection state of the path's controller.
    pub link: Link,
    /// ANA state of the namespace, if known.
    pub ana: Option<AnaState>,
    /// True if commands may use the path.
    pub usable: bool,
    /// Commands in flight on the path.
    pub outstanding: u32,
    /// Commands sent on the path in total.
    pub commands: u64,
    /// Reason why the path is refused although its controller may be connected.
    pub refused: Option<String>,
}

/// Event of a path.
#[derive(Debug)]
pub enum PathEvent {
    /// Event of the path's controller.
    Controller(Event),
    /// New ANA state; `None` if unknown.
    Ana(Option<AnaState>),
    /// The path does not lead to the namespace, or cannot be used.
    Refused(String),
}

/// Namespace with the controllers that lead to it.
#[derive(Debug)]
pub struct Multipath {
    paths: Vec<Path>,
    set: PathSet,
    ios: Ios,
    doubts: Doubts,
    options: MultipathOptions,
    namespace: Option<Namespace>,
    events: VecDeque<(usize, PathEvent)>,
    /// Smallest maximum transfer of the controllers.
    transfer_max: u32,
    timeout: Duration,
    origin: Instant,
    now: Instant,
}

impl Multipath {
    /// Starts to connect to a controller for each of `paths`, through the given device.
    /// [`Self::poll`] continues.
    ///
    /// Ignores [`HostOptions::requeue`]: other paths take the commands of a lost controller.
    ///
    /// # Errors
    /// No memory for the queues.
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
                // Lost writes wait here instead, for all paths.
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

    /// Namespace, once a path has led to it.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        self.namespace.as_ref()
    }

    /// Maximum data length of a command in bytes, on every path that was live so far.
    #[must_use]
    pub fn transfer_max(&self) -> u32 {
        self.transfer_max
    }

    /// States of the paths, in the order of creation.
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

    /// Controller of a path.
    #[must_use]
    pub fn controller(&self, path: usize) -> &Controller {
        &self.paths[path].controller
    }

    /// Number of commands in flight or waiting.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.ios.outstanding()
    }

    /// Number of commands that wait for a path, or until an unanswered write can no longer be
    /// executed.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.ios.waiting()
    }

    /// Takes the oldest event, with the index of its path.
    pub fn take_event(&mut self) -> Option<(usize, PathEvent)> {
        self.events.pop_front()
    }

    /// Allocates memory that every path's controller may read and write.
    ///
    /// # Errors
    /// The system has no such memory, or cannot lock it.
    pub fn buffer(&self, length: usize) -> Result<Buffer, HostError> {
        let devices = self.paths.iter().map(|path| path.controller.device());
        Ok(Buffer::for_paths(devices, length)?)
    }

    /// Sends a command on the best path, or queues it; fills in NSID, CID, PSDT and data pointer.
    ///
    /// The command owns its buffer until it has ended.
    ///
    /// # Errors
    /// [`MultipathOptions::depth`] commands are in flight ([`has_room`](Self::has_room)), or the
    /// data are for a capsule, where they would be missing on another path.
    ///
    /// # Panics
    /// If [`Self::buffer`] did not create the buffer.
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

    /// Takes the end of a command, if reached, and voids the ticket.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn take(&mut self, ticket: PathTicket) -> Option<Ended> {
        self.ios.take(ticket)
    }

    /// Removes and returns the oldest result of a command, with its ticket.
    pub fn reap(&mut self) -> Option<(PathTicket, Ended)> {
        self.ios.take_oldest()
    }

    /// Abandons a command. A waiting command is never sent. A command in flight is not retried on
    /// other paths, and its buffer is dropped when it ends.
    ///
    /// # Panics
    /// If the ticket is void.
    pub fn forget(&mut self, ticket: PathTicket) {
        self.ios.forget(ticket);
    }

    /// Shuts all controllers down; [`Event::Gone`] follows for each.
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
