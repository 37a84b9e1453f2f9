//! CPUs near an address, on recorded machines.

mod common;

use std::net::IpAddr;

use cairn_doctor::placement::near_cpus;
use cairn_doctor::source::Recording;
use common::{changed, recorded};

const FIRST: &str = "192.0.2.1";
const SECOND: &str = "2001:db8::1";

fn near(machine: &Recording, addresses: &[&str]) -> Vec<Vec<u32>> {
    let addresses: Vec<IpAddr> = { addresses.iter() }
        .map(|address| address.parse().unwrap())
        .collect();
    let nodes = near_cpus(machine, &addresses);
    { nodes.into_iter() }
        .map(|cpus| cpus.into_iter().collect())
        .collect()
}

fn range(cpus: std::ops::Range<u32>) -> Vec<u32> {
    cpus.collect()
}

#[test]
fn an_address_is_near_the_cpus_of_its_adapters_node() {
    let machine = recorded("numa");
    assert_eq!(near(&machine, &[FIRST]), [range(16..32)]);
    assert_eq!(near(&machine, &[SECOND]), [range(0..16)]);
    assert_eq!(
        near(&machine, &[FIRST, SECOND]),
        [range(0..16), range(16..32)]
    );
}

#[test]
fn an_unspecified_address_is_every_one_of_its_family() {
    let machine = recorded("numa");
    assert_eq!(near(&machine, &["0.0.0.0"]), [range(16..32)]);
    assert_eq!(near(&machine, &["::"]), [range(0..16)]);
}

#[test]
fn a_vlan_and_a_bond_hang_where_the_netdevs_below_them_hang() {
    let vlan = "[/proc/net/vlan]\neth2.7 = eth2.7  VID: 7 Device: eth2\n[?]\n\
                addresses = [{\"netdev\":\"eth2.7\",\"address\":\"192.0.2.7\",\"prefix\":24}]";
    let machine = changed("numa", vlan);
    assert_eq!(near(&machine, &["192.0.2.7"]), [range(16..32)]);
    let bond = "[/sys/class/net/bond0/bonding]\nmode = 802.3ad 4\nslaves = eth3\n[?]\n\
                addresses = [{\"netdev\":\"bond0\",\"address\":\"192.0.2.8\",\"prefix\":24}]";
    let machine = changed("numa", bond);
    assert_eq!(near(&machine, &["192.0.2.8"]), [range(0..16)]);
}

#[test]
fn where_nothing_is_known_nothing_is_near() {
    assert!(near(&recorded("healthy"), &[FIRST]).is_empty());
    assert!(near(&recorded("numa"), &["203.0.113.1"]).is_empty());
    let unknown = changed("numa", "[/sys/class/net]\neth2/device/numa_node = -1");
    assert!(near(&unknown, &[FIRST]).is_empty());
}
