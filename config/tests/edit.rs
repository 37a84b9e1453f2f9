//! Edits of a draft keep unrelated text.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_config::{
    Access, Config, Draft, EditError, Flags, HostList, KeySource, Limits, LimitsOf,
    NamespaceSettings, NewLimits, NewListener, NewNamespace, NewSubsystem, Only, SubsystemSettings,
};

const FILE: &str = r#"# Managed by the storage team.

# The way in.
[[listener]]
address = "192.0.2.1"   # eth0

[[subsystem]]
nqn = "nqn.2024-01.com.example:a"
allowed_hosts = [
    "nqn.2024-01.com.example:h1", # the first
]

# The old disk.
[[subsystem.namespace]]
export = "mem:1MiB"
nsid = 1

[[subsystem]]
nqn = "nqn.2024-01.com.example:b"
allow_any_host = true
namespace = [{ nsid = 1, export = "null:1MiB" }]
"#;
const A: &str = "nqn.2024-01.com.example:a";
const B: &str = "nqn.2024-01.com.example:b";

fn parsed(draft: &Draft) -> Config {
    match Config::parse("test", &draft.text(), &Flags::default()) {
        Ok(config) => config,
        Err(error) => panic!("{error}\nin\n{}", draft.text()),
    }
}

fn listed(hosts: &[&str]) -> Access {
    let hosts = hosts.iter().map(|host| host.parse().unwrap());
    Access::Hosts(HostList {
        hosts: Arc::new(hosts.collect()),
        groups: Vec::new(),
    })
}

fn who(draft: &Draft, index: usize) -> (bool, Vec<String>) {
    let subsystem = &parsed(draft).subsystems[index];
    let hosts = subsystem.allowed_hosts.hosts.iter();
    let hosts = hosts.map(|host| host.raw().to_owned()).collect();
    (subsystem.allow_any_host, hosts)
}

fn disk(export: &str) -> NewNamespace {
    NewNamespace {
        export: export.to_owned(),
        ..NewNamespace::default()
    }
}

#[test]
fn additions_leave_all_else_as_it_was() {
    let mut draft = Draft::new(FILE).unwrap();
    assert_eq!(draft.add_namespace(A, &disk("mem:2MiB")), Ok(2));
    let (before, rest) = FILE
        .split_once("\n[[subsystem]]\nnqn = \"nqn.2024-01.com.example:b\"")
        .unwrap();
    let after = draft.text();
    let added = "\n[[subsystem.namespace]]\nnsid = 2\nexport = \"mem:2MiB\"\n";
    assert!(after.starts_with(&format!("{before}{added}")), "{after}");
    assert!(rest.contains("namespace = ["));
    assert!(
        after.ends_with("[[subsystem.namespace]]\nnsid = 1\nexport = \"null:1MiB\"\n"),
        "{after}"
    );
    let config = parsed(&draft);
    assert_eq!(config.subsystems[0].namespaces.len(), 2);
    assert_eq!(config.subsystems[1].namespaces.len(), 1);
}

#[test]
fn removals_keep_comments_about_other_things() {
    let mut draft = Draft::new(FILE).unwrap();
    let address = "192.0.2.1".parse().unwrap();
    draft.remove_listener(address, 4420).unwrap();
    assert!(draft.text().contains("# Managed by"), "{}", draft.text());
    assert!(!draft.text().contains("The way in"), "{}", draft.text());
    draft.remove_namespace(A, 1).unwrap();
    assert!(!draft.text().contains("The old disk"));
    draft.remove_subsystem(B).unwrap();
    assert!(matches!(
        draft.remove_subsystem(B),
        Err(EditError::Missing(_))
    ));
    draft.add_listener(&NewListener::at(address, 4421)).unwrap();
    assert_eq!(parsed(&draft).listeners[0].port, 4421);
    assert!(draft.text().contains("# the first"));
}

