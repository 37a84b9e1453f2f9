use super::{Examination, Finding, Severity};
use crate::facts::{Device, Port};

pub(super) const NAME: &str = "counters";

struct Symptom {
    counter: &'static str,
    what: &'static str,
    why: &'static str,
    fix: &'static str,
}

const SYMPTOMS: [Symptom; 22] = [
    symptom("port_rcv_errors", "packets arrive damaged", WIRE, CABLE),
    symptom(
        "symbol_error",
        "the link reads symbols wrongly",
        WIRE,
        CABLE,
    ),
    symptom(
        "link_downed",
        "the link goes down and comes back",
        WIRE,
        CABLE,
    ),
    symptom("link_error_recovery", "the link retrains", WIRE, CABLE),
    symptom(
        "rx_icrc_encapsulated",
        "packets arrive with a wrong ICRC",
        WIRE,
        CABLE,
    ),
    symptom(
        "port_xmit_discards",
        "the port discards what it should send",
        LOST,
        FLOW,
    ),
    symptom(
        "port_rcv_remote_physical_errors",
        "a switch passes damaged packets on",
        WIRE,
        CABLE,
    ),
    symptom(
        "port_xmit_wait",
        "data waits for the port to be allowed to send",
        FULL,
        WATCH,
    ),
    symptom(
        "out_of_sequence",
        "packets arrive out of order: some were lost",
        LOST,
        FLOW,
    ),
    symptom(
        "out_of_seq_request",
        "requests arrive out of order: some were lost",
        LOST,
        FLOW,
    ),
    symptom(
        "packet_seq_err",
        "the other end asks for lost packets again",
        LOST,
        FLOW,
    ),
    symptom(
        "implied_nak_seq_err",
        "answers arrive out of order: some were lost",
        LOST,
        FLOW,
    ),
    symptom(
        "local_ack_timeout_err",
        "no acknowledgement in time",
        SILENT,
        REACH,
    ),
    symptom(
        "roce_adp_retrans_to",
        "no acknowledgement in time (adaptive)",
        SILENT,
        REACH,
    ),
    symptom(
        "retry_exceeded_err",
        "retries are used up: connections break",
        SILENT,
        REACH,
    ),
    symptom(
        "retry_rnr_exceeded_err",
        "the other end never becomes ready: connections break",
        NOT_READY,
        DEPTH,
    ),
    symptom(
        "rnr_nak_retry_err",
        "the other end is not ready to receive",
        NOT_READY,
        DEPTH,
    ),
    symptom(
        "rcvd_rnr_err",
        "the other end is not ready to receive",
        NOT_READY,
        DEPTH,
    ),
    symptom(
        "send_rnr_err",
        "requests come while no receive is posted here",
        NOT_READY,
        DEPTH,
    ),
    symptom(
        "out_of_buffer",
        "requests come while no receive is posted here",
        NOT_READY,
        DEPTH,
    ),
    symptom(
        "rcvd_seq_err",
        "the other end reports lost packets",
        LOST,
        FLOW,
    ),
    symptom(
        "req_remote_access_errors",
        "the other end refuses memory keys",
        KEYS,
        LOG,
    ),
];

const WIRE: &str = "each such packet is lost and sent again; it comes from the wire, not from load";
const LOST: &str = "RoCE resends from the first lost packet on, so a few losses cost most of the \
                    throughput. Something drops packets under load: a switch port without flow \
                    control for this priority, or an MTU that does not fit all the way";
const FULL: &str = "the network takes less than this machine sends: pauses or credits hold it back";
const SILENT: &str = "packets or their acknowledgements vanish: cable, MTU on the way, flow \
                      control, a filter on UDP 4791, or a dead peer";
const NOT_READY: &str = "a sender waits and tries again, up to 655 ms each time: more commands \
                         arrive than there are receives for";
const KEYS: &str = "a host gave a wrong address or key, or took it back too early";

const CABLE: &str =
    "ethtool -S NETDEV | grep -iE 'err|crc|fec'  # then cable, transceiver, switch port";
