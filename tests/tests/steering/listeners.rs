use std::net::SocketAddr;

use cairn_initiator::{Host, HostError, HostOptions, discover};
use cairn_roce::Network;
use cairn_roce::{Soft, SoftOptions};
use cairn_tests::provider::can_open_packet_sockets;
use nvme_proto::wire::Nqn;
use nvme_proto::wire::log::SubsystemType;
use serde_json::{Value, json};

use crate::convert::{parse, say, written};
use crate::pools::{first_byte, put};
use crate::target::{NQN, Steered, until};

const NEW: &str = "nqn.2016-06.io.spdk:cnode1";

fn at(target: &Steered, port: u16) -> Value {
    json!({"trtype": "RDMA", "adrfam": "IPv4", "traddr": target.address,
        "trsvcid": port.to_string()})
}

fn options(target: &Steered, nqn: &str, port: u16) -> HostOptions {
    HostOptions {
        subnqn: Nqn::parse(nqn).unwrap(),
        remote: SocketAddr::from((target.address, port)),
        ..target.options("a")
    }
}

fn connect(target: &Steered, nqn: &str, port: u16) -> Result<Host, HostError> {
    Host::connect(&Soft::default(), options(target, nqn, port))
}

fn assert_unknown(target: &Steered, nqn: &str, port: u16) {
    let refused = connect(target, nqn, port).unwrap_err().to_string();
    let unknown = connect(target, "nqn.2024-01.com.example:none", port).unwrap_err();
    let unknown = unknown
        .to_string()
        .replace("nqn.2024-01.com.example:none", nqn);
    assert_eq!(refused, unknown);
}

fn shown(target: &Steered, nqn: &str, by: u16) -> Vec<String> {
    let log = discover(&Soft::default(), &options(target, nqn, by)).unwrap();
    let entries = log.entries.iter();
    let own = entries.filter(|entry| {
        SubsystemType(entry.subtype) == SubsystemType::NVM
            && Nqn::decode(&entry.subnqn).unwrap().raw() == nqn
    });
    let text = |field: &[u8]| String::from_utf8_lossy(field).trim().to_owned();
    own.map(|entry| text(&entry.trsvcid)).collect()
}

fn listed(target: &Steered, nqn: &str) -> Vec<Value> {
    let listeners = target.done("nvmf_subsystem_get_listeners", json!({"nqn": nqn}));
    let listeners = listeners.as_array().unwrap().iter();
    let listeners: Vec<Value> = listeners.map(|one| one["address"].clone()).collect();
    let shown = target.done("nvmf_get_subsystems", json!({"nqn": nqn}));
    assert_eq!(shown[0]["listen_addresses"], json!(listeners));
    listeners
}

fn change(target: &Steered, method: &str, nqn: &str, port: u16) {
    let params = json!({"nqn": nqn, "listen_address": at(target, port)});
    assert_eq!(target.done(method, params), true, "{method} {nqn} {port}");
}

const ADD: &str = "nvmf_subsystem_add_listener";
const REMOVE: &str = "nvmf_subsystem_remove_listener";

