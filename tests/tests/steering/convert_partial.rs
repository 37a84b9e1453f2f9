use serde_json::{Value, json};

use super::convert::{PARTIAL, nvmet_addr, parse, say, written};

#[test]
fn a_conversion_is_partial_if_hosts_miss_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = |nsid: u32, enable: u8| json!({"enable": enable, "nsid": nsid, "device": {"path": "/dev/nullb0"}});
    let nvmet = |namespaces: Value| {
        let port = json!({
            "addr": nvmet_addr("rdma", "192.0.2.1"), "portid": 1,
            "subsystems": ["nqn.2024-01.com.example:a"],
        });
        json!({"ports": [port], "subsystems": [{
            "attr": {"allow_any_host": "1", "qid_max": "4"}, "namespaces": namespaces,
            "nqn": "nqn.2024-01.com.example:a",
        }]})
    };
    for (namespaces, expected) in [
        (json!([namespace(1, 1), namespace(2, 0)]), 0),
        (json!([namespace(1, 1), namespace(1, 1)]), PARTIAL),
        (json!([namespace(50000, 1)]), PARTIAL),
        (json!([{"enable": 1, "nsid": "first"}]), PARTIAL),
    ] {
        let saved = written(&folder, "saved.json", &nvmet(namespaces).to_string());
        let (code, text, notes) = say(&["import", "nvmet"], &saved);
        assert_eq!(code, Some(expected), "{notes}");
        assert!(text.contains("[[subsystem]]"), "{text}");
    }
    for (export, kind) in [("mem:1MiB", "nvmet"), ("/dev/ng0n1", "spdk")] {
        let toml = format!(
            "[[listener]]\naddress = \"192.0.2.1\"\n[[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\n\
             allow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\nexport = \"{export}\"\n"
        );
        let file = written(&folder, "target.toml", &toml);
        let (code, _, notes) = say(&["export", kind], &file);
        assert_eq!(code, Some(PARTIAL), "{notes}");
    }
}

#[test]
fn the_inline_data_of_nvmet_is_in_capsule_data() {
    let folder = tempfile::tempdir().unwrap();
    let imported = |sizes: [&str; 2]| {
        let port = |id: u8, size: &str| {
            json!({
                "addr": nvmet_addr("rdma", &format!("192.0.2.{id}")), "portid": id,
                "param": {"inline_data_size": size}, "subsystems": [],
            })
        };
        let ports = [port(1, sizes[0]), port(2, sizes[1])];
        let saved = json!({"ports": ports, "subsystems": []}).to_string();
        let (_, text, notes) = say(
            &["import", "nvmet"],
            &written(&folder, "saved.json", &saved),
        );
        (parse(&text).target.in_capsule_data_bytes, notes)
    };
    assert_eq!(imported(["8192", "8192"]), (8192, String::new()));
    assert_eq!(imported(["-1", "4096"]), (4096, String::new()));
    assert_eq!(imported(["0", "0"]), (0, String::new()));
    let (bytes, notes) = imported(["-1", "65636"]);
    assert_eq!(bytes, 16384);
    for port in [
        "192.0.2.1:4420: inline_data_size 4096",
        "192.0.2.2:4420: inline_data_size 65636",
    ] {
        assert!(notes.contains(port), "{notes}");
    }
    let toml = "[target]\nin_capsule_data = \"8KiB\"\n[[listener]]\naddress = \"192.0.2.1\"\n";
    let (code, exported, notes) = say(&["export", "nvmet"], &written(&folder, "8.toml", toml));
    assert_eq!((code, notes.as_str()), (Some(0), ""));
    let exported: Value = serde_json::from_str(&exported).unwrap();
    assert_eq!(exported["ports"][0]["param"]["inline_data_size"], "8192");
}

#[test]
fn a_file_is_kept_from_a_result_that_lacks_something() {
    let folder = tempfile::tempdir().unwrap();
    let kept = written(&folder, "kept", "before");
    let to = ["--file", kept.to_str().unwrap()];
    let toml = |settings: &str, export: &str| {
        let text = format!(
            "[[listener]]\naddress = \"192.0.2.1\"\n[[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\n\
             allow_any_host = true\n{settings}\n[[subsystem.namespace]]\nnsid = 1\nexport = \"{export}\"\n"
        );
        written(&folder, "target.toml", &text)
    };
    let export = [&["export", "nvmet"], &to[..]].concat();
    let (code, _, notes) = say(&export, &toml("require_key = true", "/dev/vg0/a"));
    assert_eq!(code, Some(1), "{notes}");
    let is_error = |line: &str| line.starts_with("error: ") && line.contains("require_key");
    assert!(notes.lines().any(is_error), "{notes}");
    assert!(notes.contains("kept was not written"), "{notes}");

    let (code, _, notes) = say(&export, &toml("", "mem:1MiB"));
    assert_eq!(code, Some(1), "{notes}");
    assert!(notes.contains("kept stays as it is"), "{notes}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "before");
    std::fs::remove_file(&kept).unwrap();
    let (code, _, notes) = say(&export, &toml("", "mem:1MiB"));
    assert_eq!(code, Some(PARTIAL), "{notes}");
    assert!(kept.exists());
}
