//! Comparison of the hosts that two configurations accept.

use cairn_config::{Config, Draft, Flags, Widened};
use proptest::prelude::*;

const HOSTS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
struct Model {
    is_any: bool,
    requires_key: bool,
    has_key_of_all: bool,
    names_group: bool,
    group: [bool; 3],
    listed: [bool; 3],
    keyed: [bool; 3],
}

fn models() -> impl Strategy<Value = Model> {
    let bools = any::<[bool; 3]>;
    let flags = any::<[bool; 4]>();
    let all = (flags, bools(), bools(), bools());
    all.prop_map(
        |([is_any, requires_key, has_key_of_all, names_group], group, listed, keyed)| {
            let mut model = Model {
                is_any,
                requires_key,
                has_key_of_all,
                names_group,
                group,
                listed,
                keyed,
            };
            for host in 0..HOSTS.len() {
                model.keyed[host] &= model.is_listed(host);
            }
            model
        },
    )
}

fn nqn(host: &str) -> String {
    format!("nqn.2024-01.com.example:{host}")
}

impl Model {
    fn is_listed(&self, host: usize) -> bool {
        self.listed[host] || self.names_group && self.group[host]
    }

    fn text(&self) -> String {
        let names = |chosen: &[bool; 3]| {
            let all = HOSTS
                .iter()
                .zip(chosen)
                .filter(|(_, is_chosen)| **is_chosen);
            all.map(|(host, _)| nqn(host)).collect::<Vec<_>>()
        };
        let mut list = names(&self.listed);
        if self.names_group {
            list.push("@g".to_owned());
        }
        let mut text = format!(
            "[[listener]]\naddress = \"192.0.2.1\"\n[[host_group]]\nname = \"g\"\nhosts = {:?}\n\
             [[subsystem]]\nnqn = \"nqn.2024-01.com.example:s\"\nallow_any_host = {}\n\
             allowed_hosts = {list:?}\nrequire_key = {}\n",
            names(&self.group),
            self.is_any,
            self.requires_key
        );
        if self.has_key_of_all {
            text += "dhchap_key = \"/k\"\n";
        }
        for host in names(&self.keyed) {
            text += &format!("[[subsystem.host]]\nnqn = \"{host}\"\ndhchap_key = \"/k\"\n");
        }
        text
    }

    /// Returns 0 if the host is refused, 1 if it must authenticate, and 2 if it connects without a
    /// key. `None` stands for all hosts that no configuration lists.
    fn entry(&self, host: Option<usize>) -> u8 {
        let is_admitted = self.is_any || host.is_some_and(|host| self.is_listed(host));
        let has_key = self.has_key_of_all || host.is_some_and(|host| self.keyed[host]);
        match (is_admitted, has_key || self.requires_key) {
            (false, _) => 0,
            (true, true) => 1,
            (true, false) => 2,
        }
    }

    fn opens(&self, before: &Self) -> bool {
        let mut hosts = (0..HOSTS.len()).map(Some).chain([None]);
        hosts.any(|host| self.entry(host) > before.entry(host))
    }
}

fn parse(text: &str) -> Config {
    Config::parse("test", text, &Flags::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

proptest! {
    #[test]
    fn what_a_host_gains_is_found_and_nothing_else(before in models(), after in models()) {
        let [old, new] = [&before, &after].map(|model| parse(&model.text()));
        prop_assert_eq!(new.widened_from(&old).is_some(), after.opens(&before));
        prop_assert_eq!(old.widened_from(&old), None);
    }

    #[test]
    fn a_host_that_is_removed_keeps_its_key_where_it_stays_admitted(model in models(), host in 0..3usize) {
        let old = parse(&model.text());
        for from_group in [false, true] {
            let mut draft = Draft::new(&model.text()).unwrap();
            let name = nqn(HOSTS[host]);
            let removed = match from_group {
                true => draft.remove_from_host_group("g", &[name]),
                false => draft.remove_host("nqn.2024-01.com.example:s", &name),
            };
            if removed.is_ok() {
                let new = parse(&draft.text());
                let widened = new.widened_from(&old);
                // Removing a host can widen access: if every host may connect, the removed host no
                // longer needs its key.
                let opens = model.is_any && model.keyed[host] && model.entry(None) == 2;
                let mut after = model.clone();
                if from_group { after.group[host] = false } else { after.listed[host] = false }
                prop_assert_eq!(widened.is_some(), opens && !after.is_listed(host), "{:?}", widened);
            }
        }
    }
}

#[test]
fn listeners_and_namespaces_count_too() {
    let text = |listeners: &str, hosts: &str| {
        format!(
            "[[listener]]\naddress = \"192.0.2.1\"\n[[listener]]\naddress = \"192.0.2.2\"\n\
             [[subsystem]]\nnqn = \"nqn.2024-01.com.example:s\"\nallow_any_host = true\n{listeners}\n\
             [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n{hosts}\n"
        )
    };
    let all = parse(&text("", ""));
    let few = parse(&text(
        "listeners = [\"192.0.2.1\"]",
        "hosts = [\"nqn.2024-01.com.example:h\"]",
    ));
    assert_eq!(few.widened_from(&all), None);
    let reached = all.widened_from(&few);
    assert!(
        matches!(reached, Some(Widened::Reached { .. })),
        "{reached:?}"
    );
    let seen = parse(&text("listeners = [\"192.0.2.1\"]", "")).widened_from(&few);
    assert!(
        matches!(seen, Some(Widened::Seen { nsid: 1, .. })),
        "{seen:?}"
    );
}

#[test]
fn subsystems_have_the_parameters_of_the_target_or_their_own() {
    let config = parse(
        "[target]\ndhchap_hashes = [\"sha512\"]\ndhchap_groups = [\"ffdhe8192\"]\n\
         [[listener]]\naddress = \"192.0.2.1\"\n\
         [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\ndhchap_key = \"/k\"\n\
         [[subsystem]]\nnqn = \"nqn.2024-01.com.example:b\"\nallow_any_host = true\ndhchap_key = \"/k\"\n\
         dhchap_groups = [\"ffdhe2048\"]\n",
    );
    let policies = config
        .subsystems
        .iter()
        .map(|one| &one.authentication.policy);
    let policies: Vec<_> = policies
        .map(|one| (one.hashes.clone(), one.groups.clone()))
        .collect();
    assert_eq!(
        policies,
        [
            (vec!["sha512"], vec!["ffdhe8192"]),
            (vec!["sha512"], vec!["ffdhe2048"])
        ]
    );
}
