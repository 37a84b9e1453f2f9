use crate::common::{assert_found, changed, findings, findings_with, intent, recorded};

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
