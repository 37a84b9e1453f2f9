//! Command-line options, without a file and combined with one.

use cairn_config::{
    Backing, Config, Flags, LogFormat, Provider, Roce, absolute_export, resolved_export,
};

const FILE: &str = include_str!("../examples/two-hosts.toml");

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

fn serve(listen: &[&str], export: &[&str], nqn: Option<&str>) -> Flags {
    Flags {
        listen: strings(listen),
        export: strings(export),
        nqn: nqn.map(str::to_owned),
        ..Flags::default()
    }
}

#[test]
fn a_word_before_a_colon_is_a_kind_of_disk() {
    let here = std::env::current_dir().unwrap();
    let here = here.display();
    for (export, path) in [
        ("disk", "disk"),
        ("./a:b", "a:b"),
        (".a:b", ".a:b"),
        ("disk.img:1", "disk.img:1"),
        ("by-path/pci-0000:01", "by-path/pci-0000:01"),
    ] {
        assert_eq!(absolute_export(export), format!("{here}/{path}"));
        let directory = absolute_export(&format!("dir:{export}"));
        assert_eq!(directory, format!("dir:{here}/{path}"));
    }
    for kept in [
        "mem:1GiB",
        "men:1GiB",
        "rbd:pool/image",
        "/dev/a:b",
        "",
        "dir:",
    ] {
        assert_eq!(absolute_export(kept), kept);
    }
}

#[test]
fn flags_alone_make_a_configuration() {
    let flags = serve(
        &["192.0.2.1", "[2001:db8::1]:4421"],
        &["/dev/sdb", "mem:64MiB", "disk.img"],
        Some("nqn.2024-01.com.example:cli"),
    );
    let config = Config::from_flags(&flags).unwrap();
    let addresses: Vec<String> = config
        .listeners
        .iter()
        .map(|l| l.trid().to_string())
        .collect();
    assert_eq!(addresses, ["192.0.2.1:4420", "[2001:db8::1]:4421"]);
    let [subsystem] = &config.subsystems[..] else {
        panic!("one subsystem")
    };
    assert_eq!(subsystem.nqn.raw(), "nqn.2024-01.com.example:cli");
    assert!(subsystem.allow_any_host);
    let here = std::env::current_dir().unwrap();
    let backings: Vec<_> = subsystem
        .namespaces
        .iter()
        .map(|ns| (ns.nsid, ns.backing.clone()))
        .collect();
    assert_eq!(
        backings,
        [
            (1, Backing::Disk("/dev/sdb".into())),
            (2, Backing::Memory { bytes: 64 << 20 }),
            (3, Backing::Disk(here.join("disk.img"))),
        ]
    );
}

#[test]
fn a_default_name_is_stable_and_no_other_targets() {
    let name = |listen: &str, export: &str| {
        let config = Config::from_flags(&serve(&[listen], &[export], None)).unwrap();
        config.subsystems[0].nqn
    };
    let nqn = name("192.0.2.1", "mem:1GiB");
    assert!(nqn.raw().starts_with("nqn.2014-08.org.nvmexpress:uuid:"));
    assert_eq!(nqn, name("192.0.2.1", "mem:1GiB"));
    assert_ne!(nqn, name("192.0.2.1:4421", "mem:1GiB"));
    assert_ne!(nqn, name("192.0.2.1", "/dev/sdb"));
}

#[test]
fn a_default_name_is_that_of_the_file_however_it_is_spelled() {
    let name = |export: &str| {
        let flags = Flags {
            first_export: Some(resolved_export(export)),
            ..serve(&["192.0.2.1"], &[export], None)
        };
        Config::from_flags(&flags).unwrap().subsystems[0].nqn
    };
    for plain in ["mem:1GiB", "/dev/sdb", "rbd:pool/image"] {
        assert_eq!(resolved_export(plain), plain);
    }
    let folder = tempfile::tempdir_in(".").unwrap();
    let whole = folder.path().canonicalize().unwrap();
    let here = std::env::current_dir().unwrap();
    let near = whole.strip_prefix(&here).unwrap().display().to_string();
    let whole = whole.display().to_string();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
    };
    link("disk.img", "link");
    link("link", "other");
    link("/dev/disk/by-id/cairn-none", "device");
    let all = ["disk.img", "link", "other", "../X/disk.img", "./disk.img"];
    let nqn = name(&format!("{whole}/disk.img"));
    for is_there in [false, true] {
        if is_there {
            std::fs::write(folder.path().join("disk.img"), "").unwrap();
        }
        for one in all.map(|one| one.replace('X', whole.rsplit('/').next().unwrap())) {
            for folder in [&near, &format!("./{near}"), &whole] {
                assert_eq!(name(&format!("{folder}/{one}")), nqn, "{folder}/{one}");
            }
        }
    }
    assert_ne!(name(&format!("{whole}/device")), nqn);
    assert_eq!(
        name(&format!("{whole}/device")),
        name("/dev/disk/by-id/cairn-none")
    );
    assert_eq!(name(&format!("dir:{near}")), name(&format!("dir:{whole}/")));
}

