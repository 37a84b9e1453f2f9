//! Lifecycle of a target: start, reload and stop according to a [`Config`].
//!
//! The control plane, one thread with a tokio runtime, handles connection requests, keep alive
//! timeouts and orders, but no I/O data.

mod admission;
mod arrivals;
mod audit_log;
mod control;
mod discovery;
mod error;
mod exports;
mod flushing;
mod handle;
mod jobs;
mod keys;
mod listeners;
mod lookup;
mod lost_devices;
mod metrics_port;
mod missing;
mod opening;
mod reactors;
mod reload;
mod reserving;
mod restart;
mod runtime;
mod service;
mod settling;
mod startup;
mod state_lock;
mod stepped;
mod watching;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cairn_base::Clock;
use cairn_config::Config;
use cairn_disk::wait_for_images;
use cairn_rdma::Provider;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};

use crate::health::Health;
use cairn_data_path::audit::Audit;
use control::{ControlPlane, Order, Start, Started};
use reactors::Reactors;
use reload::Reloading;

pub(crate) use arrivals::Arrivals;
pub use error::{KeyError, ReloadError, StartError};
pub(crate) use exports::{DiskRules, Identity, check_count, check_stored, tell_apart, try_backend};
pub(crate) use handle::{Companion, Export, Handle, Snapshot};
pub(crate) use keys::key_errors;
pub(crate) use listeners::{Drained, Which};
pub(crate) use reload::{ReloadScope, Step};
pub(crate) use reserving::{NotCleared, store_again};
pub use state_lock::StateInUse;
pub(crate) use state_lock::{StateDirectory, WAITS, check_state, is_empty};
pub use stepped::SteppedTarget;

/// Time limit to close Ceph images; a close waits for the cluster's OSDs.
const IMAGES_TIMEOUT: Duration = Duration::from_secs(5);

/// Running target. A drop stops it like [`Target::stop`].
#[derive(Debug)]
pub struct Target {
    thread: ControlThread,
    started: Started,
}

/// Target during its start; stopped when dropped.
#[derive(Debug)]
pub struct Starting {
    thread: ControlThread,
    ready: oneshot::Receiver<Result<Started, StartError>>,
    ended: Option<Result<Started, StartError>>,
}

#[derive(Debug)]
struct ControlThread {
    orders: UnboundedSender<Order>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Target {
    /// Starts a target and returns once hosts can connect.
    ///
    /// A listener with provider "auto" uses the first of `providers` that can listen at its
    /// address.
    ///
    /// # Errors
    /// The error names the unavailable object and the remedy. Everything is stopped, except threads
    /// that a hung disk blocks.
    pub fn start(config: Config, providers: Vec<Arc<dyn Provider>>) -> Result<Self, StartError> {
        Self::begin(config, providers)?.finish()
    }

    /// Starts a target like [`start`](Self::start), but does not wait until hosts can connect.
    pub fn begin(
        config: Config,
        providers: Vec<Arc<dyn Provider>>,
    ) -> Result<Starting, StartError> {
        Self::begin_with(config, providers, false, Box::new(|_| Box::pin(async {})))
    }

    /// Starts a target like [`begin`](Self::begin). Once hosts can connect, `companion` runs on the
    /// control plane's thread. If `is_patient`, disks and addresses may be missing.
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
                let reactors = Reactors::Threads(Vec::new());
                let (clock, orders) = (Clock::through_suspend(), inbox);
                let control = ControlPlane::start(Start {
                    config,
                    providers,
                    orders,
                    reactors,
                    clock,
                    is_patient,
                    audit,
                });
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

    /// Returns the addresses of the listeners at the start.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.started.addresses
    }

    pub(crate) fn listening(&self) -> &[(cairn_config::Listener, SocketAddr)] {
        &self.started.listening
    }

    pub(crate) fn is_alive(&self, patience: Duration) -> bool {
        let (answer, answered) = std::sync::mpsc::channel();
        let order = Order::Do(Box::new(move |_| {
            let _ = answer.send(());
        }));
        // Sending fails only after the control plane has ended.
        let _ = self.thread.orders.send(order);
        answered.recv_timeout(patience).is_ok() && self.started.observed.is_alive(patience)
    }

    pub(crate) fn health(&self) -> watch::Receiver<Arc<Health>> {
        self.started.health.clone()
    }

    /// Returns the address of the metrics port at the start, if any.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.started.metrics
    }

    /// Reports the values of docs/metrics.md to a recorder of the `metrics` façade. Each call needs
    /// a new recorder, because the call adds all times since the start to the histograms.
    pub fn observe(&self, recorder: &dyn metrics::Recorder) {
        self.started.observed.report(recorder);
    }

    /// Applies another configuration. Connections to unchanged objects are unaffected.
    ///
    /// # Errors
    /// The old configuration stays in force, except after an error with [`ReloadError::is_in_force`].
    pub fn reload(&self, config: Config) -> Result<(), ReloadError> {
        let answered = self.begin_reload(config).blocking_recv();
        answered.unwrap_or(Err(ReloadError::Stopped))
    }

    /// Starts a [`reload`](Self::reload). The receiver gets the result, or fails if the target
    /// stops first.
    #[must_use]
    pub fn begin_reload(&self, config: Config) -> oneshot::Receiver<Result<(), ReloadError>> {
        let (answer, answered) = oneshot::channel();
        let keys = match keys::wait_to_load(&config) {
            Ok(keys) => Some(keys),
            Err(error) => {
                let _ = answer.send(Err(error.into()));
                return answered;
            }
        };
        let config = Arc::new(config);
        // Sending fails only after the control plane has ended.
        let _ = self.thread.orders.send(Order::Reload(Reloading {
            config,
            keys,
            scope: ReloadScope::Whole,
            answer,
        }));
        answered
    }

    /// Closes listeners, finishes commands in flight, disconnects hosts and stops, in bounded time
    /// even if hosts or disks hang.
    pub fn stop(mut self) -> Result<(), String> {
        self.thread.end()
    }
}

impl Starting {
    /// Waits for the result of the start.
    pub async fn wait(&mut self) {
        if self.ended.is_none() {
            self.ended = Some(flatten((&mut self.ready).await));
        }
    }

    /// Stops waiting for disks. An unfinished start ends with [`StartError::Stopped`].
    pub fn give_up(&self) {
        let _ = self.thread.orders.send(Order::Stop);
    }

    /// Waits until hosts can connect.
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
        let panicked = io::Error::other("the thread panicked during the start");
        Err(StartError::Control(panicked))
    })
}

impl ControlThread {
    fn end(&mut self) -> Result<(), String> {
        let Some(thread) = self.thread.take() else {
            return Ok(());
        };
        let _ = self.orders.send(Order::Stop);
        let ended = thread
            .join()
            .map_err(|_| "the control plane panicked".to_owned())?;
        // Unclosed images stay locked, which delays the next start by 30 seconds.
        if !wait_for_images(IMAGES_TIMEOUT) {
            // Logged when the target stops.
            tracing::warn!(
                "Ceph images did not close within {IMAGES_TIMEOUT:?}: their locks stay until the \
                 cluster times this client out, after 30 seconds"
            );
        }
        ended
    }
}

impl Drop for ControlThread {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            // Logged when the target stops.
            tracing::error!(error, "the target did not end cleanly");
        }
    }
}
