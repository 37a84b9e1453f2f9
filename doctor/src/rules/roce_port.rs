use std::net::IpAddr;

use super::{Examination, Finding, Severity};

pub(super) const NAME: &str = "port-4791";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let fabric = &examination.fabric;
    let is_soft = examination.is_soft();
    for holder in fabric.udp_port.each() {
        if holder
            .process
            .as_ref()
            .is_some_and(|process| process.starts_with("cairn-"))
        {
            continue;
        }
        let is_rxe = holder.process.is_none() && fabric.host.has_module("rdma_rxe") == Some(true);
        // rdma_rxe conflicts only with user-space RoCE, which needs the same UDP port.
        if is_rxe && !is_soft {
            continue;
        }
        let owner = match &holder.process {
            Some(process) => process.clone(),
            None if is_rxe => "the module rdma_rxe".to_owned(),
            None => format!("a socket of user {}", holder.uid),
        };
        let Some(severity) = severity(examination, holder.address) else {
            continue;
        };
        let at = match holder.address.is_unspecified() {
            true => String::new(),
            false => format!(" at {}", holder.address),
        };
        let finding = Finding::new(
            NAME,
            severity,
            format!("UDP port 4791{at}"),
            format!("it is taken by {owner}"),
        )
        .because(if is_soft {
            "RoCE in user space must receive on it, and there is but one such port for an address"
        } else {
            "packets of RoCE v2 arrive on it; an adapter takes them before the kernel does, \
             rdma_rxe and RoCE in user space do not"
        })
        .seen(&holder.path, &holder.line);
        findings.push(if is_rxe {
            finding.fixed_by(
                "rmmod rdma_rxe  # or use its device: rdma link add rxe0 type rxe netdev IFACE, \
                 and --provider verbs",
            )
        } else {
            finding.fixed_by("ss -ulnp 'sport = :4791'  # who it is; then stop that")
        });
    }
}

fn severity(examination: &Examination, holder: IpAddr) -> Option<Severity> {
    let own = examination.addresses();
    let is_everywhere = holder.is_unspecified();
    if own.is_empty() && !is_everywhere {
        return Some(Severity::Note);
    }
    if !is_everywhere && !own.contains(&holder) {
        return None;
    }
    Some(match examination.is_soft() {
        true => Severity::Error,
        false => Severity::Warning,
    })
}
