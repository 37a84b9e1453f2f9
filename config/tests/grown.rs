//! Incremental additions and removals of namespaces must equal a full check.

use cairn_config::{Config, Draft, Flags, NewLimits, NewNamespace};
use proptest::prelude::*;

const NQNS: [&str; 3] = [
    "nqn.2024-01.com.example:a",
    "nqn.2024-01.com.example:b",
    "nqn.2024-01.com.example:none",
];
const BASE: &str = r#"# Disks of two racks.
[[listener]]
address = "192.0.2.1"

# The first rack.
[[subsystem]]
nqn = "nqn.2024-01.com.example:a"
allow_any_host = true

# The disks.

# Kept for long.
[[subsystem.namespace]]
nsid = 3
export = "/dev/vg0/a" # in its own group
uuid = "6c1f7d6e-6f3a-4a0e-9f0a-0d5a5e0b9d11"

[[subsystem]]
nqn = "nqn.2024-01.com.example:b"
allow_any_host = true

[[referral]]
address = "192.0.2.9"
# The end.
"#;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse("cairn.toml", text, &Flags::default()).map_err(|error| error.to_string())
}

fn namespace() -> impl Strategy<Value = NewNamespace> {
    let export = prop_oneof![
        Just("null:1MiB"),
        Just("mem:64KiB"),
        Just("mem:1"),
        Just("/dev/vg0/a"),
        Just("/dev//vg0/a/"),
        Just("/dev/vg0/b"),
        Just("/dev/vg0/c"),
        Just("rbd:pool/image"),
        Just("tape:1MiB"),
    ];
    let uuid = prop_oneof![
        3 => Just(None),
        1 => Just(Some("6C1F7D6E-6F3A-4A0E-9F0A-0D5A5E0B9D11")),
        1 => Just(Some("6c1f7d6e6f3a4a0e9f0a0d5a5e0b9d12")),
    ];
    let hosts = prop_oneof![
        3 => Just(None),
        1 => Just(Some(vec![])),
        1 => Just(Some(vec!["nqn.2014-08.org.nvmexpress:h".to_owned()])),
        1 => Just(Some(vec!["@group".to_owned()])),
    ];
    let nsid = prop_oneof![3 => Just(None), 1 => (0..8u32).prop_map(Some), 1 => Just(Some(10_241))];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let name = prop_oneof![3 => Just(None), 1 => Just(Some("disk")), 1 => Just(Some("a disk"))];
    let parts = (nsid, export, uuid, hosts, flags, name);
    parts.prop_map(|(nsid, export, uuid, hosts, flags, name)| NewNamespace {
        nsid,
        export: export.to_owned(),
        uuid: uuid.map(str::to_owned),
        hosts,
        read_only: flags.0,
        shared: flags.1,
        write_protection: flags.2,
        name: name.map(str::to_owned),
        limits: NewLimits::default(),
        ..NewNamespace::default()
    })
}

/// Namespaces to add, each with its subsystem's index, and an NSID to remove first.
type Step = (Vec<(usize, NewNamespace)>, Option<u32>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let batch = prop::collection::vec((0..3usize, namespace()), 1..3);
    let removed = prop_oneof![3 => Just(None), 1 => (1..6u32).prop_map(Some)];
    prop::collection::vec((batch, removed), 1..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn additions_come_to_what_the_whole_does(steps in steps()) {
        let mut text = BASE.to_owned();
        let mut config = parse(&text).unwrap();
        let mut kept = Draft::new(&text).unwrap();
        for (batch, removed) in steps {
            if let Some(nsid) = removed {
                for nqn in NQNS {
                    let mut anew = Draft::new(&text).unwrap();
                    let mut draft = kept.clone();
                    let removed = draft.remove_namespace(nqn, nsid);
                    prop_assert_eq!(&removed, &anew.remove_namespace(nqn, nsid));
                    prop_assert_eq!(draft.text(), anew.text());
                    if removed.is_ok() {
                        prop_assert_eq!(config.grown(&draft), None);
                        text = draft.text();
                        let (shrunk, places) = config.shrunk(&draft).unwrap();
                        config = parse(&text).unwrap();
                        prop_assert_eq!(&shrunk, &config);
                        let place = (cairn_config::Nqn::parse(nqn).unwrap(), nsid);
                        prop_assert_eq!(places, [place]);
                        kept = draft;
                        kept.settle();
                        prop_assert!(kept.is_settled());
                    }
                }
            }
            let mut anew = Draft::new(&text).unwrap();
            let mut draft = kept.clone();
            for (nqn, new) in &batch {
                prop_assert_eq!(
                    draft.add_namespace(NQNS[*nqn], new),
                    anew.add_namespace(NQNS[*nqn], new)
                );
            }
            prop_assert_eq!(draft.text(), anew.text());
            if !batch.is_empty() && !draft.is_settled() {
                prop_assert_eq!(config.shrunk(&draft), None);
            }
            let whole = parse(&draft.text());
            if let Some((grown, places)) = config.grown(&draft) {
                prop_assert_eq!(Ok(&grown), whole.as_ref());
                for (nqn, nsid) in places {
                    let of = |config: &Config| {
                        let mut all = config.subsystems.iter();
                        let one = all.find(|one| one.nqn == nqn).unwrap().namespaces.iter();
                        one.filter(|one| one.nsid == nsid).count()
                    };
                    prop_assert_eq!((of(&config), of(&grown)), (0, 1));
                }
            }
            if let Ok(whole) = whole {
                text = draft.text();
                config = whole;
                kept = draft;
                kept.settle();
                prop_assert!(kept.is_settled());
            }
        }
    }
}

#[test]
fn what_is_usual_takes_the_short_way() {
    let config = parse(BASE).unwrap();
    for export in ["null:1MiB", "mem:64KiB", "/dev/vg0/b"] {
        let mut draft = Draft::new(BASE).unwrap();
        let new = NewNamespace {
            export: export.to_owned(),
            hosts: (export == "null:1MiB").then(Vec::new),
            ..NewNamespace::default()
        };
        draft.add_namespace(NQNS[1], &new).unwrap();
        let (grown, places) = config.grown(&draft).unwrap();
        assert_eq!(grown, parse(&draft.text()).unwrap());
        assert_eq!(places, [(grown.subsystems[1].nqn, 1)]);
    }
}
