//! Metrics of RDMA devices, from reactors, the kernel and user-space providers.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_doctor::facts::{Counters, PortTelemetry, Telemetry};
use cairn_doctor::source::{Known, Source};

use super::Observed;
use super::reporter::Reporter;
use crate::exposition::families;
use cairn_data_path::metrics::reactor::{DeviceCounters, QpEvent, WORK_ERRORS};

/// Bytes per unit of port_rcv_data and port_xmit_data (IBTA 16.1.3.5).
const DATA_UNIT: u64 = 4;

/// Counters by direction: packets and data units of the kernel, then packets and bytes in the
/// device's hardware counters.
const DIRECTIONS: [(&str, [&str; 4]); 2] = [
    (
        "receive",
        [
            "port_rcv_packets",
            "port_rcv_data",
            "rcvd_pkts",
            "rcvd_bytes",
        ],
    ),
    (
        "transmit",
        [
            "port_xmit_packets",
            "port_xmit_data",
            "sent_pkts",
            "sent_bytes",
        ],
    ),
];

pub(super) fn report(reporter: &Reporter<'_>, observed: &Observed, machine: &dyn Source) {
    let mut devices = BTreeMap::<String, Vec<Arc<DeviceCounters>>>::new();
    for counters in observed
        .reactors
        .iter()
        .flat_map(|reactor| reactor.devices())
    {
        let seen = devices.entry(counters.name.clone()).or_default();
        seen.push(counters);
    }
    for (device, seen) in &devices {
        report_seen(reporter, device, seen);
        if seen.iter().any(|seen| seen.open.get() == 1) {
            report_system(reporter, device, seen[0].provider, machine);
        }
    }
    for provider in &observed.providers {
        for counted in provider.counters() {
            report_counted(reporter, &counted);
        }
    }
}

fn report_seen(reporter: &Reporter<'_>, device: &str, seen: &[Arc<DeviceCounters>]) {
    let device = ("device", device);
    for (event, name) in QpEvent::ALL {
        let count = seen.iter().map(|seen| seen.events[event as usize].get());
        let labels = [device, ("event", name)];
        reporter.count(&families::QP_EVENTS, &labels, count.sum());
    }
    for (place, name) in WORK_ERRORS.iter().enumerate() {
        let count: u64 = seen.iter().map(|seen| seen.errors[place].get()).sum();
        if count > 0 {
            let labels = [device, ("status", name)];
            reporter.count(&families::COMPLETION_ERRORS, &labels, count);
        }
    }
}

fn report_system(reporter: &Reporter<'_>, device: &str, provider: &str, machine: &dyn Source) {
    let telemetry = Telemetry::read(machine, device);
    let driver = telemetry.as_ref().and_then(|known| known.driver.get());
    let firmware = telemetry.as_ref().and_then(|known| known.firmware.get());
    let info = [
        ("device", device),
        ("provider", provider),
        ("driver", driver.map_or("", String::as_str)),
        (
            "firmware",
            firmware.and_then(Option::as_deref).unwrap_or(""),
        ),
    ];
    reporter.info(&families::DEVICE_INFO, &info);
    if let Some(telemetry) = telemetry {
        for port in telemetry.ports.each() {
            report_port(reporter, device, port);
        }
    }
}

fn report_port(reporter: &Reporter<'_>, device: &str, port: &PortTelemetry) {
    let number = port.number.to_string();
    let (device, number) = (("device", device), ("port", number.as_str()));
    let known = |text: &Known<String>| text.get().cloned().unwrap_or_default();
    let info = [
        device,
        number,
        ("state", &known(&port.state)),
        ("physical_state", &known(&port.physical_state)),
        ("link_layer", &known(&port.link_layer)),
        ("rate", &known(&port.rate)),
    ];
    reporter.info(&families::PORT_INFO, &info);
    let is_up = port.state.get().is_some_and(|state| state == "ACTIVE");
    reporter.gauge(&families::PORT_UP, &[device, number], is_up.into());
    for (family, counters) in [
        (&families::PORT_COUNTER, &port.counters),
        (&families::HW_COUNTER, &port.hw_counters),
    ] {
        for (name, value) in counters.each() {
            let labels = [device, number, ("counter", name)];
            reporter.count(family, &labels, *value);
        }
    }
    let none = Counters::new();
    let counters = port.counters.get().unwrap_or(&none);
    let own = port.hw_counters.get().unwrap_or(&none);
    for (direction, [packets, data, own_packets, _]) in DIRECTIONS {
        let labels = [device, number, ("direction", direction)];
        // rdma_rxe has packet counters only among its hardware counters.
        let packets = counters.get(packets).or_else(|| own.get(own_packets));
        if let Some(&packets) = packets {
            reporter.count(&families::PORT_PACKETS, &labels, packets);
        }
        if let Some(&data) = counters.get(data) {
            let bytes = data.saturating_mul(DATA_UNIT);
            reporter.count(&families::PORT_BYTES, &labels, bytes);
        }
    }
}

