//! The target as a whole: starts what a [`Config`] asks for, keeps it, changes
//! it, ends it.
//!
//! The control plane is one thread with a tokio runtime: it receives connection
//! requests, keep alive deadlines and orders, and never touches data.

mod admission;
mod ana;
mod arrivals;
mod auditing;
mod control;
mod draining;
mod export;
mod extent;
mod flushing;
mod identities;
mod keys;
mod listeners;
mod metrics_port;
mod missing;
mod opening;
mod reactors;
mod reload;
mod replacing;
mod restart;
mod retiring;
mod settling;
mod shutdown;
mod steered;
mod stepped;
mod watching;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_config::Config;
use cairn_disk::{OpenError, wait_for_images};
use cairn_rdma::{Clock, FabricError, Provider};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use crate::audit::Audit;
use crate::exposition::Observed;
use crate::outlook::Outlook;
use control::Control;
use reactors::Reactors;

use reload::Reloading;

pub(crate) use arrivals::Arrivals;
pub(crate) use draining::{Drained, Which};
pub(crate) use export::{check_count, try_backend};
pub(crate) use extent::{Extent, Step};
pub(crate) use identities::{Identity, tell_apart};
pub use keys::KeyError;
pub(crate) use keys::key_errors;
pub use reload::ReloadError;
pub(crate) use steered::{Companion, Export, Handle, Picture};
pub use stepped::SteppedTarget;

/// For images of Ceph to close, at the end. A cluster without its OSDs closes none.
const IMAGES_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a target cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A directory cannot be shown.
    #[error("{0}")]
    Pool(String),
    /// A listener cannot listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: FabricError,
    },
    /// No provider of that kind is part of this program.
    #[error("cannot listen on {address}: {reason}")]
    NoProvider {
        /// Where.
        address: SocketAddr,
        /// What was asked for, and what there is.
        reason: String,
    },
    /// A disk cannot be opened.
    #[error("namespace {nsid} of {nqn}: {source}")]
    Export {
        /// SUBNQN.
        nqn: String,
        /// NSID.
        nsid: u32,
        /// Why.
        source: OpenError,
    },
    /// A key cannot be used.
    #[error("the hosts of {nqn} cannot authenticate: {source}")]
    Key {
        /// SUBNQN.
        nqn: String,
        /// Why.
        source: KeyError,
    },
    /// The thread that computes authentications cannot start.
    #[error("cannot start the thread of authentications: {0}")]
    Authenticator(io::Error),
    /// Hosts would take two namespaces for one.
    #[error(
        "namespace {nsid} of {nqn} shows the UUID {uuid}, which namespace {other_nsid} of \
         {other_nqn} has: it is the same disk, or a snapshot or clone of it; export it once, or \
         set uuid for one of them, as uuidgen prints it"
    )]
    SameIdentity {
        /// SUBNQN.
        nqn: String,
        /// NSID.
        nsid: u32,
        /// SUBNQN of the other one.
        other_nqn: String,
        /// Its NSID.
        other_nsid: u32,
        /// What both show.
        uuid: String,
    },
    /// More disks than a reactor's ring has room for.
    #[error(
        "{disks} files and block devices are to be exported, and at most {most} can be: export \
         fewer, or raise the limit on open files (LimitNOFILE in the service, `ulimit -n`) to \
         three for each disk and 256 for all else; 16384 is the most in any case"
    )]
    TooManyDisks {
        /// As configured.
        disks: usize,
        /// As a ring has room for.
        most: usize,
    },
    /// Metrics cannot be served there.
    #[error("cannot listen on {address} for metrics: {source}")]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The audit log has no thread.
    #[error("cannot start a thread of the audit log: {0}")]
    Audit(io::Error),
    /// A reactor cannot start.
    #[error("cannot start a reactor: {0}")]
    Reactor(io::Error),
    /// It was stopped before it had started.
    #[error("stopped before it had started")]
    Stopped,
    /// A thread cannot start.
    #[error("cannot start the control plane: {0}")]
    Control(io::Error),
}

