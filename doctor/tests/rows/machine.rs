use cairn_doctor::rules::{Intent, Membership, Severity};
use cairn_doctor::source::Source;
use cairn_rdma::PKey;

use crate::common::{assert_found, changed, findings, findings_with, intent, recorded, text};

#[test]
fn soft_roce_is_named_as_the_cause_of_cpu_load() {
    let findings = findings(&recorded("rxe"));
    let parts = ["note", "rxe0", "rdma_rxe", "CPU", "--provider soft"];
    assert_found(&findings, "rxe", &parts);
    assert!(findings.iter().all(|finding| finding.rule != "pfc"));
}

#[test]
fn a_broken_gsi_queue_pair_is_what_the_doctor_says_first() {
    let all = findings(&recorded("gsi"));
    assert_eq!((all[0].rule, all[0].severity), ("gsi", Severity::Error));
    let fix = "rdma link delete rxe0 && rdma link add rxe0 type rxe netdev dummy0";
    assert_found(&all, "gsi", &["rxe0 port 1", "state ERR", "time out", fix]);
    let port = "[/sys/class/infiniband/rxe0/ports/1]\nstate = 1: DOWN";
    let all = findings(&changed("gsi", port));
    assert_eq!((all[0].rule, all[1].rule), ("gsi", "port"));
    // The kernel recovers a GSI queue pair from state SQE, so SQE is no fault.
    let of = |name: &str, group: &str| {
        let all = findings(&changed(name, &format!("[?]\nqueue-pairs {group}"))).into_iter();
        all.filter(|finding| finding.rule == "gsi")
            .collect::<Vec<_>>()
    };
    let sqe = r#"rxe0 = [{"port":1,"type":"GSI","state":"SQE","count":1}]"#;
    assert!(of("rxe", sqe).is_empty());
    let rc = r#"rxe0 = [{"port":1,"type":"RC","state":"ERR","count":3}]"#;
    assert!(of("rxe", rc).is_empty());
    assert!(of("rxe", "rxe0 ! Protocol not supported (os error 93)").is_empty());
    let adapter = r#"mlx5_0 = [{"port":null,"type":"GSI","state":"ERR","count":1}]"#;
    let found = of("healthy", adapter);
    assert_found(
        &found,
        "gsi",
        &["mlx5_0: its GSI", "devlink dev reload pci/0000:08:00.0"],
    );
    assert!(!text(&found[0]).contains("rxe"));
}

#[test]
fn a_virtual_function_without_roce_is_recognised() {
    let findings = findings(&recorded("vf"));
    let devlink = "devlink dev param set pci/0000:08:00.2 name enable_roce value true";
    assert_found(
        &findings,
        "vf",
        &["error", "mlx5_2 port 1", "switched off", devlink],
    );
}

#[test]
fn counters_that_grow_are_warnings_and_old_ones_are_notes() {
    for (counter, word) in [
        ("counters/port_rcv_errors", "damaged"),
        ("hw_counters/out_of_sequence", "out of order"),
        ("hw_counters/rnr_nak_retry_err", "not ready"),
        (
            "hw_counters/local_ack_timeout_err",
            "no acknowledgement in time",
        ),
    ] {
        let path = format!("/sys/class/infiniband/mlx5_0/ports/1/{counter}");
        let growing = changed("healthy", &format!("[later]\n{path} = 9"));
        assert_found(
            &findings(&growing),
            "counters",
            &["warning", word, &path, "+9"],
        );
        let old = changed("healthy", &format!("{path} = 9"));
        assert_found(
            &findings(&old),
            "counters",
            &["note", word, &path, "not now"],
        );
    }
}

#[test]
fn memlock_is_summed_up_and_root_is_exempt() {
    let small = "[/proc]\nself/limits = Max locked memory 65536 65536 bytes\n";
    let found = findings(&changed("healthy", small));
    let parts = [
        "64 KiB",
        "40 MiB",
        "1024 receives of 2 reactors: 8 MiB",
        "ulimit -l",
    ];
    assert_found(&found, "memlock", &parts);
    let root = "self/status = Uid:\\t0\\t0\\t0\\t0\\nGid:\\t0\\t0\\t0\\t0\\nGroups:\\t0\\nCapEff:\\t0000000000004000";
    let found = findings(&changed("healthy", &format!("{small}{root}")));
    assert!(found.iter().all(|finding| finding.rule != "memlock"));
}

#[test]
fn a_small_receive_buffer_matters_to_user_space_without_the_capability() {
    let small = "[/proc]\nsys/net/core/rmem_max = 212992\n";
    let found = findings(&changed("no-device", small));
    assert_found(&found, "buffers", &["note", "208 KiB", "8 MiB", "rmem_max"]);
    let large = "[/proc]\nsys/net/core/rmem_max = 8388608\n";
    let admin = "[/proc]\nsys/net/core/rmem_max = 212992\nself/status = Uid:\\t1\\t1\\t1\\t1\\nGid:\\t1\\t1\\t1\\t1\\nCapEff:\\t0000000000001000";
    for (machine, change) in [
        ("no-device", large),
        ("no-device", admin),
        ("healthy", small),
    ] {
        let found = findings(&changed(machine, change));
        assert!(
            found.iter().all(|finding| finding.rule != "buffers"),
            "{change}"
        );
    }
}