fn report_counted(reporter: &Reporter<'_>, counted: &cairn_rdma::DeviceCounters) {
    let (device, port) = (("device", counted.device.as_str()), ("port", "1"));
    for &(name, value) in &counted.counters {
        let labels = [device, port, ("counter", name)];
        reporter.count(&families::HW_COUNTER, &labels, value);
        for (direction, [.., packets, bytes]) in DIRECTIONS {
            let labels = [device, port, ("direction", direction)];
            if name == packets {
                reporter.count(&families::PORT_PACKETS, &labels, value);
            } else if name == bytes {
                reporter.count(&families::PORT_BYTES, &labels, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::panics::Panics;
    use std::path::Path;

    use cairn_doctor::source::Recording;
    use cairn_rdma::{Event, Provider};
    use cairn_roce::Soft;

    use super::*;
    use crate::exposition::page::{Buckets, Format, Page};
    use cairn_data_path::metrics::reactor::ReactorCounters;

    fn recorded(name: &str, changes: &str) -> Recording {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../doctor/tests/recordings");
        let mut machine = Recording::open(&folder.join(format!("{name}.txt"))).unwrap();
        machine.amend(changes).unwrap();
        machine
    }

    fn reported(device: &str, open: bool, machine: &Recording) -> String {
        let reactor = Arc::new(ReactorCounters::default());
        let counters = reactor.device(device, "verbs");
        counters.open.set(open.into());
        counters.accepted();
        counters.count_event(&Event::DeviceRemoved);
        counters.work_failed(cairn_rdma::WorkStatus::RemoteAccess);
        let providers: [Arc<dyn Provider>; 1] = [Arc::new(Soft::default())];
        let panics = Arc::new(Panics::new(true));
        let mailboxes = Vec::new().into();
        let (_, health) = tokio::sync::watch::channel(Arc::default());
        let observed = Observed::new(
            &Arc::default(),
            vec![reactor],
            &providers,
            &panics,
            health,
            &mailboxes,
            &cairn_data_path::audit::Audit::default(),
        );
        let page = Page::new(Buckets::Coarse);
        report(&Reporter::new(&page), &observed, machine);
        page.write(Format::Text)
    }

    fn assert_reported(text: &str, lines: &[&str]) {
        for line in lines {
            let has = text.lines().any(|own| own == *line);
            assert!(has, "{line} is not in\n{text}");
        }
    }

    #[test]
    fn an_adapter_with_counters_of_both_kinds() {
        let machine = recorded(
            "healthy",
            "[/sys/class/infiniband/mlx5_0/ports/1]\n\
             counters/port_rcv_packets = 7\nhw_counters/out_of_sequence = 3\n",
        );
        let text = reported("mlx5_0", true, &machine);
        assert_reported(
            &text,
            &[
                "cairn_rdma_device_info{device=\"mlx5_0\",provider=\"verbs\",\
                 driver=\"mlx5_core\",firmware=\"16.35.3502\"} 1",
                "cairn_rdma_port_info{device=\"mlx5_0\",port=\"1\",state=\"ACTIVE\",\
                 physical_state=\"LinkUp\",link_layer=\"Ethernet\",\
                 rate=\"100 Gb/sec (4X EDR)\"} 1",
                "cairn_rdma_port_up{device=\"mlx5_0\",port=\"1\"} 1",
                "cairn_rdma_port_bytes_total{device=\"mlx5_0\",port=\"1\",direction=\"receive\"} 4000",
                "cairn_rdma_port_bytes_total{device=\"mlx5_0\",port=\"1\",direction=\"transmit\"} 8000",
                "cairn_rdma_port_packets_total{device=\"mlx5_0\",port=\"1\",direction=\"receive\"} 7",
                "cairn_rdma_port_counter_total{device=\"mlx5_0\",port=\"1\",counter=\"port_rcv_data\"} 1000",
                "cairn_rdma_hw_counter_total{device=\"mlx5_0\",port=\"1\",counter=\"out_of_sequence\"} 3",
                "cairn_rdma_qp_events_total{device=\"mlx5_0\",event=\"accepted\"} 1",
                "cairn_rdma_qp_events_total{device=\"mlx5_0\",event=\"device_removed\"} 1",
                "cairn_rdma_completion_errors_total{device=\"mlx5_0\",status=\"REM_ACCESS_ERR\"} 1",
            ],
        );
        assert!(!text.contains("lifespan"), "a setting, no counter");
        assert!(!text.contains("mlx5_1"), "the target does not use it");
    }

    #[test]
    fn soft_roce_counts_packets_among_its_own() {
        let changes = "[/sys/class/infiniband/rxe0/ports/1]\n\
                       hw_counters/sent_pkts = 11\nhw_counters/rcvd_seq_err = 2\n";
        let text = reported("rxe0", true, &recorded("rxe", changes));
        assert_reported(
            &text,
            &[
                "cairn_rdma_port_packets_total{device=\"rxe0\",port=\"1\",direction=\"transmit\"} 11",
                "cairn_rdma_hw_counter_total{device=\"rxe0\",port=\"1\",counter=\"rcvd_seq_err\"} 2",
            ],
        );
        assert!(!text.contains("port_bytes"), "it does not count them");
    }

    #[test]
    fn what_cannot_be_read_is_left_out() {
        let text = reported("mlx5_0", true, &recorded("half-readable", ""));
        assert!(text.contains("cairn_rdma_port_counter_total"));
        assert!(!text.contains("cairn_rdma_hw_counter_total"));
        let text = reported("soft-192.0.2.1", true, &recorded("no-device", ""));
        let info = "cairn_rdma_device_info{device=\"soft-192.0.2.1\",provider=\"verbs\",\
                    driver=\"\",firmware=\"\"} 1";
        assert_reported(&text, &[info]);
        assert!(!text.contains("cairn_rdma_port"));
    }

    #[test]
    fn of_a_removed_device_only_what_was_seen_is_reported() {
        let text = reported("mlx5_0", false, &recorded("healthy", ""));
        assert!(text.contains("cairn_rdma_qp_events_total"));
        assert!(!text.contains("device_info") && !text.contains("hw_counter"));
    }
}
