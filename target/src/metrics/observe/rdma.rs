//! RDMA devices: what reactors saw of them, what the system knows of them, and what
//! those in user space count themselves.

use std::collections::BTreeMap;
use std::sync::Arc;

use cairn_fabric::facts::{Counters, PortTelemetry, Telemetry};
use cairn_fabric::source::{Known, Source};

use super::Observed;
use super::teller::Teller;
use crate::metrics::families;
use crate::metrics::reactor::{DeviceCounters, QpEvent, WORK_ERRORS};

/// Octets in the unit that port_rcv_data and port_xmit_data count (IBTA 16.1.3.5).
const DATA_UNIT: u64 = 4;

/// How the two directions are called: by us, by the system for packets and data, and by
/// devices in user space for packets and bytes.
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

pub(super) fn tell(teller: &Teller<'_>, observed: &Observed, machine: &dyn Source) {
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
        tell_seen(teller, device, seen);
        if seen.iter().any(|seen| seen.open.get() == 1) {
            tell_system(teller, device, seen[0].provider, machine);
        }
    }
    for provider in &observed.providers {
        for counted in provider.counters() {
            tell_counted(teller, &counted);
        }
    }
}

/// What reactors saw.
fn tell_seen(teller: &Teller<'_>, device: &str, seen: &[Arc<DeviceCounters>]) {
    let device = ("device", device);
    for (event, name) in QpEvent::ALL {
        let count = seen.iter().map(|seen| seen.events[event as usize].get());
        let labels = [device, ("event", name)];
        teller.count(&families::QP_EVENTS, &labels, count.sum());
    }
    for (place, name) in WORK_ERRORS.iter().enumerate() {
        let count: u64 = seen.iter().map(|seen| seen.errors[place].get()).sum();
        if count > 0 {
            let labels = [device, ("status", name)];
            teller.count(&families::COMPLETION_ERRORS, &labels, count);
        }
    }
}

/// What the system knows of a device; of those in user space, that they are there.
fn tell_system(teller: &Teller<'_>, device: &str, provider: &str, machine: &dyn Source) {
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
    teller.info(&families::DEVICE_INFO, &info);
    if let Some(telemetry) = telemetry {
        for port in telemetry.ports.each() {
            tell_port(teller, device, port);
        }
    }
}

fn tell_port(teller: &Teller<'_>, device: &str, port: &PortTelemetry) {
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
    teller.info(&families::PORT_INFO, &info);
    let is_up = port.state.get().is_some_and(|state| state == "ACTIVE");
    teller.gauge(&families::PORT_UP, &[device, number], is_up.into());
    for (family, counters) in [
        (&families::PORT_COUNTER, &port.counters),
        (&families::HW_COUNTER, &port.hw_counters),
    ] {
        for (name, value) in counters.each() {
            let labels = [device, number, ("counter", name)];
            teller.count(family, &labels, *value);
        }
    }
    let none = Counters::new();
    let counters = port.counters.get().unwrap_or(&none);
    for (direction, [packets, data, ..]) in DIRECTIONS {
        let labels = [device, number, ("direction", direction)];
        if let Some(&packets) = counters.get(packets) {
            teller.count(&families::PORT_PACKETS, &labels, packets);
        }
        if let Some(&data) = counters.get(data) {
            let bytes = data.saturating_mul(DATA_UNIT);
            teller.count(&families::PORT_BYTES, &labels, bytes);
        }
    }
}

/// What a device in user space counts: it has one port.
fn tell_counted(teller: &Teller<'_>, counted: &cairn_rdma::DeviceCounters) {
    let (device, port) = (("device", counted.device.as_str()), ("port", "1"));
    for &(name, value) in &counted.counters {
        let labels = [device, port, ("counter", name)];
        teller.count(&families::HW_COUNTER, &labels, value);
        for (direction, [.., packets, bytes]) in DIRECTIONS {
            let labels = [device, port, ("direction", direction)];
            if name == packets {
                teller.count(&families::PORT_PACKETS, &labels, value);
            } else if name == bytes {
                teller.count(&families::PORT_BYTES, &labels, value);
            }
        }
    }
}