#[test]
fn hosts_come_and_go() {
    let mut draft = Draft::new(FILE).unwrap();
    let (h1, h2) = ("nqn.2024-01.com.example:h1", "nqn.2024-01.com.example:h2");
    assert_eq!(draft.add_host(A, h2), Ok(true));
    assert_eq!(draft.add_host(A, h2), Ok(false));
    draft.remove_host(A, h1).unwrap();
    draft.remove_host(A, h2).unwrap();
    assert_eq!(who(&draft, 0), (false, vec![]));
    assert!(draft.remove_host(A, h2).is_err());
    draft.allow_any_host(B, false).unwrap();
    assert_eq!(who(&draft, 1), (false, vec![]));
    draft.add_host(B, h1).unwrap();
    draft.allow_any_host(A, true).unwrap();
    assert_eq!(who(&draft, 0), (true, vec![]));
    assert_eq!(who(&draft, 1), (false, vec![h1.to_owned()]));
}

#[test]
fn a_removed_host_leaves_the_command_that_restores_its_key() {
    let mut draft = Draft::new(FILE).unwrap();
    let h1 = "nqn.2024-01.com.example:h1";
    draft
        .set_host_keys(A, h1, Some(("/h 1.key", Some("key"))))
        .unwrap();
    let losses = draft.clone().remove_host(A, h1).unwrap();
    let set = format!("host add {A} {h1} --key '/h 1.key' --ctrl-key key");
    assert!(losses.len() == 1 && losses[0].ends_with(&set), "{losses:?}");
    let inline = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";
    draft.set_host_keys(A, h1, Some((inline, None))).unwrap();
    let losses = draft.remove_subsystem(A).unwrap();
    assert!(losses[0].ends_with("--key FILE"), "{losses:?}");
}

#[test]
fn a_list_stays_while_every_host_may_connect() {
    let mut draft = Draft::new(FILE).unwrap();
    let [h1, h2, h3] = ["h1", "h2", "h3"].map(|name| format!("nqn.2024-01.com.example:{name}"));
    let both = || vec![h1.clone(), h2.clone()];
    draft
        .set_host_keys(A, &h1, Some(("/h1.key", None)))
        .unwrap();
    let limits = NewLimits {
        iops: Some(1000),
        ..NewLimits::default()
    };
    let of_h1 = LimitsOf::Host(h1.clone());
    draft.set_limits(A, &of_h1, &limits).unwrap();
    draft.allow_any_host(A, true).unwrap();
    assert_eq!(who(&draft, 0), (true, vec![h1.clone()]));
    assert_eq!(draft.add_host(A, &h3), Ok(true));
    assert_eq!(draft.add_host(A, &h2), Ok(true));
    assert_eq!(draft.add_host(A, &h2), Ok(false));
    draft.remove_host(A, &h3).unwrap();
    draft
        .set_host_keys(A, &h2, Some(("/h2.key", None)))
        .unwrap();
    assert_eq!(who(&draft, 0), (true, both()));
    let config = parsed(&draft);
    assert!(config.subsystems[0].allows(&h3.parse().unwrap()));
    assert_eq!(config.subsystems[0].authentication.hosts.len(), 2);
    let warnings = config.warnings();
    assert!(
        warnings.iter().any(|one| one.contains("lets every host")),
        "{warnings:?}"
    );
    draft.allow_any_host(A, false).unwrap();
    assert_eq!(who(&draft, 0), (false, both()));
    let config = parsed(&draft);
    assert!(!config.subsystems[0].allows(&h3.parse().unwrap()));
    assert_eq!(config.subsystems[0].authentication.hosts.len(), 2);
    assert_eq!(config.subsystems[0].limits_of_hosts.len(), 1);
    assert_eq!(config.warnings(), <[String; 0]>::default());
    assert!(draft.text().contains("# the first"), "{}", draft.text());
    assert_eq!(draft.add_host(B, &h1), Ok(true));
    assert_eq!(who(&draft, 1), (true, vec![h1.clone()]));
    let mut closed = draft.clone();
    draft.remove_host(B, &h1).unwrap();
    assert_eq!(who(&draft, 1), (true, vec![]));
    assert_eq!(draft.text(), Draft::new(&draft.text()).unwrap().text());
    closed.allow_any_host(B, false).unwrap();
    closed.remove_host(B, &h1).unwrap();
    assert_eq!(who(&closed, 1), (false, vec![]));
}

