use cairn_doctor::rules::Severity;

use crate::common::{
    PEER, assert_found, changed, findings, findings_with, findings_with_peer, intent, recorded,
};

#[test]
fn v1_stays_in_its_broadcast_domain() {
    let routed = "[/sys/kernel/config/rdma_cm]\nmlx5_0/ports/1/default_roce_mode = IB/RoCE v1\n\
                  [?]\nroute 192.0.2.9 = {\"netdev\":\"eth2\",\"source\":\"192.0.2.1\",\"gateway\":\"192.0.2.254\",\"mtu\":null}\n\
                  neighbour eth2 192.0.2.254 = {\"state\":\"REACHABLE\",\"mac\":null}";
    let findings = findings_with_peer(&changed("healthy", routed));
    let fix = "cairn-target fabric set-mode mlx5_0 v2 --port 1";
    let what = ["error", "router 192.0.2.254", "use RoCE v1", fix];
    assert_found(&findings, "peer", &what);
    assert_found(&findings, "peer", &["note", "another network", "untagged"]);
}

#[test]
fn a_port_that_can_do_v1_alone_is_named_with_what_hosts_must_do() {
    let findings = findings(&recorded("connectx3"));
    let parts = [
        "warning",
        "mlx4_0 port 1",
        "RoCE v1 alone",
        "cma_roce_mode",
        "--provider soft",
    ];
    assert_found(&findings, "versions", &parts);
}

#[test]
fn udp_4791_taken_by_another_program_stops_roce_in_user_space() {
    let held = "[/proc]\nnet/udp = sl local rem st q t r uid t i\\n 7: 00000000:12B7 00000000:0000 07 0:0 00:0 0 33 0 4711 2\n\
                [?]\nsocket 4711 = \"other (pid 77)\"";
    let findings = findings(&changed("no-device", held));
    let parts = [
        "error",
        "taken by other (pid 77)",
        "00000000:12B7",
        "ss -ulnp",
    ];
    assert_found(&findings, "port-4791", &parts);
}

#[test]
fn udp_4791_taken_at_another_address_is_no_finding() {
    let held = "[/proc]\nnet/udp = sl local rem st q t r uid t i\\n 7: 0100007F:12B7 00000000:0000 07 0:0 00:0 0 33 0 4711 2\n\
                [?]\nsocket 4711 = \"other (pid 77)\"";
    let at = |addresses: &[&str]| {
        let intent = cairn_doctor::rules::Intent {
            addresses: addresses.iter().map(|one| one.parse().unwrap()).collect(),
            ..intent()
        };
        let findings = findings_with(&changed("no-device", held), intent, None);
        findings
            .into_iter()
            .find(|finding| finding.rule == "port-4791")
    };
    let severity = |addresses| at(addresses).map(|finding| finding.severity);
    assert_eq!(severity(&["127.0.0.2"]), None);
    assert_eq!(severity(&["127.0.0.2", "127.0.0.1"]), Some(Severity::Error));
    assert_eq!(severity(&[]), Some(Severity::Note));
    let finding = at(&["127.0.0.1"]).unwrap();
    assert!(finding.subject.contains("at 127.0.0.1"), "{finding:?}");
}

#[test]
fn udp_4791_held_by_rxe_matters_to_roce_in_user_space_alone() {
    let held = "[/sys/module]\nrdma_rxe/\n[/proc]\nnet/udp = sl local rem st q t r uid t i\\n 7: 00000000:12B7 00000000:0000 07 0:0 00:0 0 0 0 4711 2";
    let of_rxe = |is_soft| {
        let intent = cairn_doctor::rules::Intent {
            is_soft,
            ..intent()
        };
        findings_with(&changed("healthy", held), intent, None)
    };
    assert_found(
        &of_rxe(true),
        "port-4791",
        &["error", "the module rdma_rxe", "rmmod rdma_rxe"],
    );
    assert!(
        of_rxe(false)
            .iter()
            .all(|finding| finding.rule != "port-4791")
    );
}

#[test]
fn a_filter_on_the_way_to_udp_4791_is_named() {
    for (answer, parts) in [
        (
            "filtered_here",
            ["error", "a filter on this machine", "nft add rule"],
        ),
        (
            "unreachable",
            ["error", "cannot be reached", "tracepath -p 4791"],
        ),
        (
            "refused",
            ["warning", "no program has UDP port 4791", "ss -uln"],
        ),
    ] {
        let change = format!("[?]\nudp {PEER} 4791 = \"{answer}\"");
        assert_found(
            &findings_with_peer(&changed("healthy", &change)),
            "peer",
            &parts,
        );
    }
}

#[test]
fn the_connection_managers_defaults_that_cannot_be_seen_are_a_note() {
    let findings = findings(&changed("healthy", "- /sys/kernel/config/rdma_cm"));
    assert_found(
        &findings,
        "modules",
        &["note", "RoCE mode and ToS", "modprobe rdma_cm"],
    );
}
