use crate::common::{assert_found, changed, findings, recorded};

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
fn two_ports_as_one_by_ecmp_are_recognised_and_no_bond_may_have_them() {
    let ecmp = "[/sys/class/net]\neth2/device/roce_lag_ecmp_dev = 0000:08:00.1";
    let without_bond = findings(&changed("healthy", ecmp));
    let parts = [
        "note",
        "eth2",
        "0000:08:00.1 as one device, in ECMP mode",
        "every queue pair and registration",
        "/sys/class/net/eth2/device/roce_lag_ecmp_dev",
    ];
    assert_found(&without_bond, "lag", &parts);
    for partner in ["eth3", "mlx5_1"] {
        let by_name = format!("[/sys/class/net]\neth2/device/roce_lag_ecmp_dev = {partner}");
        let found = findings(&changed("healthy", &by_name));
        assert_found(&found, "lag", &["note", partner, "in ECMP mode"]);
    }
    for off in ["0", "none", "(null)", "eth2", "0000:09:00.0"] {
        let off = format!("[/sys/class/net]\neth2/device/roce_lag_ecmp_dev = {off}");
        let off = findings(&changed("healthy", &off));
        assert!(off.iter().all(|finding| !finding.what.contains("ECMP")));
    }
    let parts = [
        "warning",
        "it is in bond0, too",
        "ip link set eth2 nomaster",
    ];
    assert_found(&findings(&changed("bond", ecmp)), "lag", &parts);
}
