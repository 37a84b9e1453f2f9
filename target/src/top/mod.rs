//! `cairn-target top`: live statistics of a target, from two readings of its Prometheus metrics
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

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cairn_config::Trid;
use cairn_doctor::cli::{Format, OutputArgs};
use clap::Args;

use page::Page;
use rates::Rates;

/// Shows the live activity of a running target: by host, namespace, reactor and device.
///
/// The target must have been started with `--metrics ADDR` (or `[metrics]` in its
/// configuration). On a terminal, keys choose the table (Tab, 1 to 4) and the column to sort by
/// (< and >), and q ends it; NO_COLOR turns colours off. `-o json` prints one object per line.
#[derive(Debug, Clone, Args)]
pub(crate) struct Top {
    /// Address where the target serves its metrics
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1:9464", value_parser = parse_metrics)]
    metrics: SocketAddr,
    /// Configuration file of the target, which contains that address
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
    let from = top.address()?;
    let mut readings = Readings::begin(from, Duration::from_secs_f64(top.interval))?;
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if top.output.format == Format::Table && is_terminal {
        return terminal::run(readings, top.count);
    }
    let mut shown = 0;
    while top.count.is_none_or(|count| shown < count) {
        if !print(&readings.next()?, from, top.output.format)? {
            break;
        }
        shown += 1;
    }
    Ok(())
}

#[derive(Debug)]
struct Readings {
    from: SocketAddr,
    interval: Duration,
    before: Page,
    since: Instant,
}

impl Readings {
    fn begin(from: SocketAddr, interval: Duration) -> Result<Self, String> {
        Ok(Self {
            from,
            interval,
            before: Page::parse(&scrape::scrape(from)?)?,
            since: Instant::now(),
        })
    }

    fn next(&mut self) -> Result<Rates, String> {
        std::thread::sleep(self.interval);
        let after = Page::parse(&scrape::scrape(self.from)?)?;
        let seconds = self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        let rates = Rates::between(&self.before, &after, seconds);
        self.before = after;
        Ok(rates)
    }
}

impl Top {
    fn address(&self) -> Result<SocketAddr, String> {
        let Some(file) = &self.config else {
            return Ok(self.metrics);
        };
        let config = cairn_config::Config::from_file(file, &cairn_config::Flags::default())
            .map_err(|error| error.to_string())?;
        config.metrics.listen.ok_or_else(|| {
            format!(
                "{}: no [metrics] section, so a target that runs with it serves no metrics: add \
                 [metrics] listen = \"127.0.0.1:9464\"",
                file.display()
            )
        })
    }
}

fn print(rates: &Rates, from: SocketAddr, format: Format) -> Result<bool, String> {
    let text = match format {
        Format::Json => serde_json::to_string(rates).map_err(|error| error.to_string())?,
        _ => text::text(rates, from),
    };
    let mut stdout = std::io::stdout().lock();
    Ok(writeln!(stdout, "{text}")
        .and_then(|()| stdout.flush())
        .is_ok())
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.1 to 3600".to_owned()),
    }
}
