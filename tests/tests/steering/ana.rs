use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cairn_control::CallError;
use cairn_initiator::{Event, Host, HostOptions, Notice, Recovery};
use cairn_roce::Soft;
use nvme_proto::wire::feature::AsyncEventConfig;
use nvme_proto::wire::log::{AnaGroup, AnaLogHeader, AnaState, LogPage};
use nvme_proto::wire::{FromBytes, Nqn};
use serde_json::{Value, json};

use crate::convert::{FOR_SPDK, parse, say, written};
use crate::target::{NQN, Steered, until};

const OTHER: &str = "nqn.2024-01.com.example:other";
const SET: &str = "nvmf_subsystem_listener_set_ana_state";

fn two_subsystems() -> Steered {
    Steered::start_after(|_, _| {
        format!(
            "\n[[subsystem.namespace]]\nnsid = 2\nexport = \"mem:1MiB\"\nana_group = 2\n\n\
             # The other one.\n[[subsystem]]\nnqn = \"{OTHER}\"\nallow_any_host = true\n\n\
             [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n\n\
             [[subsystem.namespace]]\nnsid = 2\nexport = \"mem:1MiB\" # the last\nana_group = 2\n"
        )
    })
}

fn connect(target: &Steered, nqn: &str) -> Host {
    let options = HostOptions {
        subnqn: Nqn::parse(nqn).unwrap(),
        events: AsyncEventConfig(0).with_ana_change(true),
        recovery: Recovery::NONE,
        ..target.options("a")
    };
    Host::connect(&Soft::default(), options).unwrap()
}

fn log(host: &mut Host) -> (u64, [AnaState; 2]) {
    let page = host.log_page(LogPage::ANA, 0, 4096, false).unwrap();
    let (head, mut rest) = AnaLogHeader::read_from_prefix(&page).ok().unwrap();
    assert_eq!(head.ngrps.get(), 2);
    let states = [1, 2].map(|wanted| {
        let (group, more) = AnaGroup::read_from_prefix(rest).ok().unwrap();
        assert_eq!(group.agid.get(), wanted);
        rest = &more[4 * group.nnsids.get() as usize..];
        AnaState(group.anas)
    });
    (head.chgcnt.get(), states)
}

fn assert_told(host: &mut Host) {
    let event = host.wait_until("a notice", |host| host.take_event());
    let event = event.unwrap();
    let is_it = matches!(event, Event::Notice(Notice::AnaChanged));
    assert!(is_it, "{event:?}");
}

fn at(target: &Steered) -> Value {
    json!({"trtype": "RDMA", "adrfam": "IPv4", "traddr": target.address, "trsvcid": "4420"})
}

fn set(target: &Steered, nqn: &str, state: &str, group: Option<u32>) {
    let mut params = json!({"nqn": nqn, "listen_address": at(target), "ana_state": state});
    if let Some(group) = group {
        params["anagrpid"] = json!(group);
    }
    assert_eq!(target.done(SET, params), true);
}

fn shown(target: &Steered, nqn: &str) -> [String; 2] {
    let listeners = target.done("nvmf_subsystem_get_listeners", json!({"nqn": nqn}));
    [0, 1].map(|index| {
        let state = &listeners[0]["ana_states"][index]["ana_state"];
        state.as_str().unwrap().to_owned()
    })
}

fn drain(target: &Steered) -> JoinHandle<Result<Value, CallError>> {
    let (mut client, address) = (target.client(), target.address);
    thread::spawn(move || client.call("cairn_drain", &json!({"address": address})))
}

const BEST: AnaState = AnaState::OPTIMIZED;
const WORSE: AnaState = AnaState::NON_OPTIMIZED;
const NONE: AnaState = AnaState::INACCESSIBLE;

#[test]
fn a_state_is_of_one_subsystem() {
    let mut target = two_subsystems();
    let (mut own, mut other) = (connect(&target, NQN), connect(&target, OTHER));
    let before = log(&mut other);
    assert_eq!(log(&mut own), (0, [BEST, BEST]));
    set(&target, NQN, "inaccessible", Some(2));
    assert_told(&mut own);
    assert_eq!(log(&mut own), (1, [BEST, NONE]));
    set(&target, NQN, "inaccessible", Some(2));
    set(&target, NQN, "non_optimized", Some(1));
    assert_told(&mut own);
    assert_eq!(log(&mut own), (2, [WORSE, NONE]));
    assert_eq!(log(&mut other), before);
    assert!(other.take_event().is_none());
    assert_eq!(shown(&target, NQN), ["non_optimized", "inaccessible"]);
    assert_eq!(shown(&target, OTHER), ["optimized", "optimized"]);
    let state = json!({"address": target.address, "ana": "non-optimized"});
    target.done("cairn_listener_set", state);
    assert_told(&mut other);
    assert_eq!(log(&mut other), (1, [WORSE, WORSE]));
    assert!(own.take_event().is_none());
    assert_eq!(log(&mut own), (2, [WORSE, NONE]));
    set(&target, OTHER, "optimized", Some(0));
    assert_told(&mut other);
    set(&target, NQN, "optimized", None);
    assert_told(&mut own);
    assert_eq!(log(&mut own), (3, [BEST, BEST]));
    set(&target, NQN, "inaccessible", Some(1));

    let text = target.text();
    for comment in ["# By hand.", "# The way in.", "# the first", "# the last"] {
        assert!(text.contains(comment), "{text}");
    }
    drop((own, other));
    target.crash();
    assert_eq!(log(&mut connect(&target, NQN)).1, [NONE, BEST]);
    assert_eq!(log(&mut connect(&target, OTHER)).1, [BEST, BEST]);
    assert_eq!(shown(&target, NQN), ["inaccessible", "optimized"]);
}

