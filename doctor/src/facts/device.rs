use std::collections::BTreeMap;

use serde::Serialize;

use super::{INFINIBAND, Port, numbers};
use crate::source::{
    Attributes, Known, Question, QueuePairs, Reason, Source, Unknown, unless_absent,
};

#[derive(Clone, Debug, Serialize)]
pub struct Device {
    pub name: String,
    pub path: String,
    /// Name of the driver; `rdma_rxe` for a device without hardware.
    pub driver: Known<String>,
    /// Firmware version (`fw_ver`).
    pub firmware: Known<Option<String>>,
    /// Board identifier of the manufacturer (PSID).
    pub board: Known<Option<String>>,
    pub node_guid: Known<String>,
    /// GUID shared by all devices of a card or system.
    pub sys_image_guid: Known<String>,
    /// PCI function; `None` for a software device.
    pub pci: Known<Option<String>>,
    pub function: Function,
    /// NUMA node; `None` if the kernel reports none.
    pub numa_node: Known<Option<u32>>,
    /// MSI interrupt numbers; empty if unreadable.
    pub irqs: Vec<u32>,
    /// Netdevs of the PCI function, or the netdev below a software device.
    pub netdevs: Known<Vec<String>>,
    /// Netdevs by port number; empty for a device with one port.
    pub port_netdevs: BTreeMap<u32, String>,
    pub uverbs: Known<Option<String>>,
    pub attributes: Known<Attributes>,
    /// Queue pairs of all programs, counted by port, type and state.
    pub queue_pairs: Known<Vec<QueuePairs>>,
    pub ports: Known<Vec<Port>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    Physical { vfs: u32 },
    Virtual,
    Software,
}

/// Kernel module for RoCE in software; its devices have no PCI function in sysfs.
const SOFT_ROCE: &str = "rdma_rxe";

impl Device {
    pub(super) fn read_all(source: &dyn Source) -> Known<Vec<Self>> {
        let names = unless_absent(source.list(INFINIBAND)).map(Option::unwrap_or_default);
        let read = |name| Self::read(source, name);
        names
            .map(|names| names.into_iter().map(read).collect())
            .into()
    }

    fn read(source: &dyn Source, name: String) -> Self {
        let path = format!("{INFINIBAND}/{name}");
        let pci = unless_absent(source.link_name(&format!("{path}/device")));
        let parent = unless_absent(source.text(&format!("{path}/parent")));
        let netdevs = netdevs(source, &path, parent.clone());
        let port_netdevs = port_netdevs(source, &path, netdevs.as_deref().unwrap_or_default());
        Self {
            driver: driver(source, &path, &name, parent).into(),
            firmware: source
                .optional(&format!("{path}/fw_ver"))
                .map(filled)
                .into(),
            board: source
                .optional(&format!("{path}/board_id"))
                .map(filled)
                .into(),
            node_guid: source.text(&format!("{path}/node_guid")).into(),
            sys_image_guid: source.text(&format!("{path}/sys_image_guid")).into(),
            function: function(source, &path, matches!(pci, Ok(None))),
            pci: pci.into(),
            numa_node: numa_node(source, &path).into(),
            irqs: numbers(source, &format!("{path}/device/msi_irqs")).unwrap_or_default(),
            netdevs: netdevs.into(),
            port_netdevs,
            uverbs: uverbs(source, &path, &name).into(),
            attributes: source.answer(&Question::Attributes(name.clone())).into(),
            queue_pairs: source.answer(&Question::QueuePairs(name.clone())).into(),
            ports: Port::read_all(source, &path),
            name,
            path,
        }
    }

    pub(super) fn read_driver(source: &dyn Source, name: &str) -> Result<String, Unknown> {
        let path = format!("{INFINIBAND}/{name}");
        let parent = unless_absent(source.text(&format!("{path}/parent")));
        driver(source, &path, name, parent)
    }

    #[must_use]
    pub fn is_soft_roce(&self) -> bool {
        self.driver.get().is_some_and(|driver| driver == SOFT_ROCE)
    }

    #[must_use]
    pub fn is_connectx3(&self) -> bool {
        let driver = self.driver.get();
        driver.is_some_and(|driver| driver.starts_with("mlx4"))
    }

    /// Returns the PCI address of the card: without the function number.
    #[must_use]
    pub fn card(&self) -> Option<&str> {
        let pci = self.pci.get()?.as_deref()?;
        Some(pci.rsplit_once('.').map_or(pci, |(card, _)| card))
    }
}

fn filled(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn driver(
    source: &dyn Source,
    device: &str,
    name: &str,
    parent: Result<Option<String>, Unknown>,
) -> Result<String, Unknown> {
    let bound = unless_absent(source.link_name(&format!("{device}/device/driver")))?;
    match bound {
        Some(driver) => Ok(driver),
        // Only rdma_rxe has a file `parent`, which names the netdev below the device.
        None if parent?.is_some() || name.starts_with("rxe") => Ok(SOFT_ROCE.to_owned()),
        None => Err(Unknown::absent(&format!("{device}/device/driver"))),
    }
}

fn function(source: &dyn Source, device: &str, is_software: bool) -> Function {
    if is_software {
        return Function::Software;
    }
    match source.link(&format!("{device}/device/physfn")) {
        Ok(_) => Function::Virtual,
        Err(_) => Function::Physical {
            vfs: source
                .number(&format!("{device}/device/sriov_numvfs"))
                .unwrap_or(0),
        },
    }
}

fn numa_node(source: &dyn Source, device: &str) -> Result<Option<u32>, Unknown> {
    let node: Result<i32, Unknown> = source.number(&format!("{device}/device/numa_node"));
    Ok(unless_absent(node)?.and_then(|node| u32::try_from(node).ok()))
}

fn netdevs(
    source: &dyn Source,
    device: &str,
    parent: Result<Option<String>, Unknown>,
) -> Result<Vec<String>, Unknown> {
    if let Some(parent) = parent? {
        return Ok(vec![parent]);
    }
    Ok(unless_absent(source.list(&format!("{device}/device/net")))?.unwrap_or_default())
}

fn port_netdevs(source: &dyn Source, device: &str, netdevs: &[String]) -> BTreeMap<u32, String> {
    let ports = numbers(source, &format!("{device}/ports")).unwrap_or_default();
    if ports.len() < 2 {
        return BTreeMap::new();
    }
    let numbered = netdevs.iter().filter_map(|netdev| {
        let path = format!("{device}/device/net/{netdev}/dev_port");
        let port: u32 = source.number(&path).ok()?;
        Some((port + 1, netdev.clone()))
    });
    numbered.collect()
}

fn uverbs(source: &dyn Source, device: &str, name: &str) -> Result<Option<String>, Unknown> {
    let below = unless_absent(source.list(&format!("{device}/device/infiniband_verbs")))?;
    if let Some(node) = below.and_then(|nodes| nodes.into_iter().next()) {
        return Ok(Some(node));
    }
    let class = "/sys/class/infiniband_verbs";
    let nodes = unless_absent(source.list(class))?.unwrap_or_default();
    for node in nodes {
        match source.text(&format!("{class}/{node}/ibdev")) {
            Ok(owner) if owner == name => return Ok(Some(node)),
            Err(unknown) if unknown.reason == Reason::Denied => return Err(unknown),
            _ => {}
        }
    }
    Ok(None)
}
