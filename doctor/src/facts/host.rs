use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::numbers;
use crate::source::{Known, Node, Source, Unknown, unless_absent};

const MODULES: [&str; 18] = [
    "bnxt_re",
    "hns_roce_hw_v2",
    "ib_core",
    "ib_uverbs",
    "irdma",
    "mana_ib",
    "mlx4_ib",
    "mlx5_ib",
    "nvme_rdma",
    "nvmet",
    "nvmet_rdma",
    "qedr",
    "rdma_cm",
    "rdma_rxe",
    "rdma_ucm",
    "siw",
    "vlan_8021q",
    "8021q",
];
pub(crate) const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";
const CAP_NET_ADMIN: u32 = 12;
const CAP_IPC_LOCK: u32 = 14;

#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Kernel release (`uname -r`).
    pub kernel: Known<String>,
    /// Loaded kernel modules that affect RDMA.
    pub modules: Known<Vec<String>>,
    pub memlock: Known<Memlock>,
    /// Limit on receive buffers of sockets; `None` if unreadable.
    pub receive_buffer: Option<ReceiveBuffer>,
    pub user: Known<User>,
    pub nodes: BTreeMap<String, Known<DeviceNode>>,
    /// True if /dev/infiniband exists.
    pub has_device_nodes: bool,
    /// True if configfs shows the connection manager's defaults.
    pub has_configfs: bool,
    /// NUMA nodes, ascending.
    pub numa_nodes: Known<Vec<NumaNode>>,
    /// CPU list of each interrupt of the RDMA devices, by interrupt number.
    pub irq_cpus: BTreeMap<u32, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Memlock {
    /// Soft limit in bytes; `None` if unlimited.
    pub soft_bytes: Option<u64>,
    /// Hard limit in bytes, up to which users can raise the soft limit; `None` if unlimited.
    pub hard_bytes: Option<u64>,
    /// True if this process has CAP_IPC_LOCK, which lifts the limit.
    pub has_cap_ipc_lock: bool,
    /// Line of this limit in /proc/self/limits.
    pub line: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReceiveBuffer {
    /// `net.core.rmem_max` in bytes.
    pub max_bytes: u64,
    /// True if this process has CAP_NET_ADMIN, which lifts the limit.
    pub has_cap_net_admin: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct User {
    pub uid: u32,
    pub gids: Vec<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceNode {
    pub path: String,
    pub node: Node,
}

/// NUMA node in `/sys/devices/system/node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NumaNode {
    pub number: u32,
    /// CPU list, such as "0-15,32-47".
    pub cpus: String,
}

impl Host {
    pub(super) fn read(source: &dyn Source) -> Self {
        let nodes = source.list("/dev/infiniband");
        Self {
            kernel: source.text("/proc/sys/kernel/osrelease").into(),
            modules: modules(source).into(),
            memlock: memlock(source).into(),
            receive_buffer: receive_buffer(source).ok(),
            user: user(source).into(),
            has_device_nodes: nodes.is_ok(),
            nodes: device_nodes(source, nodes.unwrap_or_default()),
            has_configfs: source.has_directory(super::RDMA_CM),
            numa_nodes: NumaNode::read_all(source).into(),
            irq_cpus: irq_cpus(source),
        }
    }

    #[must_use]
    pub fn has_module(&self, name: &str) -> Option<bool> {
        Some(self.modules.get()?.iter().any(|module| module == name))
    }
}

impl User {
    /// True if this user may read and write the node.
    #[must_use]
    pub fn may_open(&self, node: &Node) -> bool {
        let bits = if self.uid == node.uid {
            node.mode >> 6
        } else if self.gids.contains(&node.gid) {
            node.mode >> 3
        } else {
            node.mode
        };
        self.uid == 0 || bits & 0o6 == 0o6
    }
}

fn modules(source: &dyn Source) -> Result<Vec<String>, Unknown> {
    let mut loaded = Vec::new();
    for module in MODULES {
        if unless_absent(source.list(&format!("/sys/module/{module}")))?.is_some() {
            loaded.push(module.to_owned());
        }
    }
    Ok(loaded)
}

fn memlock(source: &dyn Source) -> Result<Memlock, Unknown> {
    let path = "/proc/self/limits";
    let limits = source.read(path)?;
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max locked memory"))
        .ok_or_else(|| Unknown::other(path, "no line about locked memory".to_owned()))?;
    let mut values = line
        .trim_start_matches("Max locked memory")
        .split_whitespace()
        .map(|value| value.parse().ok());
    Ok(Memlock {
        soft_bytes: values.next().flatten(),
        hard_bytes: values.next().flatten(),
        has_cap_ipc_lock: has_capability(source, CAP_IPC_LOCK)?,
        line: line.split_whitespace().collect::<Vec<_>>().join(" "),
    })
}

fn receive_buffer(source: &dyn Source) -> Result<ReceiveBuffer, Unknown> {
    Ok(ReceiveBuffer {
        max_bytes: source.number(RMEM_MAX)?,
        has_cap_net_admin: has_capability(source, CAP_NET_ADMIN)?,
    })
}

fn has_capability(source: &dyn Source, number: u32) -> Result<bool, Unknown> {
    let status = source.read("/proc/self/status")?;
    let effective = field(&status, "CapEff:")
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .unwrap_or(0);
    Ok(effective & (1 << number) != 0)
}

fn user(source: &dyn Source) -> Result<User, Unknown> {
    let path = "/proc/self/status";
    let status = source.read(path)?;
    let numbers = |name: &str| -> Vec<u32> {
        let value = field(&status, name).unwrap_or_default();
        let words = value.split_whitespace();
        words.filter_map(|word| word.parse().ok()).collect()
    };
    // The order of the IDs is real, effective, saved, file system.
    let effective = |name: &str| {
        let found = numbers(name).get(1).copied();
        found.ok_or_else(|| Unknown::other(path, format!("no {name} in it")))
    };
    let mut gids = numbers("Groups:");
    gids.push(effective("Gid:")?);
    Ok(User {
        uid: effective("Uid:")?,
        gids,
    })
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

fn device_nodes(source: &dyn Source, names: Vec<String>) -> BTreeMap<String, Known<DeviceNode>> {
    let mut names = names;
    names.retain(|name| name == "rdma_cm" || name.starts_with("uverbs"));
    let read = |name: String| {
        let path = format!("/dev/infiniband/{name}");
        let node = source.node(&path).map(|node| DeviceNode { path, node });
        (name, node.into())
    };
    names.into_iter().map(read).collect()
}

impl NumaNode {
    pub(crate) fn read_all(source: &dyn Source) -> Result<Vec<Self>, Unknown> {
        let directory = "/sys/devices/system/node";
        let names = unless_absent(source.list(directory))?.unwrap_or_default();
        let nodes = names.iter().filter_map(|name| {
            Some(Self {
                number: name.strip_prefix("node")?.parse().ok()?,
                cpus: source.text(&format!("{directory}/{name}/cpulist")).ok()?,
            })
        });
        let mut nodes: Vec<Self> = nodes.collect();
        nodes.sort_by_key(|node| node.number);
        Ok(nodes)
    }

    #[must_use]
    pub fn cpu_set(&self) -> BTreeSet<u32> {
        cpu_set(&self.cpus)
    }
}

pub(crate) fn cpu_set(list: &str) -> BTreeSet<u32> {
    list.split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
        })
        .flatten()
        .collect()
}

fn irq_cpus(source: &dyn Source) -> BTreeMap<u32, String> {
    let devices = source.list(super::INFINIBAND).unwrap_or_default();
    let irqs = devices.iter().flat_map(|device| {
        let directory = format!("{}/{device}/device/msi_irqs", super::INFINIBAND);
        numbers(source, &directory).unwrap_or_default()
    });
    let read = |irq| {
        let path = format!("/proc/irq/{irq}/smp_affinity_list");
        Some((irq, source.text(&path).ok()?))
    };
    irqs.filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_sets() {
        let cpus = |list| cpu_set(list).into_iter().collect::<Vec<_>>();
        assert_eq!(cpus("0-2,8"), [0, 1, 2, 8]);
        assert!(cpus("").is_empty());
    }

    #[test]
    fn owner_group_and_others_are_distinguished() {
        let user = |uid, gids: &[u32]| User {
            uid,
            gids: gids.to_vec(),
        };
        let node = Node {
            mode: 0o660,
            uid: 5,
            gid: 7,
        };
        assert!(user(5, &[]).may_open(&node));
        assert!(user(6, &[7]).may_open(&node));
        assert!(!user(6, &[8]).may_open(&node));
        assert!(user(0, &[]).may_open(&node));
        assert!(!user(5, &[7]).may_open(&Node {
            mode: 0o060,
            ..node
        }));
    }
}