#[test]
fn a_new_subsystem_may_list_hosts_and_allow_every_one() {
    let mut draft = Draft::new(FILE).unwrap();
    let new = NewSubsystem {
        nqn: "nqn.2024-01.com.example:c".to_owned(),
        allow_any_host: true,
        hosts: vec![B.to_owned()],
        ..NewSubsystem::default()
    };
    draft.add_subsystem(&new).unwrap();
    assert_eq!(who(&draft, 2), (true, vec![B.to_owned()]));
}

#[test]
fn a_namespace_is_shown_to_hosts_and_hidden() {
    let mut draft = Draft::new(FILE).unwrap();
    let (h1, h2) = ("nqn.2024-01.com.example:h1", "nqn.2024-01.com.example:h2");
    let hidden = NewNamespace {
        hosts: Some(Vec::new()),
        ..disk("mem:2MiB")
    };
    assert_eq!(draft.add_namespace(A, &hidden), Ok(2));
    let hosts = |draft: &Draft| parsed(draft).subsystems[0].namespaces[1].hosts.clone();
    assert_eq!(hosts(&draft), listed(&[]));
    for host in [h1, h2, h2] {
        draft.show_namespace(A, 2, host, true).unwrap();
    }
    assert_eq!(hosts(&draft), listed(&[h1, h2]));
    for host in [h1, h1, "nqn.2024-01.com.example:unknown"] {
        draft.show_namespace(A, 2, host, false).unwrap();
    }
    assert_eq!(hosts(&draft), listed(&[h2]));
    let open = draft.show_namespace(A, 1, h1, false);
    assert!(matches!(open, Err(EditError::Exists(_))), "{open:?}");
    let missing = draft.show_namespace(A, 3, h1, true);
    assert!(matches!(missing, Err(EditError::Missing(_))), "{missing:?}");
    let all = parsed(&draft).subsystems[0].namespaces[0].hosts.clone();
    assert_eq!(all, Access::AnyHost);
}

#[test]
fn states_of_listeners_are_set() {
    let mut draft = Draft::new(FILE).unwrap();
    let address = "192.0.2.1".parse().unwrap();
    draft.set_ana(address, 4420, None, "inaccessible").unwrap();
    draft.set_ana(address, 4420, Some(2), "optimized").unwrap();
    draft
        .set_ana(address, 4420, Some(2), "non-optimized")
        .unwrap();
    assert!(draft.set_ana(address, 1, None, "optimized").is_err());
    let config = parsed(&draft);
    assert_eq!(config.listeners.len(), 1);
    assert!(draft.text().contains("# eth0"));
}

#[test]
fn a_file_can_begin_empty() {
    let mut draft = Draft::new("").unwrap();
    let new = NewSubsystem {
        nqn: A.to_owned(),
        serial: Some("1".into()),
        ..NewSubsystem::default()
    };
    draft.add_subsystem(&new).unwrap();
    assert!(matches!(
        draft.add_subsystem(&new),
        Err(EditError::Exists(_))
    ));
    draft.add_namespace(A, &disk("mem:1MiB")).unwrap();
    let text = format!("[control]\nsocket = \"/run/a\"\n{}", draft.text());
    let config = Config::parse("test", &text, &Flags::default()).unwrap();
    assert!(!config.subsystems[0].allow_any_host);
    assert_eq!(config.subsystems[0].allowed_hosts, HostList::default());
    assert!(config.listeners.is_empty());
}

