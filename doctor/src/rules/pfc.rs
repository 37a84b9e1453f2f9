//! Rule: priority flow control (PFC), which makes Ethernet lossless.

use super::classes::Class;
use super::{Examination, Finding, Severity, priority};
use crate::facts::{Device, Netdev, Port};
use crate::source::Dcb;
use crate::tos::Tos;

pub(super) const NAME: &str = "pfc";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for (netdev, device, port) in examination.roce_netdevs() {
        // VLANs and bonds are skipped, because they use the flow control of their adapter.
        let is_adapter = netdev.pci.get().is_some_and(Option::is_some);
        if !is_adapter || device.is_soft_roce() {
            continue;
        }
        let Some(dcb) = netdev.dcb.get() else {
            continue;
        };
        if dcb.pfc.is_empty() {
            findings.extend(no_pfc(netdev));
        } else {
            for class in examination.classes_of(device, port) {
                let port = (device, port);
                findings.extend(wrong_priority(examination, netdev, port, dcb, &class));
            }
            findings.extend(both(netdev, dcb));
        }
        findings.extend(paused_priority(examination, netdev, dcb));
    }
}

fn no_pfc(netdev: &Netdev) -> Option<Finding> {
    let name = &netdev.name;
    let pause = netdev.pause.get()?;
    let finding = if pause.rx || pause.tx {
        Finding::new(
            NAME,
            Severity::Note,
            name,
            "global pause keeps the link lossless, priority flow control is off",
        )
        .because(
            "global pause stops all traffic of the link, whatever it is; priority flow control \
             stops storage alone, and works on switches that carry other traffic, too",
        )
    } else {
        Finding::new(
            NAME,
            Severity::Warning,
            name,
            "neither priority flow control nor global pause: the link drops packets under load",
        )
        .because(
            "RoCE resends from the first lost packet on. A few drops cost most of the throughput, \
             unless ECN slows senders down in time",
        )
    };
    Some(
        finding
            .seen(
                format!("pause {name}"),
                format!("rx {}, tx {}", on(pause.rx), on(pause.tx)),
            )
            .seen(format!("dcb {name}"), "PFC on no priority")
            .fixed_by(format!(
                "dcb pfc set dev {name} prio-pfc 3:on  # or: mlnx_qos -i {name} --pfc \
                 0,0,0,1,0,0,0,0; the switch port must have the same"
            )),
    )
}

fn wrong_priority(
    examination: &Examination,
    netdev: &Netdev,
    port: (&Device, &Port),
    dcb: &Dcb,
    class: &Class,
) -> Option<Finding> {
    let name = &netdev.name;
    let Class { tos, by, .. } = class;
    let (priority, how) = priority(examination, netdev, *tos);
    if dcb.pfc.contains(&priority) {
        return None;
    }
    let lossless: Vec<String> = dcb.pfc.iter().map(ToString::to_string).collect();
    let wanted = dcb.pfc[0];
    let mapped = dcb.dscp.iter().find(|(_, to)| **to == wanted);
    let dscp = mapped.map_or(wanted << 3, |(dscp, _)| *dscp);
    let finding = Finding::new(
        NAME,
        Severity::Warning,
        name,
        format!(
            "RoCE goes out with {tos}, which is priority {priority}; PFC protects {}",
            lossless.join(", ")
        ),
    )
    .because(format!(
        "{how}; the ToS: {by}. Under load the packets are dropped like any others"
    ))
    .seen(
        format!("dcb {name}"),
        format!("PFC on {}", lossless.join(",")),
    )
    .seen("tos", tos.0);
    Some(examination.fixed_by_tos(finding, class, port, Tos(dscp << 2)))
}

fn both(netdev: &Netdev, dcb: &Dcb) -> Option<Finding> {
    let pause = netdev.pause.get()?;
    let name = &netdev.name;
    (pause.rx || pause.tx).then(|| {
        Finding::new(
            NAME,
            Severity::Warning,
            name,
            "priority flow control and global pause are both on",
        )
        .because("adapters and switches do one or the other; which one wins is up to each")
        .seen(
            format!("pause {name}"),
            format!("rx {}, tx {}", on(pause.rx), on(pause.tx)),
        )
        .seen(format!("dcb {name}"), format!("PFC on {:?}", dcb.pfc))
        .fixed_by(format!("ethtool -A {name} rx off tx off"))
    })
}

fn paused_priority(examination: &Examination, netdev: &Netdev, dcb: &Dcb) -> Option<Finding> {
    let later = examination.later.as_ref()?.netdev(&netdev.name)?;
    let before = netdev.priority_counters.get()?;
    let growing = later
        .priority_counters
        .get()?
        .iter()
        .find_map(|(counter, after)| {
            let priority: u8 = counter
                .strip_prefix("rx_prio")?
                .strip_suffix("_pause")?
                .parse()
                .ok()?;
            let grown = after.saturating_sub(before.get(counter).copied().unwrap_or(*after));
            (grown > 0 && !dcb.pfc.contains(&priority)).then_some((counter, priority, grown))
        });
    let (counter, priority, grown) = growing?;
    let name = &netdev.name;
    Some(
        Finding::new(
            NAME,
            Severity::Warning,
            name,
            format!("the switch pauses priority {priority}, which has no flow control here"),
        )
        .because(
            "the two ends of the cable disagree on which priority is lossless: packets get lost",
        )
        .seen(format!("ethtool -S {name}: {counter}"), format!("+{grown}"))
        .fixed_by(format!("dcb pfc set dev {name} prio-pfc {priority}:on")),
    )
}

fn on(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}
