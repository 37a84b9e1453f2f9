use cairn_doctor::facts::Vlan;
use cairn_doctor::rules::{Choice, Finding, Intent};
use cairn_doctor::source::Recording;
use cairn_doctor::tos::Tos;
use cairn_rdma::marking::Rule;

use crate::common::{assert_found, changed, findings, findings_with, intent, recorded};

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
    assert!(findings.iter().all(|finding| finding.rule != "pfc"));
}

#[test]
fn a_vlan_without_a_map_loses_the_priority_of_roce_in_user_space() {
    let mut intent = intent();
    intent.is_soft = true;
    intent.addresses = vec!["198.51.100.1".parse().unwrap()];
    intent.tos = vec![option(104)];
    let of = |intent: &Intent, machine: &Recording| findings_with(machine, intent.clone(), None);
    let parts = [
        "warning",
        "eth2.100",
        "VLAN 100 with priority 0, and not 3, from ToS 104",
        "/proc/net/vlan/eth2.100",
        "ip link set eth2.100 type vlan egress-qos-map 1:1 2:2 3:3",
    ];
    assert_found(&of(&intent, &recorded("vlan")), "tos", &parts);
    let of_tos = |findings: &[Finding]| findings.iter().filter(|one| one.rule == "tos").count();
    let with_map = |map: &str| {
        let vlan = "VID: 100\\nDevice: eth2\\nEGRESS priority mappings:";
        changed(
            "vlan",
            &format!("[/proc/net/vlan]\neth2.100 = {vlan} {map}"),
        )
    };
    assert_eq!(of_tos(&of(&intent, &with_map("3:3"))), 0);
    assert_eq!(of_tos(&of(&intent, &with_map("3:6"))), 0);
    intent.addresses = vec!["192.0.2.1".parse().unwrap()];
    assert_eq!(of_tos(&of(&intent, &recorded("vlan"))), 0);
    intent.addresses.clear();
    intent.tos.clear();
    assert_eq!(of_tos(&of(&intent, &recorded("vlan"))), 0);
    let parts = ["note", "priority 0, whatever the ToS"];
    assert_found(&of(&intent, &with_map("")), "tos", &parts);
}

#[test]
fn an_address_leads_to_its_vlan() {
    let of = |machine: &str, address: &str| {
        Vlan::of_address(&recorded(machine), address.parse().unwrap())
    };
    let vlan = of("vlan", "198.51.100.1").expect("it is eth2.100's");
    assert_eq!((vlan.parent.as_str(), vlan.id), ("eth2", 100));
    assert_eq!(vlan.egress, [(0, 3)].into());
    assert_eq!(of("vlan", "192.0.2.1"), None);
    assert_eq!(of("vlan", "203.0.113.1"), None);
    assert_eq!(of("healthy", "192.0.2.1"), None);
}

#[test]
fn an_applications_tos_beats_configfs_and_is_held_against_pfc() {
    let mut intent = intent();
    intent.tos = vec![option(32)];
    let findings = findings_with(&recorded("healthy"), intent, None);
    let parts = [
        "warning",
        "ToS 32 (DSCP 8, SL 1), which is priority 1",
        "cairn-target is configured to use it",
    ];
    assert_found(&findings, "pfc", &parts);
}

fn option(tos: u8) -> Choice {
    Choice {
        tos: Tos(tos),
        by: "cairn-target is configured to use it".to_owned(),
        source: None,
    }
}

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
        other.fix[0].command.contains("tclass=96 in the rule"),
        "{other:?}"
    );
}

#[test]
fn a_tos_that_claims_congestion_is_refused() {
    let mut intent = intent();
    intent.tos = vec![option(99)];
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
    intent.tos = vec![option(96)];
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
