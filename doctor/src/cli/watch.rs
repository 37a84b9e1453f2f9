use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::table::Table;
use super::{Failure, Format, output};
use crate::facts::{Device, Fabric, Port};
use crate::source::Source;

/// Counters in units of four bytes (IBTA 1.5, 16.1.3.5, PortXmitData).
const DATA: [&str; 2] = ["port_rcv_data", "port_xmit_data"];
const WORD_BYTES: u64 = 4;

#[derive(Debug, Serialize)]
struct Rates {
    device: String,
    port: u32,
    seconds: f64,
    per_second: BTreeMap<String, f64>,
}

pub(super) fn run(
    source: &dyn Source,
    interval: Duration,
    count: Option<u64>,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut before = Fabric::read(source);
    if !before.has_devices() {
        return Err(
            "no RDMA device whose counters could be watched; RoCE in user space counts \
                    in the target's own log"
                .to_owned(),
        );
    }
    let mut since = Instant::now();
    let mut readings = 0;
    while count.is_none_or(|count| readings < count) {
        source.wait(interval);
        let after = Fabric::read(source);
        // Readings of a recording take no time, so the divisor is at least the requested interval.
        let seconds = since.elapsed().max(interval).as_secs_f64();
        since = Instant::now();
        for rates in rates(&before, &after, seconds) {
            match format {
                Format::Json => output::json_line(&rates, out)?,
                _ => output::text(&rates.text(), out)?,
            }
        }
        before = after;
        readings += 1;
    }
    Ok(())
}

fn rates(before: &Fabric, after: &Fabric, seconds: f64) -> Vec<Rates> {
    let ports = after.ports();
    ports
        .filter_map(|(device, port)| {
            let (_, earlier) = before
                .ports()
                .find(|(_, earlier)| earlier.path == port.path)?;
            Some(Rates::of(device, earlier, port, seconds))
        })
        .collect()
}

impl Rates {
    fn of(device: &Device, before: &Port, after: &Port, seconds: f64) -> Self {
        let first: BTreeMap<String, u64> = before.all_counters().collect();
        let changes = after.all_counters().filter_map(|(path, value)| {
            let change = value.saturating_sub(*first.get(&path)?);
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            let unit = if DATA.contains(&name.as_str()) {
                WORD_BYTES
            } else {
                1
            };
            (change > 0).then(|| (name, (change * unit) as f64 / seconds))
        });
        Self {
            device: device.name.clone(),
            port: after.number,
            seconds,
            per_second: changes.collect(),
        }
    }

    fn text(&self) -> String {
        let mut table = Table::default();
        for (name, rate) in &self.per_second {
            let rate = match DATA.contains(&name.as_str()) {
                true => format!("{:.1} MB/s", rate / 1e6),
                false => format!("{rate:.0} /s"),
            };
            table.row(vec![name.clone(), rate]);
        }
        let quiet = if self.per_second.is_empty() {
            ": nothing changes"
        } else {
            ""
        };
        format!(
            "{} port {}{quiet}\n{}",
            self.device,
            self.port,
            table.text("  ")
        )
    }
}
