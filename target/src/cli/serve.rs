//! `cairn-target serve`: runs a target until SIGTERM.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cairn_config::Config;
use cairn_control::BindError;
use cairn_roce::Soft;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{oneshot, watch};

use super::probe::writable::{after_first_start, before_first_start, empty_state};
use super::{Serve, announce, notify, print_line, providers};
use crate::health::Health;
use crate::logging;
use crate::panics;
use crate::server::{StartError, Starting, Target};
use crate::steering::{self, Reloaded, Steering};

const ALIVE_WITHIN: Duration = Duration::from_secs(5);

/// Exit code for a refused configuration, so that the service manager does not restart the target.
const REFUSED: u8 = 2;

struct Failure {
    text: String,
    code: u8,
}

impl Failure {
    fn refused(text: String) -> Self {
        Self {
            text,
            code: REFUSED,
        }
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { text, code: 1 }
    }
}

pub(super) fn run(serve: &Serve) -> ExitCode {
    match run_target(serve) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            logging::print_failure(&failure.text);
            ExitCode::from(failure.code)
        }
    }
}

fn run_target(serve: &Serve) -> Result<(), Failure> {
    serve.check_exports().map_err(Failure::refused)?;
    let mut source = serve.source();
    let (text, config) = source.read().map_err(Failure::refused)?;
    let log = logging::start(&config.target.log).map_err(Failure::refused)?;
    let empty_state = empty_state(&config);
    warn_of(&config, empty_state.map(before_first_start));
    let start_warning = empty_state.map(after_first_start);
    panics::end_process_on_panic();
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    // Signals are registered first, so that none is lost during the start.
    let mut signals = runtime
        .block_on(async { Signals::new() })
        .map_err(|error| format!("signals: {error}"))?;
    let (providers, soft) = providers::all(&config.target, serve.capture())
        .map_err(|error| format!("error: {error}"))?;
    let socket = steering::bind(&config.control).map_err(|error| {
        let text = format!("error: {error}");
        if matches!(
            error,
            BindError::NoGroup(_) | BindError::NoSocket(_) | BindError::NoFolder { .. }
        ) {
            Failure::refused(text)
        } else {
            text.into()
        }
    })?;
    let text = match serve.config {
        Some(_) => text,
        None => source
            .spell_out(&config)
            .map_err(|error| error.to_string())?,
    };
    let (steering, companion) = steering::companion(source, text, socket, log, start_warning);
    // With a configuration file, missing parts are retried later.
    let is_patient = serve.config.is_some();
    let begun = Target::begin_with(config.clone(), providers, is_patient, companion);
    let starting = begun.map_err(|error| refusal(&error))?;
    let Some(target) = start(starting, &runtime, &mut signals)? else {
        return Ok(());
    };
    for line in announce::lines(&config, target.listening()) {
        print_line(&line);
    }
    let mut health = target.health();
    let is_announced = print_readiness(&health.borrow());
    notify::ready(&health.borrow_and_update().to_string());
    runtime.block_on(follow(
        &target,
        &steering,
        &mut signals,
        health,
        is_announced,
    ));
    notify::stopping();
    report_counters(&soft);
    Ok(target.stop()?)
}

fn refusal(error: &StartError) -> Failure {
    let text = format!("error: {error}");
    if error.is_of_the_configuration() {
        Failure::refused(text)
    } else {
        text.into()
    }
}

fn start(
    mut starting: Starting,
    runtime: &Runtime,
    signals: &mut Signals,
) -> Result<Option<Target>, Failure> {
    let was_stopped = runtime.block_on(async {
        tokio::select! {
            () = starting.wait() => false,
            () = signals.stop() => true,
        }
    });
    if was_stopped {
        starting.give_up();
    }
    match starting.finish() {
        Ok(target) if was_stopped => {
            target.stop()?;
            Ok(None)
        }
        Ok(target) => Ok(Some(target)),
        Err(StartError::Stopped) => Ok(None),
        Err(error) => Err(refusal(&error)),
    }
}

async fn follow(
    target: &Target,
    steering: &Steering,
    signals: &mut Signals,
    mut health: watch::Receiver<Arc<Health>>,
    mut is_announced: bool,
) {
    let mut reloading: Option<oneshot::Receiver<Reloaded>> = None;
    let mut again = false;
    let watchdog = notify::watchdog();
    let mut last_beat = tokio::time::Instant::now();
    let Signals {
        hangup,
        terminate,
        interrupt,
    } = signals;
    loop {
        let beat = async {
            match watchdog {
                Some(interval) => tokio::time::sleep_until(last_beat + interval).await,
                None => std::future::pending().await,
            }
        };
        let is_idle = reloading.is_none();
        let ended = async {
            match &mut reloading {
                Some(reloading) => reloading.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => return,
            _ = interrupt.recv() => return,
            _ = hangup.recv() => again = true,
            () = beat => {
                last_beat = tokio::time::Instant::now();
                if target.is_alive(ALIVE_WITHIN) {
                    notify::alive();
                } else {
                    // Logged when a reactor or the control plane hangs.
                    tracing::error!("reactors or the control plane make no progress");
                }
                continue;
            }
            Ok(()) = health.changed(), if is_idle => {
                let health = health.borrow_and_update();
                if !is_announced && !health.addresses.is_empty() {
                    is_announced = print_readiness(&health);
                }
                notify::status(&health.to_string());
                continue;
            }
            ended = ended => {
                reloading = None;
                report(ended.unwrap_or_else(|_| Err("the target has stopped".to_owned())));
            }
        }
        if again && reloading.is_none() {
            again = false;
            notify::reloading();
            reloading = Some(steering.reload());
        }
        if reloading.is_none() {
            notify::ready(&health.borrow_and_update().to_string());
        }
    }
}

fn print_readiness(health: &Health) -> bool {
    let is_ready = !health.addresses.is_empty();
    print_line(if is_ready {
        "ready"
    } else {
        "not ready: no listener has its address yet"
    });
    is_ready
}

fn report_counters(soft: &Soft) {
    for (device, counters) in soft.counters() {
        let counted = counters.iter().filter(|(_, value)| *value > 0);
        let counted: Vec<_> = counted
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !counted.is_empty() {
            // Logged at a start, reload or stop.
            tracing::info!(device, "RoCE has counted {}", counted.join(" "));
        }
    }
}

fn warn_of(config: &Config, start_warning: Option<String>) {
    for warning in config.warnings().into_iter().chain(start_warning) {
        // Logged at a start, reload or stop.
        tracing::warn!("{warning}");
    }
}

fn report(reloaded: Reloaded) {
    if let Err(error) = reloaded {
        // Logged at a start, reload or stop.
        tracing::error!("the new configuration is invalid and the old one stays in use: {error}");
    }
}

struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Raises the soft limit on open files, which is low only because of select(2), to the hard limit.
pub(super) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        // Logged at a start, reload or stop.
        tracing::debug!(%error, "cannot raise the limit on open files");
    }
}
