//! SPDK's published clients: rpc.py, Python classes, and spdkcli.
//!
//! Ignored by default; `cargo xtask test --all` runs the tests like these commands:
//!
//! ```sh
//! SPDK_PYTHON=$(cargo xtask spdk-client) \
//!     cargo nextest run -p cairn-tests --test steering --run-ignored only
//! ```

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use cairn_initiator::Secret;
use serde_json::{Value, json};

use crate::spdk::{HOST, NEW, includes};
use crate::target::{NQN, Steered};

pub(crate) fn client() -> Option<OsString> {
    match std::env::var("SPDK_PYTHON") {
        Ok(folder) => Some(folder.into()),
        Err(error) => {
            cairn_skips::skip(format_args!(
                "SPDK_PYTHON names no folder with SPDK's Python package ({error}): `cargo xtask \
                 spdk-client` fetches it, with python3, pip and a way to the registry of Python \
                 packages",
            ));
            None
        }
    }
}

fn python(client: &OsString, arguments: &[&str]) -> Command {
    let mut python = Command::new("python3");
    python
        .args(["-W", "ignore"])
        .args(arguments)
        .env("PYTHONPATH", client);
    python
}

fn rpc_py(client: &OsString, target: &Steered, words: &str, stdin: Stdio) -> Output {
    python(client, &["-m", "spdk.spdk_rpc", "-s"])
        .arg(target.socket())
        .args(words.split_whitespace())
        .stdin(stdin)
        .output()
        .unwrap()
}

pub(crate) struct RpcPy {
    child: Child,
    lines: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
    socket: String,
    pub(crate) called: BTreeSet<String>,
}

impl RpcPy {
    pub(crate) fn start(client: &OsString, target: &Steered) -> Self {
        let mut command = python(client, &["-m", "spdk.spdk_rpc", "--server"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            lines: child.stdin.take(),
            said: BufReader::new(child.stdout.take().unwrap()),
            child,
            socket: target.socket().display().to_string(),
            called: BTreeSet::new(),
        }
    }

    fn run(&mut self, line: &str) -> (bool, String) {
        let method = line.split(' ').next().unwrap().to_owned();
        self.called.insert(method);
        writeln!(self.lines.as_ref().unwrap(), "-s {} {line}", self.socket).unwrap();
        let mut printed = String::new();
        loop {
            let before = printed.len();
            let read = self.said.read_line(&mut printed).unwrap();
            assert_ne!(read, 0, "{line}: {printed}");
            if let Some(status) = printed[before..].strip_prefix("**STATUS=") {
                let success = status.trim() == "0";
                printed.truncate(before);
                return (success, printed);
            }
        }
    }

    pub(crate) fn done(&mut self, line: &str) -> Value {
        let (success, printed) = self.run(line);
        assert!(success, "{line}: {printed}");
        match printed.trim() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_else(|_| json!(text)),
        }
    }

    pub(crate) fn refused(&mut self, line: &str) -> Value {
        let (success, printed) = self.run(line);
        assert!(!success, "{line}: {printed}");
        error_in(&printed)
    }

    pub(crate) fn steps(&mut self, steps: &[(&str, Value)]) {
        for (line, wanted) in steps {
            let found = self.done(line);
            assert!(includes(&found, wanted), "{line}: {found:#}");
        }
    }
}

impl Drop for RpcPy {
    fn drop(&mut self) {
        drop(self.lines.take());
        let _ = self.child.wait();
    }
}

fn error_in(printed: &str) -> Value {
    let (_, error) = printed.split_once("\nresponse:\n").expect(printed);
    serde_json::from_str(error).expect(printed)
}

pub(crate) fn key_file(folder: &Path, name: &str) -> String {
    let path = folder.join(name);
    let options = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path);
    let secret = Secret::generate(32, None, &mut |bytes| bytes.fill(1));
    options
        .unwrap()
        .write_all(secret.to_text().as_bytes())
        .unwrap();
    path.display().to_string()
}

#[test]
#[ignore = "SPDK's own client: `cargo xtask test --all` runs it"]
fn spdks_own_rpc_py_says_what_is_refused() {
    let Some(client) = client() else {
        return;
    };
    let target = Steered::start();
    for (words, code, message) in [
        (
            "bdev_lvol_get_lvstores".to_owned(),
            -32601,
            "Method not found",
        ),
        (
            format!("nvmf_create_subsystem {NQN} -s SPDK1"),
            -32603,
            "Unable to create subsystem",
        ),
        (
            format!("nvmf_create_subsystem {NEW} -p"),
            -32602,
            "passthrough",
        ),
        (format!("nvmf_delete_subsystem {NEW}"), -32602, NEW),
        ("bdev_get_bdevs -b none".to_owned(), -19, "No such device"),
        (
            "bdev_aio_create /no/such/file Aio0 512".to_owned(),
            -2,
            "/no/such/file",
        ),
        ("bdev_malloc_create 1 100".to_owned(), -22, "block_size"),
    ] {
        let output = rpc_py(&client, &target, &words, Stdio::null());
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{words}: {printed}");
        let error = error_in(&printed);
        assert_eq!(error["code"], code, "{words}: {error}");
        let said = error["message"].as_str().unwrap();
        assert!(said.contains(message), "{words}: {error}");
    }
    let output = rpc_py(&client, &target, "spdk_get_version", Stdio::null());
    assert_eq!(output.status.code(), Some(0));
}