#[test]
fn flags_add_to_a_file() {
    let flags = Flags {
        log_format: Some("json".to_owned()),
        provider: Some("soft".to_owned()),
        ..serve(
            &["192.0.2.9"],
            &["null:1GiB"],
            Some("nqn.2024-01.com.example:db"),
        )
    };
    let config = Config::parse("cairn.toml", FILE, &flags).unwrap();
    assert_eq!(config.listeners.len(), 3);
    assert!(
        config
            .listeners
            .iter()
            .all(|listener| listener.provider == Provider::Soft)
    );
    assert_eq!(config.target.log.format, LogFormat::Json);
    assert_eq!(
        config.subsystems.len(),
        2,
        "the file has the subsystem already"
    );
    let added = &config.subsystems[0].namespaces[2];
    assert_eq!(
        (added.nsid, &added.backing),
        (3, &Backing::Null { bytes: 1 << 30 })
    );
    assert!(
        !config.subsystems[0].allow_any_host,
        "the file's list stands"
    );
}

#[test]
fn a_new_name_is_a_new_subsystem() {
    let flags = serve(&[], &["mem:1GiB"], Some("nqn.2024-01.com.example:new"));
    let config = Config::parse("cairn.toml", FILE, &flags).unwrap();
    assert_eq!(config.subsystems.len(), 3);
    assert_eq!(config.subsystems[2].namespaces[0].nsid, 1);
}

#[test]
fn a_tag_is_for_roce_v1() {
    let flags = |roce: &str| Flags {
        roce: Some(roce.to_owned()),
        vlan: Some(5),
        ..serve(&["192.0.2.9"], &["null:1GiB"], None)
    };
    let config = Config::from_flags(&flags("v1")).unwrap();
    assert_eq!(config.target.roce, Roce::V1 { vlan: Some(5) });
    let error = Config::from_flags(&flags("v2")).unwrap_err().to_string();
    let expected = "\
error: RoCE v2 writes no VLAN tags
  --> --vlan 5
  help: listen on an address of a VLAN interface, so that the kernel writes the tags; or set roce = \"v1\"";
    assert_eq!(error.trim(), expected);
}

#[test]
fn a_partition_is_that_of_the_flags_listeners() {
    let flags = |listen: &[&str]| Flags {
        pkey: Some("0x8001".parse().unwrap()),
        ..serve(listen, &[], None)
    };
    let config = Config::parse("cairn.toml", FILE, &flags(&["192.0.2.9"])).unwrap();
    let keys: Vec<u16> = config.listeners.iter().map(|one| one.pkey.bits()).collect();
    assert_eq!(keys, [0xffff, 0xffff, 0x8001]);
    let error = Config::parse("cairn.toml", FILE, &flags(&[])).unwrap_err();
    let error = error.to_string();
    let expected = "\
error: a partition key without an address to listen on
  --> --pkey 0x8001
  help: add --listen ADDR, or leave --pkey out: each [[listener]] of the file has its own pkey";
    assert_eq!(error.trim(), expected);
}

