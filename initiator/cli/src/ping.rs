//! The command `ping`: divides the latency of a read into network, target and disk.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::Args;
use nvme_proto::wire::identify::{Cns, IDENTIFY_BYTES};

use super::link::{
    Measured, SMALL, bandwidth_lines, bandwidth_objects, latency_table, parse_place,
};
use super::number::{number, number_in};
use super::raw::{self, Link};
use super::samples::{Effort, Samples};
use super::session::{Session, namespace, text};
use super::{Controller, Result};
use cairn_bench::object::Object;
use cairn_bench::{Format, random};
use cairn_initiator::{
    Command, Data, Host, HostError, HostOptions, IoQueue, Namespace, Response, command,
};

const CONNECTIONS: usize = 5;

#[derive(Debug, Args)]
pub(super) struct Ping {
    /// Namespace to read from; required only if there are several
    #[arg(short = 'N', long, value_name = "NSID", value_parser = number::<u32>)]
    namespace_id: Option<u32>,
    /// Time for each measurement, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = |text: &str| number_in::<u64>(text, 1..=u64::MAX))]
    time: u64,
    /// Address of `cairn-initiator link --listen` on the target's machine, to also measure the link
    /// without NVMe
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = parse_place)]
    responder: Option<SocketAddr>,
    #[command(flatten)]
    controller: Controller,
}

struct Findings {
    latencies: Vec<Samples>,
    bandwidths: Vec<(&'static str, f64)>,
    verdict: Verdict,
}

impl Ping {
    pub(super) fn run(&self) -> Result<()> {
        let session = Session::new(&self.controller.address)?;
        let subsystem = session.subsystem()?;
        let mut host = session.connect_to(subsystem, 1)?;
        let namespace = namespace(&mut host, self.namespace_id)?;
        let format = namespace.format(&host)?;
        let HostOptions { remote, pkey, .. } = session.options(subsystem)?;
        let effort = self.effort();

        let device = &session.provided.device;
        let connections = Effort {
            times_min: CONNECTIONS,
            times_max: CONNECTIONS,
            ..effort
        };
        let mut latencies = vec![Samples::of(
            "connection",
            0,
            "request there, reply back, by the connection managers",
            connections,
            || raw::connection_time(device, remote, pkey),
        )?];
        let mut nvme = Nvme {
            host: &mut host,
            disk: namespace.disk()?,
            format,
            random: random::fresh(),
        };
        let [keep_alive, identify, small, large] = nvme.latencies(effort)?;
        let mut bandwidths = vec![(
            "NVMe reads of 128 KiB, 8 at a time",
            nvme.bandwidth(effort.time)?,
        )];
        let mut wire_us = None;
        let (identify_us, small_us) = (identify.median_us(), small.median_us());
        latencies.extend([keep_alive, identify, small, large]);
        host.shutdown().map_err(text)?;
        if let Some(responder) = self.responder {
            let mut link = Link::to_responder(device, responder)?;
            let measured = Measured::of(&mut link, effort)?;
            wire_us = Some(measured.latencies[2].median_us());
            latencies.extend(measured.latencies);
            bandwidths.extend(measured.bandwidths);
            link.disconnect()?;
        }
        let findings = Findings {
            latencies,
            bandwidths,
            verdict: Verdict::new(wire_us, identify_us, small_us),
        };
        self.controller
            .output
            .show(&findings.object(), |_| findings.text());
        Ok(())
    }

    fn effort(&self) -> Effort {
        Effort {
            time: Duration::from_millis(self.time),
            times_min: 20,
            times_max: 10_000,
        }
    }
}

struct Nvme<'a> {
    host: &'a mut Host,
    disk: Namespace,
    format: Format,
    random: random::Rng,
}

