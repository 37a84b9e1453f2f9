//! The priority in the tags of packets (PCP): who writes it, and what it is.

use std::net::IpAddr;

use crate::facts::Vlan;
use crate::source::{Question, Route, Source};
use crate::tos::Tos;

/// The priority in a tag, by service level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priorities([u8; 8]);

impl Priorities {
    /// As adapters have it, and tags that RoCE in user space writes: PCP = SL.
    pub const OF_LEVEL: Self = Self([0, 1, 2, 3, 4, 5, 6, 7]);

    /// Of packets from an address of this machine. None: it belongs to no VLAN's
    /// interface, and they have no tag. An adapter writes the tag itself; without one
    /// the kernel does.
    #[must_use]
    pub fn of(source: &dyn Source, address: IpAddr, is_adapter: bool) -> Option<Self> {
        let vlan = Vlan::of_address(source, address)?;
        Some(if is_adapter {
            Self::OF_LEVEL
        } else {
            Self::by_map(&vlan)
        })
    }

    /// The same of packets to another machine, from whatever address is on the way.
    #[must_use]
    pub fn toward(source: &dyn Source, peer: IpAddr, is_adapter: bool) -> Option<Self> {
        let route: Route = source.answer(&Question::Route(peer)).ok()?;
        Self::of(source, route.source?, is_adapter)
    }

    /// As a VLAN's interface has it: what its `egress-qos-map` says nothing of is 0.
    fn by_map(vlan: &Vlan) -> Self {
        let of_level = |level| vlan.egress.get(&level).copied().unwrap_or(0);
        Self([0, 1, 2, 3, 4, 5, 6, 7].map(of_level))
    }

    /// The priority of packets with a ToS.
    #[must_use]
    pub fn pcp(self, tos: Tos) -> u8 {
        self.0[usize::from(tos.sl())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vlans_interface_has_its_own_priorities() {
        let vlan = Vlan {
            parent: "eth0".to_owned(),
            id: 5,
            egress: [(3, 6), (4, 4)].into(),
        };
        let by_map = Priorities::by_map(&vlan);
        // SL 3 is 6 there, and of SL 5 nothing is said.
        assert_eq!((by_map.pcp(Tos(104)), by_map.pcp(Tos(184))), (6, 0));
        let of_level = Priorities::OF_LEVEL;
        assert_eq!((of_level.pcp(Tos(104)), of_level.pcp(Tos(184))), (3, 5));
    }
}