#[test]
#[ignore = "SPDK's own client: `cargo xtask test --all` runs it"]
fn spdks_own_rpc_py_loads_what_it_saved() {
    let Some(client) = client() else {
        return;
    };
    let target = Steered::start();
    let mut rpc = RpcPy::start(&client, &target);
    let listener = format!("-t rdma -f ipv4 -a {} -s 4421", target.address);
    for line in [
        format!("nvmf_delete_subsystem {NQN}"),
        "bdev_malloc_create -b Malloc0 4 4096".to_owned(),
        "bdev_null_create Spare 8 512".to_owned(),
        format!("nvmf_create_subsystem {NEW} -s SPDK1 -d MODEL1 -i 1 -I 100"),
        format!("nvmf_subsystem_add_ns {NEW} Malloc0 -n 3 -a 2"),
        "bdev_set_qos_limit Malloc0 --rw-ios-per-sec 2000".to_owned(),
        format!("nvmf_subsystem_add_host {NEW} {HOST}"),
        format!("nvmf_subsystem_add_listener {NEW} {listener}"),
        format!("nvmf_subsystem_listener_set_ana_state {NEW} -n non_optimized {listener}"),
    ] {
        rpc.done(&line);
    }
    let saved = rpc.done("save_config");
    assert_eq!(saved, rpc.done("save_config --with-batches"));
    let nvmf = rpc.done("save_subsystem_config -n nvmf");
    assert_eq!(nvmf, saved["subsystems"][2]);
    drop((rpc, target));

    let target = Steered::start();
    let mut rpc = RpcPy::start(&client, &target);
    rpc.done(&format!("nvmf_delete_subsystem {NQN}"));
    let file = target.folder.path().join("saved.json");
    fs::write(&file, saved.to_string()).unwrap();
    let loaded = File::open(&file).unwrap().into();
    let output = rpc_py(&client, &target, "load_config", loaded);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");
    assert_eq!(printed, "");
    let mut again = rpc.done("save_config");
    let own = target.address.to_string();
    let nvmf = again["subsystems"][2]["config"].as_array_mut().unwrap();
    nvmf.retain(|request| request["params"]["listen_address"]["traddr"] != own);
    assert_eq!(again, saved);
}

#[test]
#[ignore = "SPDK's own client: `cargo xtask test --all` runs it"]
fn spdks_own_rpc_py_sends_many_commands() {
    let Some(client) = client() else {
        return;
    };
    let target = Steered::start();
    let send = |words: &str, line: &dyn Fn(u32) -> String| {
        let file = target.folder.path().join("commands");
        let lines: Vec<String> = (0..200).map(line).collect();
        fs::write(&file, lines.join("\n")).unwrap();
        rpc_py(&client, &target, words, File::open(&file).unwrap().into())
    };
    let null_disks = || {
        let bdevs = target.done("bdev_get_bdevs", json!({}));
        let all = bdevs.as_array().unwrap().iter();
        all.filter(|bdev| bdev["product_name"] == "Null disk")
            .count()
    };
    let create = |number: u32| format!("bdev_null_create N{number} 1 512");
    let created = send("--batch-mode", &create);
    assert!(created.status.success(), "{created:?}");
    let names = String::from_utf8_lossy(&created.stdout);
    let wanted: Vec<String> = (0..200).map(|number| format!("\"N{number}\"")).collect();
    let printed = names.lines().filter(|line| *line != "null");
    assert_eq!(printed.collect::<Vec<_>>(), wanted);
    assert_eq!(null_disks(), 200);
    let again = send("--batch-mode", &create);
    assert_eq!(again.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&again.stderr);
    assert_eq!(errors.matches("\"code\": -17").count(), 200, "{errors}");
    let deleted = send("", &|number| format!("bdev_null_delete N{number}"));
    assert!(deleted.status.success(), "{deleted:?}");
    assert_eq!(null_disks(), 0);
}