#[test]
fn errors_name_the_flag() {
    let flags = Flags {
        provider: Some("rdma".to_owned()),
        log: Some("debgu".to_owned()),
        ..serve(
            &["eth0", "224.0.0.1"],
            &["mem:lots", "disk:1GiB", ""],
            Some(""),
        )
    };
    let error = Config::from_flags(&flags).unwrap_err().to_string();
    let expected = "\
error: \"eth0\" is not an IP address
  --> --listen eth0
  help: write ADDR or ADDR:PORT, such as 192.0.2.1:4420 or [2001:db8::1]:4420; \
\"ip -brief address\" shows this machine's addresses

error: \"debgu\" is not a log level
  --> --log debgu
  help: did you mean \"debug\"?

error: \"rdma\" is not known here
  --> --provider rdma
  help: write \"auto\", \"verbs\" or \"soft\"

error: 224.0.0.1 belongs to no single machine
  --> --listen 224.0.0.1
  help: write an address of this machine, such as address = \"192.0.2.1\"; \
\"ip -brief address\" shows them

error: the name of the subsystem is empty
  --> --nqn \n  help: name it, such as nqn = \"nqn.2024-01.com.example:disks\"

error: \"lots\" is not a size
  --> --export mem:lots
  help: write a whole number and a unit, such as \"64MiB\" or \"10GiB\"

error: \"disk:\" is not a kind of disk
  --> --export disk:1GiB
  help: write the absolute path of a block device or file, \"dir:DIRECTORY\", \"rbd:POOL/IMAGE\", \
\"mem:SIZE\" or \"null:SIZE\"

error: \"\" is not an absolute path
  --> --export \n  help: write the absolute path of a block device or file, \"dir:DIRECTORY\", \"rbd:POOL/IMAGE\", \
\"mem:SIZE\" or \"null:SIZE\"";
    assert_eq!(error, expected);
}

#[test]
fn a_flag_and_the_file_can_clash() {
    let flags = serve(&["192.0.2.1"], &["/srv/db-log.img"], None);
    let error = Config::parse("cairn.toml", FILE, &flags)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "\
error: the address 192.0.2.1:4420 is given twice, first by line 10
  --> --listen 192.0.2.1
  help: remove one of them, or give it another port; 0.0.0.0 and :: include all

error: the disk /srv/db-log.img is given twice, first by line 32
  --> --export /srv/db-log.img
  help: export each disk once, or set read_only = true on both"
    );
}

#[test]
fn nothing_at_all_is_an_error() {
    let error = Config::from_flags(&Flags::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("there is no address to listen on"),
        "{error}"
    );
    let error = Config::from_flags(&serve(&["192.0.2.1"], &[], Some("nqn.2024-01.a:b")));
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("without anything to export")
    );
}

#[test]
fn a_file_that_is_not_there_says_so() {
    let path = std::path::Path::new("/nonexistent/cairn.toml");
    let error = Config::from_file(path, &Flags::default()).unwrap_err();
    assert_eq!(error.problems()[0].line_column(), None);
    assert!(
        error.to_string().contains("--> /nonexistent/cairn.toml"),
        "{error}"
    );
}

#[test]
fn metrics_are_off_unless_asked_for() {
    let metrics = |text: &str, flag: Option<&str>| {
        let flags = Flags {
            metrics: flag.map(str::to_owned),
            ..serve(&["192.0.2.1"], &["mem:1GiB"], None)
        };
        let config = Config::parse("cairn.toml", text, &flags).unwrap();
        config.metrics.listen.map(|address| address.to_string())
    };
    let file = "[metrics]\nlisten = \"::1\"\n";
    assert_eq!(metrics("", None), None);
    assert_eq!(metrics(file, None).as_deref(), Some("[::1]:9464"));
    let flag = Some("127.0.0.1:9");
    assert_eq!(metrics(file, flag).as_deref(), Some("127.0.0.1:9"));
}

#[test]
fn directories_come_last_and_leave_the_others_their_numbers() {
    let exports = ["dir:/srv/a", "mem:1MiB", "dir:b", "/srv/disk"];
    let config = Config::from_flags(&serve(&["192.0.2.1"], &exports, None)).unwrap();
    let subsystem = &config.subsystems[0];
    let nsids: Vec<u32> = subsystem.namespaces.iter().map(|one| one.nsid).collect();
    assert_eq!(nsids, [1, 2]);
    let [first, second] = &subsystem.pools[..] else {
        panic!("{:?}", subsystem.pools);
    };
    assert_eq!(first.folder, std::path::Path::new("/srv/a"));
    assert_eq!(first.nsids, 3..=1002);
    assert_eq!(second.folder, std::env::current_dir().unwrap().join("b"));
    assert_eq!(*second.nsids.start(), 1003);
    assert!(*second.nsids.end() > 1003);
    let file = "[[listener]]\naddress = \"192.0.2.1\"\n\
                [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n\
                [[subsystem.namespace]]\nnsid = 7\nexport = \"dir:/srv/a\"\n";
    let flags = serve(&[], &["mem:1MiB"], Some("nqn.2024-01.com.example:a"));
    let config = Config::parse("cairn.toml", file, &flags).unwrap();
    assert_eq!(config.subsystems[0].namespaces[0].nsid, 1007);
    assert_eq!(config.subsystems[0].pools[0].nsids, 7..=1006);
}
