//! Requests to add an object that exists. With equal settings, nothing changes; otherwise, the
//! error names the difference.

use crate::target::{NQN, Steered};
use cairn_tests::harness::own_loopback_address;

const OTHER: &str = "nqn.2024-01.com.example:added";
const HOST: &str = "nqn.2024-01.com.example:host1";

fn run(target: &Steered, args: &[&str]) -> Result<(String, String), String> {
    let output = target.command(args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    match output.status.success() {
        true => Ok((stdout, stderr)),
        false => Err(stderr),
    }
}

#[test]
fn the_same_again_changes_nothing_and_a_difference_is_named() {
    let target = Steered::start();
    let file = |name: &str| target.folder.path().join(name).display().to_string();
    let (disk, other_disk, key) = (file("disk"), file("other"), file("key"));
    for disk in [&disk, &other_disk] {
        let made = std::fs::File::create(disk).unwrap();
        made.set_len(1 << 20).unwrap();
    }
    run(&target, &["key", "generate", "--file", &key]).unwrap();
    let place = format!("{}:4421", own_loopback_address());
    run(&target, &["host", "group", "add", "cluster"]).unwrap();
    run(&target, &["host", "add", NQN, "@cluster"]).unwrap();
    let cases: &[(&[&str], &[&str], &str)] = &[
        (
            &["subsystem", "add", OTHER, "--serial", "A", "--host", HOST],
            &["subsystem", "add", OTHER, "--serial", "B"],
            "serial is \"A\", not \"B\"",
        ),
        (
            &["namespace", "add", OTHER, &disk, "--nsid", "5"],
            &["namespace", "add", OTHER, &other_disk, "--nsid", "5"],
            "export is ",
        ),
        (
            &["listener", "add", &place, "--provider", "soft"],
            &["listener", "add", &place, "--provider", "verbs"],
            "provider is \"soft\", not \"verbs\"",
        ),
        (&["host", "add", NQN, HOST], &[], ""),
        (&["host", "group", "add", "cluster", HOST], &[], ""),
        (&["host", "key", "set", OTHER, HOST, "--key", &key], &[], ""),
        (&["referral", "add", "192.0.2.9:8009"], &[], ""),
        (&["limit", "set", OTHER, "5", "--iops", "100"], &[], ""),
    ];
    for (add, different, difference) in cases {
        let (stdout, stderr) = run(&target, add).unwrap_or_else(|error| panic!("{add:?}: {error}"));
        assert_eq!(stderr, "", "{add:?}");
        let text = target.text();
        let (again, message) = run(&target, add).unwrap_or_else(|error| panic!("{add:?}: {error}"));
        assert!(message.starts_with("unchanged: "), "{add:?}: {message}");
        if add[1] != "group" {
            assert_eq!(again, stdout, "{add:?}");
        }
        let quiet = [*add, &["--quiet"]].concat();
        assert_eq!(run(&target, &quiet).unwrap().1, "", "{add:?}");
        if !different.is_empty() {
            let error = run(&target, different).unwrap_err();
            assert!(error.starts_with("error: "), "{different:?}: {error}");
            assert!(error.contains(difference), "{different:?}: {error}");
        }
        assert_eq!(target.text(), text, "{add:?}");
    }
}

#[test]
fn settings_that_are_not_given_are_not_compared() {
    let target = Steered::start();
    let disk = target.folder.path().join("disk");
    let made = std::fs::File::create(&disk).unwrap();
    made.set_len(1 << 20).unwrap();
    let disk = disk.to_str().unwrap();
    let subsystem = ["subsystem", "add", OTHER, "--serial", "A", "--host", HOST];
    run(&target, &subsystem).unwrap();
    let namespace = ["namespace", "add", OTHER, disk, "--nsid", "5"];
    run(&target, &namespace).unwrap();
    run(
        &target,
        &["host", "add", OTHER, "nqn.2024-01.com.example:host2"],
    )
    .unwrap();
    let (_, message) = run(&target, &["subsystem", "add", OTHER, "--host", HOST]).unwrap();
    assert_eq!(message, format!("unchanged: subsystem {OTHER}\n"));
    let of_disk = run(&target, &["namespace", "add", OTHER, disk]).unwrap();
    assert_eq!(of_disk.0, "5\n");
    assert!(of_disk.1.starts_with("unchanged: "), "{}", of_disk.1);
    let visible = [
        "namespace",
        "add",
        OTHER,
        disk,
        "--nsid",
        "5",
        "--host",
        HOST,
    ];
    let error = run(&target, &visible).unwrap_err();
    assert!(error.contains("hosts is not set"), "{error}");
    let none = format!("cairn-target namespace set {OTHER} 5 --host {HOST}");
    assert!(error.contains(&none), "{error}");
    for expected in ["1\n", "2\n"] {
        let memory = run(&target, &["namespace", "add", OTHER, "mem:1MiB"]).unwrap();
        assert_eq!(memory, (expected.to_owned(), String::new()));
    }
}

fn image(target: &Steered, name: &str) -> String {
    let path = target.folder.path().join(name);
    let made = std::fs::File::create(&path).unwrap();
    made.set_len(1 << 20).unwrap();
    path.display().to_string()
}

#[test]
fn values_in_force_are_equal_to_those_that_are_written() {
    let target = Steered::start();
    let disk = image(&target, "disk");
    run(&target, &["host", "group", "add", "team", HOST]).unwrap();
    run(&target, &["subsystem", "add", OTHER, "--host", "@team"]).unwrap();
    run(&target, &["namespace", "add", OTHER, &disk]).unwrap();
    let place = format!("{}:4421", own_loopback_address());
    run(&target, &["listener", "add", &place]).unwrap();
    let text = target.text();
    let word = |method, key: &str| {
        let rows = target.done(method, serde_json::json!({}));
        let mut rows = rows.as_array().unwrap().iter();
        let row = rows.find(|row| row["nqn"] == OTHER).unwrap();
        row[key].as_str().unwrap().to_owned()
    };
    let serial = word("cairn_subsystem_list", "serial");
    let model = word("cairn_subsystem_list", "model");
    let uuid = word("cairn_namespace_list", "uuid").to_uppercase();
    let subsystem: &[&str] = &["subsystem", "add", OTHER];
    let namespace: &[&str] = &["namespace", "add", OTHER, &disk];
    let listener: &[&str] = &["listener", "add", &place];
    let cases: &[(&[&str], &[&str])] = &[
        (subsystem, &["--serial", &serial, "--model", &model]),
        (subsystem, &["--controller-ids", "1-65519", "--host", HOST]),
        (subsystem, &["--listener", &place]),
        (namespace, &["--nsid", "1", "--uuid", &uuid]),
        (namespace, &["--uuid", &uuid, "--ana-group", "1"]),
        (namespace, &["--block-size", "512"]),
        (listener, &["--provider", "soft", "--roce", "v2"]),
        (listener, &["--ana", "optimized"]),
    ];
    for (add, settings) in cases {
        let add = [*add, settings].concat();
        let (_, message) = run(&target, &add).unwrap_or_else(|error| panic!("{add:?}: {error}"));
        assert!(message.starts_with("unchanged: "), "{add:?}: {message}");
    }
    assert_eq!(target.text(), text);
    let quoted = ["subsystem", "add", OTHER, "--model", "two words"];
    let error = run(&target, &quoted).unwrap_err();
    assert!(error.contains("--model 'two words'"), "{error}");
}

#[test]
fn the_command_for_each_difference_ends_it() {
    let target = Steered::start();
    let (disk, other) = (image(&target, "disk"), image(&target, "other"));
    let place = format!("{}:4421", own_loopback_address());
    run(&target, &["subsystem", "add", OTHER, "--host", HOST]).unwrap();
    run(&target, &["namespace", "add", OTHER, &disk]).unwrap();
    run(&target, &["listener", "add", &place]).unwrap();
    let subsystem: &[&str] = &["subsystem", "add", OTHER];
    let namespace: &[&str] = &["namespace", "add", OTHER, &disk, "--nsid", "1"];
    let moved: &[&str] = &["namespace", "add", OTHER, &other, "--nsid", "1"];
    let listener: &[&str] = &["listener", "add", &place];
    let uuid = "26ffc8ce-73b4-321d-9685-7d7a9872c460";
    let two = [
        "--host",
        "nqn.2024-01.com.example:b",
        "--host",
        "nqn.2024-01.com.example:c",
    ];
    let first = format!("{}:4420", target.address);
    let cases: &[(&[&str], &[&str])] = &[
        (subsystem, &["--serial", "B"]),
        (subsystem, &["--model", "B"]),
        (subsystem, &["--controller-ids", "1-100"]),
        (subsystem, &two),
        (subsystem, &["--allow-any-host"]),
        (namespace, &["--name", "b"]),
        (namespace, &["--uuid", uuid]),
        (namespace, &["--nguid", "from-uuid"]),
        (namespace, &["--block-size", "4096"]),
        (namespace, &["--read-only"]),
        (namespace, &["--write-protection"]),
        (namespace, &["--shared"]),
        (namespace, &["--ana-group", "2"]),
        (namespace, &two),
        (moved, &[]),
        (listener, &["--ana", "non-optimized"]),
    ];
    for (add, settings) in cases {
        let add = [*add, settings].concat();
        let error = run(&target, &add).unwrap_err();
        let (_, commands) = error.split_once(": cairn-target ").expect("a command");
        let commands = commands.split(" (").next().unwrap().trim();
        for command in commands.split("; cairn-target ") {
            let words: Vec<&str> = command.split(' ').collect();
            run(&target, &words).unwrap_or_else(|error| panic!("{command}: {error}"));
        }
        let (_, message) = run(&target, &add).unwrap_or_else(|error| panic!("{add:?}: {error}"));
        assert!(message.starts_with("unchanged: "), "{add:?}: {message}");
    }
    run(&target, &["subsystem", "set", OTHER, "--listener", &place]).unwrap();
    let both = [
        "subsystem",
        "add",
        OTHER,
        "--listener",
        &place,
        "--listener",
        &first,
    ];
    let error = run(&target, &both).unwrap_err();
    let command = format!("subsystem set {OTHER} --listener {place} --listener {first}");
    assert!(error.contains(&command), "{error}");
    let provider = ["listener", "add", &place, "--provider", "verbs"];
    let error = run(&target, &provider).unwrap_err();
    assert!(error.contains("cannot change it"), "{error}");
}
