//! I/O statistics of bdevs (`bdev_get_iostat`).

use std::collections::BTreeMap;

use cairn_control::Error;
use rustix::io::Errno;
use serde_json::{Value, json};

use super::super::changes::Disk;
use super::parameters::IostatOf;
use super::{Answer, bdevs, views};
use crate::server::Snapshot;
use cairn_data_path::metrics::{Class, Op};
use cairn_data_path::namespace::Namespace;

/// Ticks are nanoseconds.
pub(super) const TICK_RATE: u64 = 1_000_000_000;

pub(super) fn answer(snapshot: &Snapshot, disks: &BTreeMap<String, Disk>, of: IostatOf) -> Answer {
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
    let wanted = all.iter().filter(is_wanted);
    let bdevs = wanted.filter_map(|bdev| bdev["name"].as_str()).map(|name| {
        let exports = snapshot.exports();
        let mut of_name = exports.filter(|export| views::bdev_name(export.config) == name);
        let export = of_name.next();
        counts(name, export.map(|export| export.entry.namespace).as_deref())
    });
    Ok(json!({
        "tick_rate": TICK_RATE,
        "ticks": snapshot.uptime.as_nanos() as u64,
        "bdevs": bdevs.collect::<Vec<_>>(),
    }))
}

fn counts(name: &str, namespace: Option<&Namespace>) -> Value {
    let sets = namespace.map_or(&[][..], |namespace| namespace.all_counters());
    let ios = |op: Op| {
        let counts = sets.iter().map(|set| set.ops[op as usize].ios.get());
        counts.sum::<u64>()
    };
    let bytes = |op: Op| {
        let counts = sets.iter().map(|set| set.ops[op as usize].bytes.get());
        counts.sum::<u64>()
    };
    let time_ns = |class: Class| {
        let times = sets
            .iter()
            .map(|set| set.stages[class as usize].whole.read());
        times.map(|times| times.sum_ns()).sum::<u64>()
    };
    let depth: u64 = sets.iter().map(|set| set.in_progress.get()).sum();
    json!({
        "name": name,
        "bytes_read": bytes(Op::Read),
        "num_read_ops": ios(Op::Read),
        "bytes_written": bytes(Op::Write),
        "num_write_ops": ios(Op::Write),
        "bytes_unmapped": 0,
        "num_unmap_ops": ios(Op::DatasetManagement),
        "read_latency_ticks": time_ns(Class::Read),
        "write_latency_ticks": time_ns(Class::Write),
        "unmap_latency_ticks": 0,
        "queue_depth": depth,
    })
}