#[test]
fn a_subsystem_has_its_own_listeners() {
    let mut target = Steered::start();
    let new = json!({"nqn": NEW, "serial_number": "S1", "allow_any_host": true});
    target.done("nvmf_create_subsystem", new);
    assert_eq!(listed(&target, NEW), <[Value; 0]>::default());
    assert_unknown(&target, NEW, 4420);
    assert_eq!(shown(&target, NEW, 4420), <[String; 0]>::default());
    let missing = json!({"nqn": NEW, "listen_address": at(&target, 4420)});
    assert_eq!(target.refused(REMOVE, missing.clone()), -32602);
    let mut state = missing;
    state["ana_state"] = json!("inaccessible");
    let set = "nvmf_subsystem_listener_set_ana_state";
    assert_eq!(target.refused(set, state), -32602);

    change(&target, ADD, NEW, 4421);
    change(&target, ADD, NEW, 4421);
    change(&target, ADD, NQN, 4422);
    assert_eq!(listed(&target, NEW), [at(&target, 4421)]);
    assert_eq!(listed(&target, NQN).len(), 3);
    target.crash();
    assert_unknown(&target, NEW, 4420);
    assert_unknown(&target, NEW, 4422);
    assert_eq!(shown(&target, NEW, 4420), ["4421"]);
    assert_eq!(shown(&target, NQN, 4421), ["4420", "4421", "4422"]);
    let here = connect(&target, NEW, 4421).unwrap();
    let other = connect(&target, NQN, 4421).unwrap();

    change(&target, REMOVE, NQN, 4421);
    until("the end of the host that came by it", || {
        let left = target.done("cairn_connection_list", json!({}));
        let left = left.as_array().unwrap();
        left.len() == 1 && left[0]["nqn"] == NEW
    });
    drop(other);
    assert_unknown(&target, NQN, 4421);
    assert_eq!(shown(&target, NQN, 4421), ["4420", "4422"]);
    assert_eq!(
        listed(&target, NQN),
        [4420, 4422].map(|port| at(&target, port))
    );
    assert_eq!(listed(&target, NEW), [at(&target, 4421)]);
    drop(connect(&target, NQN, 4422).unwrap());
    drop(here);
    change(&target, REMOVE, NEW, 4421);
    let left = target.done("cairn_listener_list", json!({}));
    let left = left.as_array().unwrap().iter();
    let left: Vec<Value> = left.map(|one| one["port"].clone()).collect();
    assert_eq!(left, [4420, 4422]);
    assert_eq!(listed(&target, NEW), <[Value; 0]>::default());
    change(&target, ADD, NEW, 4422);
    let saved = target.done("framework_get_config", json!({"name": "nvmf"}));
    let saved = saved.as_array().unwrap().iter();
    let adds = saved.filter(|request| request["method"] == ADD);
    let adds = adds.map(|request| {
        let params = &request["params"];
        (
            params["nqn"].clone(),
            params["listen_address"]["trsvcid"].clone(),
        )
    });
    let wanted = [(NQN, "4420"), (NQN, "4422"), (NEW, "4422")];
    assert!(adds.eq(wanted.map(|(nqn, port)| (json!(nqn), json!(port)))));
}

#[test]
fn a_scope_is_kept_as_written() {
    let target = Steered::start_with("\n[[listener]]\naddress = \"fe80::1%absent0\"\n");
    let absent = json!({"trtype": "RDMA", "adrfam": "IPv6", "traddr": "fe80::1%absent0",
        "trsvcid": "4420"});
    assert_eq!(listed(&target, NQN), [absent.clone(), at(&target, 4420)]);
    let health = target.done("cairn_status", json!({})).to_string();
    let wanted = "listener [fe80::1%absent0]:4420";
    assert!(health.contains(wanted), "{health}");
    let reason = "there is no network interface \\\"absent0\\\"";
    assert!(health.contains(reason), "{health}");
    let of = |address: &Value| json!({"nqn": NQN, "listen_address": address});
    assert_eq!(target.done(REMOVE, of(&absent)), true);
    assert_eq!(listed(&target, NQN), [at(&target, 4420)]);
    assert!(!target.text().contains("fe80"), "{}", target.text());
    for (address, expected) in [
        ("fe80::1%absent0", "no network interface"),
        ("fe80::1", "such as address = \"fe80::1%eth0\""),
        ("192.0.2.1%absent0", "192.0.2.1 has no scope"),
    ] {
        let add = json!({"address": address});
        let error = target.call("cairn_listener_add", add).unwrap_err();
        assert!(error.to_string().contains(expected), "{address}: {error}");
    }
}

#[test]
fn scopes_are_imported_and_exported() {
    const SCOPED: &str = "fe80::1%eth0";
    let folder = tempfile::tempdir().unwrap();
    let addr = json!({"adrfam": "ipv6", "traddr": SCOPED, "trsvcid": "4420", "trtype": "rdma"});
    let referral = json!({"addr": addr, "enable": 1, "name": "other"});
    let saved = json!({"hosts": [], "subsystems": [], "ports": [
        {"addr": addr, "portid": 7, "referrals": [referral], "subsystems": []},
    ]});
    let saved = written(&folder, "saved.json", &saved.to_string());
    let (_, text, notes) = say(&["import", "nvmet"], &saved);
    let part = "referral other is left out: its address has an interface of one machine";
    assert!(notes.contains(part), "{notes}");
    let config = parse(&text);
    assert_eq!(config.listeners[0].address.to_string(), SCOPED);
    assert!(config.referrals.is_empty(), "{text}");
    let file = written(&folder, "target.toml", &text);
    let (_, exported, _) = say(&["export", "nvmet"], &file);
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported["ports"][0]["addr"]["traddr"], SCOPED);
}