#[test]
fn saved_states_are_each_subsystems_own() {
    let target = two_subsystems();
    let state = json!({"address": target.address, "ana": "inaccessible", "ana_group": 9});
    target.done("cairn_listener_set", state);
    set(&target, OTHER, "optimized", None);
    set(&target, OTHER, "non_optimized", Some(2));
    let saved = target.done("framework_get_config", json!({"name": "nvmf"}));
    let saved = saved.as_array().unwrap().iter();
    let states = saved.filter(|request| request["method"] == SET);
    let states = states.map(|request| {
        let params = &request["params"];
        let [nqn, group, state] = ["nqn", "anagrpid", "ana_state"].map(|key| params[key].clone());
        [nqn, group, state]
    });
    let wanted = [
        [json!(NQN), json!(9), json!("inaccessible")],
        [json!(OTHER), json!(2), json!("non_optimized")],
    ];
    assert!(states.eq(wanted));
}

#[test]
fn a_reload_changes_the_states_of_a_subsystem() {
    let target = two_subsystems();
    let (mut own, mut other) = (connect(&target, NQN), connect(&target, OTHER));
    let before = target.text();
    let reload = |listener: &str, subsystem: &str| {
        let text = before.replacen(
            "\n\n[[subsystem]]",
            &format!("\n{listener}\n[[subsystem]]"),
            1,
        );
        let text = text.replacen(
            "# The other one.",
            &format!("{subsystem}\n# The other one."),
            1,
        );
        std::fs::write(target.config(), text).unwrap();
        target.done("cairn_reload", json!({}));
    };
    let table = |group: &str, state: &str| {
        let address = target.address;
        format!("[[subsystem.ana]]\nlistener = \"{address}\"\n{group}state = \"{state}\"\n")
    };
    reload("", &table("ana_group = 1\n", "inaccessible"));
    assert_told(&mut own);
    assert_eq!(log(&mut own), (1, [NONE, BEST]));
    reload(
        "ana = \"inaccessible\"\n",
        &table("ana_group = 1\n", "non-optimized"),
    );
    assert_told(&mut own);
    assert_eq!(log(&mut own), (2, [WORSE, NONE]));
    assert_told(&mut other);
    assert_eq!(log(&mut other), (1, [NONE, NONE]));
    let same = table("", "inaccessible") + &table("ana_group = 1\n", "non-optimized");
    reload("", &same);
    assert_told(&mut other);
    assert_eq!(log(&mut other), (2, [BEST, BEST]));
    assert_eq!(log(&mut own), (2, [WORSE, NONE]));
    reload("", "");
    assert_told(&mut own);
    assert_eq!(log(&mut own), (3, [BEST, BEST]));
    assert!(own.take_event().is_none() && other.take_event().is_none());

    let elsewhere = table("", "inaccessible").replace(&target.address.to_string(), "192.0.2.1");
    let text = before.replacen("# The other one.", &elsewhere, 1);
    std::fs::write(target.config(), text).unwrap();
    assert_eq!(target.refused("cairn_reload", json!({})), -32602);
    assert_eq!(log(&mut own), (3, [BEST, BEST]));
}

#[test]
fn a_drain_stands_above_the_states_of_a_subsystem() {
    let target = two_subsystems();
    set(&target, NQN, "optimized", None);
    let mut host = connect(&target, NQN);
    let draining = drain(&target);
    assert_told(&mut host);
    assert_eq!(log(&mut host), (1, [NONE, NONE]));
    set(&target, NQN, "non_optimized", Some(2));
    assert!(host.take_event().is_none());
    draining.join().unwrap().unwrap();
    until("the end of the host", || {
        target.done("cairn_connection_list", json!({})) == json!([])
    });
    drop(host);
    let refused = HostOptions {
        timeout: Duration::from_secs(5),
        ..target.options("late")
    };
    assert!(Host::connect(&Soft::default(), refused).is_err());
    target.done("cairn_drain_undo", json!({"address": target.address}));
    assert_eq!(log(&mut connect(&target, NQN)).1, [BEST, WORSE]);
}

