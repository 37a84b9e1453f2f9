//! `cairn-target top`: live statistics of a target, from two readings of its metrics
//! (docs/metrics.md).

mod fit;
mod page;
mod quantile;
mod rates;
mod scrape;
mod tables;
mod terminal;
mod text;
mod view;

use std::fmt;
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cairn_config::Trid;
use cairn_control::{CallError, Client, chosen_path};
use cairn_doctor::cli::{Format, OutputArgs, stdout_failure};
use clap::Args;
use serde_json::{Value, json};

use page::Page;
pub(crate) use rates::Rates;

const PATIENCE: Duration = Duration::from_secs(10);

/// Shows the live activity of a running target: by host, namespace, reactor and device.
///
/// Reads the statistics from the control socket, or from a metrics page. On a terminal, keys choose
/// the table (Tab, 1 to 4) and the column to sort by (< and >), and q ends it; NO_COLOR turns
/// colours off. `-o json` prints one object per line.
#[derive(Debug, Clone, Args)]
pub(crate) struct Top {
    /// Control socket of the target [default: in /run/cairn for root, in $XDG_RUNTIME_DIR/cairn for
    /// others]
    #[arg(long, value_name = "PATH", env = "CAIRN_CONTROL")]
    socket: Option<PathBuf>,
    /// Address of the target's metrics page, read instead of the control socket
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_metrics)]
    metrics: Option<SocketAddr>,
    /// Configuration file of the target, which contains the address of the metrics page
    #[arg(long, value_name = "FILE", conflicts_with = "metrics")]
    config: Option<PathBuf>,
    /// Seconds between two readings
    #[arg(short_alias = 'i', long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Stop after this many readings
    #[arg(short_alias = 'n', long, value_name = "N")]
    count: Option<u64>,
    #[command(flatten)]
    output: OutputArgs,
}

fn parse_metrics(text: &str) -> Result<SocketAddr, String> {
    let address = Trid::parse(text, cairn_config::METRICS_PORT_DEFAULT).and_then(Trid::resolve);
    address.map_err(|error| error.to_string())
}

pub(crate) fn run(top: &Top) -> Result<(), String> {
    let from = top.origin()?;
    let shown_from = from.to_string();
    let mut readings = Readings::begin(from, Duration::from_secs_f64(top.interval))?;
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if top.output.format == Format::Table && is_terminal {
        return terminal::run(readings, top.count);
    }
    let mut shown = 0;
    while top.count.is_none_or(|count| shown < count) {
        if !print(&readings.next()?, &shown_from, top.output.format)? {
            break;
        }
        shown += 1;
    }
    Ok(())
}

#[derive(Debug)]
enum Origin {
    Socket(PathBuf),
    Metrics(SocketAddr),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Metrics(address) => write!(f, "{address}"),
        }
    }
}

impl Origin {
    fn page(&self) -> Result<String, String> {
        let path = match self {
            Self::Metrics(address) => return scrape::scrape(*address),
            Self::Socket(path) => path,
        };
        let page = Client::connect(path, PATIENCE)
            .and_then(|mut client| client.call("cairn_metrics_get", &json!({})));
        match page {
            Ok(Value::String(page)) => Ok(page),
            Ok(_) => Err(CallError::NoResponse.to_string()),
            Err(error @ CallError::Unreachable { .. }) => Err(format!(
                "{error}; --metrics ADDR:PORT reads from a metrics page instead"
            )),
            Err(error) => Err(error.to_string()),
        }
    }
}

#[derive(Debug)]
struct Readings {
    from: Origin,
    interval: Duration,
    before: Page,
    since: Instant,
}

impl Readings {
    fn begin(from: Origin, interval: Duration) -> Result<Self, String> {
        Ok(Self {
            before: Page::parse(&from.page()?)?,
            from,
            interval,
            since: Instant::now(),
        })
    }

    fn next(&mut self) -> Result<Rates, String> {
        std::thread::sleep(self.interval);
        let after = Page::parse(&self.from.page()?)?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        let rates = Rates::between(&self.before, &after, seconds);
        self.before = after;
        Ok(rates)
    }
}

impl Top {
    fn origin(&self) -> Result<Origin, String> {
        if let Some(address) = self.metrics {
            return Ok(Origin::Metrics(address));
        }
        let Some(file) = &self.config else {
            let path = chosen_path(self.socket.as_deref());
            return path.map(Origin::Socket).map_err(|error| error.to_string());
        };
        let config = cairn_config::Config::from_file(file, &cairn_config::Flags::default())
            .map_err(|error| error.to_string())?;
        let address = config.metrics.listen.ok_or_else(|| {
            format!(
                "{}: no [metrics] section, so a target that runs with it serves no metrics: add \
                 [metrics] listen = \"127.0.0.1:9464\", or leave out --config to read from the \
                 control socket",
                file.display()
            )
        });
        address.map(Origin::Metrics)
    }
}

fn print(rates: &Rates, from: &str, format: Format) -> Result<bool, String> {
    let text = match format {
        Format::Json => serde_json::to_string(rates).map_err(|error| error.to_string())?,
        _ => text::text(rates, from),
    };
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(stdout_failure(&error)),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.1 to 3600".to_owned()),
    }
}
