//! Listeners of subsystems, and ANA states at listeners.

use cairn_config::{
    Config, Draft, EditError, Flags, NewListener, NewSubsystem, Only, Roce, SubsystemSettings, Trid,
};
use nvme_proto::wire::log::AnaState;

const A: &str = "nqn.2024-01.com.example:a";
const B: &str = "nqn.2024-01.com.example:b";
const FILE: &str = r#"
[[listener]]
address = "192.0.2.1"

[[listener]]
address = "192.0.2.1"
port = 4421

[[listener]]
address = "2001:db8::1"

[[subsystem]]
nqn = "nqn.2024-01.com.example:a"
allow_any_host = true
listeners = ["192.0.2.1", "[2001:db8::1]:4420"] # two ways
namespace = [{ nsid = 1, export = "null:1MiB" }]

[[subsystem]]
nqn = "nqn.2024-01.com.example:b"
allow_any_host = true
namespace = [{ nsid = 1, export = "null:1MiB" }]
"#;

fn parse(text: &str) -> Config {
    let parsed = Config::parse("test", text, &Flags::default());
    parsed.unwrap_or_else(|error| panic!("{error}\nin\n{text}"))
}

fn at(text: &str) -> Trid {
    text.parse().unwrap()
}

fn ways(config: &Config, index: usize) -> Vec<String> {
    let behind = |listener: &&_| config.subsystems[index].is_behind(listener);
    let own = config.listeners.iter().filter(behind);
    own.map(|one| one.trid().to_string()).collect()
}

const FIRST: &str = "192.0.2.1:4420";
const SECOND: &str = "192.0.2.1:4421";
const THIRD: &str = "[2001:db8::1]:4420";

#[test]
fn a_subsystem_is_reached_by_the_listeners_that_it_names() {
    let config = parse(FILE);
    assert_eq!(ways(&config, 0), [FIRST, THIRD]);
    assert_eq!(ways(&config, 1), [FIRST, SECOND, THIRD]);
    assert_eq!(config.subsystems[1].listeners, None);
    assert_eq!(config.warnings(), <[String; 0]>::default());
    let none = FILE.replace("[\"192.0.2.1\", \"[2001:db8::1]:4420\"]", "[]");
    let config = parse(&none);
    assert_eq!(ways(&config, 0), <[String; 0]>::default());
    let warnings = config.warnings();
    assert!(
        matches!(&warnings[..], [one] if one.contains("no listener leads to")),
        "{warnings:?}"
    );
}

#[test]
fn a_listener_of_the_command_line_can_be_named() {
    let text = "[[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n\
                listeners = [\"192.0.2.7:4420\"]\n";
    let flags = Flags {
        listen: vec!["192.0.2.7".to_owned(), "192.0.2.8".to_owned()],
        ..Flags::default()
    };
    let config = Config::parse("test", text, &flags).unwrap();
    assert_eq!(ways(&config, 0), ["192.0.2.7:4420"]);
}

#[test]
fn listeners_come_to_a_subsystem_and_leave_it() {
    let mut draft = Draft::new(FILE).unwrap();
    assert_eq!(draft.add_listener_to(A, at(SECOND)), Ok(true));
    assert_eq!(draft.add_listener_to(A, at(SECOND)), Ok(false));
    assert_eq!(draft.add_listener_to(A, at(FIRST)), Ok(false));
    assert_eq!(draft.add_listener_to(B, at(FIRST)), Ok(false));
    assert_eq!(parse(&draft.text()).subsystems[1].listeners, None);
    let all = [FIRST, SECOND, THIRD].map(at);
    draft.remove_listener_from(A, at(FIRST), &all).unwrap();
    draft.remove_listener_from(A, at(THIRD), &all).unwrap();
    let again = draft.remove_listener_from(A, at(FIRST), &all);
    assert!(matches!(again, Err(EditError::Missing(_))), "{again:?}");
    let config = parse(&draft.text());
    assert_eq!(ways(&config, 0), [SECOND]);
    assert_eq!(ways(&config, 1), [FIRST, SECOND, THIRD]);
    draft.remove_listener_from(B, at(SECOND), &all).unwrap();
    assert_eq!(ways(&parse(&draft.text()), 1), [FIRST, THIRD]);
    draft.remove_listener_from(B, at(FIRST), &all).unwrap();
    let config = parse(&draft.text());
    assert_eq!(config.listeners.len(), 2, "{}", draft.text());
    assert_eq!(ways(&config, 1), [THIRD]);
    draft
        .remove_listener("192.0.2.1".parse().unwrap(), 4421)
        .unwrap();
    let config = parse(&draft.text());
    assert_eq!(config.subsystems[0].listeners, Some(vec![]));
    assert!(draft.text().contains("# two ways"), "{}", draft.text());
}