#[test]
fn groups_of_hosts_come_and_go() {
    let mut draft = Draft::new(FILE).unwrap();
    let [h1, h2] = ["h1", "h2"].map(|name| format!("nqn.2024-01.com.example:{name}"));
    let both = [h1.clone(), h2.clone()];
    assert_eq!(draft.add_to_host_group("g", &both), Ok(2));
    assert_eq!(draft.add_to_host_group("g", &both), Ok(0));
    let group = |draft: &Draft| parsed(draft).host_groups[0].hosts.len();
    assert_eq!(group(&draft), 2);
    let stranger = [h1.clone(), "nqn.2024-01.com.example:h3".to_owned()];
    let missing = draft.remove_from_host_group("g", &stranger);
    assert!(matches!(missing, Err(EditError::Missing(_))), "{missing:?}");
    assert_eq!(group(&draft), 2);
    draft.remove_from_host_group("g", &both[..1]).unwrap();
    assert_eq!(group(&draft), 1);
    assert_eq!(draft.add_host(A, "@g"), Ok(true));
    let subsystem = &parsed(&draft).subsystems[0];
    assert!(
        both.iter()
            .all(|host| subsystem.allows(&host.parse().unwrap()))
    );
    let by_group = draft.remove_host(A, &h2).unwrap_err();
    assert!(
        by_group.to_string().contains("by the host group \"g\""),
        "{by_group}"
    );
    let of_group = NewNamespace {
        hosts: Some(vec!["@g".to_owned()]),
        ..disk("mem:2MiB")
    };
    assert_eq!(draft.add_namespace(A, &of_group), Ok(2));
    let by_group = draft.show_namespace(A, 2, &h2, false).unwrap_err();
    assert!(
        by_group.to_string().contains("by the host group \"g\""),
        "{by_group}"
    );
    draft.show_namespace(A, 2, &h1, false).unwrap();
    draft.remove_namespace(A, 2).unwrap();
    let used = draft.remove_host_group("g").unwrap_err();
    let remedy = format!("cairn-target host remove {A} @g");
    assert!(
        matches!(&used, EditError::InUse(why) if why.ends_with(&remedy)),
        "{used}"
    );
    draft.remove_host(A, "@g").unwrap();
    draft.remove_host_group("g").unwrap();
    assert!(parsed(&draft).host_groups.is_empty());
    let missing = draft.remove_host_group("g");
    assert!(matches!(missing, Err(EditError::Missing(_))), "{missing:?}");
    let missing = draft.remove_from_host_group("g", &both);
    assert!(matches!(missing, Err(EditError::Missing(_))), "{missing:?}");
    assert_eq!(draft.text(), Draft::new(FILE).unwrap().text());
}

#[test]
fn what_is_added_takes_no_number_of_a_directory() {
    let mut draft = Draft::new(FILE).unwrap();
    let pool = NewNamespace {
        nsid: Some(3),
        ..disk("dir:/srv/cairn")
    };
    assert_eq!(draft.add_namespace(A, &pool), Ok(3));
    assert_eq!(draft.add_namespace(A, &disk("mem:1MiB")), Ok(2));
    let refused = draft.add_namespace(A, &disk("mem:1MiB")).unwrap_err();
    assert!(refused.to_string().contains("give an NSID"), "{refused}");
    let last = NewNamespace {
        nsid: Some(9),
        ..disk("mem:1MiB")
    };
    assert_eq!(draft.add_namespace(A, &last), Ok(9));
    assert_eq!(draft.add_namespace(A, &disk("mem:1MiB")), Ok(10));
    assert_eq!(parsed(&draft).subsystems[0].pools[0].nsids, 3..=8);
}

