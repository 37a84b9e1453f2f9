//! Rates between two readings, by host, namespace, reactor and device.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::page::{Page, Sample};
use super::quantile::Buckets;

pub(super) const STAGES: [&str; 4] = ["buffer", "data_in", "backend", "data_out"];

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rates {
    pub(super) seconds: f64,
    pub(super) version: String,
    pub(super) resident_bytes: f64,
    pub(super) reactors: Vec<Reactor>,
    pub(super) hosts: Vec<Host>,
    pub(super) namespaces: Vec<Namespace>,
    pub(super) devices: Vec<Device>,
    pub(super) refused_per_s: BTreeMap<String, f64>,
}

#[derive(Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(super) struct Load {
    pub(super) reads_per_s: f64,
    pub(super) writes_per_s: f64,
    pub(super) others_per_s: f64,
    pub(super) read_bytes_per_s: f64,
    pub(super) written_bytes_per_s: f64,
    pub(super) errors_per_s: f64,
    /// Median latency in microseconds; `None` without commands.
    pub(super) p50_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Host {
    pub(super) subsystem: String,
    pub(super) host_nqn: String,
    #[serde(serialize_with = "number")]
    #[schemars(with = "u64")]
    pub(super) cntlid: String,
    pub(super) remote: String,
    pub(super) queues: f64,
    pub(super) depth: f64,
    pub(super) load: Load,
    pub(super) buffer_waits_per_s: f64,
    pub(super) limit_waits_per_s: f64,
    #[serde(serialize_with = "numbers")]
    #[schemars(with = "Vec<u64>")]
    pub(super) tos: Vec<String>,
    #[serde(serialize_with = "numbers")]
    #[schemars(with = "Vec<u64>")]
    pub(super) hop_limit: Vec<String>,
    pub(super) pkey: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Namespace {
    pub(super) subsystem: String,
    #[serde(serialize_with = "number")]
    #[schemars(with = "u64")]
    pub(super) nsid: String,
    pub(super) backing: String,
    pub(super) in_progress: f64,
    pub(super) load: Load,
    pub(super) limit_waits_per_s: f64,
    pub(super) stage_p50_us: BTreeMap<&'static str, f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Reactor {
    #[serde(serialize_with = "number")]
    #[schemars(with = "u64")]
    pub(super) reactor: String,
    pub(super) busy: f64,
    pub(super) polling: f64,
    pub(super) sleeping: f64,
    pub(super) queue_pairs: f64,
    pub(super) requests: f64,
    pub(super) requests_max: f64,
    pub(super) buffer_bytes: f64,
    pub(super) buffer_used_bytes: f64,
    pub(super) waits_per_s: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Device {
    pub(super) device: String,
    pub(super) per_second: BTreeMap<String, f64>,
}

fn number<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    text.parse::<u64>().ok().serialize(serializer)
}

fn numbers<S: Serializer>(all: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(all.iter().filter_map(|text| text.parse::<u64>().ok()))
}

impl Rates {
    pub(super) fn between(before: &Page, after: &Page, seconds: f64) -> Self {
        let change = Change {
            before,
            after,
            seconds,
        };
        let build = after.all("cairn_build_info").first();
        let sum = |name| after.sum(name, &[]);
        Self {
            seconds,
            version: build.map_or("", |build| build.label("version")).to_owned(),
            resident_bytes: sum("process_resident_memory_bytes"),
            reactors: change.reactors(),
            hosts: change.hosts(),
            namespaces: change.namespaces(),
            devices: change.devices(),
            refused_per_s: change.by_label("cairn_connects_refused_total", &[], "reason"),
        }
    }
}

struct Change<'a> {
    before: &'a Page,
    after: &'a Page,
    seconds: f64,
}

type Labels<'a> = [(&'static str, &'a str)];

