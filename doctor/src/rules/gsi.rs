//! Rule: the connection manager's queue pair (GSI) must not be in state ERR: no host could connect.
//!
//! rdma_rxe breaks the queue pair when the kernel refuses a packet. The kernel recovers a queue
//! pair from state SQE, but not from ERR.

use super::{Examination, Finding, Severity};
use crate::facts::Device;
use crate::source::QueuePairs;

pub(super) const NAME: &str = "gsi";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for device in examination.fabric.devices.each() {
        let broken = device.queue_pairs.each().filter(|one| one.is_broken_gsi());
        findings.extend(broken.map(|gsi| finding(examination, device, gsi)));
    }
}

fn finding(examination: &Examination, device: &Device, gsi: &QueuePairs) -> Finding {
    let name = &device.name;
    let port = gsi
        .port
        .map_or(String::new(), |port| format!(" port {port}"));
    let finding = Finding::new(
        NAME,
        Severity::Error,
        format!("{name}{port}"),
        "its GSI queue pair is broken (state ERR): no connection begins or ends by it",
    )
    .seen(
        format!("rdma resource show qp link {name}"),
        format!("type {} state {}", gsi.kind, gsi.state),
    );
    let why = "all messages of the connection manager go by this queue pair, to whatever target \
               and from whatever host: they time out, and it stays like this";
    if !device.is_soft_roce() {
        let finding = finding
            .because(format!("{why}, until the driver makes a new one"))
            .fixed_by("dmesg | tail -50  # what the driver says of it");
        return match device.pci.get().and_then(Option::as_ref) {
            Some(pci) => {
                finding.fixed_by(format!("devlink dev reload pci/{pci}  # ends its traffic"))
            }
            None => finding,
        };
    }
    let netdev = device.netdevs.each().next();
    let netdev = netdev.map_or("IFACE", |netdev| netdev);
    finding
        .because(format!(
            "{why}. rdma_rxe does that when the kernel refuses a packet of it, as while the port \
             is set down. {target} finds the new device by itself; connections that are still \
             there end with the old one, and hosts connect again",
            target = examination.intent.caller.target
        ))
        .fixed_by(format!(
            "rdma link delete {name} && rdma link add {name} type rxe netdev {netdev}"
        ))
}
