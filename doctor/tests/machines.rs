//! Facts read from the recorded machines.

mod common;

use std::fs;
use std::path::Path;

use cairn_doctor::facts::{Fabric, Function, RoceVersion};
use cairn_doctor::source::{Known, Live, Recorder, Recording};
use cairn_doctor::tos::Tos;
use common::{PROGRAM, assert_found, findings, folder, recorded};

#[test]
fn an_adapter_with_two_ports_is_read_whole() {
    let fabric = Fabric::read(&recorded("healthy"));
    let devices = fabric.devices.get().unwrap();
    let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["mlx5_0", "mlx5_1"]);
    let first = &devices[0];
    assert_eq!(first.driver.get().unwrap(), "mlx5_core");
    assert_eq!(first.function, Function::Physical { vfs: 0 });
    assert_eq!(first.firmware, Known::Is(Some("16.35.3502".to_owned())));
    assert_eq!(first.pci, Known::Is(Some("0000:08:00.0".to_owned())));
    assert_eq!(first.uverbs, Known::Is(Some("uverbs0".to_owned())));
    assert_eq!(first.numa_node, Known::Is(Some(0)));

    let port = &first.ports.get().unwrap()[0];
    assert!(port.is_active() && port.is_ethernet());
    assert_eq!(port.gid_table_size, 5);
    assert_eq!(port.versions(), [RoceVersion::V1, RoceVersion::V2]);
    assert_eq!(port.default_version(), Some(RoceVersion::V2));
    let in_use = port.gid_of("192.0.2.1".parse().unwrap()).unwrap();
    assert_eq!(in_use.index, 3, "the v2 entry of the address");
    assert_eq!(port.gids.each().filter(|gid| gid.in_use).count(), 1);
    assert!(!port.hw_counters.get().unwrap().contains_key("lifespan"));
    let queue_pairs = first.queue_pairs.get().unwrap();
    let connected = queue_pairs.iter().find(|group| group.kind == "RC").unwrap();
    assert_eq!((connected.state.as_str(), connected.count), ("RTS", 16));

    let eth2 = fabric.netdev("eth2").unwrap();
    assert_eq!(eth2.priority_of(Tos(96), None).0, 3);
    assert_eq!(
        eth2.priority_of(Tos(32), None).0,
        1,
        "DSCP 8 without an entry"
    );
    assert_eq!(eth2.addresses.len(), 1);
    assert_eq!(fabric.ports_of("eth3").count(), 1);
}

#[test]
fn a_bond_has_one_device_and_an_address_of_its_own() {
    let fabric = Fabric::read(&recorded("bond"));
    let bond = fabric.netdev("bond0").unwrap();
    let lag = fabric.lag(bond).unwrap();
    assert_eq!(lag.device.as_deref(), Some("mlx5_bond_0"));
    assert!(lag.obstacles.is_empty(), "{:?}", lag.obstacles);
    let (_, port) = fabric.ports_of("bond0").next().unwrap();
    assert_eq!(port.gid_of("192.0.2.1".parse().unwrap()).unwrap().index, 2);
}

#[test]
fn ports_of_one_function_have_a_netdev_each() {
    let fabric = Fabric::read(&recorded("connectx3"));
    let ports: Vec<_> = fabric.ports().collect();
    let netdevs: Vec<&String> = ports
        .iter()
        .flat_map(|(device, port)| port.netdevs(device))
        .collect();
    assert_eq!(netdevs, ["ens1", "ens1d1"]);
    assert!(ports[0].0.is_connectx3());
}

#[test]
fn what_a_driver_forces_is_read() {
    let fabric = Fabric::read(&recorded("forced-class"));
    let classes: Vec<_> = fabric
        .ports()
        .map(|(_, port)| port.forced_class.get().unwrap().clone().unwrap())
        .collect();
    assert_eq!(classes[0].global, Some(Tos(104)));
    assert_eq!(classes[1].rules.len(), 2);
    assert_eq!(classes[1].rules[0].class, Tos(16));
}

#[test]
fn without_a_device_it_says_what_works_all_the_same() {
    let recording = recorded("no-device");
    assert!(!Fabric::read(&recording).has_devices());
    let findings = findings(&recording);
    assert_found(
        &findings,
        "modules",
        &["there is no RDMA device", "--provider soft", "without a"],
    );
    let worst = findings.iter().map(|finding| finding.severity).max();
    assert_eq!(worst, Some(cairn_doctor::rules::Severity::Note));
}

