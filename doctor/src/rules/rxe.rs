use super::{Examination, Finding, Severity};
use crate::mtu::{self, ADVISED_NETDEV_MTU};

pub(super) const NAME: &str = "rxe";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let soft = examination.fabric.devices.each();
    for device in soft.filter(|device| device.is_soft_roce()) {
        let netdev = device
            .netdevs
            .each()
            .next()
            .map_or("IFACE", |netdev| netdev);
        findings.push(
            Finding::new(
                NAME,
                Severity::Note,
                &device.name,
                format!("it is soft RoCE (rdma_rxe) on {netdev}: the CPU does an adapter's work"),
            )
            .because(
                "it is the same on the wire, and every packet and its checksum cost CPU time in \
                 the kernel. RoCE in user space does the same with fewer trips through the \
                 kernel, and without the module",
            )
            .seen(format!("{}/parent", device.path), netdev)
            .fixed_by(format!(
                "{} ... --provider soft  # after: rdma link delete {} && rmmod rdma_rxe",
                examination.intent.caller.program(),
                device.name
            ))
            .fixed_by(format!(
                "{}  # fewer packets, less CPU time",
                mtu::set(netdev, ADVISED_NETDEV_MTU)
            )),
        );
    }
}