#[test]
fn an_undone_drain_restores_the_states_of_each_subsystem() {
    let target = two_subsystems();
    set(&target, NQN, "non_optimized", Some(1));
    until("a drain that is undone in time", || {
        let (mut own, mut other) = (connect(&target, NQN), connect(&target, OTHER));
        let draining = drain(&target);
        let has_begun = || target.done("cairn_listener_list", json!({}))[0]["drained"] == true;
        until("the drain", has_begun);
        target.done("cairn_drain_undo", json!({"address": target.address}));
        let _ = draining.join().unwrap();
        if target.done("cairn_connection_list", json!({})) == json!([]) {
            return false;
        }
        assert_eq!(log(&mut own), (2, [WORSE, BEST]));
        assert_eq!(log(&mut other), (2, [BEST, BEST]));
        true
    });
}

#[test]
fn a_command_sets_the_state_of_a_subsystem() {
    let target = two_subsystems();
    let address = target.address.to_string();
    let listener_set = |more: &[&str]| {
        let head = ["listener", "set", &address, "--subsystem", OTHER];
        target.command(&[&head, more].concat())
    };
    let done = |more: &[&str]| {
        let said = listener_set(more);
        assert!(said.status.success(), "{said:?}");
    };
    let mut host = connect(&target, OTHER);
    done(&["--ana", "non-optimized"]);
    done(&["--ana", "inaccessible", "--ana-group", "2"]);
    assert_eq!(log(&mut host), (2, [WORSE, NONE]));
    let at = SocketAddr::from((target.address, 4420)).to_string();
    let list = target.done("cairn_subsystem_list", json!({}));
    let wanted = json!({at: {"all": "non-optimized", "2": "inaccessible"}});
    assert_eq!(list[1]["ana"], wanted);
    assert_eq!(list[0]["ana"], json!({}));
    let listeners = target.done("cairn_listener_list", json!({}));
    assert_eq!(listeners[0]["ana"], "optimized");
    let status = target.command(&["subsystem", "list"]);
    assert!(
        String::from_utf8(status.stdout)
            .unwrap()
            .contains("inaccessible")
    );

    done(&["--inherit", "--ana-group", "2"]);
    assert_eq!(log(&mut host), (3, [WORSE, WORSE]));
    done(&["--inherit"]);
    assert_eq!(log(&mut host), (4, [BEST, BEST]));
    let before = target.text();
    assert!(!before.contains("subsystem.ana"), "{before}");
    for (wrong, part) in [
        (&["--inherit"][..], "no ANA state of its own"),
        (
            &["--ana", "better"],
            "not known here\n  --> state of ANA states at listener ",
        ),
        (
            &["--ana", "change", "--ana-group", "129"],
            "129 is out of range",
        ),
        (
            &["--ana", "change", "--port", "4499"],
            "no [[listener]] has the address",
        ),
    ] {
        let said = listener_set(wrong);
        assert!(!said.status.success());
        let error = String::from_utf8(said.stderr).unwrap();
        assert!(error.contains(part), "{error}");
    }
    for params in [
        json!({"address": address, "inherit": true}),
        json!({"address": address, "nqn": OTHER, "inherit": true, "ana": "change"}),
        json!({"address": address, "nqn": OTHER}),
        json!({"address": address}),
    ] {
        assert_eq!(target.refused("cairn_listener_set", params), -32602);
    }
    assert_eq!(target.text(), before);
}

#[test]
fn ana_states_go_with_their_subsystems() {
    let folder = tempfile::tempdir().unwrap();
    let own = "[[subsystem.ana]]\nlistener = \"192.0.2.1\"\nana_group = 3\nstate = \"inaccessible\"\n\n\
               [[subsystem.ana]]\nlistener = \"192.0.2.2:4421\"\nstate = \"change\"\n\n";
    let second = "[[subsystem]]\nnqn = \"nqn.2024-01.com.example:b\"";
    let toml = FOR_SPDK.replacen(second, &format!("{own}{second}"), 1);
    let config = parse(&toml);
    let file = written(&folder, "target.toml", &toml);
    let (code, exported, notes) = say(&["export", "spdk"], &file);
    assert_eq!(code, Some(0));
    assert!(
        notes.contains("192.0.2.2:4421: the ANA states persistent-loss and change"),
        "{notes}"
    );
    let saved = written(&folder, "spdk.json", &exported);
    let (code, text, notes) = say(&["import", "spdk"], &saved);
    assert_eq!((code, notes.as_str()), (Some(0), ""), "{text}");
    let imported = parse(&text);
    for (before, after) in config.subsystems.iter().zip(&imported.subsystems) {
        for (index, listener) in config.listeners.iter().enumerate() {
            let mut states = before.ana_at(listener);
            for group in 1..=128 {
                if states.get(group) == AnaState::CHANGE {
                    states.set(group, AnaState::INACCESSIBLE);
                }
            }
            let imported = &imported.listeners[index];
            assert_eq!(after.ana_at(imported), states, "{text}");
        }
    }
    let (code, _, notes) = say(&["export", "nvmet"], &file);
    assert_eq!(code, Some(1));
    assert!(
        notes.contains("subsystem nqn.2024-01.com.example:a: its ana is left out"),
        "{notes}"
    );
}