#[test]
fn keys_have_names_that_hosts_use() {
    let (host, path) = ("nqn.2024-01.com.example:h1", Path::new("/etc/cairn/h1.key"));
    let mut draft = Draft::new(FILE).unwrap();
    draft.add_key("one", path).unwrap();
    assert!(matches!(
        draft.add_key("one", path),
        Err(EditError::Exists(_))
    ));
    let set = |draft: &mut Draft, host: &str, key: &str, other: Option<&str>| {
        draft.set_host_keys(A, host, Some((key, other)))
    };
    assert_eq!(set(&mut draft, host, "key:one", Some("/c.key")), Ok(false));
    let of = |draft: &Draft| parsed(draft).subsystems[0].authentication.hosts.clone();
    let KeySource::Named(key) = &of(&draft)[0].1.host else {
        panic!("{}", draft.text());
    };
    assert_eq!(
        (&*key.name, &*key.path, key.is_removed),
        ("one", path, false)
    );
    for comment in [
        "# Managed by",
        "# The way in.",
        "# the first",
        "# The old disk.",
    ] {
        assert!(draft.text().contains(comment), "{}", draft.text());
    }
    draft.remove_key("one").unwrap();
    assert!(matches!(
        draft.remove_key("one"),
        Err(EditError::Missing(_))
    ));
    assert!(parsed(&draft).keys[0].is_removed);
    assert!(matches!(&of(&draft)[0].1.host, KeySource::Named(key) if key.is_removed));
    assert!(parsed(&draft).warnings()[0].contains("removed"));
    assert!(matches!(
        set(&mut draft, host, "key:one", None),
        Err(EditError::Missing(_))
    ));
    let mut back = draft.clone();
    back.add_key("one", path).unwrap();
    assert!(!parsed(&back).keys[0].is_removed);
    assert_eq!(set(&mut draft, host, "/h.key", None), Ok(true));
    assert_eq!(parsed(&draft).keys, []);
    assert_eq!(draft.set_host_keys(A, host, None), Ok(true));
    assert_eq!(draft.text(), Draft::new(FILE).unwrap().text());
    for other in ["nqn.2024-01.com.example:h9", ""] {
        assert!(matches!(
            set(&mut draft, other, "/h.key", None),
            Err(EditError::Missing(_))
        ));
    }
}

#[test]
fn what_is_no_toml_is_reported_without_its_keys() {
    let error = Draft::new("dhchap_key = \"DHHC-1:00:c2VjcmV0:\" \"\n")
        .unwrap_err()
        .to_string();
    assert!(error.contains("line 1"), "{error}");
    assert!(!error.contains("c2V"), "{error}");
}

#[test]
fn limits_are_set_one_by_one_and_the_last_one_takes_the_table_with_it() {
    let mut draft = Draft::new(FILE).unwrap();
    let of = LimitsOf::Namespace(1);
    let before = draft.text();
    let new = NewLimits {
        iops: Some(100),
        read: Some("1MiB".to_owned()),
        burst_ms: Some(50),
        ..NewLimits::default()
    };
    for nqn in [A, B] {
        draft.set_limits(nqn, &of, &new).unwrap();
    }
    let limits = |draft: &Draft| {
        let subsystems = parsed(draft).subsystems;
        [0, 1].map(|at| subsystems[at].namespaces[0].limits)
    };
    let expected = Limits {
        iops: Some(100),
        read: Some(1 << 20),
        burst: Some(Duration::from_millis(50)),
        ..Limits::default()
    };
    assert_eq!(limits(&draft), [expected; 2]);
    let lift = |iops, read: &str| NewLimits {
        iops,
        read: Some(read.to_owned()),
        ..NewLimits::default()
    };
    draft.set_limits(A, &of, &lift(None, "0")).unwrap();
    assert_eq!(limits(&draft)[0].to_string(), "iops 100, burst_ms 50");
    let mut last = lift(Some(0), "0");
    last.outstanding = Some(8);
    draft.set_limits(A, &of, &last).unwrap();
    assert_eq!(limits(&draft)[0].to_string(), "outstanding 8");
    last.outstanding = Some(0);
    draft.set_limits(A, &of, &last).unwrap();
    assert_eq!(limits(&draft)[0], Limits::default());
    draft.remove_limits(B, &of).unwrap();
    assert_eq!(limits(&draft)[1], Limits::default());
    assert_eq!(draft.text().lines().next(), before.lines().next());
    for (nqn, nsid) in [(A, 1), (A, 9), ("nqn.none", 1)] {
        let refused = draft.remove_limits(nqn, &LimitsOf::Namespace(nsid));
        assert!(matches!(refused, Err(EditError::Missing(_))), "{refused:?}");
    }
}

