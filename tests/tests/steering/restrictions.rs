use std::os::unix::fs::symlink;
use std::path::Path;

use cairn_initiator::Host;
use cairn_roce::Soft;
use serde_json::{Value, json};

use crate::keys::{assert_secret, secret, start};
use crate::target::{NQN, Steered, until};

const EACCES: i64 = -13;
const EROFS: i64 = -30;
const INVALID: i64 = -32602;

#[test]
fn what_narrows_access_is_carried_out_or_refused() {
    let target = Steered::start();
    let set = |params: Value| target.done("nvmf_set_config", params);
    let before = target.text();
    set(json!({
        "dhchap_digests": ["sha256", "sha384", "sha512"], "discovery_filter": "match_any",
        "dup_host_policy": "allow",
        "dhchap_dhgroups": ["null", "ffdhe2048", "ffdhe3072", "ffdhe4096", "ffdhe6144", "ffdhe8192"],
    }));
    assert_eq!(target.text(), before, "it is so already");
    set(json!({"dhchap_digests": ["sha384", "sha512"], "dhchap_dhgroups": ["ffdhe2048"]}));
    let text = target.text();
    for line in [
        "dhchap_hashes = [\"sha512\", \"sha384\"]",
        "dhchap_groups = [\"ffdhe2048\"]",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let saved = target.done("framework_get_config", json!({"name": "nvmf"}));
    let wanted = json!({"dhchap_digests": ["sha512", "sha384"], "dhchap_dhgroups": ["ffdhe2048"]});
    assert_eq!(saved[0]["params"], wanted);
    for params in [
        json!({"dhchap_digests": ["md5"]}),
        json!({"dhchap_digests": []}),
        json!({"discovery_filter": "transport,address"}),
        json!({"discovery_filters": ["svcid"]}),
        json!({"dup_host_policy": "restrict_per_listener"}),
    ] {
        let refused = target.refused("nvmf_set_config", params.clone());
        assert_eq!(refused, INVALID, "{params}");
    }
    assert_eq!(target.text(), text);
    let other = json!({"nqn": NQN, "tgt_name": "other"});
    for method in ["nvmf_get_subsystems", "nvmf_delete_subsystem"] {
        assert_eq!(target.refused(method, other.clone()), INVALID, "{method}");
    }
    let own = json!({"nqn": NQN, "tgt_name": "nvmf_tgt"});
    assert_eq!(target.done("nvmf_get_subsystems", own)[0]["nqn"], NQN);
}

fn image(path: &Path) {
    std::fs::write(path, vec![0; 1 << 20]).unwrap();
}

#[test]
fn requests_export_what_the_list_names_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("images")).unwrap();
    std::fs::create_dir(path("others")).unwrap();
    for name in ["images/a", "images/b", "others/secret"] {
        image(&path(name));
    }
    symlink(path("others/secret"), path("images/link")).unwrap();
    let target = Steered::start_with(&format!("exports = [{:?}]\n", path("images")));
    let add = |export: &str| json!({"nqn": NQN, "export": export});
    let at = |name: &str| path(name).display().to_string();
    target.done("cairn_namespace_add", add(&at("images/a")));
    target.done("cairn_namespace_add", add("mem:1MiB"));
    let before = target.text();
    for export in [
        at("others/secret"),
        at("images/link"),
        at("images/../others/secret"),
        format!("dir:{}", at("others")),
    ] {
        let refused = target.refused("cairn_namespace_add", add(&export));
        assert_eq!(refused, EACCES, "{export}");
    }
    assert_eq!(
        target.refused("cairn_namespace_add", add("rbd:pool/image")),
        EACCES
    );
    let params = json!({"nqn": NQN, "nsid": 1, "export": at("others/secret")});
    assert_eq!(target.refused("cairn_namespace_set", params), EACCES);
    let params = json!({"name": "Aio0", "filename": at("others/secret"), "block_size": 512});
    target.done("bdev_aio_create", params);
    let params = json!({"nqn": NQN, "namespace": {"bdev_name": "Aio0"}});
    assert_eq!(target.refused("nvmf_subsystem_add_ns", params), EACCES);
    assert_eq!(target.text(), before);
    let namespace = format!(
        "[[subsystem.namespace]]\nnsid = 9\nexport = {:?}\n",
        at("others/secret")
    );
    std::fs::write(target.config(), format!("{before}\n{namespace}")).unwrap();
    target.done("cairn_reload", json!({}));
    target.done("cairn_namespace_add", add(&at("images/b")));
}

