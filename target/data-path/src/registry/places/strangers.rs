//! Strangers' connections without a Connect, by network and payer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use cairn_base::address::Payer;

use super::{PlaceId, network_of};

#[derive(Debug, Default)]
pub(super) struct Strangers {
    networks: BTreeMap<IpAddr, Network>,
    by_size: BTreeSet<(u32, Reverse<PlaceId>, IpAddr)>,
    count: u32,
}

#[derive(Debug, Default)]
struct Network {
    payers: BTreeMap<Payer, BTreeSet<PlaceId>>,
    ids: BTreeSet<PlaceId>,
}

impl Network {
    fn count(&self) -> u32 {
        self.ids.len() as u32
    }

    fn size(&self) -> Option<(u32, Reverse<PlaceId>)> {
        let oldest = self.ids.first()?;
        Some((self.count(), Reverse(*oldest)))
    }

    fn victim(&self, new: IpAddr) -> Option<PlaceId> {
        let new = Payer::stranger(new);
        let held = |(payer, ids): (&Payer, &BTreeSet<PlaceId>)| {
            let oldest = *ids.first()?;
            Some((ids.len() + usize::from(*payer == new), Reverse(oldest)))
        };
        let most = self.payers.iter().filter_map(held).max();
        most.map(|(_, Reverse(oldest))| oldest)
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
            network.payers.entry(payer).or_default().insert(id);
            network.ids.insert(id);
        });
        self.count += 1;
    }

    pub(super) fn remove(&mut self, address: IpAddr, id: PlaceId) {
        let payer = Payer::stranger(address);
        self.change(address, |network| {
            network.ids.remove(&id);
            if let Some(own) = network.payers.get_mut(&payer) {
                own.remove(&id);
                if own.is_empty() {
                    network.payers.remove(&payer);
                }
            }
        });
        self.count -= 1;
    }

    pub(super) fn victim_of_payer(&self, new: IpAddr, limit: u32) -> Option<PlaceId> {
        let network = self.networks.get(&network_of(new))?;
        let own = network.payers.get(&Payer::stranger(new))?;
        own.first().copied().filter(|_| own.len() >= limit as usize)
    }

    /// Returns the oldest connection of the largest payer in the largest network, or, if `within`,
    /// in the network of `new`. Counts include the new connection.
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
