//! Facts about RoCE on a machine, from sysfs, procfs and the kernel ([`Fabric`]).

mod address_map;
mod bond;
mod counters;
mod device;
mod gid;
mod host;
mod netdev;
mod peer;
mod port;
mod telemetry;
mod traffic_class;
mod udp_port;
mod vlan;

use serde::Serialize;

pub use bond::{Bond, Lag};
pub use counters::Counters;
pub use device::{Device, Function};
pub use gid::{Gid, RoceVersion};
pub(crate) use host::RMEM_MAX;
pub(crate) use host::cpu_set;
pub use host::{DeviceNode, Host, Memlock, NumaNode, ReceiveBuffer};
pub use netdev::Netdev;
pub use peer::Peer;
pub use port::{CnpState, Port};
pub use telemetry::{PortTelemetry, Telemetry};
pub use traffic_class::{ForcedClass, ForcedRule};
pub use udp_port::UdpHolder;
pub use vlan::Vlan;

use crate::source::{Address, Known, Question, Source};

pub const INFINIBAND: &str = "/sys/class/infiniband";
pub const NET: &str = "/sys/class/net";
/// Directory of the connection manager's defaults, in configfs.
pub const RDMA_CM: &str = "/sys/kernel/config/rdma_cm";

#[derive(Clone, Debug, Serialize)]
pub struct Fabric {
    pub devices: Known<Vec<Device>>,
    /// Netdevs of the machine, except the loopback device.
    pub netdevs: Known<Vec<Netdev>>,
    pub addresses: Known<Vec<Address>>,
    pub host: Host,
    pub udp_port: Known<Vec<UdpHolder>>,
}

impl Fabric {
    #[must_use]
    pub fn read(source: &dyn Source) -> Self {
        let addresses = source.answer(&Question::Addresses).into();
        let devices = Device::read_all(source);
        let netdevs = Netdev::read_all(source);
        let mut fabric = Self {
            devices,
            netdevs,
            addresses,
            host: Host::read(source),
            udp_port: UdpHolder::read_all(source).into(),
        };
        fabric.map_addresses();
        fabric
    }

    #[must_use]
    pub fn has_devices(&self) -> bool {
        self.devices.each().next().is_some()
    }

    pub fn ports(&self) -> impl Iterator<Item = (&Device, &Port)> {
        let devices = self.devices.each();
        devices.flat_map(|device| device.ports.each().map(move |port| (device, port)))
    }

    #[must_use]
    pub fn netdev(&self, name: &str) -> Option<&Netdev> {
        self.netdevs.each().find(|netdev| netdev.name == name)
    }

    /// Returns the ports of a netdev, or of the netdevs below a VLAN or bond.
    pub fn ports_of<'a>(&'a self, netdev: &str) -> impl Iterator<Item = (&'a Device, &'a Port)> {
        let below = self.below(netdev);
        self.ports().filter(move |(device, port)| {
            let has = |name: &String| port.netdevs(device).any(|own| own == name);
            below.iter().any(has)
        })
    }

    /// Returns the netdev and all netdevs below it.
    #[must_use]
    pub fn below(&self, netdev: &str) -> Vec<String> {
        let mut found = vec![netdev.to_owned()];
        let mut at = 0;
        while let Some(name) = found.get(at).cloned() {
            at += 1;
            let Some(netdev) = self.netdev(&name) else {
                continue;
            };
            let parent = netdev.vlan.get().into_iter().flatten().map(|v| &v.parent);
            let slaves = netdev.bond.get().into_iter().flatten();
            for next in parent.chain(slaves.flat_map(|bond| &bond.slaves)) {
                if !found.contains(next) {
                    found.push(next.clone());
                }
            }
        }
        found
    }
}

fn numbers(source: &dyn Source, path: &str) -> Result<Vec<u32>, crate::source::Unknown> {
    let names = source.list(path)?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    Ok(numbers)
}