impl StartError {
    /// The namespaces that hosts would take for one.
    fn twins(&self) -> Vec<opening::Place> {
        let Self::SameIdentity {
            nqn,
            nsid,
            other_nqn,
            other_nsid,
            ..
        } = self
        else {
            return Vec::new();
        };
        let places = [(nqn, nsid), (other_nqn, other_nsid)];
        let parsed = places.into_iter();
        parsed
            .filter_map(|(nqn, nsid)| Some((nqn.parse().ok()?, *nsid)))
            .collect()
    }
}

/// What the control plane is ordered to do.
enum Order {
    /// Change to this configuration.
    Reload(Reloading),
    /// Look at it, or do what takes no time.
    Do(steered::Action),
    /// End.
    Stop,
}

/// A running target. Dropped, it stops as by [`Target::stop`].
#[derive(Debug)]
pub struct Target {
    thread: ControlThread,
    started: Started,
}

/// A target that starts. Dropped, it stops.
#[derive(Debug)]
pub struct Starting {
    thread: ControlThread,
    ready: oneshot::Receiver<Result<Started, StartError>>,
    ended: Option<Result<Started, StartError>>,
}

/// The control plane's thread, and the way to give it orders. Dropped, it ends.
#[derive(Debug)]
struct ControlThread {
    orders: UnboundedSender<Order>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

/// What is known of a target that has started.
#[derive(Debug)]
struct Started {
    addresses: Vec<SocketAddr>,
    listening: Vec<(cairn_config::Listener, SocketAddr)>,
    outlook: watch::Receiver<Arc<Outlook>>,
    metrics: Option<SocketAddr>,
    observed: Arc<Observed>,
}

impl Target {
    /// Starts a target, and returns when hosts can connect.
    ///
    /// Each listener uses the provider that it names; where that is "auto", the
    /// first of `providers` that can listen there.
    ///
    /// # Errors
    /// What is not available, and the remedy. Then nothing of the target is left, except
    /// threads that wait for disks that hang.
    pub fn start(config: Config, providers: Vec<Arc<dyn Provider>>) -> Result<Self, StartError> {
        Self::begin(config, providers)?.finish()
    }

    /// Begins to start a target, as [`start`](Self::start) does.
    ///
    /// # Errors
    /// It gets no thread.
    pub fn begin(
        config: Config,
        providers: Vec<Arc<dyn Provider>>,
    ) -> Result<Starting, StartError> {
        Self::begin_with(config, providers, false, Box::new(|_| Box::pin(async {})))
    }

    /// As [`begin`](Self::begin), with what runs beside it on the control plane's thread
    /// once hosts can connect. If `is_patient`, disks and addresses that are missing do not
    /// stop it: it tries them again until they are there.
    pub(crate) fn begin_with(
        config: Config,
        providers: Vec<Arc<dyn Provider>>,
        is_patient: bool,
        companion: Companion,
    ) -> Result<Starting, StartError> {
        let (orders, inbox) = unbounded_channel();
        let audit = Audit::default();
        let handle = Handle::new(orders.clone(), audit.clone());
        let (is_ready, ready) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("control".into())
            .spawn(move || {
                let reactors = Reactors::threads();
                let clock = Clock::through_suspend();
                let control =
                    Control::start(config, providers, inbox, reactors, clock, is_patient, audit);
                match control {
                    Ok(control) => {
                        let _ = is_ready.send(Ok(control.started()));
                        control.run(companion(handle))
                    }
                    Err(error) => {
                        let _ = is_ready.send(Err(error));
                        Ok(())
                    }
                }
            })
            .map_err(StartError::Control)?;
        let thread = ControlThread {
            orders,
            thread: Some(thread),
        };
        Ok(Starting {
            thread,
            ready,
            ended: None,
        })
    }

    /// Where it listened when it started.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.started.addresses
    }

    /// Which listener listened where when it started.
    pub(crate) fn listening(&self) -> &[(cairn_config::Listener, SocketAddr)] {
        &self.started.listening
    }