#[test]
fn listeners_have_scopes() {
    const ETH0: &str = "[fe80::1%eth0]:4420";
    const SEVENTH: &str = "[fe80::1%7]:4421";
    let text = "[[listener]]\naddress = \"fe80::1%eth0\"\n\
                [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n\
                listeners = [\"fe80::1%eth0\"]\n";
    let flags = Flags {
        listen: vec!["[fe80::1%eth1]:4420".to_owned()],
        ..Flags::default()
    };
    let config = Config::parse("test", text, &flags).unwrap();
    assert_eq!(config.listeners.len(), 2);
    assert_eq!(ways(&config, 0), [ETH0]);
    let mut draft = Draft::new(text).unwrap();
    let other = at(SEVENTH);
    draft
        .add_listener(&NewListener::at(other.address, other.port))
        .unwrap();
    assert_eq!(draft.add_listener_to(A, other), Ok(true));
    draft
        .set_ana(at(ETH0).address, 4420, None, "inaccessible")
        .unwrap();
    draft.set_ana_of(A, other, Some(2), "optimized").unwrap();
    let config = parse(&draft.text());
    assert_eq!(ways(&config, 0), [ETH0, SEVENTH]);
    assert_eq!(config.subsystems[0].ana.len(), 1, "{}", draft.text());
    draft
        .remove_listener_from(A, other, &[ETH0, SEVENTH].map(at))
        .unwrap();
    let config = parse(&draft.text());
    assert_eq!(ways(&config, 0), [ETH0]);
    assert!(config.subsystems[0].ana.is_empty(), "{}", draft.text());
}

#[test]
fn a_lone_subsystem_loses_a_listener_with_its_table() {
    let mut draft = Draft::new(FILE).unwrap();
    draft.remove_subsystem(A).unwrap();
    let all = [FIRST, SECOND, THIRD].map(at);
    draft.remove_listener_from(B, at(SECOND), &all).unwrap();
    let config = parse(&draft.text());
    assert_eq!(
        (config.listeners.len(), &config.subsystems[0].listeners),
        (2, &None)
    );
}

#[test]
fn a_new_subsystem_may_name_listeners() {
    let mut draft = Draft::new(FILE).unwrap();
    let new = NewSubsystem {
        nqn: "nqn.2024-01.com.example:c".to_owned(),
        allow_any_host: true,
        listeners: Some(vec![at(SECOND)]),
        ..NewSubsystem::default()
    };
    draft.add_subsystem(&new).unwrap();
    assert_eq!(ways(&parse(&draft.text()), 2), [SECOND]);
    let listeners = SubsystemSettings {
        listeners: Some(Only::These(vec![at(THIRD), at(SECOND)])),
        ..SubsystemSettings::default()
    };
    draft.set_subsystem(A, &listeners).unwrap();
    assert_eq!(ways(&parse(&draft.text()), 0), [SECOND, THIRD]);
}

fn states(config: &Config, index: usize) -> Vec<[AnaState; 2]> {
    let listeners = config.listeners.iter();
    let states = listeners.map(|listener| config.subsystems[index].ana_at(listener));
    states
        .map(|states| [1, 2].map(|group| states.get(group)))
        .collect()
}

const BEST: AnaState = AnaState::OPTIMIZED;
const WORSE: AnaState = AnaState::NON_OPTIMIZED;
const NONE: AnaState = AnaState::INACCESSIBLE;

#[test]
fn a_subsystem_has_ana_states_of_its_own() {
    let mut draft = Draft::new(FILE).unwrap();
    let (first, third) = (at(FIRST), at(THIRD));
    let set = |draft: &mut Draft, nqn, at, group, state| {
        draft.set_ana_of(nqn, at, group, state).unwrap();
    };
    set(&mut draft, A, first, Some(2), "inaccessible");
    set(&mut draft, A, third, None, "non-optimized");
    draft.set_ana(first.address, 4420, None, "change").unwrap();
    let config = parse(&draft.text());
    let change = AnaState::CHANGE;
    assert_eq!(
        states(&config, 0),
        [[change, NONE], [BEST, BEST], [WORSE, WORSE]]
    );
    assert_eq!(states(&config, 1), [[change; 2], [BEST; 2], [BEST; 2]]);
    assert!(draft.text().contains("# two ways"), "{}", draft.text());
    set(&mut draft, A, first, None, "optimized");
    assert_eq!(states(&parse(&draft.text()), 0)[0], [BEST; 2]);
    set(&mut draft, A, first, None, "non-optimized");
    set(&mut draft, A, first, Some(1), "inaccessible");
    set(&mut draft, A, first, Some(1), "optimized");
    assert_eq!(states(&parse(&draft.text()), 0)[0], [BEST, WORSE]);
    assert_eq!(draft.text().matches("[[subsystem.ana]]").count(), 3);
    draft.inherit_ana(A, first, Some(1)).unwrap();
    assert_eq!(states(&parse(&draft.text()), 0)[0], [WORSE; 2]);
    let again = draft.inherit_ana(A, first, Some(1));
    assert!(matches!(again, Err(EditError::Missing(_))), "{again:?}");
    draft.inherit_ana(A, first, None).unwrap();
    draft.inherit_ana(A, third, None).unwrap();
    let config = parse(&draft.text());
    assert_eq!(states(&config, 0), states(&config, 1));
    assert!(!draft.text().contains("subsystem.ana"), "{}", draft.text());
}

