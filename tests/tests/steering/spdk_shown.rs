//! What SPDK's clients read of disks.

use serde_json::{Value, json};

use crate::target::{NQN, Steered, until};

const UUID: &str = "26ffc8ce-73b4-321d-9685-7d7a9872c460";

/// A disk by a name.
fn bdev(target: &Steered, name: &str) -> Value {
    let found = target.done("bdev_get_bdevs", json!({"name": name}));
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 1, "{name}");
    found[0].clone()
}

/// A file with so many bytes, and its path.
fn file(target: &Steered, name: &str, bytes: usize) -> String {
    let path = target.folder.path().join(name);
    std::fs::write(&path, vec![0; bytes]).unwrap();
    path.display().to_string()
}

/// One disk of each kind, as namespaces 2 to 5.
fn make_disks(target: &Steered, files: &[String; 2]) {
    let sized = |name: &str| json!({"name": name, "num_blocks": 64, "block_size": 512});
    let mut named = sized("Malloc0");
    named["uuid"] = json!(UUID);
    let [aio, uring] = files;
    for (method, params) in [
        ("bdev_malloc_create", named),
        ("bdev_null_create", sized("Null0")),
        (
            "bdev_aio_create",
            json!({"name": "Aio0", "filename": aio, "block_size": 512, "readonly": true}),
        ),
        (
            "bdev_uring_create",
            json!({"name": "Uring0", "filename": uring, "block_size": 4096}),
        ),
    ] {
        target.done(method, params);
    }
}

fn add_all(target: &Steered) {
    // A UUID is a name, too.
    for (nsid, name) in [(2, UUID), (3, "Null0"), (4, "Aio0"), (5, "Uring0")] {
        let namespace = json!({"bdev_name": name, "nsid": nsid});
        let add = json!({"nqn": NQN, "namespace": namespace});
        assert_eq!(target.done("nvmf_subsystem_add_ns", add), nsid);
    }
}

/// What spdkcli looks for in the names of products.
fn is_listed(bdev: &Value, kind: &str) -> bool {
    let product = bdev["product_name"].as_str().unwrap();
    product.to_lowercase().contains(kind)
}

#[test]
fn disks_are_of_their_kind_also_after_a_restart() {
    let mut target = Steered::start();
    let files = ["aio.img", "uring.img"].map(|name| file(&target, name, 65536));
    make_disks(&target, &files);
    let kinds = [
        ("Malloc0", "malloc", json!({})),
        ("Null0", "null", json!({})),
        (
            "Aio0",
            "aio",
            json!({"aio": {"filename": files[0], "block_size_override": true, "readonly": true}}),
        ),
        ("Uring0", "uring", json!({"uring": {"filename": files[1]}})),
    ];
    for is_added in [false, true] {
        for (name, kind, specific) in &kinds {
            let shown = bdev(&target, name);
            assert!(is_listed(&shown, kind), "{shown}");
            assert_eq!(shown["driver_specific"], *specific, "{name}");
            assert_eq!(shown["claimed"], is_added, "{name}");
        }
        assert_eq!(bdev(&target, UUID)["name"], "Malloc0");
        assert_eq!(bdev(&target, "Malloc0")["aliases"], json!([UUID]));
        if !is_added {
            add_all(&target);
        }
    }
    target.crash();
    // How a file is opened is not in the configuration file: SPDK's first kind stands for both.
    for (name, kind) in [
        ("Malloc0", "malloc"),
        ("Null0", "null"),
        ("Aio0", "aio"),
        ("Uring0", "aio"),
    ] {
        let shown = bdev(&target, name);
        assert!(is_listed(&shown, kind), "{shown}");
        let uuid = shown["uuid"].as_str().unwrap();
        assert_eq!(shown["aliases"], json!([uuid]));
        assert_eq!(bdev(&target, &uuid.to_uppercase())["name"], name);
    }
    let aio = &bdev(&target, "Aio0")["driver_specific"]["aio"];
    assert_eq!(aio["filename"], files[0]);
    assert_eq!(aio["readonly"], true);
    // One without a name, too.
    assert!(is_listed(&bdev(&target, "mem:4194304"), "malloc"));
}

#[test]
fn a_uuid_stands_for_the_name_of_a_disk() {
    let target = Steered::start();
    let null = json!({"name": "Null0", "num_blocks": 2048, "block_size": 512, "uuid": UUID});
    target.done("bdev_null_create", null);
    for (method, params) in [
        (
            "bdev_set_qos_limit",
            json!({"name": UUID, "rw_ios_per_sec": 2000}),
        ),
        ("bdev_null_resize", json!({"name": UUID, "new_size": 2})),
    ] {
        assert_eq!(target.done(method, params), true, "{method}");
    }
    let shown = bdev(&target, "Null0");
    assert_eq!(shown["num_blocks"], 4096);
    assert_eq!(shown["assigned_rate_limits"]["rw_ios_per_sec"], 2000);
    let counts = target.done("bdev_get_iostat", json!({"names": [UUID]}));
    assert_eq!(counts["bdevs"][0]["name"], "Null0");
    assert_eq!(target.done("bdev_null_delete", json!({"name": UUID})), true);
    let gone = json!({"name": UUID});
    for method in ["bdev_get_bdevs", "bdev_null_delete"] {
        assert_eq!(target.refused(method, gone.clone()), -19, "{method}");
    }
}

#[test]
fn disks_are_deleted_and_looked_at_again() {
    let target = Steered::start();
    let files = ["aio.img", "uring.img"].map(|name| file(&target, name, 65536));
    make_disks(&target, &files);
    add_all(&target);
    for (path, name, rescan, block) in [
        (&files[0], "Aio0", "bdev_aio_rescan", 512),
        (&files[1], "Uring0", "bdev_uring_rescan", 4096),
    ] {
        assert_eq!(bdev(&target, name)["num_blocks"], 65536 / block);
        std::fs::write(path, vec![0; 131_072]).unwrap();
        assert_eq!(target.done(rescan, json!({"name": name})), true);
        until("the new size", || {
            bdev(&target, name)["num_blocks"] == 131_072 / block
        });
    }
    assert_eq!(
        target.refused("bdev_uring_rescan", json!({"name": "Null0"})),
        -19
    );
    for (method, name) in [
        ("bdev_aio_delete", "Aio0"),
        ("bdev_uring_delete", "Uring0"),
        ("bdev_null_delete", "Null0"),
        ("bdev_malloc_delete", "Malloc0"),
    ] {
        assert_eq!(target.done(method, json!({"name": name})), true, "{method}");
        assert_eq!(target.refused(method, json!({"name": name})), -19);
    }
    // With the namespaces that they were.
    let left = target.done("nvmf_get_subsystems", json!({"nqn": NQN}));
    assert_eq!(left[0]["namespaces"].as_array().unwrap().len(), 1);
}
