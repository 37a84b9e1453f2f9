use std::collections::BTreeSet;

use super::classes::Class;
use super::{Examination, Finding, Severity};
use crate::facts::{Device, Netdev, Port};
use crate::tos::Tos;

pub(super) const NAME: &str = "tos";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for (device, port) in examination.fabric.ports() {
        findings.extend(forced_class(examination, device, port));
        findings.extend(forced_ttl(device, port));
        findings.extend(ecn_bits(examination, device, port));
    }
    if examination.is_soft() {
        for netdev in examination.fabric.netdevs.each() {
            findings.extend(kernels_tag(examination, netdev));
        }
        return;
    }
    for (netdev, device, port) in examination.roce_netdevs() {
        for class in examination.classes_of(device, port) {
            findings.extend(vlan_priority(examination, netdev, (device, port), &class));
        }
    }
}

fn forced_class(examination: &Examination, device: &Device, port: &Port) -> Option<Finding> {
    let forced = port.forced_class.get()?.as_ref()?;
    if forced.is_empty() {
        return None;
    }
    let path = format!("{}/tc/{}/traffic_class", device.path, port.number);
    let subject = format!("{} port {}", device.name, port.number);
    let finding = match forced.global {
        Some(global) => {
            let choices = examination.choices_of(device, port).into_iter();
            let beaten: BTreeSet<Tos> = choices
                .map(|choice| choice.tos)
                .filter(|tos| *tos != global)
                .collect();
            let severity = if beaten.is_empty() {
                Severity::Note
            } else {
                Severity::Warning
            };
            let beaten: Vec<String> = beaten.iter().map(ToString::to_string).collect();
            let instead = if beaten.is_empty() {
                String::new()
            } else {
                format!(
                    ", and not {} as {} is configured",
                    beaten.join(" or "),
                    examination.intent.caller.program()
                )
            };
            let what = format!("the driver forces {global} on every queue pair{instead}");
            Finding::new(NAME, severity, subject, what)
                .because(
                    "a forced global value beats the rules beside it, the application and \
                     default_roce_tos",
                )
                .seen(&path, format!("Global tclass={}", global.0))
        }
        None => {
            let rules: Vec<String> = forced.rules.iter().map(ToString::to_string).collect();
            Finding::new(
                NAME,
                Severity::Note,
                subject,
                format!("the driver forces traffic classes by {} rules", rules.len()),
            )
            .because("they beat the application and default_roce_tos for the addresses they name")
            .seen(&path, rules.join("; "))
        }
    };
    Some(finding.fixed_by(format!("echo -1 > {path}")))
}

fn forced_ttl(device: &Device, port: &Port) -> Option<Finding> {
    let ttl = port.forced_ttl.get()?.as_ref()?;
    let value: i32 = ttl.parse().ok().filter(|ttl| *ttl >= 0)?;
    let path = format!("{}/tc/{}/ttl", device.path, port.number);
    let severity = if value <= 1 {
        Severity::Warning
    } else {
        Severity::Note
    };
    Some(
        Finding::new(
            NAME,
            severity,
            format!("{} port {}", device.name, port.number),
            format!("the driver forces hop limit {value} on every queue pair"),
        )
        .because(if value <= 1 {
            "packets do not pass a single router"
        } else {
            "the hop limit that a listener or an application sets has no effect"
        })
        .seen(&path, ttl)
        .fixed_by(format!("echo -1 > {path}")),
    )
}

fn ecn_bits(examination: &Examination, device: &Device, port: &Port) -> Option<Finding> {
    let mut classes = examination.classes_of(device, port).into_iter();
    let class = classes.find(|class| class.tos.ecn() == 3)?;
    let Class { tos, by, .. } = &class;
    let finding = Finding::new(
        NAME,
        Severity::Warning,
        format!("{} port {}", device.name, port.number),
        format!("{tos} marks every packet as having met congestion"),
    )
    .because(format!(
        "its two low bits are ECN's, and 3 means \"congestion experienced\": the other end \
             slows this one down for nothing ({by})"
    ))
    .seen("tos", tos.0);
    let without = Tos(tos.0 & !3);
    Some(examination.fixed_by_tos(finding, &class, (device, port), without))
}

fn vlan_priority(
    examination: &Examination,
    netdev: &Netdev,
    (device, port): (&Device, &Port),
    class: &Class,
) -> Option<Finding> {
    let vlan = netdev.vlan.get()?.as_ref()?;
    let Class { tos, by, .. } = class;
    let egress: Vec<String> = vlan
        .egress
        .iter()
        .map(|(from, to)| format!("{from}:{to}"))
        .collect();
    let path = format!("/proc/net/vlan/{}", netdev.name);
    let finding = Finding::new(
        NAME,
        Severity::Note,
        &netdev.name,
        format!(
            "frames carry VLAN {} with priority {}, from {tos}",
            vlan.id,
            tos.pcp()
        ),
    )
    .because(format!(
        "the service level is ToS / 32, and becomes the tag's priority ({by}); switches choose \
         the queue by it"
    ))
    .seen(
        &path,
        format!(
            "egress map {}",
            if egress.is_empty() {
                "empty".to_owned()
            } else {
                egress.join(" ")
            }
        ),
    );
    Some(match tos {
        Tos(0) => finding.fixed_by(format!(
            "{} fabric set-tos {} 96 --port {}  # DSCP 24, priority 3, if that is the lossless one",
            examination.intent.caller.program(),
            device.name,
            port.number
        )),
        _ => finding,
    })
}

fn kernels_tag(examination: &Examination, netdev: &Netdev) -> Option<Finding> {
    let vlan = netdev.vlan.get()?.as_ref()?;
    let asked = &examination.intent.addresses;
    let mut own = netdev.addresses.iter().map(|own| own.address);
    if !asked.is_empty() && !own.any(|own| asked.contains(&own)) {
        return None;
    }
    let is_lost = |tos: &Tos| tos.sl() != 0 && !vlan.egress.contains_key(&tos.sl().into());
    let chosen = examination.intent.tos.iter().map(|choice| choice.tos);
    let lost: BTreeSet<Tos> = chosen.filter(is_lost).collect();
    let path = format!("/proc/net/vlan/{}", netdev.name);
    let map = "1:1 2:2 3:3 4:4 5:5 6:6 7:7";
    let fix = format!("ip link set {} type vlan egress-qos-map {map}", netdev.name);
    let (severity, what) = match lost.first() {
        Some(tos) => {
            let what = format!("and not {}, from {tos}", tos.pcp());
            (Severity::Warning, what)
        }
        None if vlan.egress.is_empty() => (Severity::Note, "whatever the ToS".to_owned()),
        None => return None,
    };
    Some(
        Finding::new(
            NAME,
            severity,
            &netdev.name,
            format!("frames carry VLAN {} with priority 0, {what}", vlan.id),
        )
        .because(
            "RoCE in user space leaves the tag to the kernel, and the kernel asks the interface's \
             egress-qos-map which priority a service level gets: switches choose the queue by it",
        )
        .seen(path, "EGRESS priority mappings: none for it")
        .fixed_by(fix),
    )
}