#[test]
fn device_nodes_open_to_all_users_are_a_note() {
    let open = "[/dev/infiniband]\nuverbs0 @ 0666 0 0";
    let findings = findings(&changed("healthy", open));
    assert_found(
        &findings,
        "permissions",
        &["note", "every local user", "udev"],
    );
}

#[test]
fn threads_and_interrupts_belong_on_the_adapters_node() {
    let findings = findings(&recorded("numa"));
    assert_found(
        &findings,
        "numa",
        &["note", "mlx5_0", "NUMA node 1", "numactl -N 1"],
    );
    assert_found(
        &findings,
        "numa",
        &["warning", "1 of its 1 interrupts", "/proc/irq/50", "16-31"],
    );
    assert!(findings.iter().all(|finding| {
        finding.severity == Severity::Note || finding.rule != "numa" || finding.subject == "mlx5_0"
    }));
}

#[test]
fn small_rings_are_named_when_packets_are_discarded() {
    let discards =
        "[later]\n[/sys/class/infiniband/mlx5_0/ports/1]\ncounters/port_xmit_discards = 7";
    let findings = findings(&changed("healthy", discards));
    assert_found(
        &findings,
        "numa",
        &["note", "1024 entries of 8192", "ethtool -G eth2 rx 8192"],
    );
}

#[test]
fn a_missing_module_is_named_with_the_modprobe_line() {
    let no_ucm = findings(&changed("healthy", "- /dev/infiniband/rdma_cm"));
    assert_found(
        &no_ucm,
        "modules",
        &["error", "connection manager", "modprobe rdma_ucm"],
    );
    let no_uverbs =
        "- /dev/infiniband/uverbs0\n- /sys/class/infiniband/mlx5_0/device/infiniband_verbs";
    let no_uverbs = findings(&changed("healthy", no_uverbs));
    assert_found(
        &no_uverbs,
        "modules",
        &["error", "mlx5_0", "modprobe ib_uverbs"],
    );
    let no_driver = "- /sys/class/infiniband\n- /sys/module/mlx5_ib";
    let no_driver = findings(&changed("healthy", no_driver));
    assert_found(
        &no_driver,
        "modules",
        &["error", "eth2", "modprobe mlx5_ib"],
    );
    let other =
        "- /sys/class/infiniband\n[?]\ndriver eth2 = {\"driver\":\"ice\",\"firmware\":\"\"}";
    let other = findings(&changed("healthy", other));
    let parts = ["note", "eth2", "some adapters", "modprobe irdma"];
    assert_found(&other, "modules", &parts);
    let nvmet = findings(&changed("healthy", "[/sys/module]\nnvmet_rdma/"));
    assert_found(&nvmet, "modules", &["note", "kernel's own NVMe target"]);
}

fn of_partition(address: &str, pkey: u16, is_soft: bool) -> Intent {
    let membership = Membership {
        pkey: PKey::new(pkey).unwrap(),
        address: address.parse().unwrap(),
        is_soft,
        by: format!("the listener {address}:4420"),
    };
    Intent {
        partitions: vec![membership],
        ..intent()
    }
}

#[test]
fn a_partition_that_the_port_is_not_in_is_an_error_with_its_table() {
    let of = |source: &dyn Source, intent: Intent| {
        let all = findings_with(source, intent, None).into_iter();
        all.filter(|finding| finding.rule == "partition")
            .collect::<Vec<_>>()
    };
    let healthy = recorded("healthy");
    for address in ["192.0.2.1", "0.0.0.0"] {
        let found = of(&healthy, of_partition(address, 0x8001, false));
        let parts = [
            "error [partition] mlx5_0 port 1",
            "P_Key 0x8001 is not in its table",
            "/sys/class/infiniband/mlx5_0/ports/1/pkeys: 0xffff",
            "provider = \"soft\"",
        ];
        assert_found(&found, "partition", &parts);
        let parts = [
            "note",
            "Linux's own host",
            "cairn-initiator discover",
            "--pkey 0x8001",
        ];
        assert_found(&found, "partition", &parts);
        assert_eq!(found.len(), 2, "{found:?}");
    }
    let member = changed(
        "healthy",
        "/sys/class/infiniband/mlx5_0/ports/1/pkeys/1 = 0x8001",
    );
    let errors = |intent| {
        let found = of(&member, intent).into_iter();
        found.filter(|one| one.severity == Severity::Error).count()
    };
    assert_eq!(errors(of_partition("192.0.2.1", 0x8001, false)), 0);
    assert_eq!(errors(of_partition("192.0.2.1", 0x0001, false)), 1);
    assert_eq!(errors(of_partition("192.0.2.1", 0x8002, true)), 0);
    assert!(of(&healthy, of_partition("192.0.2.1", 0xffff, false)).is_empty());
}
