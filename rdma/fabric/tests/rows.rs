//! One test for each thing that a storage admin meets in RoCE: `docs/roce/rules.md`
//! says which is which. Each plants what the rule is about, and falls without it.

mod common;

use cairn_fabric::doctor::Choice;
use cairn_fabric::doctor::Severity;
use cairn_fabric::tos::Tos;
use cairn_rdma::marking::Rule;
use common::{
    PEER, assert_found, changed, findings, findings_with, findings_with_peer, intent, recorded,
};

#[test]
fn v1_stays_in_its_broadcast_domain() {
    let routed = "[/sys/kernel/config/rdma_cm]\nmlx5_0/ports/1/default_roce_mode = IB/RoCE v1\n\
                  [?]\nroute 192.0.2.9 = {\"netdev\":\"eth2\",\"source\":\"192.0.2.1\",\"gateway\":\"192.0.2.254\",\"mtu\":null}\n\
                  neighbour eth2 192.0.2.254 = {\"state\":\"REACHABLE\",\"mac\":null}";
    let findings = findings_with_peer(&changed("healthy", routed));
    let mend = "cairn-target fabric set-mode mlx5_0 v2 --port 1";
    let what = ["error", "router 192.0.2.254", "use RoCE v1", mend];
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
fn udp_4791_held_by_rxe_matters_to_roce_in_user_space_alone() {
    let held = "[/sys/module]\nrdma_rxe/\n[/proc]\nnet/udp = sl local rem st q t r uid t i\\n 7: 00000000:12B7 00000000:0000 07 0:0 00:0 0 0 0 4711 2";
    let of_rxe = |is_soft| {
        let intent = cairn_fabric::doctor::Intent {
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
            ["warning", "nobody has UDP port 4791", "ss -uln"],
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

#[test]
fn a_full_gid_table_is_named() {
    let full = "[/sys/class/infiniband/mlx5_0/ports/1]\ngids/4 = 0000:0000:0000:0000:0000:ffff:c633:6401\n\
                gid_attrs/types/4 = RoCE v2\ngid_attrs/ndevs/4 = eth2";
    let findings = findings(&changed("healthy", full));
    assert_found(
        &findings,
        "gid",
        &["warning", "all 5 entries", "mlx5_0 port 1"],
    );
}

#[test]
fn an_rdma_netdev_without_an_address_has_nothing_to_connect_to() {
    let bare = "[?]\naddresses = [{\"netdev\":\"eth2\",\"address\":\"192.0.2.1\",\"prefix\":24}]";
    let one = findings(&changed("healthy", bare));
    let parts = ["note", "eth3", "no IP address", "ip address add"];
    assert_found(&one, "gid", &parts);
    let none = findings(&changed("healthy", "[?]\naddresses = []"));
    let parts = ["warning", "eth2", "no IP address", "ip address add"];
    assert_found(&none, "gid", &parts);
}

#[test]
fn an_address_is_followed_to_its_netdev_and_device() {
    let named = |address: &str| {
        let mut intent = intent();
        intent.addresses = vec![address.parse().unwrap()];
        findings_with(&recorded("healthy"), intent, None)
    };
    assert_found(
        &named("192.0.2.77"),
        "gid",
        &["error", "no netdev has this address"],
    );
    let other = "[?]\naddresses = [{\"netdev\":\"eth9\",\"address\":\"192.0.2.77\",\"prefix\":24}]";
    let mut intent = intent();
    intent.addresses = vec!["192.0.2.77".parse().unwrap()];
    let findings = findings_with(&changed("healthy", other), intent, None);
    assert_found(
        &findings,
        "gid",
        &["note", "eth9, which no RDMA device uses", "--provider soft"],
    );
}

#[test]
fn a_port_of_infiniband_is_not_taken_for_roce() {
    let infiniband = "[/sys/class/infiniband/mlx5_0/ports/1]\nlink_layer = InfiniBand";
    let findings = findings(&changed("healthy", infiniband));
    assert_found(
        &findings,
        "port",
        &["warning", "speaks InfiniBand", "LINK_TYPE_P1=2"],
    );
}

#[test]
fn an_ethernet_port_with_a_lid_is_odd() {
    let lid = "[/sys/class/infiniband/mlx5_0/ports/1]\nlid = 0x5";
    assert_found(
        &findings(&changed("healthy", lid)),
        "port",
        &["LID 0x5", "opensm"],
    );
}

#[test]
fn tos_is_explained_where_it_becomes_a_vlan_priority() {
    let findings = findings(&recorded("vlan"));
    let parts = [
        "note",
        "eth2.100",
        "VLAN 100 with priority 3",
        "ToS 96 (DSCP 24, SL 3)",
        "egress map 0:3",
    ];
    assert_found(&findings, "tos", &parts);
    // The tag's priority is what PFC goes by there: 3, which is protected.
    assert!(findings.iter().all(|finding| finding.rule != "pfc"));
}

#[test]
fn an_applications_tos_beats_configfs_and_is_held_against_pfc() {
    let mut intent = intent();
    intent.tos = vec![told(32)];
    let findings = findings_with(&recorded("healthy"), intent, None);
    let parts = [
        "warning",
        "ToS 32 (DSCP 8, SL 1), which is priority 1",
        "cairn-target is told to use it",
    ];
    assert_found(&findings, "pfc", &parts);
}

/// What is told on the command line, and in no configuration.
fn told(tos: u8) -> Choice {
    Choice {
        tos: Tos(tos),
        by: "cairn-target is told to use it".to_owned(),
        source: None,
    }
}

/// Rules give hosts a class each: all of them are held against PFC, but for those of
/// addresses that are not the adapter's.
#[test]
fn every_class_in_use_is_held_against_pfc() {
    let by_rule = |text: &str| {
        let rule = Rule::parse(text).unwrap();
        Choice {
            tos: Tos(rule.marking.traffic_class.unwrap()),
            by: format!("the rule \"{rule}\""),
            source: rule.scope.source,
        }
    };
    let mut intent = intent();
    intent.tos = [
        "96,dst_ip=192.0.2.0/25",
        "32,host_nqn=nqn.2024-01.com.example:a,src_ip=192.0.2.0/24",
        "64,dst_ip=192.0.2.128/25",
        "160,src_ip=203.0.113.1",
    ]
    .map(by_rule)
    .to_vec();
    let findings = findings_with(&recorded("healthy"), intent, None);
    let wrong: Vec<_> = findings.iter().filter(|one| one.rule == "pfc").collect();
    let of_eth2: Vec<_> = wrong.iter().filter(|one| one.subject == "eth2").collect();
    let [one, other] = &of_eth2[..] else {
        panic!("{wrong:#?}")
    };
    assert!(one.what.contains("ToS 32 (DSCP 8, SL 1)"), "{one:?}");
    assert!(
        one.why.contains("host_nqn=nqn.2024-01.com.example:a"),
        "{one:?}"
    );
    assert!(other.what.contains("ToS 64 (DSCP 16, SL 2)"), "{other:?}");
    assert!(
        other.mend[0].command.contains("tclass=96 in the rule"),
        "{other:?}"
    );
}

#[test]
fn a_tos_that_claims_congestion_is_refused() {
    let mut intent = intent();
    intent.tos = vec![told(99)];
    let findings = findings_with(&recorded("healthy"), intent, None);
    assert_found(
        &findings,
        "tos",
        &["warning", "ToS 99", "tos = 96 in the [[listener]]"],
    );
}

#[test]
fn a_forced_traffic_class_is_shown_and_beats_ours() {
    let mut intent = intent();
    intent.tos = vec![told(96)];
    let findings = findings_with(&recorded("forced-class"), intent, None);
    let path = "/sys/class/infiniband/mlx5_0/tc/1/traffic_class";
    let parts = [
        "warning",
        "ToS 104 (DSCP 26, SL 3)",
        "not ToS 96",
        &format!("echo -1 > {path}"),
    ];
    assert_found(&findings, "tos", &parts);
    let rule = "tclass=16,src_ip=192.0.2.1,dst_ip=192.0.2.0/24";
    assert_found(
        &findings,
        "tos",
        &["note", "mlx5_1 port 1", "2 rules", rule],
    );
    // It is what goes out: priority 3 by DSCP 26's upper bits, which PFC protects.
    assert!(
        findings
            .iter()
            .all(|finding| finding.rule != "pfc" || finding.subject != "eth2")
    );
}

#[test]
fn a_forced_hop_limit_of_one_passes_no_router() {
    let findings = findings(&recorded("forced-class"));
    assert_found(&findings, "tos", &["warning", "hop limit 1", "tc/1/ttl"]);
    let far = "[/sys/class/infiniband]\nmlx5_0/tc/1/ttl = 64";
    let findings = self::findings(&changed("healthy", far));
    assert_found(&findings, "tos", &["note", "hop limit 64"]);
}

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
fn a_bond_is_recognised_and_what_holds_it_back_is_said() {
    assert_found(
        &findings(&recorded("bond")),
        "lag",
        &["note", "bond0", "by mlx5_bond_0"],
    );
    let refused = findings(&recorded("bond-refused"));
    assert_found(
        &refused,
        "lag",
        &[
            "warning",
            "mode 0 (balance-rr)",
            "type bond mode active-backup",
        ],
    );
    assert_found(
        &refused,
        "lag",
        &["warning", "mlx5_1 has 4 virtual functions", "echo 0 >"],
    );
    assert_found(&refused, "lag", &["every queue pair and registration"]);
}

#[test]
fn other_obstacles_of_a_bond_are_each_named() {
    let bonded = "[/sys/class/net]\nbond0/bonding/mode = 802.3ad 4\n[/sys/class/infiniband]\nmlx5_1/device/sriov_numvfs = 0\n";
    let with = |more: &str| findings(&changed("bond-refused", &format!("{bonded}{more}")));
    let three = "[/sys/class/net]\nbond0/bonding/slaves = eth2 eth3 eth4";
    assert_found(
        &with(three),
        "lag",
        &["3 netdevs in the bond", "ip link set eth4 nomaster"],
    );
    let off = "[/sys/class/net]\neth2/device/roce_lag_enable = 0";
    assert_found(&with(off), "lag", &["switched off for eth2", "echo 1 >"]);
    let cards = "[/sys/class/net]\neth3/device -> ../../../0000:42:00.1";
    assert_found(
        &with(cards),
        "lag",
        &["different cards", "0000:08:00 0000:42:00"],
    );
    assert_found(
        &with(""),
        "lag",
        &["has what RoCE LAG needs", "dmesg | grep -i lag"],
    );
}

#[test]
fn an_old_adapter_bonds_with_fewer_than_64_virtual_functions() {
    let bonded = |vfs: u32| {
        let change = format!(
            "[/sys/class/net]\nbond0/mtu = 1500\nbond0/bonding/mode = active-backup 1\nbond0/bonding/slaves = ens1 ens1d1\n\
             [/sys/class/infiniband]\nmlx4_0/device/sriov_numvfs = {vfs}"
        );
        findings(&changed("connectx3", &change))
    };
    assert_found(
        &bonded(64),
        "lag",
        &["64 virtual functions", "fewer than 64"],
    );
    let fine = bonded(63);
    assert!(
        fine.iter()
            .all(|finding| !finding.what.contains("fewer than 64"))
    );
}

#[test]
fn there_is_no_automatic_path_migration_and_the_bond_says_so() {
    let parts = ["no automatic path migration", "NVMe multipath"];
    assert_found(&findings(&recorded("bond")), "lag", &parts);
}

#[test]
fn soft_roce_is_named_before_somebody_asks_why_the_cpu_is_busy() {
    let findings = findings(&recorded("rxe"));
    let parts = ["note", "rxe0", "rdma_rxe", "CPU", "--provider soft"];
    assert_found(&findings, "rxe", &parts);
    // Lossless Ethernet is no business of a dummy's.
    assert!(findings.iter().all(|finding| finding.rule != "pfc"));
}

#[test]
fn a_virtual_function_without_roce_is_recognised() {
    let findings = findings(&recorded("vf"));
    let devlink = "devlink dev param set pci/0000:08:00.2 name enable_roce value true";
    assert_found(
        &findings,
        "vf",
        &["error", "mlx5_2 port 1", "switched off", devlink],
    );
}

#[test]
fn counters_that_grow_are_warnings_and_old_ones_are_notes() {
    for (counter, word) in [
        ("counters/port_rcv_errors", "damaged"),
        ("hw_counters/out_of_sequence", "out of order"),
        ("hw_counters/rnr_nak_retry_err", "not ready"),
        ("hw_counters/local_ack_timeout_err", "nobody acknowledges"),
    ] {
        let path = format!("/sys/class/infiniband/mlx5_0/ports/1/{counter}");
        let growing = changed("healthy", &format!("[later]\n{path} = 9"));
        assert_found(
            &findings(&growing),
            "counters",
            &["warning", word, &path, "+9"],
        );
        let old = changed("healthy", &format!("{path} = 9"));
        assert_found(
            &findings(&old),
            "counters",
            &["note", word, &path, "not now"],
        );
    }
}

#[test]
fn memlock_is_summed_up_and_root_is_exempt() {
    let small = "[/proc]\nself/limits = Max locked memory 65536 65536 bytes\n";
    let found = findings(&changed("healthy", small));
    let parts = [
        "64 KiB",
        "40 MiB",
        "1024 receives of 2 reactors: 8 MiB",
        "ulimit -l",
    ];
    assert_found(&found, "memlock", &parts);
    let root = "self/status = Uid:\\t0\\t0\\t0\\t0\\nGid:\\t0\\t0\\t0\\t0\\nGroups:\\t0\\nCapEff:\\t0000000000004000";
    let found = findings(&changed("healthy", &format!("{small}{root}")));
    assert!(found.iter().all(|finding| finding.rule != "memlock"));
}

#[test]
fn device_nodes_open_to_everybody_are_a_note() {
    let open = "[/dev/infiniband]\nuverbs0 @ 0666 0 0";
    let findings = findings(&changed("healthy", open));
    assert_found(
        &findings,
        "permissions",
        &["note", "every local user", "udev"],
    );
}

#[test]
fn threads_and_interrupts_belong_on_the_adapters_node() {
    let findings = findings(&recorded("numa"));
    assert_found(
        &findings,
        "numa",
        &["note", "mlx5_0", "NUMA node 1", "numactl -N 1"],
    );
    assert_found(
        &findings,
        "numa",
        &["warning", "1 of its 1 interrupts", "/proc/irq/50", "16-31"],
    );
    assert!(findings.iter().all(|finding| {
        finding.severity == Severity::Note || finding.rule != "numa" || finding.subject == "mlx5_0"
    }));
}

#[test]
fn small_rings_are_named_when_packets_are_discarded() {
    let discards =
        "[later]\n[/sys/class/infiniband/mlx5_0/ports/1]\ncounters/port_xmit_discards = 7";
    let findings = findings(&changed("healthy", discards));
    assert_found(
        &findings,
        "numa",
        &["note", "1024 entries of 8192", "ethtool -G eth2 rx 8192"],
    );
}

#[test]
fn a_missing_module_is_named_with_the_modprobe_line() {
    let no_ucm = findings(&changed("healthy", "- /dev/infiniband/rdma_cm"));
    assert_found(
        &no_ucm,
        "modules",
        &["error", "connection manager", "modprobe rdma_ucm"],
    );
    let no_uverbs =
        "- /dev/infiniband/uverbs0\n- /sys/class/infiniband/mlx5_0/device/infiniband_verbs";
    let no_uverbs = findings(&changed("healthy", no_uverbs));
    assert_found(
        &no_uverbs,
        "modules",
        &["error", "mlx5_0", "modprobe ib_uverbs"],
    );
    let no_driver = "- /sys/class/infiniband\n- /sys/module/mlx5_ib";
    let no_driver = findings(&changed("healthy", no_driver));
    assert_found(
        &no_driver,
        "modules",
        &["error", "eth2", "modprobe mlx5_ib"],
    );
    let other =
        "- /sys/class/infiniband\n[?]\ndriver eth2 = {\"driver\":\"ice\",\"firmware\":\"\"}";
    let other = findings(&changed("healthy", other));
    let parts = ["note", "eth2", "some adapters", "modprobe irdma"];
    assert_found(&other, "modules", &parts);
    let nvmet = findings(&changed("healthy", "[/sys/module]\nnvmet_rdma/"));
    assert_found(&nvmet, "modules", &["note", "kernel's own NVMe target"]);
}

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
fn a_peer_that_cannot_be_found_is_told_from_one_that_is_silent() {
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
        &["error", "nobody on eth2 answers", "FAILED", "VLAN"],
    );
    let silent: String = [84, 352, 608, 1120, 2144, 4192, 4200]
        .map(|bytes| format!("echo {PEER} {bytes} = \"silent\"\n"))
        .concat();
    let found = findings_with_peer(&changed("healthy", &format!("[?]\n{silent}")));
    assert_found(&found, "peer", &["warning", "does not answer a ping"]);
}

#[test]
fn packets_that_this_user_may_not_send_are_not_taken_for_an_answer() {
    let denied =
        "[?]\necho 192.0.2.9 84 ! permission denied\necho 192.0.2.9 4200 ! permission denied";
    let findings = findings_with_peer(&changed("healthy", denied));
    assert_found(&findings, "unreadable", &["warning", "echo 192.0.2.9 84"]);
    let of_peer = findings.iter().filter(|finding| finding.rule == "peer");
    for finding in of_peer {
        assert_eq!(
            finding.severity,
            Severity::Note,
            "{}",
            common::text(finding)
        );
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
