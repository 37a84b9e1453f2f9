//! An RDMA device.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{INFINIBAND, Port, numbers};
use crate::source::{Known, Question, QueuePairs, Reason, Source, Unknown, unless_absent};

/// A device.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// mlx5_0, rxe0, ...
    pub name: String,
    /// Its directory in sysfs.
    pub path: String,
    /// What drives it; for rdma_rxe and siw, which have no hardware, that.
    pub driver: Known<String>,
    /// Its firmware's version.
    pub firmware: Known<Option<String>>,
    /// What the board is called by its maker.
    pub board: Known<Option<String>>,
    /// The device's own GUID.
    pub node_guid: Known<String>,
    /// The ports' GUIDs have this in common.
    pub sys_image_guid: Known<String>,
    /// The PCI function; none for a device in software.
    pub pci: Known<Option<String>>,
    /// What of the card it is.
    pub function: Function,
    /// The NUMA node that it hangs on. None: a machine that has but one.
    pub numa_node: Known<Option<u32>>,
    /// Interrupts.
    pub irqs: Vec<u32>,
    /// Its netdevs: those of its PCI function, or the one that it was made on.
    pub netdevs: Known<Vec<String>>,
    /// The netdev of each port, where the driver numbers them.
    pub port_netdevs: BTreeMap<u32, String>,
    /// The device node that programs open.
    pub uverbs: Known<Option<String>>,
    /// Its queue pairs, of all programs, counted by port, type and state.
    pub queue_pairs: Known<Vec<QueuePairs>>,
    /// Ports.
    pub ports: Known<Vec<Port>>,
}

/// What of a card a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Function {
    /// The card itself.
    Physical {
        /// Virtual functions that are switched on.
        vfs: u32,
    },
    /// A part of a card, for a guest.
    Virtual,
    /// No card at all.
    Software,
}

/// Drivers of RDMA in software, which sysfs shows no PCI function for.
const SOFT_ROCE: &str = "rdma_rxe";

impl Device {
    /// All devices. That there is no such directory means that there are none.
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
            queue_pairs: source.answer(&Question::QueuePairs(name.clone())).into(),
            ports: Port::read_all(source, &path),
            name,
            path,
        }
    }

    /// What drives the device of this name.
    pub(super) fn read_driver(source: &dyn Source, name: &str) -> Result<String, Unknown> {
        let path = format!("{INFINIBAND}/{name}");
        let parent = unless_absent(source.text(&format!("{path}/parent")));
        driver(source, &path, name, parent)
    }

    /// Whether it is rdma_rxe: RoCE done by the kernel, on the CPU.
    #[must_use]
    pub fn is_soft_roce(&self) -> bool {
        self.driver.get().is_some_and(|driver| driver == SOFT_ROCE)
    }

    /// Whether it is a ConnectX-3, by its driver.
    #[must_use]
    pub fn is_connectx3(&self) -> bool {
        let driver = self.driver.get();
        driver.is_some_and(|driver| driver.starts_with("mlx4"))
    }

    /// The card: a PCI address without its function. Ports of one card share it.
    #[must_use]
    pub fn card(&self) -> Option<&str> {
        let pci = self.pci.get()?.as_deref()?;
        Some(pci.rsplit_once('.').map_or(pci, |(card, _)| card))
    }
}

/// Empty says nothing.
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
        // rdma_rxe alone shows the netdev that it was made on in `parent`.
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
    // -1 says that the machine has but one node.
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

/// ConnectX-3 has two ports on one PCI function: `dev_port` distinguishes their netdevs.
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

/// /dev/infiniband/uverbsN, by what says which device it opens.
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
