use std::net::IpAddr;

use cairn_rdma::ROCE_PORT;
use serde::Serialize;

use super::Fabric;
use crate::mtu::ROCE_MTUS;
use crate::source::{Echo, Known, Neighbour, Question, Reached, Route, Source};

const HEADER_BYTES: u32 = 96;

#[derive(Clone, Debug, Serialize)]
pub struct Peer {
    pub address: IpAddr,
    pub route: Known<Route>,
    /// Neighbour entry of the peer or of the router.
    pub neighbour: Known<Neighbour>,
    /// Results of test packets by size in bytes, ascending.
    pub echoes: Vec<(u32, Known<Echo>)>,
    /// Result of a datagram to the peer's UDP port 4791.
    pub roce_port: Known<Reached>,
}

impl Peer {
    /// Examines the path to a peer by sending packets to it.
    #[must_use]
    pub fn read(source: &dyn Source, fabric: &Fabric, address: IpAddr) -> Self {
        let route = source.answer(&Question::Route(address));
        let route = route.map(|route| by_its_own_netdev(fabric, address, route));
        let mtu = route.as_ref().ok().and_then(|route| {
            let netdev = fabric.netdev(&route.netdev)?;
            netdev.mtu.get().copied()
        });
        // Test packets first: they make the kernel resolve the neighbour, which is read next.
        let echoes: Vec<_> = sizes(mtu)
            .into_iter()
            .map(|bytes| (bytes, source.answer(&Question::Echo(address, bytes)).into()))
            .collect();
        let neighbour = match &route {
            Ok(route) => {
                let next_hop = route.gateway.unwrap_or(address);
                source.answer(&Question::Neighbour(route.netdev.clone(), next_hop))
            }
            Err(unknown) => Err(unknown.clone()),
        };
        Self {
            address,
            neighbour: neighbour.into(),
            route: route.into(),
            echoes,
            roce_port: source.answer(&Question::Udp(address, ROCE_PORT)).into(),
        }
    }

    #[must_use]
    pub fn largest_echo(&self) -> Option<u32> {
        let answered = |(_, echo): &&(u32, Known<Echo>)| echo.get() == Some(&Echo::Answered);
        self.echoes
            .iter()
            .rev()
            .find(answered)
            .map(|(bytes, _)| *bytes)
    }

    /// Returns the size in bytes of the largest packet whose result is known.
    #[must_use]
    pub fn largest_tried(&self) -> Option<u32> {
        let known = |(_, echo): &&(u32, Known<Echo>)| echo.get().is_some();
        let last = self.echoes.iter().rev().find(known);
        last.map(|(bytes, _)| *bytes)
    }
}

/// Replaces the netdev of `route` if `address` belongs to this machine: the kernel routes it to the
/// loopback device, which RDMA does not use.
fn by_its_own_netdev(fabric: &Fabric, address: IpAddr, route: Route) -> Route {
    let own = fabric.addresses.each().find(|own| own.address == address);
    match own {
        Some(own) => Route {
            netdev: own.netdev.clone(),
            ..route
        },
        None => route,
    }
}

fn sizes(netdev_mtu: Option<u32>) -> Vec<u32> {
    let limit = netdev_mtu.unwrap_or(1500);
    let steps = ROCE_MTUS.into_iter().map(|mtu| mtu + HEADER_BYTES);
    let mut sizes: Vec<u32> = [84].into_iter().chain(steps).collect();
    sizes.retain(|size| *size < limit);
    sizes.push(limit);
    sizes
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn the_sizes_are_those_that_roce_would_send() {
        assert_eq!(sizes(Some(1500)), [84, 352, 608, 1120, 1500]);
        assert_eq!(sizes(Some(9000)).last(), Some(&9000));
        assert_eq!(sizes(None).last(), Some(&1500));
    }
}