#[test]
#[ignore = "SPDK's own client: `cargo xtask test --all` runs it"]
fn spdks_own_cli_builds_a_subsystem() {
    let Some(client) = client() else {
        return;
    };
    let target = Steered::start();
    let cli = |words: &str| {
        let output = python(&client, &["-m", "spdk.spdk_cli", "-s"])
            .arg(target.socket())
            .args(words.split(' '))
            .env("HOME", target.folder.path())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), printed, error)
    };
    let at = target.address;
    let of = format!("/nvmf/subsystem/{NEW}");
    for words in [
        "/bdevs/malloc create 4 512 Malloc0".to_owned(),
        "/bdevs/null create Null0 4 512".to_owned(),
        format!("/nvmf/subsystem create {NEW} SPDK1 8 true"),
        format!("{of}/namespaces create Malloc0 3"),
        format!("{of}/namespaces create Null0"),
        format!("{of}/hosts create {HOST}"),
        format!("{of}/listen_addresses create rdma {at} 4421 ipv4"),
    ] {
        let (code, printed, error) = cli(&words);
        assert_eq!((code, error.as_str()), (Some(0), ""), "{words}: {printed}");
    }
    let (_, tree, _) = cli("ls /nvmf");
    for wanted in [
        &format!("o- {NEW} "),
        "[sn=SPDK1, st=NVMe, Allow any host]",
        "[Malloc0, 3]",
        "[Null0, 1]",
        &format!("o- {at}:4421 "),
        &format!("o- {HOST} "),
        "[Transports: 1]",
    ] {
        assert!(tree.contains(wanted), "{wanted}: {tree}");
    }
    let (_, disks, _) = cli("ls /bdevs");
    for wanted in ["o- Malloc0 ", "o- Null0 "] {
        assert!(disks.contains(wanted), "{wanted}: {disks}");
    }
    let (code, _, error) = cli("/nvmf/subsystem delete nqn.2016-06.io.spdk:none");
    assert_eq!(code, Some(1), "{error}");
    let (code, printed, _) = cli(&format!("/nvmf/subsystem delete {NEW}"));
    assert_eq!(code, Some(0), "{printed}");
    let (_, tree, _) = cli("ls /nvmf");
    assert!(!tree.contains(NEW), "{tree}");
}

#[test]
#[ignore = "SPDK's own client: `cargo xtask test --all` runs it"]
fn spdks_own_classes_build_a_subsystem() {
    let Some(client) = client() else {
        return;
    };
    let target = Steered::start();
    let key = key_file(target.folder.path(), "key");
    let script = format!(
        "from spdk.rpc.client import JSONRPCClient\n\
         c = JSONRPCClient('{}')\n\
         assert 'nvmf_get_subsystems' in c.rpc_get_methods()\n\
         assert c.bdev_malloc_create(num_blocks=2048, block_size=512, name='Malloc0') == 'Malloc0'\n\
         nqn = 'nqn.2016-06.io.spdk:cnode1'\n\
         assert c.nvmf_create_subsystem(nqn=nqn, allow_any_host=True)\n\
         assert c.nvmf_subsystem_add_ns(nqn=nqn, namespace=dict(bdev_name='Malloc0')) == 1\n\
         assert c.nvmf_get_subsystems(nqn=nqn)[0]['namespaces'][0]['name'] == 'Malloc0'\n\
         import io\n\
         from spdk.rpc.config import load_config, save_config\n\
         saved = io.StringIO()\n\
         save_config(c, saved)\n\
         assert c.nvmf_delete_subsystem(nqn=nqn)\n\
         assert c.nvmf_delete_subsystem(nqn='{NQN}')\n\
         assert c.bdev_malloc_delete(name='Malloc0')\n\
         saved.seek(0)\n\
         load_config(c, saved)\n\
         assert c.nvmf_get_subsystems(nqn=nqn)[0]['namespaces'][0]['name'] == 'Malloc0'\n\
         assert c.bdev_get_iostat(names=['Malloc0'])['bdevs'][0]['num_read_ops'] == 0\n\
         host = 'nqn.2016-06.io.spdk:host1'\n\
         assert c.nvmf_subsystem_allow_any_host(nqn=nqn, allow_any_host=False)\n\
         for name in ('one', 'two'): assert c.keyring_file_add_key(name=name, path='{}')\n\
         assert c.nvmf_subsystem_add_host(nqn=nqn, host=host, dhchap_key='one')\n\
         assert c.nvmf_subsystem_set_keys(nqn=nqn, host=host, dhchap_key='two', dhchap_ctrlr_key='one')\n\
         shown = c.nvmf_get_subsystems(nqn=nqn)[0]['hosts'][0]\n\
         assert (shown['dhchap_key'], shown['dhchap_ctrlr_key']) == ('two', 'one')\n\
         assert c.keyring_file_remove_key(name='two')\n\
         assert [key['removed'] for key in c.keyring_get_keys()] == [False, True]\n\
         assert c.bdev_null_create(name='Null0', num_blocks=2048, block_size=512) == 'Null0'\n\
         assert c.bdev_null_resize(name='Null0', new_size=2)\n\
         assert 'bdev_register' in c.notify_get_types()\n\
         assert c.notify_get_notifications(id=0)[-1]['ctx'] == 'Null0'\n",
        target.socket().display(),
        key,
    );
    let output = python(&client, &["-c", &script]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
}
