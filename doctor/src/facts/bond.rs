use serde::Serialize;

use super::{Device, Fabric, Function, NET, Netdev};
use crate::source::{Source, Unknown, unless_absent};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bond {
    /// Name of the mode, such as "802.3ad".
    pub mode: String,
    pub mode_number: u32,
    pub slaves: Vec<String>,
    pub active: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lag {
    /// RDMA device that spans the bond, if any.
    pub device: Option<String>,
    pub obstacles: Vec<Obstacle>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    pub what: String,
    pub evidence: (String, String),
    pub fix: String,
}

/// Bonding modes that RoCE LAG supports: active-backup, balance-xor, 802.3ad.
const LAG_MODES: [u32; 3] = [1, 2, 4];
/// A ConnectX-3 supports RoCE LAG with fewer virtual functions than this number.
const CONNECTX3_VFS_BOUND: u32 = 64;

impl Bond {
    pub(crate) fn read(source: &dyn Source, netdev: &str) -> Result<Option<Self>, Unknown> {
        let directory = format!("{NET}/{netdev}/bonding");
        let Some(mode) = unless_absent(source.text(&format!("{directory}/mode")))? else {
            return Ok(None);
        };
        let (name, number) = mode.split_once(' ').unwrap_or((&mode, ""));
        let slaves = source.text(&format!("{directory}/slaves"))?;
        let active = source.optional(&format!("{directory}/active_slave"))?;
        Ok(Some(Self {
            mode: name.to_owned(),
            mode_number: number.trim().parse().unwrap_or(0),
            slaves: slaves.split_whitespace().map(str::to_owned).collect(),
            active: active.filter(|active| !active.is_empty()),
        }))
    }
}

impl Fabric {
    /// Returns the state of RoCE LAG; `None` without a bond, or if no RDMA device uses the bond.
    #[must_use]
    pub fn lag(&self, netdev: &Netdev) -> Option<Lag> {
        let bond = netdev.bond.get()?.as_ref()?;
        let devices: Vec<&Device> = self
            .devices
            .each()
            .filter(|device| device.netdevs.each().any(|own| bond.slaves.contains(own)))
            .collect();
        let spanning = self.devices.each().find(|device| {
            // In mlx5, the name of a bond's device contains "_bond_". In mlx4, one device has both
            // ports, and its GIDs belong to the bond.
            device.name.contains("_bond_") && devices.iter().any(|one| one.name == device.name)
                || device.ports.each().any(|port| {
                    port.gids
                        .each()
                        .any(|gid| gid.netdev.get() == Some(&netdev.name))
                })
        });
        if devices.is_empty() && spanning.is_none() {
            return None;
        }
        Some(Lag {
            device: spanning.map(|device| device.name.clone()),
            obstacles: self.obstacles(netdev, bond, &devices),
        })
    }

    /// Returns the partner of a netdev in RoCE LAG's ECMP mode: a netdev, PCI function or RDMA
    /// device. Values that name no other port are ignored, because they may turn the mode off.
    #[must_use]
    pub fn ecmp_partner<'a>(&self, netdev: &'a Netdev) -> Option<&'a str> {
        let partner = netdev.roce_lag_ecmp_dev.get()?.as_deref()?;
        let is_port = |other: &Netdev| {
            let pci = other.pci.get().and_then(Option::as_deref);
            let mut devices = self.ports_of(&other.name).map(|(device, _)| &device.name);
            other.name == partner || pci == Some(partner) || devices.any(|name| name == partner)
        };
        let mut others = self
            .netdevs
            .each()
            .filter(|other| other.name != netdev.name);
        others.any(is_port).then_some(partner)
    }

    fn obstacles(&self, netdev: &Netdev, bond: &Bond, devices: &[&Device]) -> Vec<Obstacle> {
        let bonding = format!("{NET}/{}/bonding", netdev.name);
        let mut obstacles = Vec::new();
        if !LAG_MODES.contains(&bond.mode_number) {
            obstacles.push(Obstacle {
                what: format!(
                    "mode {} ({}): RoCE LAG does active-backup (1), balance-xor (2) and 802.3ad (4)",
                    bond.mode_number, bond.mode
                ),
                evidence: (
                    format!("{bonding}/mode"),
                    format!("{} {}", bond.mode, bond.mode_number),
                ),
                fix: format!(
                    "ip link set {name} down && ip link set {name} type bond mode active-backup",
                    name = netdev.name
                ),
            });
        }
        if bond.slaves.len() != 2 {
            obstacles.push(Obstacle {
                what: format!(
                    "{} netdevs in the bond: RoCE LAG takes the two ports of one card and nothing else",
                    bond.slaves.len()
                ),
                evidence: (format!("{bonding}/slaves"), bond.slaves.join(" ")),
                fix: format!(
                    "ip link set {} nomaster",
                    bond.slaves.last().map_or("NETDEV", String::as_str)
                ),
            });
        }
        obstacles.extend(self.two_cards(netdev, bond));
        for device in devices {
            obstacles.extend(virtual_functions(device));
        }
        for slave in bond.slaves.iter().filter_map(|name| self.netdev(name)) {
            if slave.roce_lag_enable.get() == Some(&Some("0".to_owned())) {
                let path = format!("{NET}/{}/device/roce_lag_enable", slave.name);
                obstacles.push(Obstacle {
                    what: format!("RoCE LAG is switched off for {}", slave.name),
                    fix: format!("echo 1 > {path}"),
                    evidence: (path, "0".to_owned()),
                });
            }
        }
        obstacles
    }

    fn two_cards(&self, netdev: &Netdev, bond: &Bond) -> Option<Obstacle> {
        let slaves = bond.slaves.iter().filter_map(|name| self.netdev(name));
        let mut cards: Vec<String> = slaves.filter_map(Netdev::card).collect();
        cards.dedup();
        (cards.len() > 1).then(|| Obstacle {
            what: "the netdevs of the bond belong to different cards".to_owned(),
            evidence: (
                format!("{NET}/{}/device", bond.slaves.join(",")),
                cards.join(" "),
            ),
            fix: format!(
                "ip link set {} nomaster; then put the other port of {}'s card into {}",
                bond.slaves.last().map_or("NETDEV", String::as_str),
                bond.slaves.first().map_or("NETDEV", String::as_str),
                netdev.name
            ),
        })
    }
}

fn virtual_functions(device: &Device) -> Option<Obstacle> {
    let Function::Physical { vfs } = device.function else {
        return None;
    };
    let allowed = if device.is_connectx3() {
        CONNECTX3_VFS_BOUND
    } else {
        1
    };
    let path = format!("{}/device/sriov_numvfs", device.path);
    (vfs >= allowed).then(|| Obstacle {
        what: if device.is_connectx3() {
            format!("{vfs} virtual functions: a ConnectX-3 bonds RoCE with fewer than {allowed}")
        } else {
            format!("{} has {vfs} virtual functions switched on", device.name)
        },
        fix: format!("echo 0 > {path}"),
        evidence: (path, vfs.to_string()),
    })
}
