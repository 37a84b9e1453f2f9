use std::fs::{File, OpenOptions};
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Event, Notice, command};
use serde_json::{Value, json};

use crate::target::{NQN, Steered};

fn notices(target: &Steered, id: u64) -> Vec<(String, String)> {
    let all = target.done("notify_get_notifications", json!({"id": id}));
    let all = all.as_array().unwrap().iter().enumerate();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    all.map(|(index, notice)| {
        assert_eq!(notice["id"], id + index as u64);
        (text(&notice["type"]), text(&notice["ctx"]))
    })
    .collect()
}

fn add(target: &Steered, bdev: &str, nsid: u32) {
    let namespace = json!({"bdev_name": bdev, "nsid": nsid});
    let params = json!({"nqn": NQN, "namespace": namespace});
    assert_eq!(target.done("nvmf_subsystem_add_ns", params), nsid);
}

#[test]
fn a_copied_file_is_named_with_the_uuid_that_it_had() {
    let target = Steered::start();
    let at = |name: &str| target.folder.path().join(name).display().to_string();
    File::create(at("first")).unwrap().set_len(1 << 20).unwrap();
    let run = |args: &[&str]| {
        let output = target.command(args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(run(&["namespace", "add", NQN, &at("first")]), "");
    let all = target.done("cairn_namespace_list", json!({}));
    let uuid = all[1]["uuid"].as_str().unwrap();
    let copied = std::process::Command::new("cp")
        .args(["--preserve=all", &at("first"), &at("copy")])
        .status();
    assert!(copied.unwrap().success());
    let part = format!("a copy of the disk with the UUID {uuid}");
    let other = at("other.toml");
    let text = target.text().replace(&at("first"), &at("copy"));
    std::fs::write(&other, text).unwrap();
    let said = run(&["check", &other]);
    assert!(said.contains(&part), "{said}");
    let said = run(&["namespace", "add", NQN, &at("copy")]);
    assert!(said.contains(&part), "{said}");
    run(&["namespace", "remove", NQN, "3"]);
    assert!(!run(&["check", &other]).contains(&part));
}

#[test]
fn hosts_see_a_disk_grow() {
    let mut target = Steered::start();
    let null = json!({"name": "Null0", "num_blocks": 2048, "block_size": 512});
    target.done("bdev_null_create", null);
    add(&target, "Null0", 2);
    let path = target.folder.path().join("disk.img");
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len(1 << 20).unwrap();
    let aio = json!({"name": "Aio0", "filename": path, "block_size": 512});
    target.done("bdev_aio_create", aio);
    add(&target, "Aio0", 3);
    let blocks = |target: &Steered, nsid| {
        let mut host = target.connect("a");
        host.namespace(nsid).unwrap().nsze.get()
    };
    let mut host = target.connect("a");
    host.active_namespaces().unwrap();
    let resize = |size: u64| json!({"name": "Null0", "new_size": size});
    assert_eq!(target.done("bdev_null_resize", resize(3)), true);
    let noticed = host.wait_until("a notice", |host| match host.take_event() {
        Some(Event::Notice(notice)) => Some(notice),
        _ => None,
    });
    assert_eq!(noticed.unwrap(), Notice::NamespacesChanged);
    assert_eq!(blocks(&target, 2), 3 * 2048);
    file.set_len(2 << 20).unwrap();
    assert_eq!(
        target.done("bdev_aio_rescan", json!({"name": "Aio0"})),
        true
    );
    assert_eq!(blocks(&target, 3), 2 * 2048);
    for (method, params, code) in [
        ("bdev_null_resize", resize(2), -22),
        (
            "bdev_null_resize",
            json!({"name": "Aio0", "new_size": 9}),
            -22,
        ),
        (
            "bdev_null_resize",
            json!({"name": "none", "new_size": 9}),
            -19,
        ),
        ("bdev_aio_rescan", json!({"name": "Null0"}), -19),
        ("bdev_aio_rescan", json!({"name": "none"}), -19),
    ] {
        assert_eq!(
            target.refused(method, params.clone()),
            code,
            "{method} {params}"
        );
    }
    let seen = notices(&target, 0);
    let resized: Vec<&str> = seen
        .iter()
        .filter(|(kind, _)| kind == "bdev_resize")
        .map(|(_, name)| &**name)
        .collect();
    assert_eq!(resized, ["Null0", "Aio0"], "{seen:?}");
    drop(host);
    target.crash();
    assert_eq!(blocks(&target, 2), 3 * 2048);
}

#[test]
fn programs_read_what_became_of_disks() {
    let target = Steered::start();
    let kinds = target.done("notify_get_types", json!({}));
    assert_eq!(
        kinds,
        json!(["bdev_register", "bdev_unregister", "bdev_resize"])
    );
    let first = notices(&target, 0);
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0].0, "bdev_register");
    let malloc = json!({"name": "Malloc0", "num_blocks": 2048, "block_size": 512});
    target.done("bdev_malloc_create", malloc.clone());
    add(&target, "Malloc0", 2);
    target.done("bdev_malloc_delete", json!({"name": "Malloc0"}));
    target.done("bdev_malloc_create", malloc);
    let of = |kind: &str| (kind.to_owned(), "Malloc0".to_owned());
    let expected = ["bdev_register", "bdev_unregister", "bdev_register"].map(of);
    assert_eq!(notices(&target, 1), expected);
    let one = target.done("notify_get_notifications", json!({"id": 2, "max": 1}));
    assert_eq!(
        one,
        json!([{"type": "bdev_unregister", "ctx": "Malloc0", "id": 2}])
    );
    assert_eq!(notices(&target, 4), []);
    assert_eq!(
        target.refused("notify_get_notifications", json!({"id": -1})),
        -32602
    );
}

