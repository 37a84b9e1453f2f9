//! Rates, for people.

use std::net::SocketAddr;

use cairn_fabric::cli::Table;
use cairn_fabric::tos::Tos;

use super::rates::{Device, Host, Load, Namespace, Rates, Reactor, STAGES};

const INDENT: &str = "  ";
const MIB: f64 = 1_048_576.0;

/// One screenful.
pub(super) fn text(rates: &Rates, from: SocketAddr) -> String {
    let mut text = format!(
        "cairn-target {} at {from}: {} hosts, {} namespaces, {:.0} MiB resident; last {:.1} s\n",
        rates.version,
        rates.hosts.len(),
        rates.namespaces.len(),
        rates.resident_bytes / MIB,
        rates.seconds,
    );
    for (reason, rate) in &rates.refused_per_s {
        text += &format!("connections refused, {rate:.1} a second: {reason}\n");
    }
    text += &section("", &reactors(&rates.reactors));
    text += &section("", &hosts(&rates.hosts));
    text += &section("", &namespaces(&rates.namespaces));
    text += &devices(&rates.devices);
    text
}

fn section(title: &str, table: &Table) -> String {
    format!("{title}\n{}", table.text(INDENT))
}

fn reactors(all: &[Reactor]) -> Table {
    let mut table = Table::new(&[
        "REACTOR",
        "BUSY",
        "POLLING",
        "ASLEEP",
        "QPS",
        "COMMANDS",
        "BUFFERS MiB",
        "WAITS/s",
    ]);
    for one in all {
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        table.row(vec![
            one.reactor.clone(),
            percent(one.busy),
            percent(one.polling),
            percent(one.sleeping),
            one.queue_pairs.to_string(),
            format!("{}/{}", one.requests, one.requests_max),
            format!(
                "{:.1}/{:.1}",
                one.buffer_used_bytes / MIB,
                one.buffer_bytes / MIB
            ),
            rate(one.waits_per_s),
        ]);
    }
    table
}

/// Columns of a [`Load`].
const LOAD: [&str; 7] = [
    "READ/s",
    "WRITE/s",
    "READ MiB/s",
    "WRITE MiB/s",
    "P50 us",
    "P99 us",
    "ERR/s",
];

fn load(load: &Load) -> [String; 7] {
    [
        rate(load.reads_per_s),
        rate(load.writes_per_s),
        format!("{:.1}", load.read_bytes_per_s / MIB),
        format!("{:.1}", load.written_bytes_per_s / MIB),
        micros(load.p50_us),
        micros(load.p99_us),
        rate(load.errors_per_s),
    ]
}

fn hosts(all: &[Host]) -> Table {
    let head = ["HOST", "CNTLID", "FROM", "QUEUES", "DEPTH"];
    let tail = ["WAITS/s", "ToS (DSCP, SL)", "HOPS", "P_KEY"];
    let mut table = Table::new(&[&head[..], &LOAD, &tail].concat());
    for one in all {
        let mut row = vec![
            one.host_nqn.clone(),
            one.cntlid.clone(),
            one.remote.clone(),
            one.queues.to_string(),
            one.depth.to_string(),
        ];
        row.extend(load(&one.load));
        row.extend([
            rate(one.buffer_waits_per_s),
            marked(&one.tos),
            one.hop_limit.join(" "),
            one.pkey.join(" "),
        ]);
        table.row(row);
    }
    table
}

fn namespaces(all: &[Namespace]) -> Table {
    let head = ["SUBSYSTEM", "NSID", "BACKING", "DEPTH"];
    let stages = STAGES.map(|stage| format!("{} us", stage.to_uppercase()));
    let stages: Vec<&str> = stages.iter().map(String::as_str).collect();
    let mut table = Table::new(&[&head[..], &LOAD, &stages].concat());
    for one in all {
        let mut row = vec![
            one.subsystem.clone(),
            one.nsid.clone(),
            one.backing.clone(),
            one.in_progress.to_string(),
        ];
        row.extend(load(&one.load));
        row.extend(STAGES.map(|stage| micros(one.stage_p50_us.get(stage).copied())));
        table.row(row);
    }
    table
}

fn devices(all: &[Device]) -> String {
    let mut text = String::new();
    for one in all {
        let mut table = Table::default();
        for (name, value) in &one.per_second {
            let value = match name.ends_with("bytes") {
                true => format!("{:.1} MiB/s", value / MIB),
                false => format!("{}/s", rate(*value)),
            };
            table.row(vec![name.clone(), value]);
        }
        text += &section(&format!("\n{INDENT}{}", one.device), &table);
    }
    text
}

/// A queue pair's mark in the three notations that people use.
fn marked(tos: &[String]) -> String {
    let shown = tos.iter().map(|text| match text.parse() {
        Ok(number) => {
            let tos = Tos(number);
            format!("{number} ({}, {})", tos.dscp(), tos.sl())
        }
        Err(_) => text.clone(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

fn micros(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}"))
}

/// Small rates are seldom events, whose existence matters.
fn rate(value: f64) -> String {
    if value > 0.0 && value < 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}