const FLOW: &str = "dcb pfc show dev NETDEV; ethtool -S NETDEV | grep -E 'pause|discard'  # and the same on the switch";
const REACH: &str = "PROGRAM doctor --peer ADDRESS  # route, path MTU and port 4791";
const DEPTH: &str = "receives = 4096 in [target], or a smaller queue_depth";
const WATCH: &str = "PROGRAM fabric watch";
const LOG: &str = "dmesg | tail  # on the host that the program's log names";

const fn symptom(
    counter: &'static str,
    what: &'static str,
    why: &'static str,
    fix: &'static str,
) -> Symptom {
    Symptom {
        counter,
        what,
        why,
        fix,
    }
}

pub(super) struct Grown {
    pub(super) name: String,
    pub(super) subject: String,
    pub(super) path: String,
    netdev: String,
    by: u64,
    total: u64,
    seconds: f64,
}

impl Grown {
    pub(super) fn text(&self) -> String {
        format!(
            "+{} in {:.1} s, {} in all",
            self.by, self.seconds, self.total
        )
    }
}

pub(super) fn growth(examination: &Examination) -> Vec<Grown> {
    let Some(later) = &examination.later else {
        return Vec::new();
    };
    let before = examination.fabric.ports();
    before
        .flat_map(|(device, port)| {
            let after = later.ports().find(|(_, after)| after.path == port.path);
            after.map_or_else(Vec::new, |(_, after)| {
                of_port(examination, device, port, after)
            })
        })
        .collect()
}

fn of_port(examination: &Examination, device: &Device, port: &Port, after: &Port) -> Vec<Grown> {
    let before: Vec<(String, u64)> = port.all_counters().collect();
    let of = |(path, total): (String, u64)| {
        let (_, first) = before.iter().find(|(other, _)| *other == path)?;
        let by = total.saturating_sub(*first);
        (by > 0).then(|| Grown {
            name: path.rsplit('/').next().unwrap_or_default().to_owned(),
            subject: format!("{} port {}", device.name, port.number),
            netdev: port
                .netdevs(device)
                .next()
                .map_or("NETDEV", |netdev| netdev)
                .to_owned(),
            seconds: examination.interval.as_secs_f64(),
            path,
            by,
            total,
        })
    };
    after.all_counters().filter_map(of).collect()
}

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let grown = growth(examination);
    for grown in &grown {
        let known = SYMPTOMS
            .iter()
            .find(|symptom| symptom.counter == grown.name);
        findings.extend(known.map(|symptom| {
            symptom.finding(
                examination,
                Severity::Warning,
                &grown.subject,
                &grown.netdev,
                (&grown.path, grown.text()),
            )
        }));
    }
    for (device, port) in examination.fabric.ports() {
        let subject = format!("{} port {}", device.name, port.number);
        let netdev = port
            .netdevs(device)
            .next()
            .map_or("NETDEV", |netdev| netdev);
        for (path, value) in port.all_counters() {
            let name = path.rsplit('/').next().unwrap_or_default();
            let known = SYMPTOMS.iter().find(|symptom| symptom.counter == name);
            let is_growing = grown.iter().any(|grown| grown.path == path);
            if let Some(symptom) = known.filter(|_| value > 0 && !is_growing) {
                let seen = (
                    path.as_str(),
                    format!("{value} since the driver was loaded"),
                );
                findings.push(symptom.finding(examination, Severity::Note, &subject, netdev, seen));
            }
        }
    }
}

impl Symptom {
    fn finding(
        &self,
        examination: &Examination,
        severity: Severity,
        subject: &str,
        netdev: &str,
        (path, value): (&str, String),
    ) -> Finding {
        let when = match severity {
            Severity::Note => " (not now)",
            _ => "",
        };
        let command = self.fix.replace("NETDEV", netdev);
        let command = examination.intent.caller.fill(&command);
        Finding::new(NAME, severity, subject, format!("{}{when}", self.what))
            .because(self.why)
            .seen(path, value)
            .fixed_by(command)
    }
}
