use super::counters;
use super::{Counters, Device, INFINIBAND, numbers};
use crate::source::{Known, Source, unless_absent};

/// Changing state and counters of a device, cheap to read repeatedly.
#[derive(Clone, Debug)]
pub struct Telemetry {
    pub driver: Known<String>,
    pub firmware: Known<Option<String>>,
    pub ports: Known<Vec<PortTelemetry>>,
}

/// State and counters of a port, in the format of [`Port`](super::Port).
#[derive(Clone, Debug)]
pub struct PortTelemetry {
    pub number: u32,
    pub state: Known<String>,
    pub physical_state: Known<String>,
    pub link_layer: Known<String>,
    pub rate: Known<String>,
    pub counters: Known<Counters>,
    pub hw_counters: Known<Counters>,
}

impl Telemetry {
    /// Reads a device; `None` if its sysfs directory is unreadable.
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
