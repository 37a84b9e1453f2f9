use cairn_initiator::Host;
use serde_json::{Value, json};

use crate::target::{NQN, Steered, until};

const NEW: &str = "nqn.2016-06.io.spdk:cnode1";
const UUID: &str = "26ffc8ce-73b4-321d-9685-7d7a9872c460";

fn listener(target: &Steered) -> Value {
    json!({"trtype": "RDMA", "adrfam": "IPv4", "traddr": target.address, "trsvcid": "4420"})
}

fn bdev(target: &Steered, name: &str) -> Value {
    let found = target.done("bdev_get_bdevs", json!({"name": name}));
    let found = found.as_array().unwrap();
    assert_eq!(found.len(), 1, "{name}");
    found[0].clone()
}

fn file(target: &Steered, name: &str, bytes: usize) -> String {
    let path = target.folder.path().join(name);
    std::fs::write(&path, vec![0; bytes]).unwrap();
    path.display().to_string()
}

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
    for (nsid, name) in [(2, UUID), (3, "Null0"), (4, "Aio0"), (5, "Uring0")] {
        let namespace = json!({"bdev_name": name, "nsid": nsid});
        let add = json!({"nqn": NQN, "namespace": namespace});
        assert_eq!(target.done("nvmf_subsystem_add_ns", add), nsid);
    }
}

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
    let left = target.done("nvmf_get_subsystems", json!({"nqn": NQN}));
    assert_eq!(left[0]["namespaces"].as_array().unwrap().len(), 1);
}

#[test]
fn hosts_are_shown_with_their_queue_pairs() {
    let target = Steered::start();
    let of = json!({"nqn": NQN});
    let controllers = |target: &Steered| {
        let all = target.done("nvmf_subsystem_get_controllers", of.clone());
        all.as_array().unwrap().clone()
    };
    assert!(controllers(&target).is_empty());
    let mut options = target.options("shown");
    options.hostid = *b"0123456789abcdef";
    let hostnqn = options.hostnqn.raw().to_owned();
    let host = Host::connect(&cairn_roce::Soft::default(), options).unwrap();
    until("the queue pairs", || {
        controllers(&target)
            .first()
            .is_some_and(|one| one["num_io_qpairs"].as_u64() > Some(0))
    });
    let [controller] = &controllers(&target)[..] else {
        panic!("{:?}", controllers(&target))
    };
    let io = controller["num_io_qpairs"].as_u64().unwrap();
    let wanted = json!({
        "cntlid": 1, "cntrltype": "io", "hostnqn": hostnqn, "num_io_qpairs": io,
        "hostid": "30313233-3435-3637-3839-616263646566",
    });
    assert_eq!(*controller, wanted);
    let qpairs = target.done("nvmf_subsystem_get_qpairs", of.clone());
    let qpairs = qpairs.as_array().unwrap();
    assert_eq!(qpairs.len() as u64, io + 1);
    for (qid, qpair) in qpairs.iter().enumerate() {
        assert_eq!(qpair["qid"], qid);
        assert_eq!(qpair["state"], "enabled");
        assert_eq!(qpair["thread"], "reactor_0");
        assert_eq!(qpair["hostnqn"], hostnqn);
        assert_eq!(qpair["listen_address"], listener(&target));
        assert_eq!(qpair["peer_address"]["trtype"], "RDMA");
    }
    let stats = target.done("nvmf_get_stats", json!({}));
    assert_eq!(stats["tick_rate"], 1_000_000_000);
    let [group] = &stats["poll_groups"].as_array().unwrap()[..] else {
        panic!("{stats}")
    };
    assert_eq!(group["name"], "reactor_0");
    assert_eq!(group["current_admin_qpairs"], 1);
    assert_eq!(group["current_io_qpairs"], io);
    assert_eq!(group["transports"], json!([{"trtype": "RDMA"}]));
    drop(host);
    until("its end", || controllers(&target).is_empty());
    for method in [
        "nvmf_subsystem_get_controllers",
        "nvmf_subsystem_get_qpairs",
        "nvmf_subsystem_get_listeners",
    ] {
        assert_eq!(target.refused(method, json!({"nqn": NEW})), -32602);
    }
}

