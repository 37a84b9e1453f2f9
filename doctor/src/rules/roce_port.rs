use super::{Examination, Finding, Severity};

pub(super) const NAME: &str = "port-4791";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let fabric = &examination.fabric;
    let is_soft = examination.is_soft();
    for holder in fabric.udp_port.each() {
        // Another Cairn program uses the port as intended.
        if holder
            .process
            .as_ref()
            .is_some_and(|process| process.starts_with("cairn-"))
        {
            continue;
        }
        let is_rxe = holder.process.is_none() && fabric.host.has_module("rdma_rxe") == Some(true);
        // rdma_rxe has the port as intended, unless user-space RoCE needs it.
        if is_rxe && !is_soft {
            continue;
        }
        let owner = match &holder.process {
            Some(process) => process.clone(),
            None if is_rxe => "the module rdma_rxe".to_owned(),
            None => format!("a socket of user {}", holder.uid),
        };
        let severity = if is_soft {
            Severity::Error
        } else {
            Severity::Warning
        };
        let finding = Finding::new(
            NAME,
            severity,
            "UDP port 4791",
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