impl Nvme<'_> {
    fn latencies(&mut self, effort: Effort) -> Result<[Samples; 4]> {
        let (small, large) = (SMALL.max(self.format.block_bytes), self.large());
        let mut buffer = self.host.buffer(large as usize).map_err(text)?;
        let keep_alive = Samples::of(
            "Keep Alive",
            0,
            "SEND there, SEND back; no data, no disk",
            effort,
            || self.time(|host| host.run_admin(command::keep_alive(), Data::None)),
        )?;
        let bytes = IDENTIFY_BYTES as u32;
        let identify = Samples::of(
            "Identify",
            bytes,
            "SEND there, RDMA WRITE and SEND back; no disk",
            effort,
            || {
                let sqe = command::identify(Cns::CONTROLLER, 0);
                let data = Data::start_of(&mut buffer, bytes);
                self.time(|host| host.run_admin(sqe, data))
            },
        )?;
        let mut reads = |what, bytes, path| {
            Samples::of(what, bytes, path, effort, || {
                let sqe = self.random_read(bytes);
                let data = Data::start_of(&mut buffer, bytes);
                self.time(|host| host.run(sqe, data))
            })
        };
        let small = reads("read", small, "as Identify, and the disk")?;
        let large = reads("read", large, "as above, and more time on the wire")?;
        Ok([keep_alive, identify, small, large])
    }

    fn time(
        &mut self,
        run: impl FnOnce(&mut Host) -> std::result::Result<Response, HostError>,
    ) -> Result<Duration> {
        let begun = Instant::now();
        run(self.host).map_err(text)?;
        Ok(begun.elapsed())
    }

    fn random_read(&mut self, bytes: u32) -> Command {
        let blocks = bytes / self.format.block_bytes;
        let places = self.format.blocks / u64::from(blocks);
        let place = self.random.u64(..places.max(1));
        self.disk.read_command(place * u64::from(blocks), blocks)
    }

    fn large(&self) -> u32 {
        let most = self.format.transfer_max.min(self.format.bytes());
        u64::from(raw::DATA_BYTES).min(most) as u32
    }

    fn bandwidth(&mut self, time: Duration) -> Result<f64> {
        let bytes = self.large();
        let buffer = self
            .host
            .buffer(bytes as usize * raw::DEPTH)
            .map_err(text)?;
        let mut buffers = buffer.split(bytes as usize);
        let begun = Instant::now();
        let (mut sent, mut done) = (0, 0u64);
        loop {
            let more = begun.elapsed() < time;
            while more && let Some(buffer) = buffers.pop() {
                let sqe = self.random_read(bytes);
                let data = Data::whole(buffer);
                self.host.submit(sqe, data).map_err(text)?;
                sent += 1;
            }
            if sent == done {
                let moved = (done * u64::from(bytes)) as f64;
                return Ok(moved / begun.elapsed().as_secs_f64());
            }
            let answer = self
                .host
                .wait_until("a read", |host| host.reap(IoQueue::FIRST));
            let (_, ended) = answer.map_err(text)?;
            let status = ended.answer.map_err(text)?.cqe.status();
            if !status.is_success() {
                return Err(format!("Read: {status}"));
            }
            buffers.extend(ended.buffer);
            done += 1;
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Verdict {
    read_us: f64,
    identify_us: f64,
    /// Latency of an RDMA READ in microseconds, if measured.
    wire_us: Option<f64>,
    /// Latency of a command without disk access in microseconds, minus `wire_us`.
    target_us: f64,
    disk_us: f64,
}

impl Verdict {
    fn new(wire_us: Option<f64>, identify_us: f64, read_us: f64) -> Self {
        let without_disk = identify_us.min(read_us);
        let target_us = without_disk - wire_us.unwrap_or(0.0);
        Self {
            read_us,
            identify_us,
            wire_us,
            target_us: target_us.max(0.0),
            disk_us: read_us - without_disk,
        }
    }

    fn text(&self) -> String {
        if self.wire_us.is_some_and(|wire| wire > self.read_us) {
            return format!(
                "verdict: none. The bare link took longer than a small read did, {:.1} us: the \
                 responder is another way, or these machines are busy with other things.",
                self.read_us
            );
        }
        if self.identify_us > 2.0 * self.read_us {
            return format!(
                "verdict: none. Identify, which needs no disk, took {:.1} us, and a small read \
                 {:.1} us: these machines are busy with other things. Measure again.",
                self.identify_us, self.read_us
            );
        }
        let share = |us: f64| format!("{us:.1} us ({:.0} %)", us * 100.0 / self.read_us);
        let mut parts = Vec::new();
        match self.wire_us {
            Some(wire) => {
                parts.push((wire, "the wire", format!("{} the wire", share(wire))));
                let target = format!("{} the target's programs", share(self.target_us));
                parts.push((self.target_us, "the target's programs", target));
            }
            None => parts.push((
                self.target_us,
                "wire and target",
                format!("{} wire and target", share(self.target_us)),
            )),
        }
        parts.push((
            self.disk_us,
            "the disk",
            format!("{} the disk", share(self.disk_us)),
        ));
        let most = parts.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        let most = match most.expect("there are parts").1 {
            "the disk" => "the disk, and at limits (cairn-target limit list),",
            other => other,
        };
        let list: Vec<_> = parts.iter().map(|(_, _, text)| text.as_str()).collect();
        format!(
            "verdict: of the {:.1} us that a small read takes, {}. Look at {most} first.",
            self.read_us,
            list.join(", ")
        )
    }
}

impl Findings {
    fn object(&self) -> Object {
        let verdict = &self.verdict;
        Object::new()
            .with_list("latency", self.latencies.iter().map(Samples::object))
            .with_list("bandwidth", bandwidth_objects(&self.bandwidths))
            .with_object(
                "verdict",
                Object::new()
                    .with("read_us", verdict.read_us)
                    .with("wire_us", verdict.wire_us)
                    .with("target_us", verdict.target_us)
                    .with("disk_us", verdict.disk_us)
                    .with("text", verdict.text()),
            )
    }

    fn text(&self) -> String {
        let mut out = latency_table(&self.latencies);
        out.push('\n');
        out += &bandwidth_lines(&self.bandwidths);
        out.push('\n');
        if self.verdict.wire_us.is_none() {
            out += "A target offers its hosts no memory, so the bare link cannot be measured with \
                    the target alone:\nIdentify, which needs no disk, stands for wire and target \
                    together. (--responder separates them.)\n\n";
        }
        out += &self.verdict.text();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_what_is_left_of_each_other() {
        let verdict = Verdict::new(Some(20.0), 50.0, 200.0);
        assert_eq!((verdict.target_us, verdict.disk_us), (30.0, 150.0));
        let text = verdict.text();
        assert!(
            text.contains("20.0 us (10 %) the wire, 30.0 us (15 %) the target's"),
            "{text}"
        );
        assert!(text.contains("Look at the disk, and at limits"), "{text}");
    }

    #[test]
    fn a_wire_that_is_slower_than_the_whole_is_no_verdict() {
        let verdict = Verdict::new(Some(90.0), 50.0, 60.0);
        assert!(verdict.text().starts_with("verdict: none."));
        assert_eq!(verdict.target_us, 0.0);
    }

    #[test]
    fn an_identify_that_is_much_slower_than_a_read_is_no_verdict() {
        let text = Verdict::new(None, 12_000.0, 260.0).text();
        assert!(text.starts_with("verdict: none. Identify"), "{text}");
    }

    #[test]
    fn a_disk_that_is_faster_than_identify_takes_no_time() {
        let verdict = Verdict::new(None, 60.0, 50.0);
        assert_eq!((verdict.target_us, verdict.disk_us), (50.0, 0.0));
        assert!(
            verdict
                .text()
                .contains("(100 %) wire and target, 0.0 us (0 %) the disk")
        );
        assert!(verdict.text().contains("Look at wire and target first."));
    }
}