#[test]
fn a_listener_has_all_ana_groups_and_is_removed() {
    let target = Steered::start();
    let second =
        json!({"trtype": "RDMA", "adrfam": "IPv4", "traddr": target.address, "trsvcid": "4421"});
    let of = json!({"nqn": NQN, "listen_address": second});
    target.done("nvmf_subsystem_add_listener", of.clone());
    for (group, state) in [(7, "inaccessible"), (128, "non_optimized")] {
        let mut set = of.clone();
        set["ana_state"] = json!(state);
        set["anagrpid"] = json!(group);
        target.done("nvmf_subsystem_listener_set_ana_state", set);
    }
    let shown = target.done("nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    assert_eq!(shown[1]["address"], second);
    let states = shown[1]["ana_states"].as_array().unwrap();
    assert_eq!(states.len(), 128);
    for (index, state) in states.iter().enumerate() {
        let wanted = match index + 1 {
            7 => "inaccessible",
            128 => "non_optimized",
            _ => "optimized",
        };
        let wanted = json!({"ana_group": index + 1, "ana_state": wanted});
        assert_eq!(*state, wanted);
    }
    let remove = "nvmf_subsystem_remove_listener";
    assert_eq!(target.done(remove, of.clone()), true);
    assert_eq!(target.refused(remove, of), -32602);
    let left = target.done("nvmf_subsystem_get_listeners", json!({"nqn": NQN}));
    assert_eq!(left.as_array().unwrap().len(), 1);
    assert_eq!(left[0]["address"], listener(&target));
}

#[test]
fn the_transport_and_the_version_are_shown() {
    let target = Steered::start();
    let all = target.done("nvmf_get_transports", json!({}));
    let [transport] = &all.as_array().unwrap()[..] else {
        panic!("{all}")
    };
    assert_eq!(transport["trtype"], "RDMA");
    for name in [
        "max_queue_depth",
        "max_io_qpairs_per_ctrlr",
        "max_io_size",
        "max_aq_depth",
        "kas",
    ] {
        assert!(transport[name].as_u64() > Some(0), "{name}: {all}");
    }
    for name in ["RDMA", "rdma"] {
        let wanted = json!({"trtype": name, "tgt_name": "nvmf_tgt"});
        assert_eq!(target.done("nvmf_get_transports", wanted), all);
    }
    let missing = json!({"trtype": "TCP"});
    assert_eq!(target.refused("nvmf_get_transports", missing), -19);
    let version = target.done("spdk_get_version", json!({}));
    let fields = &version["fields"];
    let number = |name: &str| fields[name].as_u64().unwrap();
    let text = version["version"].as_str().unwrap();
    let [major, minor, patch] = ["major", "minor", "patch"].map(number);
    assert_eq!(text, format!("Cairn {major}.{minor}.{patch}"));
}

#[test]
fn reactors_are_threads_of_the_process() {
    let target = Steered::start();
    let shown = target.done("framework_get_reactors", json!({}));
    assert_eq!(shown["pid"], target.pid());
    assert_eq!(shown["tick_rate"], 1_000_000_000);
    let [reactor] = &shown["reactors"].as_array().unwrap()[..] else {
        panic!("{shown}")
    };
    let tid = reactor["tid"].as_u64().unwrap();
    let comm = format!("/proc/{}/task/{tid}/comm", target.pid());
    assert_eq!(std::fs::read_to_string(comm).unwrap(), "reactor-0\n");
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let spent_ns = number(reactor, "busy") + number(reactor, "idle");
    assert_eq!(spent_ns, number(&reactor["lw_threads"][0], "elapsed"));
    assert_eq!(reactor["lw_threads"][0]["name"], "reactor_0");
    let mask = reactor["lw_threads"][0]["cpumask"].as_str().unwrap();
    let digit = mask.len() - 1 - number(reactor, "lcore") as usize / 4;
    let bits = mask[digit..=digit]
        .chars()
        .next()
        .unwrap()
        .to_digit(16)
        .unwrap();
    assert_ne!(bits & (1 << (number(reactor, "lcore") % 4)), 0, "{reactor}");
    let again = target.done("framework_get_reactors", json!({}));
    assert!(number(&again["reactors"][0], "idle") > number(reactor, "idle"));
    let scheduler = target.done("framework_get_scheduler", json!({}));
    assert_eq!(scheduler["scheduler_name"], "static");
    assert_eq!(scheduler["scheduler_period"], 0);
    assert_eq!(
        target.done("framework_get_pci_devices", json!({})),
        json!([])
    );
}
