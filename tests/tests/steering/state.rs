use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use cairn_initiator::reservation::ReservationType as Type;
use cairn_initiator::wire::reservation::RegisterCdw10;
use cairn_tests::harness::own_loopback_address;
use serde_json::json;

use crate::reservations::Member;
use crate::target::{Steered, until};

fn start() -> (Steered, PathBuf) {
    let mut target = Steered::start();
    let disk = target.folder.path().join("disk");
    fs::File::create(&disk).unwrap().set_len(1 << 20).unwrap();
    let state = target.folder.path().join("state");
    fs::create_dir(&state).unwrap();
    let text = format!("[target]\nstate_directory = {state:?}");
    let text = target.text().replace("[target]", &text);
    let text = text.replace("\"mem:4MiB\"", &format!("{disk:?}"));
    fs::write(target.config(), text).unwrap();
    target.crash_logged();
    (target, state)
}

fn run(target: &Steered, verb: &[&str], file: &Path) -> (Option<i32>, String) {
    let ended: Output = target.command(&[verb, &[file.to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status.code(), said)
}

/// Writes the file of another target with this state directory.
fn second(target: &Steered, state: &Path) -> PathBuf {
    let other = target.folder.path().join("other.toml");
    let socket = target.folder.path().join("other.sock");
    let own_address = own_loopback_address();
    let text = format!(
        "[target]\nprovider = \"soft\"\nstate_directory = {state:?}\n[control]\nsocket = {socket:?}\n\
         [[listener]]\naddress = \"{own_address}\"\n"
    );
    fs::write(&other, text).unwrap();
    other
}

fn persist(target: &Steered) -> Member {
    let mut member = Member::of(target.connect("a"), 1, 7);
    let persist = RegisterCdw10(0).with_cptpl(RegisterCdw10::CPTPL_SET).0;
    member.register(persist).unwrap();
    member.acquire(Type::WriteExclusive).unwrap();
    member
}

fn reservations(state: &Path) -> PathBuf {
    let files = fs::read_dir(state).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let is_it = |file: &PathBuf| file.extension().is_some_and(|end| end == "reservations");
    files.find(is_it).unwrap()
}

#[test]
fn folders_of_a_control_socket_are_not_made() {
    let target = Steered::start();
    let folder = target.folder.path();
    for place in ["rum/cairn.sock", "rum/deep/cairn.sock"] {
        let socket = folder.join(place);
        let file = folder.join("typo.toml");
        let former = target.socket().display().to_string();
        let text = target.text().replace(&former, socket.to_str().unwrap());
        fs::write(&file, text).unwrap();
        let remedy = format!("mkdir -p {}", socket.parent().unwrap().display());
        for verb in [&["check"][..], &["serve", "--config"]] {
            let (code, said) = run(&target, verb, &file);
            assert!(said.contains(&remedy), "{said}");
            assert_eq!(code, Some(2), "{said}");
            assert!(!folder.join("rum").exists(), "{verb:?}");
        }
        let option = ["serve", "--control", socket.to_str().unwrap(), "--config"];
        let (code, said) = run(&target, &option, &target.config());
        assert_eq!((code, said.contains(&remedy)), (Some(2), true), "{said}");
        assert!(!folder.join("rum").exists());
    }
}

#[test]
fn a_state_directory_belongs_to_one_target() {
    let (mut target, state) = start();
    let (code, said) = run(&target, &["check"], &target.config());
    assert_eq!(code, Some(0), "{said}");
    let other = second(&target, &state);
    let named = format!("another target (process ID {})", target.pid());
    for verb in [&["check"][..], &["serve", "--config"]] {
        let (code, said) = run(&target, verb, &other);
        assert!(
            said.contains(&named) && said.contains("directory of its own"),
            "{said}"
        );
        assert_eq!(code, Some(2), "{said}");
    }
    target.crash_logged();
    assert_eq!(target.done("cairn_status", json!({}))["health"], "ok");
}

#[test]
fn a_deleted_file_of_reservations_closes_its_disk() {
    let (mut target, state) = start();
    drop(persist(&target));
    let file = reservations(&state);
    let bytes = fs::read(&file).unwrap();
    target.crash_logged_around(|| fs::remove_file(&file).unwrap());
    let problems = || target.done("cairn_status", json!({}))["problems"].to_string();
    let said = problems();
    assert!(
        said.contains("the file is missing") && said.contains("namesake"),
        "{said}"
    );
    assert!(
        target.log().contains("the file is missing"),
        "{}",
        target.log()
    );
    let (code, said) = run(&target, &["check"], &target.config());
    assert!(
        code == Some(1) && said.contains("the file is missing"),
        "{said}"
    );
    fs::write(&file, bytes).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    until("the disk", || problems() == "[]");
    let mut stranger = Member::of(target.connect("c"), 1, 0);
    assert!(!stranger.may_write());
    drop(stranger);
    target.crash_logged_around(|| {
        fs::remove_file(&file).unwrap();
        fs::remove_file(state.join("index").join(file.file_stem().unwrap())).unwrap();
    });
    assert_eq!(
        target.done("cairn_status", json!({}))["problems"],
        json!([])
    );
}

#[test]
fn a_state_directory_lost_by_a_running_target_is_logged_and_counted() {
    let (target, state) = start();
    drop(persist(&target));
    let page = || target.done("cairn_metrics_get", json!({})).to_string();
    until("the check", || {
        page().contains("cairn_state_directory_lost 0")
    });
    let moved = state.with_extension("moved");
    fs::rename(&state, &moved).unwrap();
    until("the loss", || {
        page().contains("cairn_state_directory_lost 1")
    });
    let line = "state_directory is lost";
    until("its line", || target.log().contains(line));
    fs::rename(&moved, &state).unwrap();
    until("the return", || {
        page().contains("cairn_state_directory_lost 0")
    });
    assert_eq!(target.log().matches(line).count(), 1, "{}", target.log());
}

#[test]
fn older_files_of_a_running_targets_reservations_are_replaced() {
    let (mut target, state) = start();
    let holder = persist(&target);
    let older = reservations(&state);
    let backup = fs::read(&older).unwrap();
    let mut next = Member::of(target.connect("b"), 1, 9);
    next.register(RegisterCdw10(0).with_cptpl(RegisterCdw10::CPTPL_SET).0)
        .unwrap();
    let newest = fs::read(&older).unwrap();
    assert_ne!(newest, backup);
    drop((holder, next));
    for damage in [Some(&backup), None] {
        fs::remove_dir_all(&state).unwrap();
        fs::create_dir(&state).unwrap();
        if let Some(backup) = damage {
            fs::write(&older, backup).unwrap();
        }
        until("the newest state", || {
            fs::read(&older).is_ok_and(|bytes| bytes == newest)
        });
        assert_eq!(target.done("cairn_status", json!({}))["health"], "ok");
        let (code, said) = run(&target, &["check"], &second(&target, &state));
        assert!(code == Some(2) && said.contains("another target"), "{said}");
    }
    target.crash_logged();
    let mut stranger = Member::of(target.connect("c"), 1, 0);
    assert!(!stranger.may_write());
}

#[test]
fn an_empty_directory_in_place_of_a_lost_one_waits_for_its_files() {
    let (mut target, state) = start();
    drop(persist(&target));
    let kept = state.with_extension("kept");
    target.crash_logged_around(|| fs::rename(&state, &kept).unwrap());
    fs::create_dir(&state).unwrap();
    let problems = || target.done("cairn_status", json!({}))["problems"].to_string();
    let waits = || problems().contains("and is empty now");
    until("another reason", waits);
    target.done("cairn_reload", json!({}));
    assert!(waits() && problems().contains("restart the target"));
    fs::remove_dir_all(&state).unwrap();
    fs::rename(&kept, &state).unwrap();
    until("the disk", || problems() == "[]");
    let mut stranger = Member::of(target.connect("c"), 1, 0);
    assert!(!stranger.may_write());
    drop(stranger);
    target.crash_logged_around(|| {
        fs::remove_dir_all(&state).unwrap();
        fs::create_dir(&state).unwrap();
    });
    let mut stranger = Member::of(target.connect("c"), 1, 0);
    assert!(stranger.may_write(), "a start drops the reservations");
}
