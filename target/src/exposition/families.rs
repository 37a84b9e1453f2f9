//! Names of all metrics, explained in docs/metrics.md.

use metrics::Unit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) unit: Unit,
    pub(crate) help: &'static str,
}

macro_rules! families {
    ($($id:ident: $kind:ident of $unit:ident, $name:literal, $help:literal;)+) => {
        $(pub(crate) const $id: Family = Family {
            name: $name,
            kind: Kind::$kind,
            unit: Unit::$unit,
            help: $help,
        };)+

        pub(crate) const ALL: &[Family] = &[$($id,)+];
    };
}

families! {
    SUBSYSTEM_CONTROLLERS: Gauge of Count, "cairn_subsystem_controllers",
        "Controllers.";
    SUBSYSTEM_IOS: Counter of Count, "cairn_subsystem_ios_total",
        "Commands that succeeded; read includes Compare and Verify.";
    SUBSYSTEM_BYTES: Counter of Bytes, "cairn_subsystem_bytes_total",
        "Bytes of commands that succeeded.";
    SUBSYSTEM_MEDIA_ERRORS: Counter of Count, "cairn_subsystem_media_errors_total",
        "Commands that failed because of the disk.";
    SUBSYSTEM_BUSY: Counter of Seconds, "cairn_subsystem_busy_seconds_total",
        "Time with an I/O command in progress.";
    NAMESPACE_INFO: Gauge of Count, "cairn_namespace_info",
        "Namespace, with its disk.";
    NAMESPACE_SIZE: Gauge of Bytes, "cairn_namespace_size_bytes",
        "Size.";
    NAMESPACE_BLOCK_SIZE: Gauge of Bytes, "cairn_namespace_block_size_bytes",
        "Size of a logical block.";
    NAMESPACE_FAILED: Gauge of Count, "cairn_namespace_failed",
        "Whether the namespace lost data, so that commands fail (status has the remedy).";
    NAMESPACE_DELETED: Gauge of Count, "cairn_namespace_deleted",
        "Whether the file of the namespace was deleted, so that its data is lost when the target \
         ends.";
    NAMESPACE_IN_PROGRESS: Gauge of Count, "cairn_namespace_in_progress",
        "I/O commands in progress.";
    NAMESPACE_OLDEST: Gauge of Seconds, "cairn_namespace_oldest_seconds",
        "Age of the oldest command at the disk.";
    NAMESPACE_IOS: Counter of Count, "cairn_namespace_ios_total",
        "I/O commands that succeeded.";
    NAMESPACE_BYTES: Counter of Bytes, "cairn_namespace_bytes_total",
        "Bytes of I/O commands that succeeded.";
    NAMESPACE_ERRORS: Counter of Count, "cairn_namespace_errors_total",
        "I/O commands that failed.";
    NAMESPACE_PROTECTION_ERRORS: Counter of Count, "cairn_namespace_protection_errors_total",
        "I/O commands that failed because a block did not match its protection information.";
    NAMESPACE_IO: Histogram of Seconds, "cairn_namespace_io_seconds",
        "Time of I/O commands that succeeded, by stage.";
    NAMESPACE_LIMIT_WAITS: Counter of Count, "cairn_namespace_limit_waits_total",
        "Commands that waited until limits allowed them.";
    NAMESPACE_LIMIT_WAIT: Counter of Seconds, "cairn_namespace_limit_wait_seconds_total",
        "Time that commands waited until limits allowed them.";
    HOST_IOS: Counter of Count, "cairn_host_ios_total",
        "I/O commands of a controller that succeeded.";
    HOST_BYTES: Counter of Bytes, "cairn_host_bytes_total",
        "Bytes of I/O commands of a controller that succeeded.";
    HOST_ERRORS: Counter of Count, "cairn_host_errors_total",
        "Commands of a controller that failed.";
    HOST_IO: Histogram of Seconds, "cairn_host_io_seconds",
        "Time of a controller's I/O commands that succeeded.";
    HOST_BUFFER_WAITS: Counter of Count, "cairn_host_buffer_waits_total",
        "Commands that waited for data buffers.";
    HOST_LIMIT_WAITS: Counter of Count, "cairn_host_limit_waits_total",
        "Commands of a controller that waited until limits allowed them.";
    HOST_LIMIT_WAIT: Counter of Seconds, "cairn_host_limit_wait_seconds_total",
        "Time that a controller's commands waited until limits allowed them.";
    HOST_QUEUES: Gauge of Count, "cairn_host_queues",
        "Queues of a controller.";
    QUEUE_IOS: Counter of Count, "cairn_queue_ios_total",
        "Commands of a queue that succeeded.";
    QUEUE_BYTES: Counter of Bytes, "cairn_queue_bytes_total",
        "Bytes of a queue's commands that succeeded.";
    QUEUE_DEPTH: Gauge of Count, "cairn_queue_depth",
        "Commands accepted and not answered.";
    QUEUE_ENTRIES: Gauge of Count, "cairn_queue_entries",
        "Maximum outstanding commands of a queue.";
    QUEUE_BUFFER_WAITS: Counter of Count, "cairn_queue_buffer_waits_total",
        "Commands of a queue that waited for data buffers.";
    CONNECTION_INFO: Gauge of Count, "cairn_connection_info",
        "Connected queue pair.";
    CONNECTS_REFUSED: Counter of Count, "cairn_connects_refused_total",
        "Refused connections.";
    DISCONNECTS: Counter of Count, "cairn_disconnects_total",
        "Queue pairs that ended.";
    DEVICE_INFO: Gauge of Count, "cairn_rdma_device_info",
        "Device used by the target.";
    PORT_INFO: Gauge of Count, "cairn_rdma_port_info",
        "Port of a device.";
    PORT_UP: Gauge of Count, "cairn_rdma_port_up",
        "Whether a port is active.";
    PORT_BYTES: Counter of Bytes, "cairn_rdma_port_bytes_total",
        "Bytes on a port.";
    PORT_PACKETS: Counter of Count, "cairn_rdma_port_packets_total",
        "Packets on a port.";
    PORT_COUNTER: Counter of Count, "cairn_rdma_port_counter_total",
        "Port counters of sysfs.";
    HW_COUNTER: Counter of Count, "cairn_rdma_hw_counter_total",
        "RoCE counters, with the names of the driver.";
    QP_EVENTS: Counter of Count, "cairn_rdma_qp_events_total",
        "Events of queue pairs.";
    COMPLETION_ERRORS: Counter of Count, "cairn_rdma_completion_errors_total",
        "Work requests that completed with an error.";
    REACTOR_TIME: Counter of Seconds, "cairn_reactor_seconds_total",
        "Time of a reactor by activity; a sleep counts when it ends.";
    REACTOR_ROUNDS: Counter of Count, "cairn_reactor_rounds_total",
        "Rounds of the event loop.";
    REACTOR_SLEEPS: Counter of Count, "cairn_reactor_sleeps_total",
        "Sleeps of a reactor.";
    REACTOR_CAPSULES: Counter of Count, "cairn_reactor_capsules_total",
        "Command capsules received.";
    REACTOR_PANICS: Counter of Count, "cairn_reactor_panics_total",
        "Panics of a reactor, after which it loses its hosts and is rebuilt.";
    REACTOR_ORPHANS: Gauge of Count, "cairn_reactor_orphaned_commands",
        "Commands of a panicked reactor that are still at disks.";
    REACTOR_QUEUE_PAIRS: Gauge of Count, "cairn_reactor_queue_pairs",
        "Queue pairs.";
    REACTOR_REQUESTS: Gauge of Count, "cairn_reactor_requests",
        "Commands in progress.";
    REACTOR_REQUESTS_MAX: Gauge of Count, "cairn_reactor_requests_max",
        "Maximum commands in progress.";
    REACTOR_BUFFER: Gauge of Bytes, "cairn_reactor_buffer_bytes",
        "Data buffers.";
    REACTOR_BUFFER_USED: Gauge of Bytes, "cairn_reactor_buffer_used_bytes",
        "Data buffers in use.";
    REACTOR_WAITS: Counter of Count, "cairn_reactor_waits_total",
        "Commands that had to wait.";
    PANICS: Counter of Count, "cairn_panics_total",
        "Panicked jobs outside reactors.";
    RELOAD_TIME: Gauge of Seconds, "cairn_reload_time_seconds",
        "Time of the last reload, since 1970.";
    RELOAD_SUCCEEDED: Gauge of Count, "cairn_reload_succeeded",
        "Whether the last reload succeeded.";
    STATE_LOST: Gauge of Count, "cairn_state_directory_lost",
        "Whether the state directory, or a file of reservations in it, is lost.";
    AUDIT_LINES: Counter of Count, "cairn_audit_lines_total",
        "Lines written to a destination of the audit log.";
    AUDIT_LOST: Counter of Count, "cairn_audit_lost_total",
        "Events lost because a destination of the audit log had no room.";
    MISSING: Gauge of Count, "cairn_missing",
        "Configured disks, directories, listeners, metrics ports, keys and audit logs that are \
         missing or incomplete.";
    LEFT_OUT: Gauge of Count, "cairn_directory_left_out_files",
        "Files of a directory that are not namespaces.";
    BUILD_INFO: Gauge of Count, "cairn_build_info",
        "This program.";
    PROCESS_START: Gauge of Seconds, "process_start_time_seconds",
        "Start time of the process, since 1970.";
    PROCESS_CPU: Counter of Seconds, "process_cpu_seconds_total",
        "Processor time that the process used.";
    PROCESS_RESIDENT: Gauge of Bytes, "process_resident_memory_bytes",
        "Resident memory.";
    PROCESS_VIRTUAL: Gauge of Bytes, "process_virtual_memory_bytes",
        "Virtual memory.";
    PROCESS_FDS: Gauge of Count, "process_open_fds",
        "Open file descriptors.";
    PROCESS_THREADS: Gauge of Count, "process_threads",
        "Threads.";
    PROCESS_LOCKED: Gauge of Bytes, "cairn_process_locked_memory_bytes",
        "Locked or pinned memory.";
    LOG_LEFT_OUT: Counter of Count, "cairn_log_left_out_total",
        "Suppressed log lines caused by peers.";
    REQUESTS: Counter of Count, "cairn_metrics_requests_total",
        "Requests to this port.";
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../docs/metrics.md");

    fn documented() -> Vec<(&'static str, &'static str)> {
        let rows = PAGE.lines().filter(|line| line.starts_with("| `"));
        let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
        let named = cells.flat_map(|cells| {
            let names = cells[1].split(", ").map(|name| name.trim_matches('`'));
            names.map(|name| (name, cells[2])).collect::<Vec<_>>()
        });
        named
            .filter(|(name, _)| name.starts_with("cairn_") || name.starts_with("process_"))
            .collect()
    }

    #[test]
    fn the_documentation_has_all_of_them_and_no_others() {
        let documented = documented();
        for (name, _) in &documented {
            assert!(
                ALL.iter().any(|own| own.name == *name),
                "{name} does not exist"
            );
        }
        for own in ALL {
            let found = documented.iter().find(|(name, _)| *name == own.name);
            let (name, kind) = found.unwrap_or_else(|| panic!("{} is not explained", own.name));
            let expected = match own.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            assert!(kind.starts_with(expected), "{name} is a {expected}");
        }
    }

    #[test]
    fn names_say_what_they_are() {
        for Family {
            name, kind, unit, ..
        } in ALL
        {
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            let name = name.trim_end_matches("_total");
            assert_eq!(name.ends_with("_bytes"), *unit == Unit::Bytes, "{name}");
            assert_eq!(name.ends_with("_seconds"), *unit == Unit::Seconds, "{name}");
        }
    }
}
