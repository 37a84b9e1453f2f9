use super::{Examination, Finding, Severity};
use crate::facts::{Device, Port};

pub(super) const NAME: &str = "port";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for (device, port) in examination.fabric.ports() {
        let subject = format!("{} port {}", device.name, port.number);
        if !port.is_ethernet() {
            findings.push(infiniband(&subject, port));
            continue;
        }
        if port.state.get().is_some() && !port.is_active() {
            findings.push(down(&subject, device, port));
        }
        if let Some(lid) = port.lid.get().filter(|lid| is_not_zero(lid)) {
            findings.push(
                Finding::new(
                    NAME,
                    Severity::Warning,
                    subject,
                    format!("an Ethernet port has LID {lid}"),
                )
                .because(
                    "a RoCE port has LID 0 and needs no subnet manager; one that thinks otherwise \
                     is set up for InfiniBand",
                )
                .seen(format!("{}/lid", port.path), lid)
                .fixed_by("systemctl disable --now opensm"),
            );
        }
    }
}

fn is_not_zero(lid: &str) -> bool {
    let digits = lid.trim_start_matches("0x");
    u32::from_str_radix(digits, 16).is_ok_and(|lid| lid != 0)
}

fn infiniband(subject: &str, port: &Port) -> Finding {
    Finding::new(
        NAME,
        Severity::Warning,
        subject,
        "the port speaks InfiniBand, not Ethernet",
    )
    .because("hosts with RoCE do not reach it; the card may be able to do either")
    .seen(format!("{}/link_layer", port.path), &port.link_layer)
    .fixed_by(
        "mlxconfig -d DEVICE set LINK_TYPE_P1=2, and a restart  # Mellanox cards: 2 is Ethernet",
    )
}

fn down(subject: &str, device: &Device, port: &Port) -> Finding {
    let netdev = port.netdevs(device).next();
    let finding = Finding::new(
        NAME,
        Severity::Error,
        subject,
        format!("the port is {}, not ACTIVE", port.state),
    )
    .because("nothing can be sent or received by it")
    .seen(format!("{}/state", port.path), &port.state)
    .seen(format!("{}/phys_state", port.path), &port.physical_state);
    match netdev {
        Some(netdev) => finding
            .safely_fixed_by(&["ip", "link", "set", netdev, "up"])
            .fixed_by(format!(
                "ethtool {netdev}  # if it is up: no link means cable, transceiver or switch port"
            )),
        None => finding.fixed_by("ip link  # the port's netdev is not known"),
    }
}
