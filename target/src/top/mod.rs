//! `cairn-target top`: what a running target does, as it does it.
//!
//! It reads what the target tells Prometheus (docs/metrics.md), twice, and shows
//! the difference. So it needs nothing of the target but that port, and can look
//! at a target on another machine.

mod page;
mod quantile;
mod rates;
mod scrape;
mod screen;

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use page::Page;
use rates::Rates;

/// What a running target does, as it does it: by host, namespace, reactor and device.
///
/// The target must have been started with `--metrics ADDR:PORT` (or `[metrics]` in its
/// configuration).
#[derive(Debug, Clone, Args)]
pub(crate) struct Top {
    /// Where the target answers for its metrics
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:9464")]
    metrics: SocketAddr,
    /// Take that address from the configuration that the target runs with
    #[arg(long, value_name = "FILE", conflicts_with = "metrics")]
    config: Option<PathBuf>,
    /// Seconds between two readings
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    interval: f64,
    /// Stop after that many readings
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// How to say it; json is one object a line
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// Clears a terminal, and begins at its top.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Reads on and on, and shows what changed.
pub(crate) fn run(top: &Top) -> Result<(), String> {
    let from = top.address()?;
    let interval = Duration::from_secs_f64(top.interval);
    let mut before = Page::parse(&scrape::scrape(from)?)?;
    let mut since = Instant::now();
    let mut readings = 0;
    while top.count.is_none_or(|count| readings < count) {
        std::thread::sleep(interval);
        let after = Page::parse(&scrape::scrape(from)?)?;
        let seconds = since.elapsed().as_secs_f64();
        since = Instant::now();
        if !show(&Rates::between(&before, &after, seconds), from, top.output)? {
            break;
        }
        before = after;
        readings += 1;
    }
    Ok(())
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

/// Whether anybody still reads.
fn show(rates: &Rates, from: SocketAddr, format: Format) -> Result<bool, String> {
    let mut stdout = std::io::stdout().lock();
    let text = match format {
        Format::Json => {
            let json = serde_json::to_string(rates).map_err(|error| error.to_string())?;
            format!("{json}\n")
        }
        Format::Table if stdout.is_terminal() => format!("{CLEAR}{}", screen::text(rates, from)),
        Format::Table => format!("{}\n", screen::text(rates, from)),
    };
    Ok(stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .is_ok())
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds from 0.1 to 3600".to_owned()),
    }
}
