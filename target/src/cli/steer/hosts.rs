use cairn_config::absolute_path;
use serde_json::{Value, json};

use super::actions::{GroupAction, HostAction, KeyAction, ReferralAction};
use super::{Asked, View, if_any};

pub(super) const HOSTS: &[(&str, &str)] = &[
    ("HOST", "host"),
    ("GROUP", "group"),
    ("AUTHENTICATES", "authenticates"),
    ("CONTROLLERS", "controllers"),
];
const REFERRALS: View = View::Rows(&[("ADDRESS", "address"), ("PORT", "port"), ("NQN", "nqn")]);
const HOST_GROUPS: View = View::Rows(&[
    ("NAME", "name"),
    ("NAMED BY LISTS", "lists"),
    ("HOSTS", "hosts"),
]);
const HOST_KEYS: View = View::Rows(&[
    ("NQN", "nqn"),
    ("HOST", "host"),
    ("KEY", "dhchap_key"),
    ("CONTROLLER'S KEY", "dhchap_ctrl_key"),
    ("REMOVED", "removed"),
]);

pub(super) fn shown(hosts: &Value) -> Value {
    let mut hosts = hosts.clone();
    let rows = hosts.as_array_mut().into_iter().flatten();
    for row in rows.filter(|row| row["lacks_key"] == true) {
        row["authenticates"] = json!("required, no key");
    }
    hosts
}

pub(super) fn of_referral(action: &ReferralAction) -> Asked<'_> {
    match action {
        ReferralAction::List(at) => Asked::list(at, "cairn_referral_list", REFERRALS),
        ReferralAction::Add(to) => {
            let deed = Asked::deed(&to.at, "cairn_referral_add", to.params());
            deed.adding(format!("referral {}", to.place))
        }
        ReferralAction::Remove(to) => Asked::deed(&to.at, "cairn_referral_remove", to.params()),
    }
}

pub(super) fn of_host(action: &HostAction) -> Asked<'_> {
    match action {
        HostAction::List { nqn, at } => {
            let asked = Asked::deed(at, "cairn_host_list", json!({"nqn": nqn}));
            let view = View::Hosts;
            Asked { view, ..asked }
        }
        HostAction::Add {
            nqn,
            host,
            key,
            ctrl_key,
            at,
        } => {
            let params = json!({
                "nqn": nqn,
                "host": host,
                "dhchap_key": key.as_deref().map(key_file),
                "dhchap_ctrl_key": ctrl_key.as_deref().map(key_file),
            });
            let deed = Asked::deed(at, "cairn_host_add", params);
            let (view, doubt) = (View::Added, same_key(key.as_ref(), ctrl_key.as_ref()));
            let deed = Asked {
                view,
                doubt,
                ..deed
            };
            deed.adding(format!("host {host} of {nqn}"))
        }
        HostAction::Remove { nqn, host, at } => {
            Asked::deed(at, "cairn_host_remove", json!({"nqn": nqn, "host": host}))
        }
        HostAction::Any { nqn, allow, at } => {
            Asked::deed(at, "cairn_host_any", json!({"nqn": nqn, "allow": allow}))
        }
        HostAction::Group { action } => of_group(action),
        HostAction::Key { action } => of_key(action),
    }
}

fn of_key(action: &KeyAction) -> Asked<'_> {
    match action {
        KeyAction::Show { nqn, host, at } => {
            let asked = Asked::deed(at, "cairn_host_key_list", json!({"nqn": nqn, "host": host}));
            Asked {
                view: HOST_KEYS,
                ..asked
            }
        }
        KeyAction::Set {
            nqn,
            host,
            key,
            ctrl_key,
            at,
        } => {
            let params = json!({
                "nqn": nqn,
                "host": host,
                "dhchap_key": key_file(key),
                "dhchap_ctrl_key": ctrl_key.as_deref().map(key_file),
            });
            let deed = Asked::deed(at, "cairn_host_key_set", params);
            let doubt = same_key(Some(key), ctrl_key.as_ref());
            Asked { doubt, ..deed }.adding(format!("key files of {host} at {nqn}, read again"))
        }
        KeyAction::Remove { nqn, host, at } => {
            let params = json!({"nqn": nqn, "host": host});
            Asked::deed(at, "cairn_host_key_remove", params)
        }
    }
}

fn same_key(key: Option<&String>, ctrl_key: Option<&String>) -> Option<String> {
    (key.is_some() && ctrl_key == key).then(|| {
        "--key and --ctrl-key are one file, so each owner of the key can pose as host and as \
         target: make another for --ctrl-key"
            .to_owned()
    })
}

fn of_group(action: &GroupAction) -> Asked<'_> {
    match action {
        GroupAction::List(at) => Asked::list(at, "cairn_host_group_list", HOST_GROUPS),
        GroupAction::Add { name, hosts, at } => {
            let params = json!({"name": name, "hosts": hosts});
            let deed = Asked::deed(at, "cairn_host_group_add", params);
            let view = View::Added;
            let deed = Asked { view, ..deed };
            deed.adding(format!("host group {name}"))
        }
        GroupAction::Remove { name, hosts, at } => {
            let params = json!({"name": name, "hosts": if_any(hosts)});
            Asked::deed(at, "cairn_host_group_remove", params)
        }
    }
}

/// Makes the path of a key file absolute. Names of keys, and secrets, which the target refuses,
/// stay unchanged.
fn key_file(key: &str) -> String {
    let is_name = ["key:", "credential:", "DHHC-"];
    if is_name.iter().any(|start| key.starts_with(start)) {
        return key.to_owned();
    }
    absolute_path(key)
}
