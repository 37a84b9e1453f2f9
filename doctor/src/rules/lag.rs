use super::{Examination, Finding, Severity};
use crate::facts::NET;

pub(super) const NAME: &str = "lag";

const CONSEQUENCE: &str = "Entering or leaving RoCE LAG removes the devices: every queue pair and \
                           registration on them is lost, and hosts reconnect";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    ecmp(examination, findings);
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
                .fixed_by(&obstacle.fix),
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
                .fixed_by("dmesg | grep -i lag  # what the driver says")
                .fixed_by(format!(
                    "ip link set {name} down && ip link set {name} up",
                    name = netdev.name
                )),
            );
        }
    }
}

fn ecmp(examination: &Examination, findings: &mut Vec<Finding>) {
    for netdev in examination.fabric.netdevs.each() {
        let Some(partner) = examination.fabric.ecmp_partner(netdev) else {
            continue;
        };
        let path = format!("{NET}/{}/device/roce_lag_ecmp_dev", netdev.name);
        let bond = netdev.master.get().and_then(Option::as_ref);
        let finding = match bond {
            None => Finding::new(
                NAME,
                Severity::Note,
                &netdev.name,
                format!("RoCE uses it and {partner} as one device, in ECMP mode"),
            )
            .because(format!(
                "no bond is needed: routes of equal cost over both netdevs spread connections, and \
                 failover is as good as the routes are. {CONSEQUENCE}"
            ))
            .fixed_by(format!(
                "ip route show default; ip nexthop show  # both {} and {partner} must be next hops",
                netdev.name
            )),
            Some(bond) => Finding::new(
                NAME,
                Severity::Warning,
                &netdev.name,
                format!("RoCE LAG's ECMP mode is set (with {partner}), and it is in {bond}, too"),
            )
            .because(format!(
                "it is either ECMP over two netdevs with an address each, or a bond. {CONSEQUENCE}"
            ))
            .fixed_by(format!(
                "ip link set {} nomaster  # or end the ECMP mode, as its driver's manual has it: {path}",
                netdev.name
            )),
        };
        findings.push(finding.seen(path, partner));
    }
}
