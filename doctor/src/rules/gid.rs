//! Rule: each address needs a GID with the RoCE version that connections use.

use std::net::IpAddr;

use super::{Examination, Finding, Severity};
use crate::facts::{Device, Function, Gid, Netdev, Port};
use crate::source::Address;

pub(super) const NAME: &str = "gid";

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    if examination.is_soft() {
        return;
    }
    for address in examination.addresses() {
        findings.extend(address_without_gid(examination, address));
    }
    for (netdev, device, port) in examination.roce_netdevs() {
        findings.extend(netdev_without_address(examination, netdev, device, port));
    }
    for (device, port) in examination.fabric.ports() {
        findings.extend(full_table(device, port));
    }
}

fn address_without_gid(examination: &Examination, address: IpAddr) -> Option<Finding> {
    let fabric = &examination.fabric;
    let all = fabric.addresses.get()?;
    if address.is_unspecified() || address.is_loopback() {
        return None;
    }
    let subject = address.to_string();
    let Some(own) = all.iter().find(|own| own.address == address) else {
        return Some(
            Finding::new(NAME, Severity::Error, subject, "no netdev has this address")
                .because("no program can listen on an address that the machine does not have")
                .seen("addresses", listed(all.iter().map(|own| own.address)))
                .fixed_by(format!("ip address add {address}/24 dev IFACE")),
        );
    };
    let netdev = &own.netdev;
    let mut ports = fabric.ports_of(netdev).peekable();
    if ports.peek().is_none() {
        return Some(
            Finding::new(
                NAME,
                Severity::Note,
                subject,
                format!("it is on {netdev}, which no RDMA device uses"),
            )
            .because("RoCE in user space serves it (--provider soft); libibverbs cannot")
            .seen("addresses", format!("{address} is on {netdev}"))
            .fixed_by(format!("rdma link add rxe0 type rxe netdev {netdev}")),
        );
    }
    let ports: Vec<(&Device, &Port)> = ports.collect();
    if ports.iter().any(|(_, port)| port.gid_of(address).is_some()) {
        return None;
    }
    let (device, port) = ports[0];
    let gids = port.gids.get()?;
    match gids.iter().find(|gid| gid.address == Some(address)) {
        Some(other) => gid_of_other_version(examination, own, device, port, other),
        None => Some(no_gid(own, device, port, gids)),
    }
}

fn gid_of_other_version(
    examination: &Examination,
    own: &Address,
    device: &Device,
    port: &Port,
    gid: &Gid,
) -> Option<Finding> {
    let version = &gid.version;
    let wanted = port.default_version()?;
    let netdev = &own.netdev;
    let what = format!(
        "its GID is of RoCE {version} alone, and {} port {} makes RoCE {wanted} connections",
        device.name, port.number
    );
    Some(
        Finding::new(NAME, Severity::Error, own.address.to_string(), what)
            .because("a connection needs a GID of its own version: none can be made")
            .seen(
                format!("{}/gid_attrs/types/{}", port.path, gid.index),
                version,
            )
            .safely_fixed_by(&[
                examination.intent.caller.program(),
                "fabric",
                "set-mode",
                &device.name,
                &version.to_string(),
                "--port",
                &port.number.to_string(),
            ])
            .fixed_by(format!(
                "ip link set {netdev} down && ip link set {netdev} up"
            )),
    )
}

fn no_gid(own: &Address, device: &Device, port: &Port, gids: &[Gid]) -> Finding {
    let (address, prefix, netdev) = (own.address, own.prefix, &own.netdev);
    let what = format!("{} port {} has no GID for it", device.name, port.number);
    Finding::new(NAME, Severity::Error, address.to_string(), what)
        .because(
            "a connection by this address has no source GID: binding fails with \"no such \
             device\"",
        )
        .seen(
            format!("{}/gids", port.path),
            listed(gids.iter().filter_map(|gid| gid.address)),
        )
        .fixed_by(format!(
            "ip address del {address}/{prefix} dev {netdev} && \
             ip address add {address}/{prefix} dev {netdev}"
        ))
        .fixed_by(format!(
            "ip link set {netdev} down && ip link set {netdev} up"
        ))
}

fn netdev_without_address(
    examination: &Examination,
    netdev: &Netdev,
    device: &Device,
    port: &Port,
) -> Option<Finding> {
    let fabric = &examination.fabric;
    fabric.addresses.get()?;
    // If a bond or VLAN uses this netdev, the bond or VLAN has the addresses.
    let above = fabric.netdevs.each();
    let has_above = above
        .filter(|other| other.name != netdev.name)
        .any(|other| fabric.below(&other.name).contains(&netdev.name));
    let has_address = netdev.addresses.iter().any(|own| match own.address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    });
    if has_address || has_above || !port.is_active() {
        return None;
    }
    // If another port has addresses, this port may be unused on purpose.
    let severity = if examination.addresses().is_empty() {
        Severity::Warning
    } else {
        Severity::Note
    };
    Some(
        Finding::new(
            NAME,
            severity,
            &netdev.name,
            format!(
                "it has no IP address: {} has link-local GIDs alone",
                device.name
            ),
        )
        .because("hosts connect to an IP address, and each becomes a GID")
        .seen("addresses", format!("none on {}", netdev.name))
        .fixed_by(format!("ip address add ADDRESS/24 dev {}", netdev.name)),
    )
}

fn full_table(device: &Device, port: &Port) -> Option<Finding> {
    let used = port.gids.get()?.len();
    if used == 0 || used < port.gid_table_size {
        return None;
    }
    let share = if device.function == Function::Virtual {
        "; virtual functions share 112 entries"
    } else {
        ""
    };
    Some(
        Finding::new(
            NAME,
            Severity::Warning,
            format!("{} port {}", device.name, port.number),
            format!("all {used} entries of the GID table are taken{share}"),
        )
        .because("the next address or VLAN gets no GID, and no host can connect to it")
        .seen(format!("{}/gids", port.path), format!("{used} of {used}"))
        .fixed_by("ip address  # each address and VLAN takes an entry for each RoCE version"),
    )
}

fn listed(addresses: impl Iterator<Item = IpAddr>) -> String {
    let all: Vec<String> = addresses.map(|address| address.to_string()).collect();
    if all.is_empty() {
        return "none".to_owned();
    }
    all.join(" ")
}
