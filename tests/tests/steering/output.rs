//! Commands that cannot write their results.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use cairn_tests::process::program;

use crate::target::Steered;

fn into_full(line: &str, socket: &Path) -> Output {
    let mut command = Command::new(program("cairn-target-process"));
    command.args(line.split(' ')).env("CAIRN_CONTROL", socket);
    let full = File::options().write(true).open("/dev/full").unwrap();
    command.stdout(full).output().unwrap()
}

#[test]
fn a_result_that_is_not_written_is_an_error() {
    let target = Steered::start();
    let config = target.config().display().to_string();
    for line in [
        "schema",
        "schema --of status",
        "completions bash",
        "key generate",
        "--version",
        "--help",
        "namespace add --help",
        "status",
        "status -o json",
        "status --check",
        "config show",
        "namespace list",
        "namespace list -o name",
        "rpc cairn_status",
        "log",
        "top --count 1 --interval 0.1 -o json",
        &format!("check -o json {config}"),
        &format!("export spdk {config}"),
    ] {
        let output = into_full(line, &target.socket());
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success(), "{line}");
        let error = "error: writing to stdout: No space left on device";
        assert_eq!(stderr.matches(error).count(), 1, "{line}: {stderr}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let target = Steered::start();
    for line in ["schema", "--help", "config show", "completions bash"] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = Command::new(program("cairn-target-process"));
        command.args(line.split(' '));
        command.env("CAIRN_CONTROL", target.socket()).stdout(writer);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{line}");
        assert!(output.status.success(), "{line}");
    }
}

#[test]
fn a_configuration_replaces_no_disk() {
    let target = Steered::start();
    let disk = target.folder.path().join("disk.img");
    std::fs::write(&disk, [0; 4096]).unwrap();
    let (at, config) = (disk.display(), target.config().display().to_string());
    for (line, refusal) in [
        (format!("config show --file {at}"), "name another file"),
        (
            format!("export nvmet --file {at} {config}"),
            "a partial result replaces no file",
        ),
    ] {
        let line: Vec<&str> = line.split(' ').collect();
        let output = target.command(&line);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(refusal), "{line:?}: {stderr}");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(std::fs::read(&disk).unwrap(), [0; 4096]);
    }
    let before = target.text();
    let output = target.command(&["config", "show", "--file", &config]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(target.text(), before);
    let edited = before + "# An edit.\n";
    std::fs::write(target.config(), &edited).unwrap();
    let output = target.command(&["config", "show", "--file", &config]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("has not read"), "{stderr}");
    assert_eq!(target.text(), edited);
}

#[test]
fn a_restored_configuration_names_its_hidden_keys() {
    let target = Steered::start();
    let secret = cairn_initiator::Secret::generate(32, None, &mut |bytes| bytes.fill(7));
    let key = format!(
        "allow_any_host = true\ndhchap_key = \"{}\"",
        secret.to_text().as_str()
    );
    let text = target.text().replace("allow_any_host = true", &key);
    std::fs::write(target.config(), text).unwrap();
    target.done("cairn_reload", serde_json::json!({}));
    let copy = target.folder.path().join("copy.toml");
    let output = target.command(&["config", "show", "--file", copy.to_str().unwrap()]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("asterisks in place of keys"), "{stderr}");
    let own = target.config().display().to_string();
    let output = target.command(&["config", "show", "--file", &own]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        target.text().contains(secret.to_text().as_str()),
        "it keeps its key"
    );
}
