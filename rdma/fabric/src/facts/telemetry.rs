//! What of a device is worth looking at again and again: no more than that is read.

use super::counters;
use super::{Counters, Device, INFINIBAND, numbers};
use crate::source::{Known, Source, unless_absent};

/// A device's state and counters.
#[derive(Clone, Debug)]
pub struct Telemetry {
    /// What drives it.
    pub driver: Known<String>,
    /// Its firmware's version.
    pub firmware: Known<Option<String>>,
    /// Its ports.
    pub ports: Known<Vec<PortTelemetry>>,
}

/// A port's state and counters.
#[derive(Clone, Debug)]
pub struct PortTelemetry {
    /// Its number, from 1.
    pub number: u32,
    /// ACTIVE, DOWN, ...
    pub state: Known<String>,
    /// LinkUp, Disabled, ...
    pub physical_state: Known<String>,
    /// Ethernet, or InfiniBand.
    pub link_layer: Known<String>,
    /// As sysfs says it: "100 Gb/sec (4X EDR)".
    pub rate: Known<String>,
    /// Packets, bytes, errors.
    pub counters: Known<Counters>,
    /// RoCE's own: retransmissions, congestion.
    pub hw_counters: Known<Counters>,
}

impl Telemetry {
    /// Reads a device; `None` if there is none of this name.
    #[must_use]
    pub fn read(source: &dyn Source, device: &str) -> Option<Self> {
        let path = format!("{INFINIBAND}/{device}");
        unless_absent(source.list(&path)).ok().flatten()?;
        let ports = numbers(source, &format!("{path}/ports"));
        let read = |number| PortTelemetry::read(source, &path, number);
        Some(Self {
            driver: Device::read_driver(source, device).into(),
            firmware: source.optional(&format!("{path}/fw_ver")).into(),
            ports: ports
                .map(|numbers| numbers.into_iter().map(read).collect())
                .into(),
        })
    }
}

impl PortTelemetry {
    fn read(source: &dyn Source, device: &str, number: u32) -> Self {
        let path = format!("{device}/ports/{number}");
        let text = |file: &str| source.text(&format!("{path}/{file}"));
        // "4: ACTIVE" is its number and its name.
        let state = |file: &str| {
            text(file).map(|text| match text.split_once(": ") {
                Some((_, name)) => name.to_owned(),
                None => text,
            })
        };
        Self {
            number,
            state: state("state").into(),
            physical_state: state("phys_state").into(),
            link_layer: text("link_layer").into(),
            rate: text("rate").into(),
            counters: counters::read(source, &format!("{path}/counters")).into(),
            hw_counters: counters::read(source, &format!("{path}/hw_counters")).into(),
        }
    }
}
