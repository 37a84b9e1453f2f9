//! Results as a table and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::json;

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) start: Option<Start>,
    pub(crate) depth: Vec<DepthRow>,
    pub(crate) growth: Option<Growth>,
    pub(crate) idle: Option<Idle>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Start {
    pub(crate) listening_in: Duration,
    pub(crate) memory: u64,
    pub(crate) memory_connected: u64,
    /// Pinned bytes of rings and devices, which `memory` includes.
    pub(crate) pinned: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DepthRow {
    pub(crate) queue_pairs: u16,
    pub(crate) hosts: u16,
    pub(crate) depth: u16,
    pub(crate) iops: f64,
    pub(crate) packets: f64,
    /// Processor time of the target per command in microseconds, polling included.
    pub(crate) target_cpu_us: f64,
    pub(crate) host_cpu_us: f64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Growth {
    pub(crate) queue_pairs: u16,
    pub(crate) connected_in: Duration,
    pub(crate) bytes_per_queue_pair: u64,
    pub(crate) bytes_per_controller: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Idle {
    pub(crate) hosts: u16,
    pub(crate) io_queues: u16,
    pub(crate) kato_ms: u32,
    pub(crate) cores: f64,
    pub(crate) wake_ups: f64,
    pub(crate) first_command: Duration,
    pub(crate) busy_command: Duration,
}

const MIB: f64 = (1 << 20) as f64;
const KIB: f64 = 1024.0;

impl Report {
    pub(crate) fn json(&self) -> String {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let value = json!({
            "start": self.start.map(|start| json!({
                "listening_ms": start.listening_in.as_secs_f64() * 1e3,
                "memory_bytes": start.memory,
                "memory_connected_bytes": start.memory_connected,
                "pinned_bytes": start.pinned,
            })),
            "depth": self.depth.iter().map(|row| json!({
                "queue_pairs": row.queue_pairs,
                "hosts": row.hosts,
                "depth": row.depth,
                "iops": row.iops,
                "packets_per_io": row.packets,
                "target_cpu_us_per_io": row.target_cpu_us,
                "host_cpu_us_per_io": row.host_cpu_us,
            })).collect::<Vec<_>>(),
            "growth": self.growth.map(|growth| json!({
                "queue_pairs": growth.queue_pairs,
                "connected_s": growth.connected_in.as_secs_f64(),
                "bytes_per_queue_pair": growth.bytes_per_queue_pair,
                "bytes_per_controller": growth.bytes_per_controller,
            })),
            "idle": self.idle.map(|idle| json!({
                "hosts": idle.hosts,
                "io_queues": idle.io_queues,
                "kato_ms": idle.kato_ms,
                "cores": idle.cores,
                "wake_ups_per_s": idle.wake_ups,
                "first_command_us": micros(idle.first_command),
                "busy_command_us": micros(idle.busy_command),
            })),
        });
        format!("{value:#}\n")
    }

    pub(crate) fn table(&self) -> String {
        let mut text = String::new();
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        if let Some(start) = &self.start {
            let ms = start.listening_in.as_secs_f64() * 1e3;
            writeln!(out, "from start to listening      {ms:8.1} ms")?;
            let memory = [start.memory, start.memory_connected, start.pinned];
            let [memory, connected, pinned] = memory.map(|bytes| bytes as f64 / MIB);
            writeln!(
                out,
                "memory                       {memory:8.1} MiB, {connected:.1} MiB with a host, \
                 of which {pinned:.1} MiB pinned"
            )?;
        }
        if !self.depth.is_empty() {
            writeln!(
                out,
                "queue pairs  hosts  depth      IOPS  ratio  packets/IO  target us/IO  host us/IO"
            )?;
        }
        for row in &self.depth {
            writeln!(
                out,
                "{:11}  {:5}  {:5}  {:8.0}  {:5.2}  {:10.2}  {:12.2}  {:10.2}",
                row.queue_pairs,
                row.hosts,
                row.depth,
                row.iops,
                row.iops / self.depth[0].iops,
                row.packets,
                row.target_cpu_us,
                row.host_cpu_us,
            )?;
        }
        if let Some(growth) = &self.growth {
            let seconds = growth.connected_in.as_secs_f64();
            let each = [growth.bytes_per_queue_pair, growth.bytes_per_controller];
            let [queue_pair, controller] = each.map(|bytes| bytes as f64 / KIB);
            writeln!(
                out,
                "{} queue pairs connect in  {seconds:8.2} s",
                growth.queue_pairs
            )?;
            writeln!(out, "memory of a queue pair       {queue_pair:8.1} KiB")?;
            writeln!(out, "memory of a controller       {controller:8.1} KiB")?;
        }
        if let Some(idle) = &self.idle {
            writeln!(
                out,
                "{} idle hosts with {} I/O queues, KATO {} ms: {:.3} % of a core, {:.1} wake-ups/s",
                idle.hosts,
                idle.io_queues,
                idle.kato_ms,
                idle.cores * 100.0,
                idle.wake_ups,
            )?;
            let micros = |time: Duration| time.as_secs_f64() * 1e6;
            writeln!(
                out,
                "a command after quiet        {:8.1} us, among others {:.1} us",
                micros(idle.first_command),
                micros(idle.busy_command),
            )?;
        }
        Ok(())
    }
}
