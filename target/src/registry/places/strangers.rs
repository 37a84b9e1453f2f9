//! Connections of addresses without an association that wait for their Connect, by network and
//! payer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cairn_rdma::address::Payer;

use super::{PlaceId, network_of};

#[derive(Debug, Default)]
pub(super) struct Strangers {
    networks: BTreeMap<IpAddr, Network>,
    by_size: BTreeSet<(u32, Reverse<PlaceId>, IpAddr)>,
    count: u32,
}

#[derive(Debug, Default)]
struct Network {
    payers: BTreeMap<Payer, Own>,
    ids: BTreeSet<PlaceId>,
}

/// Connections of a payer.
#[derive(Debug, Default)]
struct Own {
    ids: BTreeSet<PlaceId>,
    /// Connections not confirmed by their peer.
    unconfirmed: BTreeSet<PlaceId>,
}

impl Own {
    /// Returns the connection to displace: the oldest one that anyone may have requested in the name
    /// of the payer, or else the oldest one.
    fn victim(&self) -> Option<PlaceId> {
        let unconfirmed = self.unconfirmed.first();
        unconfirmed.or_else(|| self.ids.first()).copied()
    }
}

impl Network {
    fn count(&self) -> u32 {
        self.ids.len() as u32
    }

    fn size(&self) -> Option<(u32, Reverse<PlaceId>)> {
        let oldest = self.ids.first()?;
        Some((self.count(), Reverse(*oldest)))
    }

    /// Returns the victim of the payer with most connections, counting the new one.
    fn victim(&self, new: IpAddr) -> Option<PlaceId> {
        let new = Payer::stranger(new);
        let held = |(payer, own): (&Payer, &Own)| {
            let held = own.ids.len() + usize::from(*payer == new);
            Some((held, Reverse(own.victim()?)))
        };
        let most = self.payers.iter().filter_map(held).max();
        most.map(|(_, Reverse(victim))| victim)
    }
}

impl Strangers {
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    pub(super) fn of_network(&self, address: IpAddr) -> u32 {
        let network = self.networks.get(&network_of(address));
        network.map_or(0, Network::count)
    }

    #[cfg(test)]
    pub(super) fn networks(&self) -> usize {
        self.networks.len()
    }

    pub(super) fn add(&mut self, address: IpAddr, id: PlaceId) {
        let payer = Payer::stranger(address);
        self.change(address, |network| {
            let own = network.payers.entry(payer).or_default();
            own.ids.insert(id);
            own.unconfirmed.insert(id);
            network.ids.insert(id);
        });
        self.count += 1;
    }

    pub(super) fn remove(&mut self, address: IpAddr, id: PlaceId) {
        let payer = Payer::stranger(address);
        self.change(address, |network| {
            network.ids.remove(&id);
            if let Some(own) = network.payers.get_mut(&payer) {
                own.ids.remove(&id);
                own.unconfirmed.remove(&id);
                if own.ids.is_empty() {
                    network.payers.remove(&payer);
                }
            }
        });
        self.count -= 1;
    }

    /// Records that the peer has confirmed a connection.
    pub(super) fn confirm(&mut self, address: IpAddr, id: PlaceId) {
        let network = self.networks.get_mut(&network_of(address));
        let own = network.and_then(|network| network.payers.get_mut(&Payer::stranger(address)));
        if let Some(own) = own {
            own.unconfirmed.remove(&id);
        }
    }

    /// Returns the payer's victim if the payer has reached `limit`.
    pub(super) fn victim_of_payer(&self, new: IpAddr, limit: u32) -> Option<PlaceId> {
        let network = self.networks.get(&network_of(new))?;
        let own = network.payers.get(&Payer::stranger(new))?;
        let is_full = own.ids.len() >= limit as usize;
        is_full.then(|| own.victim()).flatten()
    }

    /// Returns the connection to displace for a new one: the [victim](Own::victim) of the largest
    /// payer in the largest network (`within`: in its own network). The new one counts, so an address
    /// that keeps connecting loses its own.
    pub(super) fn victim_for(&self, new: IpAddr, within: bool) -> Option<PlaceId> {
        let own = self.networks.get(&network_of(new));
        let network = if within {
            own?
        } else {
            let (most, oldest, network) = self.by_size.last()?;
            let with_new = own.and_then(Network::size);
            let with_new = with_new.map(|(count, oldest)| (count + 1, oldest));
            match own {
                Some(own) if with_new > Some((*most, *oldest)) => own,
                _ => &self.networks[network],
            }
        };
        network.victim(new)
    }

    fn change(&mut self, address: IpAddr, change: impl FnOnce(&mut Network)) {
        let name = network_of(address);
        let network = self.networks.entry(name).or_default();
        if let Some((count, oldest)) = network.size() {
            self.by_size.remove(&(count, oldest, name));
        }
        change(network);
        match network.size() {
            Some((count, oldest)) => {
                self.by_size.insert((count, oldest, name));
            }
            None => {
                self.networks.remove(&name);
            }
        }
    }
}
