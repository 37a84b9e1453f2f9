//! Adding an object that exists: no change if the settings are equal, otherwise an error that names
//! the difference.

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
    for expected in ["1\n", "2\n"] {
        let memory = run(&target, &["namespace", "add", OTHER, "mem:1MiB"]).unwrap();
        assert_eq!(memory, (expected.to_owned(), String::new()));
    }
}
