//! Rule: ports must be members of the listeners' partitions.

use std::net::IpAddr;

use cairn_rdma::PKey;

use super::{Examination, Finding, Severity};
use crate::facts::{Device, Port};

pub(super) const NAME: &str = "partition";

#[derive(Clone, Debug)]
pub struct Membership {
    /// P_Key required in the port's table.
    pub pkey: PKey,
    /// Listening address; unspecified for all addresses of its family.
    pub address: IpAddr,
    pub is_soft: bool,
    /// Origin of the requirement, such as "the listener 192.0.2.1:4420".
    pub by: String,
}

pub(super) fn check(examination: &Examination, findings: &mut Vec<Finding>) {
    let partitions = examination.intent.partitions.iter();
    for wanted in partitions.filter(|wanted| wanted.pkey != PKey::DEFAULT) {
        for (device, port) in ports_behind(examination, wanted) {
            findings.extend(port_outside(wanted, device, port));
        }
        if !wanted.pkey.is_same_partition_as(PKey::DEFAULT) {
            findings.push(linux_stays_out(examination, wanted));
        }
    }
}

fn ports_behind<'a>(
    examination: &'a Examination,
    wanted: &Membership,
) -> Vec<(&'a Device, &'a Port)> {
    let fabric = &examination.fabric;
    if wanted.is_soft {
        return Vec::new();
    }
    let own = fabric.addresses.each().filter(|own| {
        let same_family = own.address.is_ipv4() == wanted.address.is_ipv4();
        own.address == wanted.address || wanted.address.is_unspecified() && same_family
    });
    let mut netdevs: Vec<&String> = own.map(|own| &own.netdev).collect();
    netdevs.sort_unstable();
    netdevs.dedup();
    let ports = netdevs.iter().flat_map(|netdev| fabric.ports_of(netdev));
    ports.collect()
}

fn port_outside(wanted: &Membership, device: &Device, port: &Port) -> Option<Finding> {
    let Membership { pkey, by, .. } = wanted;
    let table = port.pkeys.get()?;
    if table.iter().any(|key| key.parse() == Ok(*pkey)) {
        return None;
    }
    Some(
        Finding::new(
            NAME,
            Severity::Error,
            format!("{} port {}", device.name, port.number),
            format!("it is no member of the partition of {by}: P_Key {pkey} is not in its table"),
        )
        .because(
            "queue pairs of an adapter can only be in partitions that its port is in: the target \
             does not start. Drivers of Linux give a RoCE port one entry, 0xffff",
        )
        .seen(format!("{}/pkeys", port.path), table.join(" "))
        .fixed_by(format!(
            "set provider = \"soft\" for {by}: RoCE in user space can be in any partition"
        ))
        .fixed_by(format!(
            "leave pkey of {by} out, and keep hosts apart by allowed_addresses and allowed_hosts"
        )),
    )
}

fn linux_stays_out(examination: &Examination, wanted: &Membership) -> Finding {
    let Membership { pkey, by, .. } = wanted;
    Finding::new(
        NAME,
        Severity::Note,
        by,
        format!("Linux's own host cannot connect: it knows no partition but 0xffff, not {pkey}"),
    )
    .because(
        "over RoCE, rdma_cm asks for the default partition, and nvme-cli has no option for another",
    )
    .seen("pkey", pkey)
    .fixed_by(format!(
        "{} discover -a {} --pkey {}",
        examination.intent.caller.host,
        wanted.address,
        pkey.to_full()
    ))
}
