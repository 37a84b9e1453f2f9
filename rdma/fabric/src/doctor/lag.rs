//! RoCE over bonds.

use super::{Examination, Finding, Severity};
use crate::facts::NET;

pub(super) const NAME: &str = "lag";

/// What entering or leaving a bond does to programs.
const CONSEQUENCE: &str = "Entering or leaving RoCE LAG removes the devices: every queue pair and \
                           registration on them is lost, and hosts reconnect";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for netdev in examination.fabric.netdevs.each() {
        let Some(lag) = examination.fabric.lag(netdev) else {
            continue;
        };
        let bonding = format!("{NET}/{}/bonding/mode", netdev.name);
        let mode = netdev.bond.get().and_then(Option::as_ref);
        let mode = mode.map_or_else(String::new, |bond| {
            format!("{} {}", bond.mode, bond.mode_number)
        });
        if let (Some(device), true) = (&lag.device, lag.obstacles.is_empty()) {
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Note,
                    &netdev.name,
                    format!("RoCE goes over the bond, by {device}"),
                )
                .because(format!(
                    "either port may fail. There is no automatic path migration on RoCE: failover \
                     is by the bond, or by NVMe multipath over two addresses. {CONSEQUENCE}"
                ))
                .seen(bonding, mode),
            );
            continue;
        }
        for obstacle in &lag.obstacles {
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Warning,
                    &netdev.name,
                    format!("RoCE does not go over the bond: {}", obstacle.what),
                )
                .because(format!(
                    "each port keeps an RDMA device of its own, and an address of the bond has no \
                     failover for RoCE. {CONSEQUENCE}"
                ))
                .seen(&obstacle.evidence.0, &obstacle.evidence.1)
                .mended_by(&obstacle.mend),
            );
        }
        if lag.obstacles.is_empty() {
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Warning,
                    &netdev.name,
                    "the bond has what RoCE LAG needs, and there is no RDMA device for it",
                )
                .because(format!(
                    "the driver has not merged the two devices. {CONSEQUENCE}"
                ))
                .seen(bonding, mode)
                .mended_by("dmesg | grep -i lag  # what the driver says")
                .mended_by(format!(
                    "ip link set {name} down && ip link set {name} up",
                    name = netdev.name
                )),
            );
        }
    }
}
