//! Rule: packets should be as large as possible.

use super::{Examination, Finding, Severity};
use crate::facts::{Device, NET, Netdev, Port};
use crate::mtu::{self, ADVISED_NETDEV_MTU, efficiency_percent, fitting};

pub(super) const NAME: &str = "mtu";

const LARGEST: u32 = 4096;

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    for (netdev, device, port) in examination.roce_netdevs() {
        let Some(mtu) = netdev.mtu.get().copied() else {
            continue;
        };
        if port.is_active() {
            findings.extend(small(netdev, port, mtu));
        }
        findings.extend(lagging_port(netdev, device, port, mtu));
        findings.extend(larger_than_parent(examination, netdev, mtu));
    }
}

fn small(netdev: &Netdev, port: &Port, mtu: u32) -> Option<Finding> {
    let largest = port.mtu.get().map_or(LARGEST, |mtu| mtu.max);
    let name = &netdev.name;
    let finding = match fitting(mtu) {
        Some(now) if now >= largest => return None,
        Some(now) => Finding::new(
            NAME,
            Severity::Warning,
            name,
            format!(
                "an MTU of {mtu} makes RoCE packets of {now} bytes; {ADVISED_NETDEV_MTU} would \
                 make them {largest}"
            ),
        )
        .because(format!(
            "{} times fewer packets for the same data, and {:.1} % of the wire for it \
             instead of {:.1} %. With RoCE in software the gain is several times that, since each \
             packet costs CPU time. Switches and hosts must carry jumbo frames, too",
            largest / now,
            efficiency_percent(largest),
            efficiency_percent(now),
        )),
        None => Finding::new(
            NAME,
            Severity::Error,
            name,
            format!("an MTU of {mtu} has no room for the smallest RoCE packet"),
        )
        .because("a payload of 256 bytes and its headers do not fit: nothing can be sent"),
    };
    Some(
        finding
            .seen(format!("{NET}/{name}/mtu"), mtu)
            .fixed_by(mtu::set(name, ADVISED_NETDEV_MTU)),
    )
}

/// Returns a finding if the device still uses an older, smaller MTU of the netdev. The device
/// adopts the new MTU at the netdev's next event, or after a restart.
fn lagging_port(netdev: &Netdev, device: &Device, port: &Port, mtu: u32) -> Option<Finding> {
    let active = port.mtu.get()?.active;
    let fits = fitting(mtu)?;
    // VLANs and bonds do not count, because their MTU may be smaller than the port's.
    let is_own = port.netdevs(device).any(|own| *own == netdev.name);
    (is_own && active < fits.min(port.mtu.get()?.max)).then(|| {
        Finding::new(
            NAME,
            Severity::Warning,
            format!("{} port {}", device.name, port.number),
            format!(
                "the port uses {active} bytes, and {} has room for {fits}",
                netdev.name
            ),
        )
        .because("the device has not followed its netdev: packets are smaller than need be")
        .seen(
            format!("ibv_devinfo -d {}", device.name),
            format!("active_mtu {active}"),
        )
        .seen(format!("{NET}/{}/mtu", netdev.name), mtu)
        .fixed_by(format!(
            "ip link set {name} down && ip link set {name} up",
            name = netdev.name
        ))
    })
}

fn larger_than_parent(examination: &Examination, netdev: &Netdev, mtu: u32) -> Option<Finding> {
    let vlan = netdev.vlan.get()?.as_ref()?;
    let parent = examination.fabric.netdev(&vlan.parent)?;
    let below = *parent.mtu.get()?;
    (mtu > below).then(|| {
        Finding::new(
            NAME,
            Severity::Error,
            &netdev.name,
            format!("its MTU is {mtu}, and {} below it has {below}", parent.name),
        )
        .because("large packets are dropped on the way out, and small ones pass")
        .seen(format!("{NET}/{}/mtu", netdev.name), mtu)
        .seen(format!("{NET}/{}/mtu", parent.name), below)
        .fixed_by(mtu::set(&parent.name, mtu))
    })
}
