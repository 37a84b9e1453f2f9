//! Rule: congestion marks (ECN) and notifications (CNP).

use std::collections::BTreeSet;

use super::counters::growth;
use super::{Examination, Finding, Severity, priority};
use crate::facts::{CnpState, NET, Netdev};

pub(super) const NAME: &str = "ecn";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for (netdev, device, port) in examination.roce_netdevs() {
        let Some(Some(ecn)) = netdev.ecn.get() else {
            continue;
        };
        let classes = examination.classes_of(device, port).into_iter();
        let priorities: BTreeSet<u8> = classes
            .map(|class| priority(examination, netdev, class.tos).0)
            .collect();
        for priority in priorities {
            findings.extend(switched_off(netdev, ecn, priority));
        }
    }
    findings.extend(congestion(examination));
}

fn switched_off(netdev: &Netdev, ecn: &CnpState, priority: u8) -> impl Iterator<Item = Finding> {
    let roles = [
        (
            "roce_np",
            "does not answer congestion marks with CNPs",
            &ecn.notifies,
        ),
        (
            "roce_rp",
            "does not slow down when it gets CNPs",
            &ecn.reacts,
        ),
    ];
    let off = roles
        .into_iter()
        .filter(move |(_, _, states)| states.get(&u32::from(priority)) == Some(&false));
    off.map(move |(role, what, _)| {
        let path = format!("{NET}/{}/ecn/{role}/enable/{priority}", netdev.name);
        Finding::new(
            NAME,
            Severity::Warning,
            &netdev.name,
            format!("on priority {priority}, which RoCE uses, the adapter {what}"),
        )
        .because("congestion is then met by pauses or by drops, not by sending slower")
        .seen(&path, "0")
        .fixed_by(format!("echo 1 > {path}"))
    })
}

fn congestion(examination: &Examination) -> Vec<Finding> {
    let grown = growth(examination).into_iter();
    let cnps = grown.filter(|grown| grown.name.ends_with("cnp_handled"));
    cnps.map(|grown| {
        Finding::new(
            NAME,
            Severity::Note,
            grown.subject.clone(),
            "the network is congested: other ends ask this one to slow down (CNP)",
        )
        .because(
            "ECN does its work. If throughput is too low, look for the link that several senders \
             share",
        )
        .seen(&grown.path, grown.text())
        .fixed_by(format!(
            "{} fabric watch  # rates of CNPs and marks",
            examination.intent.caller.program()
        ))
    })
    .collect()
}