#[test]
fn a_reload_changes_the_listeners_of_a_subsystem() {
    let target = Steered::start_after(|_, address| {
        format!("\n[[listener]]\naddress = \"{address}\"\nport = 4421\n")
    });
    let before = target.text();
    let reload = |list: &str| {
        let any = "allow_any_host = true\n";
        let text = before.replacen(any, &format!("{any}{list}"), 1);
        std::fs::write(target.config(), text).unwrap();
        target.done("cairn_reload", json!({}));
    };
    let first = connect(&target, NQN, 4420).unwrap();
    let mut second = connect(&target, NQN, 4421).unwrap();
    reload(&format!("listeners = [\"{}:4421\"]\n", target.address));
    until("the end of the first host", || {
        let left = target.done("cairn_connection_list", json!({}));
        left.as_array().unwrap().len() == 1
    });
    drop(first);
    assert_eq!(second.active_namespaces().unwrap(), [1]);
    assert_unknown(&target, NQN, 4420);
    assert_eq!(shown(&target, NQN, 4420), ["4421"]);
    let list = target.done("cairn_subsystem_list", json!({}));
    let wanted = format!("{}:4421", target.address);
    assert_eq!(list[0]["listeners"], json!([wanted]));
    reload("");
    drop(connect(&target, NQN, 4420).unwrap());
    assert_eq!(shown(&target, NQN, 4420), ["4420", "4421"]);
    assert_eq!(
        target.done("cairn_subsystem_list", json!({}))[0]["listeners"],
        Value::Null
    );
    assert_eq!(second.active_namespaces().unwrap(), [1]);
}

#[test]
fn a_command_sets_the_listeners_of_a_subsystem() {
    let target = Steered::start_after(|_, address| {
        format!("\n[[listener]]\naddress = \"{address}\"\nport = 4421\n")
    });
    let set = |more: &[&str]| {
        let said = target.command(&[&["subsystem", "set", NQN], more].concat());
        assert!(said.status.success(), "{said:?}");
    };
    let first = connect(&target, NQN, 4420).unwrap();
    set(&["--listener", &format!("{}:4421", target.address)]);
    until("the end of the host that came by the other", || {
        let left = target.done("cairn_connection_list", json!({}));
        left.as_array().unwrap().is_empty()
    });
    drop(first);
    assert_unknown(&target, NQN, 4420);
    assert_eq!(shown(&target, NQN, 4421), ["4421"]);
    set(&["--every-listener"]);
    drop(connect(&target, NQN, 4420).unwrap());
    let before = target.text();
    let none = json!({"nqn": NQN, "listeners": [format!("{}:4499", target.address)]});
    assert_eq!(target.refused("cairn_subsystem_set", none), -32602);
    assert_eq!(target.text(), before);
}

#[test]
fn listeners_of_one_target_speak_both_versions_of_roce() {
    if !can_open_packet_sockets() {
        return;
    }
    let target = Steered::start();
    let address = target.address.to_string();
    let add = |more: &[&str]| {
        target.command(&[&["listener", "add", &address, "--port", "4421"], more].concat())
    };
    let said = add(&["--roce", "v2", "--vlan", "5"]);
    assert!(!said.status.success(), "{said:?}");
    let said = add(&["--roce", "v1"]);
    assert!(said.status.success(), "{said:?}");
    assert!(target.text().contains("port = 4421\nroce = \"v1\"\n"));
    let v1 = Soft::new(SoftOptions {
        network: Network::Ethernet { vlan: None },
        ..SoftOptions::default()
    });
    let mut writer = Host::connect(&v1, options(&target, NQN, 4421)).unwrap();
    let mut reader = connect(&target, NQN, 4420).unwrap();
    put(&mut writer, 1, 0xA5);
    assert_eq!(first_byte(&mut reader, 1), 0xA5);
    let crossed = Host::connect(&v1, options(&target, NQN, 4420)).unwrap_err();
    assert!(
        crossed.to_string().contains("nothing listens there"),
        "{crossed}"
    );
    assert!(connect(&target, NQN, 4421).is_err());
    let listed = target.done("cairn_listener_list", json!({}));
    assert_eq!(
        (&listed[0]["roce"], &listed[1]["roce"]),
        (&json!("v2"), &json!("v1"))
    );
    let changed = target.text().replace("roce = \"v1\"", "roce = \"v2\"");
    std::fs::write(target.config(), changed).unwrap();
    let refused = target
        .call("cairn_reload", json!({}))
        .unwrap_err()
        .to_string();
    assert!(refused.contains("provider, roce, vlan"), "{refused}");
    assert_eq!(first_byte(&mut writer, 1), 0xA5);
}