#[test]
fn a_read_only_socket_refuses_every_method_that_changes_something() {
    let target = Steered::start_with("read_only = true\n");
    let _host = target.connect("a");
    let before = target.text();
    let filter = target.done("cairn_log_get", json!({}));
    let methods = target.done("rpc_get_methods", json!({}));
    let methods = methods
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap());
    let looks = |name: &str| {
        name.contains("_get_")
            || ["_get", "_list", "_status", "_examine", "_init"]
                .iter()
                .any(|end| name.ends_with(end))
    };
    let mut refused = 0;
    for method in methods.filter(|name| !looks(name) && *name != "cairn_reload") {
        assert_eq!(target.refused(method, json!({})), EROFS, "{method}");
        refused += 1;
    }
    assert!(refused > 60, "{refused}");
    let all = [
        ("cairn_drain", json!({})),
        ("cairn_drain_undo", json!({})),
        ("cairn_connection_remove", json!({"nqn": NQN, "cntlid": 1})),
        ("cairn_log_set", json!({"filter": "trace"})),
        ("log_set_level", json!({"level": "DEBUG"})),
    ];
    for (method, params) in all {
        assert_eq!(target.refused(method, params), EROFS, "{method}");
    }
    assert_eq!(target.done("cairn_log_get", json!({})), filter);
    let connections = target.done("cairn_connection_list", json!({}));
    assert_eq!(connections.as_array().unwrap().len(), 1);
    target.done("cairn_reload", json!({}));
    assert_eq!(target.text(), before);
}

#[test]
fn a_key_in_the_file_is_not_shown_however_it_is_written() {
    let target = Steered::start_after(|_, _| {
        let host = |name: &str, key: &str| {
            format!(
                "[[subsystem]]\nnqn = \"nqn.2024-01.com.example:{name}\"\nallowed_hosts = [\"nqn.2024-01.com.example:h\"]\n\
                 dhchap_key = {key}\n[[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n"
            )
        };
        let secret = "ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n";
        let escaped = format!("\"\\u0044HHC-1:01:{secret}:\"");
        let folded = format!("\"\"\"DHHC-1:01:\\\n   {secret}:\"\"\"");
        host("escaped", &escaped) + &host("folded", &folded)
    });
    let shown = target.done("cairn_config_get", json!({}));
    let shown = shown["text"].as_str().unwrap();
    assert!(shown.contains("dhchap_key"), "{shown}");
    assert!(
        !shown.contains("ia6zGod") && !shown.contains("aQ2n"),
        "{shown}"
    );
    assert_eq!(shown.lines().count(), target.text().lines().count());
}