    /// Whether the control plane and each reactor make progress within this time.
    pub(crate) fn is_alive(&self, patience: Duration) -> bool {
        let (answer, answered) = std::sync::mpsc::channel();
        let order = Order::Do(Box::new(move |_| {
            // What waited too long needs no answer.
            let _ = answer.send(());
        }));
        // A control plane that has ended answers nothing.
        let _ = self.thread.orders.send(order);
        answered.recv_timeout(patience).is_ok() && self.started.observed.is_alive(patience)
    }

    /// What is served and what is missing, now and after each change.
    pub(crate) fn outlook(&self) -> watch::Receiver<Arc<Outlook>> {
        self.started.outlook.clone()
    }

    /// Where it served metrics when it started, if anywhere.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.started.metrics
    }

    /// Reports to a recorder of the `metrics` façade all that docs/metrics.md lists, as it
    /// is now. Each call reports everything anew: counters by their absolute values,
    /// histograms whole. A recorder is made for one call.
    pub fn observe(&self, recorder: &dyn metrics::Recorder) {
        self.started.observed.report(recorder);
    }

    /// Changes to another configuration; connections of what stays are untouched.
    ///
    /// # Errors
    /// What the new configuration names and is not available. The old one stays.
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let answered = self.begin_reload(config).blocking_recv();
        answered.unwrap_or(Err(ReloadError::Stopped))
    }

    /// Begins to change to another configuration, as [`reload`](Self::reload) does. What is
    /// received says how that ended; nothing is if the target stops before.
    #[must_use]
    pub fn begin_reload(&self, config: Config) -> oneshot::Receiver<Result<(), ReloadError>> {
        let (answer, answered) = oneshot::channel();
        let config = Arc::new(config);
        // A control plane that has ended drops the answer's sender.
        let _ = self.thread.orders.send(Order::Reload(Reloading {
            config,
            extent: Extent::Whole,
            answer,
        }));
        answered
    }

    /// Stops listening, finishes the commands in progress, disconnects the
    /// hosts, and ends. Takes a bounded time, whatever hosts and disks do.
    ///
    /// # Errors
    /// What did not end as it should.
    pub fn stop(mut self) -> Result<(), String> {
        self.thread.end()
    }
}

impl Starting {
    /// Waits until hosts can connect, or until that has failed.
    pub async fn wait(&mut self) {
        if self.ended.is_none() {
            self.ended = Some(flatten((&mut self.ready).await));
        }
    }

    /// Does not wait for disks any more: unless it has started, it ends by
    /// [`StartError::Stopped`].
    pub fn give_up(&self) {
        // A control plane that has ended needs no order.
        let _ = self.thread.orders.send(Order::Stop);
    }

    /// Waits until hosts can connect.
    ///
    /// # Errors
    /// As those of [`Target::start`].
    pub fn finish(self) -> Result<Target, StartError> {
        let Self {
            thread,
            ready,
            ended,
        } = self;
        let ended = ended.unwrap_or_else(|| flatten(ready.blocking_recv()));
        ended.map(|started| Target { thread, started })
    }
}

fn flatten<T>(
    ready: Result<Result<T, StartError>, oneshot::error::RecvError>,
) -> Result<T, StartError> {
    ready.unwrap_or_else(|_| {
        let panicked = io::Error::other("it panicked at its start");
        Err(StartError::Control(panicked))
    })
}

impl ControlThread {
    fn end(&mut self) -> Result<(), String> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        // A control plane that has ended needs no order.
        let _ = self.orders.send(Order::Stop);
        let ended = thread
            .join()
            .map_err(|_| "the control plane panicked".to_owned())?;
        // A process that ends before leaves their locks to its next start for 30 seconds.
        if !wait_for_images(IMAGES_TIMEOUT) {
            // Cause: the cluster, at the end of the target.
            tracing::warn!(
                "images of Ceph have not closed within {IMAGES_TIMEOUT:?}: their locks stay until \
                 the cluster misses this client, for 30 seconds"
            );
        }
        ended
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            // Cause: the end of the target.
            tracing::error!(error, "the target did not end as it should");
        }
    }
}
