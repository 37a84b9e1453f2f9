//! `cairn-target serve`: from start to SIGTERM.

use std::io::{self, IsTerminal};

use cairn_config::{Config, LogFormat};
use cairn_roce::Soft;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{Serve, announce, notify, print_line, providers};
use crate::panics;
use crate::server::Target;

/// Serves until told to stop.
pub(super) fn run(serve: &Serve) -> Result<(), String> {
    let config = serve.config().map_err(|error| error.to_string())?;
    start_logging(&config)?;
    warn_of(&config);
    panics::end_process_on_others();
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    // Before anything can be asked of us: a signal that comes early is not lost.
    let mut signals = runtime
        .block_on(async { Signals::new() })
        .map_err(|error| format!("signals: {error}"))?;
    let (providers, soft) = providers::all(&config.target, serve.capture())
        .map_err(|error| format!("error: {error}"))?;
    let target =
        Target::start(config.clone(), providers).map_err(|error| format!("error: {error}"))?;
    for line in announce::lines(&config, target.addresses()) {
        print_line(&line);
    }
    print_line("ready");
    notify::ready();
    while let Order::Reload = runtime.block_on(signals.next()) {
        reload(serve, &target);
    }
    notify::stopping();
    report_counters(&soft);
    target.stop()
}

/// Says what the endpoints of RoCE in user space have counted, as far as it is not
/// nothing.
fn report_counters(soft: &Soft) {
    for (device, counters) in soft.counters() {
        let counted = counters.iter().filter(|(_, value)| *value > 0);
        let counted: Vec<_> = counted
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if !counted.is_empty() {
            // Cause: the start, a reload or the end of the target.
            tracing::info!(device, "RoCE has counted {}", counted.join(" "));
        }
    }
}

fn warn_of(config: &Config) {
    for warning in config.warnings() {
        // Cause: the start, a reload or the end of the target.
        tracing::warn!("{warning}");
    }
}

fn reload(serve: &Serve, target: &Target) {
    notify::reloading();
    let changed = serve
        .config()
        .map_err(|error| error.to_string())
        .and_then(|config| {
            warn_of(&config);
            target.reload(config).map_err(|error| error.to_string())
        });
    if let Err(error) = changed {
        // Cause: the start, a reload or the end of the target.
        tracing::error!("the new configuration is refused, the old one stays: {error}");
    }
    notify::ready();
}

enum Order {
    Reload,
    Stop,
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

    async fn next(&mut self) -> Order {
        tokio::select! {
            _ = self.hangup.recv() => Order::Reload,
            _ = self.terminate.recv() => Order::Stop,
            _ = self.interrupt.recv() => Order::Stop,
        }
    }
}

fn start_logging(config: &Config) -> Result<(), String> {
    let log = &config.target.log;
    let filter = EnvFilter::try_new(&log.filter).map_err(|error| format!("log filter: {error}"))?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(io::stderr().is_terminal());
    match log.format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
    Ok(())
}

/// Disks and connections take a file each, and the limit that a shell sets is for programs that
/// still use select(2).
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        // Cause: the start, a reload or the end of the target.
        tracing::debug!(%error, "the limit on open files stays");
    }
}
