use std::time::Duration;

use super::counters::Counters;
use super::cpu_time::CpuTime;
use crate::fio_report::Report;
use crate::results::Better::{Higher, Lower};
use crate::results::Metric;

const COUNTERS: [(&str, &str); 2] = [("sent_pkts", "sent"), ("rcvd_pkts", "received")];

#[derive(Debug)]
pub(super) struct Sample {
    pub(super) report: Report,
    pub(super) target: Option<CpuTime>,
    pub(super) counters: Counters,
}

impl Sample {
    pub(super) fn metrics(&self) -> Vec<Metric> {
        let report = &self.report;
        let mut metrics = report.metrics();
        let mut each = |name: &str, unit: &str, value: f64| {
            metrics.push(Metric::once(name, unit, Lower, value / report.ios));
        };
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        if let Some(target) = self.target {
            each("target CPU", "us/IO", us(target.on_cpu));
        }
        each("host CPU", "us/IO", us(report.cpu));
        if !self.counters.is_empty() {
            for (counter, name) in COUNTERS {
                each(name, "1/IO", self.counters.get(counter) as f64);
            }
        }
        if let Some(target) = self.target {
            let share = target.waited.as_secs_f64() / report.runtime.as_secs_f64();
            metrics.push(Metric::once("disturbed", "%", Lower, share * 100.0));
        }
        metrics
    }
}

impl Report {
    fn metrics(&self) -> Vec<Metric> {
        vec![
            Metric::once("IOPS", "1/s", Higher, self.iops),
            Metric::once("bandwidth", "MB/s", Higher, self.bytes_per_s / 1e6),
            Metric::once("p50", "us", Lower, self.percentiles.p50 / 1e3),
            Metric::once("p99", "us", Lower, self.percentiles.p99 / 1e3),
            Metric::once("p99.9", "us", Lower, self.percentiles.p999 / 1e3),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio_report::tests::REPORT;

    #[test]
    fn both_ends_are_counted_per_io() {
        let sample = Sample {
            report: Report::read(REPORT).unwrap(),
            target: Some(CpuTime {
                on_cpu: Duration::from_millis(5),
                waited: Duration::from_millis(100),
            }),
            counters: Counters::of_log(
                "counters of RoCE in user space: sent_pkts=3000 rcvd_pkts=1000",
            ),
        };
        let metrics = sample.metrics();
        assert_eq!(metrics[0].name, "IOPS");
        for (name, expected) in [
            ("IOPS", 1000.0),
            ("bandwidth", 4.096),
            ("p50", 10.0),
            ("p99.9", 30.0),
            ("target CPU", 5.0),
            ("host CPU", 750.0),
            ("sent", 3.0),
            ("received", 1.0),
            ("disturbed", 10.0),
        ] {
            let metric = metrics.iter().find(|metric| metric.name == name);
            let value = metric.unwrap_or_else(|| panic!("no {name}")).median();
            assert!((value - expected).abs() < 1e-9, "{name}: {value}");
        }
    }
}
