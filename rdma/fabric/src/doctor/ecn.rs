//! Congestion marks (ECN) and notifications (CNP).

use super::counters::growth;
use super::{Examination, Finding, Severity, priority};
use crate::facts::NET;

pub(super) const NAME: &str = "ecn";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for (netdev, device, port) in examination.roce_netdevs() {
        let Some(Some(ecn)) = netdev.ecn.get() else {
            continue;
        };
        let (priority, _) = priority(examination, netdev, device, port);
        for (role, what, states) in [
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
        ] {
            if states.get(&u32::from(priority)) != Some(&false) {
                continue;
            }
            let path = format!("{NET}/{}/ecn/{role}/enable/{priority}", netdev.name);
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Warning,
                    &netdev.name,
                    format!("on priority {priority}, which RoCE uses, the adapter {what}"),
                )
                .because("congestion is then met by pauses or by drops, not by sending slower")
                .seen(&path, "0")
                .mended_by(format!("echo 1 > {path}")),
            );
        }
    }
    findings.extend(congestion(examination));
}

/// CNPs that come in say that this machine sends more than the network takes.
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
        .mended_by(format!(
            "{} fabric watch  # rates of CNPs and marks",
            examination.intent.program
        ))
    })
    .collect()
}
