//! Control socket (docs/control.md): JSON-RPC queries and changes of a running target
//! ([`cairn_control`]).
//!
//! A change edits the configuration text, which is applied like a reload and written to disk before
//! the response ([`changes`]).

mod additions;
mod changes;
mod consequences;
mod dialect;
mod differences;
mod doubts;
mod draining;
mod file;
mod keys;
mod last_copies;
mod limits;
mod losses;
mod lost_state;
mod methods;
mod panic_isolation;
mod parameters;
mod policy;
mod pools;
mod problems;
mod published;
mod refusals;
mod refused;
mod reserving;
mod settings;
mod source;
mod stale;
mod views;
mod warnings;
mod wording;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cairn_config::{ControlSettings, ControlSocket};
use cairn_control::{BindError, Bound, Handler, Patience, Plan};
use tokio::sync::{mpsc, oneshot};

pub(crate) use additions::copy_sentence;
pub(crate) use methods::effect;
pub(crate) use refusals::{OddHost, odd_hosts};
pub(crate) use source::Source;
pub(crate) use stale::remedy as remedy_of_file;

use crate::logging::LogFilter;
use crate::server::Companion;
use changes::{ChangeQueue, JOBS_MAX, Job};
use methods::Methods;
use panic_isolation::PanicIsolated;

const TAKEOVER_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) enum Socket {
    Off,
    Bound(Bound),
    /// Another target uses the path.
    Taken(ControlSettings),
}

/// Sentences about the changes of a reload, one for each object, or the reason of its failure.
pub(crate) type Reloaded = Result<Vec<String>, String>;

#[derive(Debug, Clone)]
pub(crate) struct Steering {
    jobs: mpsc::Sender<Job>,
}

impl Steering {
    pub(crate) fn reload(&self) -> oneshot::Receiver<Reloaded> {
        let (answer, answered) = oneshot::channel();
        // If the queue is full, the sender is dropped, so the receiver fails.
        let _ = self.jobs.try_send(Job::Reload { answer });
        answered
    }
}

/// Returns the future that executes changes, watches pool directories and serves the control
/// socket, if any. `text` is the configuration at the start; `start_warning` stays in each status.
pub(crate) fn companion(
    source: Source,
    text: String,
    socket: Socket,
    log: LogFilter,
    start_warning: Option<String>,
) -> (Steering, Companion) {
    let (jobs, waiting) = mpsc::channel(JOBS_MAX);
    let steering = Steering { jobs: jobs.clone() };
    let companion: Companion = Box::new(move |handle| {
        let source = Arc::new(source);
        let state = lost_state::watch(handle.clone());
        let looks = pools::watch(handle.clone(), jobs.clone(), source.pools().clone());
        let (changes, published) = ChangeQueue::new(handle.clone(), Arc::clone(&source), text);
        if let Some(warning) = start_warning {
            let _ = published.warnings.of_start.set(warning);
        }
        let methods = Methods::new(handle, jobs, published, source, log);
        Box::pin(async move {
            let served = async {
                let socket = match socket {
                    Socket::Off => return,
                    Socket::Bound(socket) => socket,
                    Socket::Taken(control) => take_over(&control).await,
                };
                serve(socket, methods).await;
            };
            tokio::join!(changes.run(waiting), served, looks, state);
        })
    });
    (steering, companion)
}

async fn take_over(control: &ControlSettings) -> Bound {
    loop {
        tokio::time::sleep(TAKEOVER_INTERVAL).await;
        let control = control.clone();
        let tried = tokio::task::spawn_blocking(move || try_bind(&control)).await;
        if let Ok(Ok(Some(bound))) = tried {
            // Logged when another target stops.
            tracing::info!(path = %bound.path().display(), "control socket taken over");
            return bound;
        }
    }
}

async fn serve(socket: Bound, methods: impl Handler) {
    let served = match socket.listener() {
        Ok(listener) => {
            cairn_control::serve(
                listener,
                Arc::new(PanicIsolated(methods)),
                Patience::default(),
            )
            .await
        }
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        // Logged when the target starts.
        tracing::error!(%error, path = %socket.path().display(), "cannot serve the control socket");
    }
}

/// Opens the control socket. A failure is fatal only if the configuration sets the path, or if the
/// group is missing.
pub(crate) fn bind(control: &ControlSettings) -> Result<Socket, BindError> {
    match try_bind(control) {
        Ok(Some(bound)) => Ok(Socket::Bound(bound)),
        Ok(None) => {
            if control.socket == ControlSocket::Usual {
                // Logged when the target starts.
                tracing::info!(
                    "no control socket: $XDG_RUNTIME_DIR is not set: give --control PATH"
                );
            }
            Ok(Socket::Off)
        }
        Err(error) if is_fatal(control, &error) => Err(error),
        Err(error @ BindError::InUse { .. }) => {
            // Logged when the target starts.
            tracing::warn!("no control socket until that target ends: {error}");
            Ok(Socket::Taken(control.clone()))
        }
        Err(error) => {
            // Logged when the target starts.
            tracing::info!("no control socket: {error}");
            Ok(Socket::Off)
        }
    }
}

fn try_bind(control: &ControlSettings) -> Result<Option<Bound>, BindError> {
    let path = path_of(control);
    let bound = path.map(|path| Bound::bind(&path, control.group.as_deref()));
    bound.transpose()
}

/// Checks, without side effects, whether [`bind`] would succeed. An error's flag is true if it
/// prevents the start.
pub(crate) fn check_socket(control: &ControlSettings) -> Result<(), (BindError, bool)> {
    let Some(path) = path_of(control) else {
        return Ok(());
    };
    let planned = Plan::new(&path, control.group.as_deref());
    let free = planned.and_then(|plan| plan.check_free());
    free.map_err(|error| {
        let is_fatal = is_fatal(control, &error);
        (error, is_fatal)
    })
}

pub(crate) fn path_of(control: &ControlSettings) -> Option<PathBuf> {
    match &control.socket {
        ControlSocket::Off => None,
        ControlSocket::At(path) => Some(path.clone()),
        ControlSocket::Usual => cairn_control::default_path(),
    }
}

fn is_fatal(control: &ControlSettings, error: &BindError) -> bool {
    matches!(error, BindError::NoGroup(_)) || matches!(control.socket, ControlSocket::At(_))
}
