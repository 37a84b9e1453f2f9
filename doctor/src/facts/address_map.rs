//! Assignment of addresses to netdevs and GIDs.

use super::{Fabric, Gid, Port};
use crate::source::Known;

impl Fabric {
    pub(super) fn map_addresses(&mut self) {
        if let Known::Is(netdevs) = &mut self.netdevs {
            for netdev in netdevs {
                let all = self.addresses.each();
                let own = all.filter(|address| address.netdev == netdev.name);
                netdev.addresses = own.cloned().collect();
            }
        }
        if let Known::Is(devices) = &mut self.devices {
            for device in devices {
                if let Known::Is(ports) = &mut device.ports {
                    ports.iter_mut().for_each(mark_gids_in_use);
                }
            }
        }
    }
}

fn mark_gids_in_use(port: &mut Port) {
    let version = port.default_version();
    if let Known::Is(gids) = &mut port.gids {
        for gid in gids {
            let is_default = |version| gid.is(version);
            gid.in_use = gid.address.is_some() && version.is_some_and(is_default);
        }
    }
}

impl Port {
    /// Returns the GID that connections from this address use.
    #[must_use]
    pub fn gid_of(&self, address: std::net::IpAddr) -> Option<&Gid> {
        self.gids
            .each()
            .find(|gid| gid.in_use && gid.address == Some(address))
    }
}