impl Change<'_> {
    fn rate(&self, name: &str, labels: &Labels<'_>) -> f64 {
        let (then, now) = (self.before.sum(name, labels), self.after.sum(name, labels));
        let change = if now < then { now } else { now - then };
        change / self.seconds
    }

    fn by_label(
        &self,
        name: &str,
        labels: &Labels<'_>,
        label: &'static str,
    ) -> BTreeMap<String, f64> {
        let all = self.after.all(name).iter();
        let values = all
            .filter(|sample| sample.has(labels))
            .map(|sample| sample.label(label));
        let rates = values.map(|value| {
            let mut labels = labels.to_vec();
            labels.push((label, value));
            (value.to_owned(), self.rate(name, &labels))
        });
        rates.filter(|(_, rate)| *rate > 0.0).collect()
    }

    fn load(&self, scope: &str, labels: &Labels<'_>) -> Load {
        let by_op = |what: &str, op: &str| {
            let name = format!("cairn_{scope}_{what}_total");
            let mut labels = labels.to_vec();
            labels.push(("op", op));
            self.rate(&name, &labels)
        };
        let all = self.rate(&format!("cairn_{scope}_ios_total"), labels);
        let (reads_per_s, writes_per_s) = (by_op("ios", "read"), by_op("ios", "write"));
        let mut whole = labels.to_vec();
        if scope == "namespace" {
            whole.push(("stage", "whole"));
        }
        let time = self.time(scope, &whole);
        let us = |share| time.quantile(share).map(|seconds| seconds * 1e6);
        Load {
            reads_per_s,
            writes_per_s,
            others_per_s: (all - reads_per_s - writes_per_s).max(0.0),
            read_bytes_per_s: by_op("bytes", "read"),
            written_bytes_per_s: by_op("bytes", "write"),
            errors_per_s: self.rate(&format!("cairn_{scope}_errors_total"), labels),
            p50_us: us(0.5),
            p99_us: us(0.99),
        }
    }

    fn time(&self, scope: &str, labels: &Labels<'_>) -> Buckets {
        let name = format!("cairn_{scope}_io_seconds");
        Buckets::between(self.before, self.after, &name, labels)
    }

    fn hosts(&self) -> Vec<Host> {
        let hosts = self.after.all("cairn_host_queues").iter();
        hosts.map(|sample| self.host(sample)).collect()
    }

    fn host(&self, sample: &Sample) -> Host {
        let label = |name| sample.label(name);
        let labels = ["subsystem", "host_nqn", "cntlid"].map(|name| (name, label(name)));
        let connections = self.after.all("cairn_connection_info").iter();
        let connections: Vec<&Sample> = connections.filter(|one| one.has(&labels)).collect();
        let values = |name| distinct(connections.iter().map(|one| one.label(name)));
        let remotes = connections.iter().map(|one| one.label("remote"));
        let remotes =
            distinct(remotes.map(|remote| remote.rsplit_once(':').map_or(remote, |r| r.0)));
        Host {
            subsystem: label("subsystem").to_owned(),
            host_nqn: label("host_nqn").to_owned(),
            cntlid: label("cntlid").to_owned(),
            remote: remotes.join(" "),
            queues: sample.value,
            depth: self.after.sum("cairn_queue_depth", &labels),
            load: self.load("host", &labels),
            buffer_waits_per_s: self.rate("cairn_host_buffer_waits_total", &labels),
            limit_waits_per_s: self.rate("cairn_host_limit_waits_total", &labels),
            tos: values("tos"),
            hop_limit: values("hop_limit"),
            pkey: values("pkey"),
        }
    }

    fn namespaces(&self) -> Vec<Namespace> {
        let infos = self.after.all("cairn_namespace_info").iter();
        infos.map(|info| self.namespace(info)).collect()
    }

    fn namespace(&self, info: &Sample) -> Namespace {
        let labels = ["subsystem", "nsid"].map(|name| (name, info.label(name)));
        let stages = STAGES.into_iter().filter_map(|stage| {
            let mut labels = labels.to_vec();
            labels.push(("stage", stage));
            let median = self.time("namespace", &labels).quantile(0.5)?;
            Some((stage, median * 1e6))
        });
        Namespace {
            subsystem: info.label("subsystem").to_owned(),
            nsid: info.label("nsid").to_owned(),
            backing: info.label("backing").to_owned(),
            in_progress: self.after.sum("cairn_namespace_in_progress", &labels),
            load: self.load("namespace", &labels),
            limit_waits_per_s: self.rate("cairn_namespace_limit_waits_total", &labels),
            stage_p50_us: stages.collect(),
        }
    }

    fn reactors(&self) -> Vec<Reactor> {
        let all = self.after.all("cairn_reactor_queue_pairs").iter();
        all.map(|sample| {
            let reactor = sample.label("reactor");
            let labels = [("reactor", reactor)];
            let now = |name| self.after.sum(name, &labels);
            let share = |state| {
                self.rate(
                    "cairn_reactor_seconds_total",
                    &[("reactor", reactor), ("state", state)],
                )
            };
            Reactor {
                reactor: reactor.to_owned(),
                busy: share("busy"),
                polling: share("polling"),
                sleeping: share("sleeping"),
                queue_pairs: sample.value,
                requests: now("cairn_reactor_requests"),
                requests_max: now("cairn_reactor_requests_max"),
                buffer_bytes: now("cairn_reactor_buffer_bytes"),
                buffer_used_bytes: now("cairn_reactor_buffer_used_bytes"),
                waits_per_s: self.rate("cairn_reactor_waits_total", &labels),
            }
        })
        .collect()
    }

    fn devices(&self) -> Vec<Device> {
        let infos = self.after.all("cairn_rdma_device_info").iter();
        infos
            .map(|info| {
                let device = info.label("device");
                let labels = [("device", device)];
                let mut per_second = BTreeMap::new();
                for direction in ["receive", "transmit"] {
                    for what in ["bytes", "packets"] {
                        let name = format!("cairn_rdma_port_{what}_total");
                        let labels = [("device", device), ("direction", direction)];
                        let rate = self.rate(&name, &labels);
                        if rate > 0.0 {
                            per_second.insert(format!("{direction} {what}"), rate);
                        }
                    }
                }
                for (name, label) in [
                    ("cairn_rdma_hw_counter_total", "counter"),
                    ("cairn_rdma_qp_events_total", "event"),
                    ("cairn_rdma_completion_errors_total", "status"),
                ] {
                    per_second.extend(self.by_label(name, &labels, label));
                }
                Device {
                    device: device.to_owned(),
                    per_second,
                }
            })
            .collect()
    }
}

fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<String> {
    let set: std::collections::BTreeSet<&str> = values.filter(|value| !value.is_empty()).collect();
    set.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_labels_are_numbers_in_json() {
        let page = Page::parse(
            "cairn_host_queues{subsystem=\"s\",host_nqn=\"h\",cntlid=\"7\"} 2\n\
             cairn_connection_info{subsystem=\"s\",host_nqn=\"h\",cntlid=\"7\",tos=\"104\",hop_limit=\"64\"} 1\n\
             cairn_namespace_info{subsystem=\"s\",nsid=\"3\",backing=\"b\"} 1\n\
             cairn_reactor_queue_pairs{reactor=\"1\"} 2\n",
        );
        let page = page.unwrap();
        let json = serde_json::to_value(Rates::between(&page, &page, 1.0)).unwrap();
        let host = &json["hosts"][0];
        assert_eq!((&host["cntlid"], &host["tos"][0]), (&7.into(), &104.into()));
        assert_eq!(host["hop_limit"][0], 64);
        assert_eq!(json["namespaces"][0]["nsid"], 3);
        assert_eq!(json["reactors"][0]["reactor"], 1);
    }
}