#[test]
fn a_disk_that_goes_can_come_again_at_once() {
    let target = Steered::start();
    let path = target.folder.path().join("disk.img");
    File::create(&path).unwrap().set_len(1 << 20).unwrap();
    let mut host = target.connect("a");
    let mut client = target.client();
    let mut call = |method: &str, params: Value| {
        let answer = client.call(method, &params);
        answer.unwrap_or_else(|error| panic!("{method} {params}: {error}"))
    };
    let add = json!({"nqn": NQN, "export": path, "nsid": 2});
    let without = target.text();
    for round in 0..30 {
        call("cairn_namespace_add", add.clone());
        if round % 2 == 0 {
            let second = host.io_queue(1);
            let _ = host.run_on(second, command::flush(2), Data::None);
        }
        call("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 2}));
    }
    call("cairn_namespace_add", add);
    let with = target.text();
    for _ in 0..15 {
        for text in [&without, &with] {
            std::fs::write(target.config(), text).unwrap();
            call("cairn_reload", json!({}));
        }
    }
    let other = target.folder.path().join("other.img");
    let file = File::create(&other).unwrap();
    file.set_len(1 << 20).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let since = Instant::now();
    let add = json!({"nqn": NQN, "export": other});
    assert_eq!(target.refused("cairn_namespace_add", add), -32602);
    assert!(since.elapsed() < Duration::from_secs(4));
}

#[test]
fn a_disk_without_an_nguid_has_its_uuid_as_one_on_request() {
    let target = Steered::start();
    let add = |nsid: u32, more: Value| {
        let mut add = json!({"nqn": NQN, "nsid": nsid, "export": "mem:1MiB"});
        let more = more.as_object().unwrap().clone();
        add.as_object_mut().unwrap().extend(more);
        add
    };
    let uuid = "11223344-5566-4778-899a-bbccddeeff01";
    let digits = uuid.replace('-', "");
    for (nsid, more) in [
        (7, json!({"uuid": uuid, "nguid": "from-uuid"})),
        (8, json!({"nguid": "0".repeat(31) + "5"})),
        (9, json!({})),
        (10, json!({"nguid": "from-uuid"})),
    ] {
        target.done("cairn_namespace_add", add(nsid, more));
    }
    let mut host = target.connect("nguid");
    let mut ids = |nsid| {
        let namespace = host.open_namespace(nsid).unwrap();
        (namespace.nguid, namespace.uuid.unwrap())
    };
    assert_eq!(ids(7), (Some(ids(7).1), ids(7).1));
    assert_eq!(ids(8).0.unwrap()[15], 5);
    assert_eq!(ids(9).0, None);
    let of_memory = ids(10).1;
    assert_eq!(ids(10).0, Some(of_memory));
    let of_memory = format!("{:032x}", u128::from_be_bytes(of_memory));
    for nguid in [digits, of_memory] {
        let params = add(11, json!({"nguid": nguid}));
        assert_eq!(target.refused("cairn_namespace_add", params), -32602);
    }
    target.done("cairn_namespace_remove", json!({"nqn": NQN, "nsid": 7}));
    let params = add(11, json!({"nguid": uuid.replace('-', "")}));
    target.done("cairn_namespace_add", params);
}

#[test]
fn the_target_exports_none_of_its_own_files() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir(at("state")).unwrap();
    for name in ["state/kept", "disk"] {
        File::create(at(name)).unwrap().set_len(1 << 20).unwrap();
    }
    let mut target = Steered::start_with(&format!("[audit]\nfile = {:?}\n", at("audit.json")));
    let key = target.command(&["key", "generate"]).stdout;
    let key = format!("{:4096}", String::from_utf8(key).unwrap().trim());
    std::fs::write(at("key"), key).unwrap();
    let text = target.text();
    let state = format!(
        "[[key]]\nname = \"k\"\npath = {:?}\n[target]\nstate_directory = {:?}",
        at("key"),
        at("state")
    );
    std::fs::write(target.config(), text.replace("[target]", &state)).unwrap();
    target.crash();
    std::os::unix::fs::symlink(target.config(), at("link")).unwrap();
    let add = |path| target.call("cairn_namespace_add", json!({"nqn": NQN, "export": path}));
    for (path, role) in [
        (at("audit.json"), "its audit log"),
        (at("link"), "its configuration file"),
        (at("state/kept"), "part of its state_directory"),
        (at("key"), "the file of a key"),
    ] {
        let error = add(path).unwrap_err().to_string();
        assert!(error.contains(role), "{error}");
    }
    add(at("disk")).unwrap();

    let text = target.text();
    std::fs::create_dir(at("pool")).unwrap();
    std::fs::hard_link(at("key"), at("pool/linked")).unwrap();
    for (export, reason) in [
        (at("audit.json").display().to_string(), "its audit log"),
        (
            format!("dir:{}", at("pool").display()),
            "linked is left out: the file of a key",
        ),
        (
            format!("dir:{}", at("state").display()),
            "its state_directory",
        ),
    ] {
        let own = text.replace("mem:4MiB", &export);
        std::fs::write(target.config(), own).unwrap();
        let check = target.command(&["check", target.config().to_str().unwrap()]);
        let said = String::from_utf8_lossy(&check.stderr);
        assert!(said.contains(reason), "{said}");
    }
}
