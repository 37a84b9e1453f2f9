use crate::common::{assert_found, changed, findings};

#[test]
fn a_vlan_larger_than_what_carries_it_loses_large_packets() {
    let large = "[/sys/class/net]\neth2.100/mtu = 9000";
    let findings = findings(&changed("vlan", large));
    assert_found(
        &findings,
        "mtu",
        &["error", "eth2.100", "9000", "eth2 below it has 4200"],
    );
}

#[test]
fn a_port_that_did_not_follow_its_netdev_is_named() {
    let lagging = "[?]\nmtu mlx5_0 1 = {\"active\":1024,\"max\":4096}";
    let findings = findings(&changed("healthy", lagging));
    assert_found(
        &findings,
        "mtu",
        &["mlx5_0 port 1", "uses 1024 bytes", "room for 4096"],
    );
}

#[test]
fn a_link_without_any_flow_control_drops_under_load() {
    let lossy = "[?]\ndcb eth2 = {\"pfc\":[],\"dscp\":{}}";
    let found = findings(&changed("healthy", lossy));
    assert_found(
        &found,
        "pfc",
        &["warning", "eth2", "neither", "prio-pfc 3:on", "mlnx_qos"],
    );
    let paused = "[?]\ndcb eth2 = {\"pfc\":[],\"dscp\":{}}\npause eth2 = {\"rx\":true,\"tx\":true,\"autonegotiated\":true}";
    let found = findings(&changed("healthy", paused));
    assert_found(
        &found,
        "pfc",
        &["note", "eth2", "global pause keeps the link lossless"],
    );
    let both = "[?]\npause eth2 = {\"rx\":true,\"tx\":true,\"autonegotiated\":true}";
    let found = findings(&changed("healthy", both));
    assert_found(
        &found,
        "pfc",
        &["warning", "both on", "ethtool -A eth2 rx off tx off"],
    );
}

#[test]
fn a_switch_that_pauses_another_priority_disagrees() {
    let paused = "[later]\n[?]\nstatistics eth2 = {\"rx_prio5_pause\":9}";
    let first = "[?]\nstatistics eth2 = {\"rx_prio5_pause\":2}\n";
    let findings = findings(&changed("healthy", &format!("{first}{paused}")));
    assert_found(
        &findings,
        "pfc",
        &["warning", "pauses priority 5", "rx_prio5_pause: +7", "5:on"],
    );
}

#[test]
fn ecn_off_for_our_priority_and_cnps_that_come_in_are_shown() {
    let off = "[/sys/class/net]\neth2/ecn/roce_rp/enable/3 = 0";
    let findings = findings(&changed("healthy", off));
    let path = "/sys/class/net/eth2/ecn/roce_rp/enable/3";
    assert_found(
        &findings,
        "ecn",
        &["warning", "does not slow down", &format!("echo 1 > {path}")],
    );
    let cnps = "[later]\n[/sys/class/infiniband/mlx5_0/ports/1]\nhw_counters/rp_cnp_handled = 50";
    let findings = self::findings(&changed("healthy", cnps));
    assert_found(&findings, "ecn", &["note", "congested", "+50"]);
}

#[test]
fn a_netdev_without_room_for_the_smallest_packet_can_send_nothing() {
    let tiny = "[/sys/class/net]\neth2/mtu = 300";
    let parts = [
        "error",
        "an MTU of 300 has no room",
        "ip link set eth2 mtu 4200",
    ];
    assert_found(&findings(&changed("healthy", tiny)), "mtu", &parts);
}
