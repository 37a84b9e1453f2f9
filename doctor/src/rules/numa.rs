//! Rule: adapter, interrupts and threads should share a NUMA node.

use super::counters::growth;
use super::{Examination, Finding, Severity};
use crate::facts::{Device, NumaNode, cpu_set};

pub(super) const NAME: &str = "numa";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let fabric = &examination.fabric;
    let nodes: Vec<&NumaNode> = fabric.host.numa_nodes.each().collect();
    if nodes.len() > 1 {
        for device in fabric.devices.each() {
            let own = device.numa_node.get().copied().flatten();
            let node = nodes.iter().find(|node| Some(node.number) == own);
            if let Some(node) = node {
                findings.push(threads(device, node));
                findings.extend(interrupts(examination, device, node));
            }
        }
    }
    findings.extend(small_rings(examination));
}

fn threads(device: &Device, node: &NumaNode) -> Finding {
    let NumaNode { number, cpus } = node;
    Finding::new(
        NAME,
        Severity::Note,
        &device.name,
        format!("it hangs on NUMA node {number}, whose CPUs are {cpus}"),
    )
    .because("threads and memory on another node cost every packet a trip between the sockets")
    .seen(format!("{}/device/numa_node", device.path), number)
    .fixed_by(format!(
        "cores = [...] of {cpus} in [target]; for other programs: numactl -N {number} -m {number} ..."
    ))
}

fn interrupts(examination: &Examination, device: &Device, node: &NumaNode) -> Option<Finding> {
    let own = node.cpu_set();
    let elsewhere: Vec<(u32, &String)> = device
        .irqs
        .iter()
        .filter_map(|irq| Some((*irq, examination.fabric.host.irq_cpus.get(irq)?)))
        .filter(|(_, affinity)| cpu_set(affinity).is_disjoint(&own))
        .collect();
    let (irq, affinity) = elsewhere.first()?;
    Some(
        Finding::new(
            NAME,
            Severity::Warning,
            &device.name,
            format!(
                "{} of its {} interrupts go to CPUs of another NUMA node",
                elsewhere.len(),
                device.irqs.len()
            ),
        )
        .because("each completion wakes a CPU that is far from the adapter and from its memory")
        .seen(format!("/proc/irq/{irq}/smp_affinity_list"), affinity)
        .seen(format!("{}/device/numa_node", device.path), node.number)
        .fixed_by(format!(
            "systemctl stop irqbalance; for irq in $(ls {}/device/msi_irqs); do echo {} > \
             /proc/irq/$irq/smp_affinity_list; done",
            device.path, node.cpus
        )),
    )
}

fn small_rings(examination: &Examination) -> Vec<Finding> {
    let grown = growth(examination);
    let mut found = Vec::new();
    for (netdev, device, port) in examination.roce_netdevs() {
        let Some(rings) = netdev.rings.get().filter(|rings| rings.rx < rings.rx_max) else {
            continue;
        };
        let lacks = grown.iter().find(|grown| {
            grown.path.starts_with(&port.path)
                && matches!(
                    grown.name.as_str(),
                    "rx_discards_phy" | "port_xmit_discards"
                )
        });
        let Some(lacks) = lacks else {
            continue;
        };
        found.push(
            Finding::new(
                NAME,
                Severity::Note,
                &netdev.name,
                format!(
                    "its receive ring has {} entries of {} possible",
                    rings.rx, rings.rx_max
                ),
            )
            .because(format!(
                "{} discards packets; larger rings ride out bursts of the kernel's own traffic",
                device.name
            ))
            .seen(format!("rings {}", netdev.name), rings.rx)
            .seen(&lacks.path, lacks.text())
            .fixed_by(format!("ethtool -G {} rx {}", netdev.name, rings.rx_max)),
        );
    }
    found
}