#[test]
fn states_go_with_their_listener() {
    let mut draft = Draft::new(FILE).unwrap();
    let all = [FIRST, SECOND, THIRD].map(at);
    for (nqn, way) in [(A, 0), (A, 2), (B, 0), (B, 1), (B, 2)] {
        let set = draft.set_ana_of(nqn, all[way], Some(2), "inaccessible");
        set.unwrap();
    }
    draft.remove_listener_from(B, all[2], &all).unwrap();
    draft.remove_listener(all[0].address, 4420).unwrap();
    let config = parse(&draft.text());
    assert_eq!(states(&config, 0), [[BEST, BEST], [BEST, NONE]]);
    assert_eq!(states(&config, 1), [[BEST, NONE], [BEST, BEST]]);
    let listeners = SubsystemSettings {
        listeners: Some(Only::These(vec![all[1]])),
        ..SubsystemSettings::default()
    };
    draft.set_subsystem(A, &listeners).unwrap();
    assert!(parse(&draft.text()).subsystems[0].ana.is_empty());
}

#[test]
fn states_in_one_line_can_be_changed() {
    let inline =
        "allow_any_host = true\nana = [{ listener = \"192.0.2.1\", state = \"change\" }]\n";
    let text = FILE.replacen("allow_any_host = true\n", inline, 1);
    let mut draft = Draft::new(&text).unwrap();
    draft
        .set_ana_of(A, at(FIRST), None, "inaccessible")
        .unwrap();
    draft
        .set_ana_of(A, at(THIRD), None, "inaccessible")
        .unwrap();
    assert_eq!(
        states(&parse(&draft.text()), 0),
        [[NONE; 2], [BEST; 2], [NONE; 2]]
    );
}

#[test]
fn a_listener_speaks_what_it_says_and_what_the_target_speaks_otherwise() {
    let spoken = |text: &str| -> Vec<Option<Roce>> {
        let config = parse(text);
        config.listeners.iter().map(|one| one.roce).collect()
    };
    let text = |target: &str, own: &str| {
        format!(
            "[target]\nprovider = \"soft\"\n{target}\n[[listener]]\naddress = \"192.0.2.1\"\n\n\
             [[listener]]\naddress = \"192.0.2.2\"\n{own}\n"
        )
    };
    let v1 = |vlan| Some(Roce::V1 { vlan });
    let tagged = "roce = \"v1\"\nvlan = 7";
    assert_eq!(spoken(&text("", "roce = \"v1\"")), [None, v1(None)]);
    assert_eq!(spoken(&text("", tagged)), [None, v1(Some(7))]);
    assert_eq!(spoken(&text(tagged, "vlan = 5")), [None, v1(Some(5))]);
    assert_eq!(spoken(&text(tagged, "roce = \"v1\"")), [None, v1(None)]);
    assert_eq!(
        spoken(&text(tagged, "roce = \"v2\"")),
        [None, Some(Roce::V2)]
    );
    assert_eq!(
        parse(&text(tagged, "")).target.roce,
        Roce::V1 { vlan: Some(7) }
    );
}

#[test]
fn what_a_listener_speaks_is_written() {
    let mut draft = Draft::new(FILE).unwrap();
    let new = NewListener {
        provider: Some("soft".to_owned()),
        roce: Some("v1".to_owned()),
        vlan: Some(5),
        ..NewListener::at("192.0.2.9".parse().unwrap(), 4420)
    };
    draft.add_listener(&new).unwrap();
    let config = parse(&draft.text());
    assert_eq!(config.listeners[3].roce, Some(Roce::V1 { vlan: Some(5) }));
}