#[test]
fn what_cannot_be_read_says_so_in_its_place() {
    let fabric = Fabric::read(&recorded("unreadable"));
    let why = serde_json::to_value(&fabric).unwrap();
    for part in [
        &why["devices"],
        &why["netdevs"],
        &why["addresses"],
        &why["host"]["memlock"],
    ] {
        let text = part["unknown"].as_str().unwrap();
        assert!(text.contains("permission denied"), "{text}");
    }
    let findings = findings(&recorded("unreadable"));
    assert_found(
        &findings,
        "unreadable",
        &["could not be read", "sudo cairn-target doctor"],
    );
    assert!(
        findings.iter().all(|finding| finding.rule == "unreadable"),
        "nothing is claimed of what was not seen"
    );
}

#[test]
fn half_of_a_machine_is_shown_and_the_other_half_explained() {
    let fabric = Fabric::read(&recorded("half-readable"));
    let json = serde_json::to_value(&fabric).unwrap();
    let port = &json["devices"][0]["ports"][0];
    let because =
        "because /sys/class/infiniband/mlx5_0/ports/1/state: permission denied (root may look)";
    assert_eq!(port["state"]["unknown"], because);
    assert_eq!(port["rate"], "100 Gb/sec (4X EDR)");
    assert!(json["devices"][1]["ports"]["unknown"].is_string());
    let eth2 = fabric.netdev("eth2").unwrap();
    assert!(
        eth2.mtu
            .to_string()
            .contains("\"many\" is not the number expected")
    );
    assert_found(
        &findings(&recorded("half-readable")),
        "unreadable",
        &["permission denied"],
    );
}

#[test]
fn every_recording_is_examined_and_shown_without_a_panic() {
    let mut recordings = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        for command in [
            "fabric",
            "fabric -o json",
            "doctor --peer 192.0.2.9",
            "doctor -o json",
        ] {
            let (out, result) =
                common::run(&format!("{PROGRAM} {command} --root {}", path.display()));
            assert!(
                result.is_ok(),
                "{command} of {}: {result:?}",
                path.display()
            );
            assert!(!out.is_empty());
        }
        recordings += 1;
    }
    assert!(recordings >= 9, "{recordings} recordings");
}

#[test]
fn each_path_may_be_denied_without_a_panic() {
    let base = fs::read_to_string(folder().join("healthy.txt")).unwrap();
    let mut section = String::new();
    let mut denied = 0;
    for line in base.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            section = name.to_owned();
        } else if let Some((name, _)) = line.split_once(" = ")
            && !line.starts_with('#')
        {
            let change = format!("[{section}]\n{name} ! permission denied");
            findings(&common::changed("healthy", &change));
            denied += 1;
        }
    }
    assert!(denied > 80, "{denied} paths");
}

#[test]
fn a_recording_of_a_recording_is_the_same_machine() {
    let recording = recorded("healthy");
    let recorder = Recorder::new(&recording);
    let first = serde_json::to_value(Fabric::read(&recorder)).unwrap();
    let again = Recording::parse(&recorder.text()).unwrap();
    assert_eq!(serde_json::to_value(Fabric::read(&again)).unwrap(), first);
}

#[test]
fn a_tree_of_files_can_stand_in_for_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = |path: &str, content: &str| {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    file("sys/class/infiniband/rxe0/parent", "eth0\n");
    file("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
    file("sys/class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");
    file(
        "sys/class/infiniband/rxe0/ports/1/gids/1",
        "0000:0000:0000:0000:0000:ffff:c000:0201\n",
    );
    file(
        "sys/class/infiniband/rxe0/ports/1/gid_attrs/types/1",
        "RoCE v2\n",
    );
    file("sys/class/net/eth0/mtu", "1500\n");
    let read = |path: &Path| Fabric::read(&Live::tree(path));
    let fabric = read(folder.path());
    let (device, port) = fabric.ports().next().unwrap();
    assert!(device.is_soft_roce());
    assert_eq!(device.function, Function::Software);
    assert!(port.is_active());
    assert!(port.gid_of("192.0.2.1".parse().unwrap()).is_some());
    let json = serde_json::to_value(&fabric).unwrap();
    let addresses = json["addresses"]["unknown"].as_str().unwrap();
    assert!(addresses.contains("not asked"), "{addresses}");
    let queue_pairs = json["devices"][0]["queue_pairs"]["unknown"].as_str();
    assert!(
        queue_pairs.unwrap().contains("not asked"),
        "{queue_pairs:?}"
    );
}
