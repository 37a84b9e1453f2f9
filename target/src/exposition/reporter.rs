//! Reports values to a recorder of the `metrics` façade.

use metrics::{Key, Label, Level, Metadata, Recorder};

use crate::exposition::families::{self, Family, Kind};
use cairn_data_path::metrics::histogram::Times;

const METADATA: Metadata<'_> = Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

pub(super) type Labels<'a> = &'a [(&'static str, &'a str)];

pub(super) struct Reporter<'a> {
    recorder: &'a dyn Recorder,
}

impl<'a> Reporter<'a> {
    pub(super) fn new(recorder: &'a dyn Recorder) -> Self {
        for family in families::ALL {
            let (name, unit) = (family.name.into(), Some(family.unit));
            let help = family.help.into();
            match family.kind {
                Kind::Counter => recorder.describe_counter(name, unit, help),
                Kind::Gauge => recorder.describe_gauge(name, unit, help),
                Kind::Histogram => recorder.describe_histogram(name, unit, help),
            }
        }
        Self { recorder }
    }

    pub(super) fn count(&self, family: &Family, labels: Labels<'_>, value: u64) {
        debug_assert_eq!(family.kind, Kind::Counter, "{}", family.name);
        let counter = self
            .recorder
            .register_counter(&key(family, labels), &METADATA);
        counter.absolute(value);
    }

    /// Records a time as a gauge in seconds, because the façade's counters are integers.
    pub(super) fn count_ns(&self, family: &Family, labels: Labels<'_>, ns: u64) {
        debug_assert_eq!(family.kind, Kind::Counter, "{}", family.name);
        let gauge = self
            .recorder
            .register_gauge(&key(family, labels), &METADATA);
        gauge.set(ns as f64 * 1e-9);
    }

    pub(super) fn gauge(&self, family: &Family, labels: Labels<'_>, value: u64) {
        debug_assert_eq!(family.kind, Kind::Gauge, "{}", family.name);
        let gauge = self
            .recorder
            .register_gauge(&key(family, labels), &METADATA);
        gauge.set(value as f64);
    }

    pub(super) fn gauge_ns(&self, family: &Family, labels: Labels<'_>, ns: u64) {
        debug_assert_eq!(family.kind, Kind::Gauge, "{}", family.name);
        let gauge = self
            .recorder
            .register_gauge(&key(family, labels), &METADATA);
        gauge.set(ns as f64 * 1e-9);
    }

    pub(super) fn info(&self, family: &Family, labels: Labels<'_>) {
        self.gauge(family, labels, 1);
    }

    pub(super) fn times(&self, family: &Family, labels: Labels<'_>, times: &Times) {
        debug_assert_eq!(family.kind, Kind::Histogram, "{}", family.name);
        if !times.is_empty() {
            let key = key(family, labels);
            times.record_in(&self.recorder.register_histogram(&key, &METADATA));
        }
    }
}

fn key(family: &Family, labels: Labels<'_>) -> Key {
    let labels = labels.iter();
    let labels: Vec<Label> = labels
        .map(|&(name, value)| Label::new(name, value.to_owned()))
        .collect();
    Key::from_parts(family.name, labels)
}