#[test]
fn settings_change_alone_and_go_back_to_their_defaults() {
    let mut draft = Draft::new(FILE).unwrap();
    let of = |hosts| NamespaceSettings {
        write_protection: Some(true),
        ana_group: Some(3),
        hosts: Some(hosts),
        ..NamespaceSettings::default()
    };
    let hosts = || vec!["nqn.2024-01.com.example:h1".to_owned()];
    draft
        .set_namespace(A, 1, &of(Only::These(hosts())))
        .unwrap();
    let export = NamespaceSettings {
        export: Some("null:2MiB".to_owned()),
        ..NamespaceSettings::default()
    };
    draft.set_namespace(B, 1, &export).unwrap();
    let serial = SubsystemSettings {
        serial: Some("S1".to_owned()),
        ..SubsystemSettings::default()
    };
    draft.set_subsystem(A, &serial).unwrap();
    let config = parsed(&draft);
    let led_to_by = |listeners| SubsystemSettings {
        listeners: Some(listeners),
        ..SubsystemSettings::default()
    };
    let first = config.listeners[0].trid();
    let own = Only::These(vec![first]);
    draft.set_subsystem(A, &led_to_by(own)).unwrap();
    assert_eq!(parsed(&draft).subsystems[0].listeners, Some(vec![first]));
    draft.set_subsystem(A, &led_to_by(Only::Every)).unwrap();
    assert_eq!(parsed(&draft), config);
    let namespace = &config.subsystems[0].namespaces[0];
    assert!(namespace.write_protection && !namespace.read_only);
    assert_eq!(namespace.ana_group, 3);
    assert_eq!(namespace.hosts, listed(&["nqn.2024-01.com.example:h1"]));
    assert_eq!(config.subsystems[0].serial, "S1");
    assert_eq!(config.subsystems[0].model, "Cairn");
    for comment in ["# the first", "# The old disk.", "# eth0"] {
        assert!(draft.text().contains(comment), "{}", draft.text());
    }
    let back = NamespaceSettings {
        write_protection: Some(false),
        hosts: Some(Only::Every),
        ..NamespaceSettings::default()
    };
    draft.set_namespace(A, 1, &back).unwrap();
    let config = parsed(&draft);
    let namespace = &config.subsystems[0].namespaces[0];
    assert!(!namespace.write_protection);
    assert_eq!(
        (namespace.ana_group, &namespace.hosts),
        (3, &Access::AnyHost)
    );
    let missing = |error| matches!(error, Err(EditError::Missing(_)));
    assert!(missing(draft.set_namespace(A, 2, &back)));
    assert!(missing(
        draft.set_subsystem("nqn.2024-01.com.example:c", &serial)
    ));
}

#[test]
fn a_directory_and_a_disk_do_not_replace_each_other() {
    let mut draft = Draft::new(FILE).unwrap();
    let set = |draft: &mut Draft, export: &str| {
        let new = NamespaceSettings {
            export: Some(export.to_owned()),
            ..NamespaceSettings::default()
        };
        draft.set_namespace(A, 1, &new)
    };
    let refused = |done| matches!(done, Err(EditError::Exists(text)) if text.contains("remove it"));
    assert!(refused(set(&mut draft, "dir:/images")));
    draft.set_export(A, 1, "dir:/images").unwrap();
    let before = draft.text();
    assert!(refused(set(&mut draft, "mem:1MiB")));
    assert!(refused(set(&mut draft, "dir:/others")));
    set(&mut draft, "dir:/images").unwrap();
    assert_eq!(draft.text(), before);
}
