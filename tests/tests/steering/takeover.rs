use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cairn_control::Client;
use cairn_tests::harness::own_loopback_address;
use cairn_tests::process::program;
use serde_json::{Value, json};

use crate::target::{PATIENCE, until};

fn start(folder: &Path, name: &str) -> Child {
    let address = own_loopback_address();
    let path = folder.join(name);
    let toml = format!(
        "[target]\nreactors = 1\nprovider = \"soft\"\n[[listener]]\naddress = \"{address}\"\n\
         [[subsystem]]\nnqn = \"nqn.2024-01.com.example:{name}\"\nallow_any_host = true\n"
    );
    fs::write(&path, toml).unwrap();
    let mut command = Command::new(program("cairn-target-process"));
    command
        .args(["serve", "--log", "info", "--config"])
        .arg(path);
    let log = fs::File::create(folder.join(format!("{name}.log"))).unwrap();
    command
        .env("RUNTIME_DIRECTORY", folder)
        .stdout(Stdio::null());
    command.stderr(log).spawn().unwrap()
}

fn pid(folder: &Path) -> Option<u64> {
    let mut client = Client::connect(&folder.join("target.sock"), PATIENCE).ok()?;
    let status: Value = client.call("cairn_status", &json!({})).ok()?;
    status["pid"].as_u64()
}

#[test]
fn a_second_target_takes_over_the_control_socket() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = start(folder.path(), "first");
    let ids = [u64::from(first.id())];
    until("the first", || pid(folder.path()) == Some(ids[0]));
    let mut second = start(folder.path(), "second");
    let log = || fs::read_to_string(folder.path().join("second.log")).unwrap();
    until("the wait", || log().contains("until that target ends"));
    let id = u64::from(second.id());
    assert_eq!(pid(folder.path()), Some(ids[0]));
    first.kill().unwrap();
    first.wait().unwrap();
    until("the takeover", || pid(folder.path()) == Some(id));
    second.kill().unwrap();
    second.wait().unwrap();
}