#[test]
fn numbers_with_a_fraction_or_an_exponent_are_the_integers_that_they_are() {
    let target = Steered::start();
    let text = |params: &str| serde_json::from_str::<Value>(params).unwrap();
    let disk = text(r#"{"name": "M", "num_blocks": 4.096e3, "block_size": 512.0}"#);
    assert_eq!(target.done("bdev_malloc_create", disk), "M");
    let limit = text(r#"{"name": "M", "rw_ios_per_sec": 2.0e4, "r_mbytes_per_sec": 8.0}"#);
    target.done("bdev_set_qos_limit", limit);
    let shown = target.done("bdev_get_bdevs", json!({"name": "M"}));
    assert_eq!(shown[0]["num_blocks"], 4096);
    assert_eq!(shown[0]["assigned_rate_limits"]["rw_ios_per_sec"], 20000);
    assert_eq!(shown[0]["assigned_rate_limits"]["r_mbytes_per_sec"], 8);
    let half = text(r#"{"name": "N", "num_blocks": 4096.5, "block_size": 512}"#);
    assert_eq!(target.refused("bdev_malloc_create", half), INVALID);
}

const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

#[test]
fn every_subsystem_that_is_shown_is_accepted_by_its_name() {
    let target = Steered::start();
    let shown = target.done("nvmf_get_subsystems", json!({}));
    for one in shown.as_array().unwrap() {
        let of = target.done("nvmf_get_subsystems", json!({"nqn": one["nqn"]}));
        assert_eq!(of, json!([one]));
        for look in ["controllers", "qpairs", "listeners"] {
            target.done(
                &format!("nvmf_subsystem_get_{look}"),
                json!({"nqn": one["nqn"]}),
            );
        }
    }
    let at = |port: &str| {
        let address = target.address.to_string();
        json!({"nqn": DISCOVERY, "listen_address": {
            "trtype": "RDMA", "adrfam": "IPv4", "traddr": address, "trsvcid": port}})
    };
    for port in ["4420", "8009", "8009"] {
        target.done("nvmf_subsystem_add_listener", at(port));
    }
    let listeners = target.done("nvmf_subsystem_get_listeners", json!({"nqn": DISCOVERY}));
    assert_eq!(listeners.as_array().unwrap().len(), 2);
    assert_eq!(
        target.refused("nvmf_subsystem_remove_listener", at("8009")),
        INVALID
    );
    let listener = format!("{}:4420", target.address);
    let own = json!({"nqn": NQN, "listeners": [listener]});
    target.done("cairn_subsystem_set", own);
    target.done("nvmf_subsystem_remove_listener", at("8009"));
    let host = json!({"nqn": DISCOVERY, "host": "nqn.2024-01.com.example:h"});
    target.done("nvmf_subsystem_add_host", host.clone());
    for (method, params) in [
        ("nvmf_subsystem_remove_host", host),
        (
            "nvmf_subsystem_allow_any_host",
            json!({"nqn": DISCOVERY, "allow_any_host": false}),
        ),
        ("nvmf_delete_subsystem", json!({"nqn": DISCOVERY})),
    ] {
        assert_eq!(target.refused(method, params), INVALID, "{method}");
    }
}

#[test]
fn a_host_outside_the_list_is_to_be_listed_before_it_gets_a_key() {
    let target = start();
    let any = json!({"nqn": NQN, "allow": true});
    target.done("cairn_host_any", any);
    let stranger = target.connect("stranger");
    let host = target.options("stranger").hostnqn;
    let set = json!({"nqn": NQN, "require_key": true});
    let answer = target.done("cairn_subsystem_set", set);
    let commands = format!("cairn-target host add {NQN} {host} --key FILE");
    assert!(
        answer["warnings"].to_string().contains(&commands),
        "{answer}"
    );
    drop(stranger);
    assert!(Host::connect(&Soft::default(), target.options("stranger")).is_err());
    until("the remedy", || {
        let status = target.done("cairn_status", json!({}));
        status["problems"].to_string().contains(&commands)
    });
    let add = ["host", "add", NQN, host.raw()];
    let run = |more: &[&str]| {
        let output = target.command(&[&add, more].concat());
        (
            output.status.success(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    assert_eq!(run(&["--key", "key:one"]), (true, String::new()));
    assert!(Host::connect(&Soft::default(), target.options("stranger")).is_err());
    let (done, said) = run(&["--key", "key:one"]);
    assert!(done && said.contains("unchanged"), "{said}");
    let (done, said) = run(&["--key", "key:two"]);
    let set = format!("cairn-target host key set {NQN} {host} --key FILE");
    for part in ["\"key:one\"", "\"key:two\"", &set] {
        assert!(!done && said.contains(part), "{said}");
    }
    let (done, said) = run(&["--key", &secret(9).to_text()]);
    assert!(!done && said.contains("into a file of mode 0600"), "{said}");
    assert_secret(&target, &(said + &target.log()));
}
