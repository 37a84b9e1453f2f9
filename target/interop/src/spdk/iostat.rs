//! I/O statistics of bdevs (`bdev_get_iostat`).

use std::collections::{BTreeMap, HashMap};

use cairn_control::{Disk, Error};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::parameters::IostatOf;
use super::{Answer, bdev_name, bdevs};
use crate::{IoCounts, Snapshot};

pub(super) const TICK_RATE: u64 = 1_000_000_000;

pub(super) fn answer(
    snapshot: &impl Snapshot,
    disks: &BTreeMap<String, Disk>,
    of: IostatOf,
) -> Answer {
    if of.per_channel || of.reset_mode.is_some_and(|mode| mode != "none") {
        return Err(Error::invalid(
            "Invalid parameters: Cairn has no per_channel, and no reset_mode but none",
        ));
    }
    let names = of.names.or_else(|| of.name.map(|name| vec![name]));
    let all = bdevs::all(snapshot, disks);
    let is_missing = |name: &String| !all.iter().any(|bdev| bdevs::is_called(bdev, name));
    if names.iter().flatten().any(is_missing) {
        return Err(Error::errno(Errno::NODEV, "No such device"));
    }
    let is_wanted = |bdev: &&Value| match &names {
        Some(names) => names.iter().any(|name| bdevs::is_called(bdev, name)),
        None => true,
    };
    let mut exports = HashMap::new();
    for export in snapshot.exports() {
        let name = bdev_name(export.config);
        exports
            .entry(name)
            .or_insert((export.nqn, export.config.nsid));
    }
    let wanted = all.iter().filter(is_wanted);
    let bdevs = wanted.filter_map(|bdev| bdev["name"].as_str()).map(|name| {
        let export = exports.get(name);
        let counts = export.map(|(nqn, nsid)| snapshot.io_counts(nqn, *nsid));
        shown(name, &counts.unwrap_or_default())
    });
    Ok(json!({
        "tick_rate": TICK_RATE,
        "ticks": snapshot.uptime().as_nanos() as u64,
        "bdevs": bdevs.collect::<Vec<_>>(),
    }))
}

fn shown(name: &str, counts: &IoCounts) -> Value {
    json!({
        "name": name,
        "bytes_read": counts.read_bytes,
        "num_read_ops": counts.reads,
        "bytes_written": counts.written_bytes,
        "num_write_ops": counts.writes,
        "bytes_unmapped": 0,
        "num_unmap_ops": counts.deallocates,
        "read_latency_ticks": counts.read_ns,
        "write_latency_ticks": counts.write_ns,
        "unmap_latency_ticks": 0,
        "queue_depth": counts.in_progress,
    })
}
