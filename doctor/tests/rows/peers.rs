use cairn_doctor::rules::Severity;

use crate::common::{PEER, assert_found, changed, findings_with_peer, recorded, text};

#[test]
fn the_way_to_a_peer_names_device_and_gid() {
    let findings = findings_with_peer(&recorded("healthy"));
    let parts = [
        "note",
        "dev eth2 src 192.0.2.1",
        "mlx5_0 port 1, GID 3 (RoCE v2)",
    ];
    assert_found(&findings, "peer", &parts);
}

#[test]
fn a_peer_that_cannot_be_found_is_distinguished_from_a_silent_one() {
    let gone = "- route 192.0.2.9\n[?]\nroute 192.0.2.9 ! Network is unreachable";
    let found = findings_with_peer(&changed("healthy", gone));
    assert_found(
        &found,
        "peer",
        &["error", "there is no way to it", "unreachable"],
    );
    let failed = "[?]\nneighbour eth2 192.0.2.9 = {\"state\":\"FAILED\",\"mac\":null}";
    let found = findings_with_peer(&changed("healthy", failed));
    assert_found(
        &found,
        "peer",
        &["error", "no machine on eth2 answers", "FAILED", "VLAN"],
    );
    let silent: String = [84, 352, 608, 1120, 2144, 4192, 4200]
        .map(|bytes| format!("echo {PEER} {bytes} = \"silent\"\n"))
        .concat();
    let found = findings_with_peer(&changed("healthy", &format!("[?]\n{silent}")));
    assert_found(&found, "peer", &["warning", "does not answer a ping"]);
}

/// The kernel disables IPv6 below an MTU of 1280.
#[test]
fn no_mtu_below_that_of_ipv6_is_proposed() {
    let all = [84, 352, 608, 1120, 2144, 4192, 4200];
    for (passed, proposed) in [
        (84, None),
        (352, None),
        (608, None),
        (1120, Some(1280)),
        (2144, Some(2144)),
    ] {
        let silent: String = all
            .iter()
            .filter(|bytes| **bytes > passed)
            .map(|bytes| format!("echo {PEER} {bytes} = \"silent\"\n"))
            .collect();
        let found = findings_with_peer(&changed("healthy", &format!("[?]\n{silent}")));
        let here = match proposed {
            Some(mtu) => format!("ip link set eth2 mtu {mtu}  # here"),
            None => format!("tracepath -n {PEER}"),
        };
        assert_found(&found, "peer", &["ip link set NETDEV mtu 4200", &here]);
    }
    let narrow = "[/sys/class/net]\neth2.100/mtu = 900\neth2/mtu = 800";
    let found = findings_with_peer(&changed("vlan", narrow));
    assert_found(&found, "mtu", &["eth2.100", "ip link set eth2 mtu 1280"]);
}

#[test]
fn packets_that_this_user_may_not_send_are_not_taken_for_an_answer() {
    let denied =
        "[?]\necho 192.0.2.9 84 ! permission denied\necho 192.0.2.9 4200 ! permission denied";
    let findings = findings_with_peer(&changed("healthy", denied));
    assert_found(&findings, "unreadable", &["warning", "echo 192.0.2.9 84"]);
    let of_peer = findings.iter().filter(|finding| finding.rule == "peer");
    for finding in of_peer {
        assert_eq!(finding.severity, Severity::Note, "{}", text(finding));
    }
}

#[test]
fn a_way_that_leaves_by_another_netdev_is_named() {
    let other = "[?]\nroute 192.0.2.9 = {\"netdev\":\"eth9\",\"source\":\"198.51.100.7\",\"gateway\":null,\"mtu\":null}";
    let findings = findings_with_peer(&changed("healthy", other));
    assert_found(
        &findings,
        "peer",
        &[
            "error",
            "leave by eth9",
            "ip route add 192.0.2.9/32 dev eth2",
        ],
    );
    let other = "[?]\nroute 192.0.2.9 = {\"netdev\":\"eth2\",\"source\":\"198.51.100.7\",\"gateway\":null,\"mtu\":null}";
    let findings = findings_with_peer(&changed("healthy", other));
    assert_found(
        &findings,
        "peer",
        &["error", "come from 198.51.100.7", "no GID for that"],
    );
}
