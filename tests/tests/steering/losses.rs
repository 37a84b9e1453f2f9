//! Lost data, deleted files and shut-out hosts: the target must name each loss, and cause none
//! without an administrator's decision.

use std::fs::{self, File};
use std::path::PathBuf;

use cairn_initiator::Host;
use cairn_roce::Soft;
use cairn_tests::harness::host_nqn;
use serde_json::{Value, json};

use crate::target::{NQN, Steered, until};

const MIB: u64 = 1 << 20;
const EBUSY: i64 = -16;

fn start() -> (Steered, PathBuf) {
    let target = Steered::start_logged_after(|folder, _| {
        let path = folder.join("disk.img");
        File::create(&path).unwrap().set_len(MIB).unwrap();
        let export = path.display();
        format!("[[subsystem.namespace]]\nnsid = 2\nexport = \"{export}\"\n")
    });
    let path = target.folder.path().join("disk.img");
    (target, path)
}

fn resize(path: &PathBuf, bytes: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

fn disk(target: &Steered) -> Value {
    target.done("cairn_namespace_list", json!({}))[1].clone()
}

fn changes(target: &Steered) -> String {
    target.done("cairn_reload", json!({}))["changes"].to_string()
}

fn problems(target: &Steered) -> String {
    target.done("cairn_status", json!({}))["problems"].to_string()
}

fn checked(target: &Steered) -> String {
    let file = target.config();
    let output = target.command(&["check", file.to_str().unwrap()]);
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn a_check_of_the_served_file_has_one_note_about_its_target() {
    let (target, _) = start();
    let file = target.config();
    let check = |file: &PathBuf| {
        let output = target.command(&["check", file.to_str().unwrap()]);
        (
            String::from_utf8(output.stderr).unwrap(),
            output.status.code(),
        )
    };
    let (notes, code) = check(&file);
    let own = "note: not tried, because the running target of this file";
    assert!(notes.starts_with(own), "{notes}");
    assert!(
        notes.ends_with("1 control socket, 1 listener, 1 disk\n"),
        "{notes}"
    );
    assert_eq!((notes.lines().count(), code), (1, Some(0)), "{notes}");
    let other = file.with_file_name("other.toml");
    fs::copy(&file, &other).unwrap();
    let (notes, _) = check(&other);
    assert_eq!(
        notes.matches("(a running target may have it)").count(),
        3,
        "{notes}"
    );
}

#[test]
fn a_reload_accepts_growth_and_no_loss() {
    let (target, path) = start();
    resize(&path, 2 * MIB);
    assert!(changes(&target).contains("grew from 1048576 to 2097152"));
    for bytes in [MIB, 0, 2 * MIB] {
        resize(&path, bytes);
        if bytes == MIB {
            until("the failure", || disk(&target)["failed"] == true);
        }
        let said = changes(&target);
        let line =
            format!("namespace 2 not resized: the disk lost data, 2097152 bytes before, {bytes}");
        assert!(said.contains(&line), "{said}");
        assert_eq!(disk(&target)["bytes"], 2 * MIB);
        assert_eq!(disk(&target)["failed"], true);
        let accept =
            format!("cairn-target namespace remove {NQN} 2 && cairn-target namespace add {NQN} ");
        assert!(problems(&target).contains(&accept), "{}", problems(&target));
    }
    let limit = json!({"nqn": NQN, "nsid": 2, "iops": 1000});
    target.done("cairn_limit_set", limit);
    let kept = "take the table of namespace 2 out of the configuration file";
    assert!(problems(&target).contains(kept), "{}", problems(&target));
    let set = json!({"nqn": NQN, "nsid": 2, "read_only": true});
    let refused = target.call("cairn_namespace_set", set).unwrap_err();
    assert!(refused.to_string().contains("lost data"), "{refused}");

    target.done("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 2}));
    let add = json!({"nqn": NQN, "nsid": 2, "export": path});
    target.done("cairn_namespace_add", add);
    assert_eq!(disk(&target)["state"], "ok");
    assert_eq!(problems(&target), "[]");
}

#[test]
fn a_start_accepts_growth_and_no_loss() {
    let mut target = Steered::start_logged_after(|folder, _| {
        let path = folder.join("disk.img");
        File::create(&path).unwrap().set_len(MIB).unwrap();
        let export = path.display();
        format!("[[subsystem.namespace]]\nnsid = 2\nexport = \"{export}\"\n")
    });
    let (path, state) = ["disk.img", "state"]
        .map(|one| target.folder.path().join(one))
        .into();
    fs::create_dir(&state).unwrap();
    let with = format!("[target]\nstate_directory = \"{}\"\n", state.display());
    fs::write(target.config(), target.text().replace("[target]\n", &with)).unwrap();
    target.crash();
    let stored = |bytes: u64| {
        let mut files = fs::read_dir(&state).unwrap();
        files.any(|one| {
            let text = fs::read_to_string(one.unwrap().path()).unwrap_or_default();
            text.starts_with(&format!("{bytes} "))
        })
    };
    assert!(stored(MIB));
    let warnings =
        |target: &Steered| target.done("cairn_status", json!({}))["warnings"].to_string();
    let empty = "was empty when this target started";
    assert!(warnings(&target).contains(empty), "{}", warnings(&target));
    resize(&path, 2 * MIB);
    changes(&target);
    assert!(warnings(&target).contains(empty), "{}", warnings(&target));
    until("the new size", || stored(2 * MIB));
    resize(&path, 4 * MIB);
    target.crash();
    assert!(!warnings(&target).contains(empty), "{}", warnings(&target));
    assert!(stored(4 * MIB));
    resize(&path, MIB);
    target.crash();
    let lost = "had 4194304 bytes, and has 1048576 now";
    let accept =
        format!("cairn-target namespace remove {NQN} 2 && cairn-target namespace add {NQN} ");
    for _ in 0..2 {
        let shown = problems(&target);
        assert!(shown.contains(lost) && shown.contains(&accept), "{shown}");
        assert!(checked(&target).contains(lost), "{}", checked(&target));
        assert_eq!(disk(&target)["state"], "missing");
        changes(&target);
    }
    let set = json!({"nqn": NQN, "nsid": 2, "read_only": true});
    target.done("cairn_namespace_set", set);
    assert!(problems(&target).contains(lost), "{}", problems(&target));
    target.crash();
    assert!(problems(&target).contains(lost), "{}", problems(&target));
    target.done("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 2}));
    let add = json!({"nqn": NQN, "nsid": 2, "export": path});
    target.done("cairn_namespace_add", add);
    assert_eq!(disk(&target)["state"], "ok");
    target.crash();
    assert_eq!(
        (disk(&target)["state"].as_str(), problems(&target)),
        (Some("ok"), "[]".into())
    );
    for one in fs::read_dir(&state).unwrap() {
        let path = one.unwrap().path();
        if path.extension().is_some_and(|end| end == "size") {
            fs::write(path, "4194304").unwrap();
        }
    }
    target.crash();
    for shown in [problems(&target), checked(&target)] {
        assert!(shown.contains("restore the file from a backup"), "{shown}");
    }
}

#[test]
fn a_smaller_other_disk_has_lost_no_data() {
    let (target, path) = start();
    let other = path.with_file_name("other.img");
    File::create(&other).unwrap().set_len(MIB / 2).unwrap();
    let text = target.text();
    let renamed = text.replace(path.to_str().unwrap(), other.to_str().unwrap());
    fs::write(target.config(), renamed).unwrap();
    let said = changes(&target);
    let line = "namespace 2 is another disk: its size changed from 1048576 to 524288 bytes";
    assert!(said.contains(line) && !said.contains("lost"), "{said}");
}

#[test]
fn another_file_at_the_path_of_a_disk_is_not_taken() {
    let (target, path) = start();
    let other = path.with_extension("new");
    File::create(&other).unwrap().set_len(4 * MIB).unwrap();
    fs::rename(&other, &path).unwrap();
    let said = changes(&target);
    assert!(said.contains("namespace 2 not replaced"), "{said}");
    assert_eq!(disk(&target)["bytes"], MIB);
    let set = json!({"nqn": NQN, "nsid": 2, "read_only": true});
    let refused = target.call("cairn_namespace_set", set).unwrap_err();
    assert!(refused.to_string().contains("another file"), "{refused}");
}

#[test]
fn the_last_copy_of_data_is_removed_by_force_alone() {
    let (target, path) = start();
    fs::remove_file(&path).unwrap();
    until("the deletion", || disk(&target)["deleted"] == true);
    let at_path = &*format!("namespace add {NQN} {} --nsid 2", path.display());
    assert!(!problems(&target).contains(at_path));
    File::create(&path).unwrap().set_len(MIB).unwrap();
    changes(&target);
    assert!(problems(&target).contains(at_path));
    let remove = json!({"nqn": NQN, "nsid": 2});
    assert_eq!(target.refused("cairn_namespace_remove", remove), EBUSY);
    let set = json!({"nqn": NQN, "nsid": 2, "export": "mem:1MiB"});
    assert_eq!(target.refused("cairn_namespace_set", set), EBUSY);
    assert_eq!(
        target.refused("cairn_subsystem_remove", json!({"nqn": NQN})),
        EBUSY
    );
    target.done("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 1}));
    let removed = target.command(&["namespace", "remove", NQN, "2", "--force"]);
    assert!(removed.status.success(), "{removed:?}");
}

#[test]
fn a_file_deleted_just_before_its_removal_is_found() {
    let (target, path) = start();
    // The command arrives before the target's file watch reports the deletion.
    fs::remove_file(&path).unwrap();
    let remove = json!({"nqn": NQN, "nsid": 2});
    assert_eq!(target.refused("cairn_namespace_remove", remove), EBUSY);
}

#[test]
fn a_reload_keeps_the_last_copy_of_data() {
    let (target, path) = start();
    let image = format!(
        "[[subsystem.namespace]]\nnsid = 2\nexport = \"{}\"\n",
        path.display()
    );
    let with = target.text();
    let without = with.replace(&image, "");
    let other = with.replace(path.to_str().unwrap(), "mem:1MiB");
    let renamed = without.replace(NQN, "nqn.2024-01.com.example:other");
    assert!(without != with && other != with && renamed != without);
    fs::remove_file(&path).unwrap();
    let remedy = format!("cairn-target namespace remove {NQN} 2 --force");
    for text in [&without, &other, &renamed, &without, &without] {
        fs::write(target.config(), text).unwrap();
        let said = changes(&target);
        let kept = "namespace 2 not removed";
        assert!(said.contains(kept) && said.contains(&remedy), "{said}");
        assert!(problems(&target).contains(&remedy), "{}", problems(&target));
        let listed = target.done("cairn_namespace_list", json!({}));
        let mut all = listed.as_array().unwrap().iter();
        let own = all.find(|one| one["nqn"] == NQN && one["nsid"] == 2);
        assert_eq!(own.expect("it is kept")["deleted"], true);
        target.done(
            "cairn_referral_add",
            json!({"address": "192.0.2.1", "port": 4420}),
        );
    }
    let remove = json!({"nqn": NQN, "nsid": 2});
    assert_eq!(target.refused("cairn_namespace_remove", remove), EBUSY);
    assert_eq!(
        target.refused("cairn_subsystem_remove", json!({"nqn": NQN})),
        EBUSY
    );
    let add = json!({"nqn": NQN, "nsid": 3, "export": "mem:1MiB"});
    target.done("cairn_namespace_add", add);
    assert_eq!(disk(&target)["deleted"], true);
    let removed = target.command(&["namespace", "remove", NQN, "2", "--force"]);
    assert!(removed.status.success(), "{removed:?}");
    assert_eq!(disk(&target)["nsid"], 3);
    assert_eq!(problems(&target), "[]");
    assert_eq!(changes(&target), "[]");
}

#[test]
fn hosts_that_cannot_connect_again_are_named() {
    let target = Steered::start();
    let _host = target.connect("guest");
    let guest = host_nqn("guest");
    let said = |args: &[&str]| {
        let done = target.command(args);
        assert!(done.status.success(), "{done:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let words = |text: &str, why: &str, command: &str| {
        let all = [guest.raw(), "cannot connect again", why, command];
        assert!(all.iter().all(|word| text.contains(word)), "{text}");
    };
    let text = said(&["subsystem", "set", NQN, "--require-key", "on"]);
    words(&text, "has no key", "cairn-target host add");
    assert!(Host::connect(&Soft::default(), target.options("late")).is_err());
    until("the refusal", || problems(&target).contains("host-late"));
    let text = said(&["subsystem", "set", NQN, "--require-key", "off"]);
    assert!(
        text.contains("without a key of their own can connect"),
        "{text}"
    );
    assert_eq!(problems(&target), "[]");
    let text = said(&["host", "any", NQN, "off"]);
    words(&text, "not permitted", "cairn-target host add");
    assert!(Host::connect(&Soft::default(), target.options("stranger")).is_err());
    assert!(problems(&target).contains(host_nqn("stranger").raw()));
    let text = target.text();
    let open = "allow_any_host = true";
    assert!(!text.contains(open), "{text}");
    let name = format!("nqn = \"{NQN}\"\n");
    let text = text.replace("allow_any_host = false\n", "");
    fs::write(
        target.config(),
        text.replace(&name, &format!("{name}{open}\n")),
    )
    .unwrap();
    target.done("cairn_reload", json!({}));
    assert_eq!(problems(&target), "[]");
}

#[test]
fn a_smaller_disk_does_not_take_the_place_of_one_with_its_uuid() {
    let (target, _) = start();
    let uuid = disk(&target)["uuid"].clone();
    let small = target.folder.path().join("small.img");
    let set = |bytes| {
        File::create(&small).unwrap().set_len(bytes).unwrap();
        let set = json!({"nqn": NQN, "nsid": 2, "export": small, "uuid": uuid});
        target.call("cairn_namespace_set", set)
    };
    let refused = set(MIB / 2).unwrap_err().to_string();
    assert!(refused.contains("lost data"), "{refused}");
    assert_eq!(disk(&target)["bytes"], MIB);
    set(2 * MIB).unwrap();
    assert_eq!(disk(&target)["bytes"], 2 * MIB);
}
