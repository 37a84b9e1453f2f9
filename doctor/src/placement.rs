//! CPUs on the NUMA nodes of adapters.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::facts::{Bond, NET, NumaNode, Vlan};
use crate::source::{Address, Question, Source};

/// Returns the CPUs of each NUMA node that has an adapter with one of these addresses, in node
/// order; empty on a machine with one node. An unspecified address means all addresses of its
/// family.
#[must_use]
pub fn near_cpus(source: &dyn Source, addresses: &[IpAddr]) -> Vec<BTreeSet<u32>> {
    let nodes = NumaNode::read_all(source).unwrap_or_default();
    if nodes.len() < 2 {
        return Vec::new();
    }
    let all: Vec<Address> = source.answer(&Question::Addresses).unwrap_or_default();
    let carries = |known: &&Address| addresses.iter().any(|&ours| is_of(known.address, ours));
    let netdevs: BTreeSet<&str> = { all.iter() }
        .filter(carries)
        .map(|known| known.netdev.as_str())
        .collect();
    let near: BTreeSet<u32> = netdevs
        .into_iter()
        .flat_map(|netdev| nodes_of(source, netdev))
        .collect();
    nodes
        .iter()
        .filter(|node| near.contains(&node.number))
        .map(NumaNode::cpu_set)
        .collect()
}

fn is_of(known: IpAddr, ours: IpAddr) -> bool {
    let is_wild = ours.is_unspecified() && !known.is_loopback();
    known == ours || is_wild && known.is_ipv4() == ours.is_ipv4()
}

fn nodes_of(source: &dyn Source, netdev: &str) -> BTreeSet<u32> {
    let mut found = vec![netdev.to_owned()];
    let mut nodes = BTreeSet::new();
    let mut at = 0;
    while let Some(name) = found.get(at).cloned() {
        at += 1;
        let node: Result<i32, _> = source.number(&format!("{NET}/{name}/device/numa_node"));
        // The kernel reports node -1 if it does not know the node.
        nodes.extend(node.ok().and_then(|node| u32::try_from(node).ok()));
        let parent = Vlan::read(source, &name).ok().flatten();
        let slaves = Bond::read(source, &name).ok().flatten();
        let slaves = slaves.into_iter().flat_map(|bond| bond.slaves);
        for below in parent.map(|vlan| vlan.parent).into_iter().chain(slaves) {
            if !found.contains(&below) {
                found.push(below);
            }
        }
    }
    nodes
}
