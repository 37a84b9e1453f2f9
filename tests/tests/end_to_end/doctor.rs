use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

const DEFAULTS: &str = "sys/kernel/config/rdma_cm/mlx5_0/ports/1";
const MODE: &str = "sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_mode";

fn machine(root: &Path) {
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    for (file, content) in [
        (MODE.to_owned(), "IB/RoCE v1"),
        (format!("{DEFAULTS}/default_roce_tos"), "0"),
        (format!("{port}/state"), "4: ACTIVE"),
        (format!("{port}/link_layer"), "Ethernet"),
        (
            format!("{port}/gids/0"),
            "fe80:0000:0000:0000:0202:c9ff:fe12:3456",
        ),
        (
            format!("{port}/gids/1"),
            "fe80:0000:0000:0000:0202:c9ff:fe12:3456",
        ),
        (format!("{port}/gid_attrs/types/0"), "IB/RoCE v1"),
        (format!("{port}/gid_attrs/types/1"), "RoCE v2"),
    ] {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

fn fix(answer: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    machine(folder.path());
    let mut doctor = Command::new(env!("CARGO_BIN_EXE_cairn-target-process"))
        .args(["doctor", "--fix", "--interval", "0", "--root"])
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let answers = format!("{answer}\n").repeat(10);
    let mut stdin = doctor.stdin.take().unwrap();
    stdin.write_all(answers.as_bytes()).unwrap();
    drop(stdin);
    let output = doctor.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    (said, fs::read_to_string(folder.path().join(MODE)).unwrap())
}

#[test]
fn a_no_changes_nothing_and_a_yes_does_what_was_said() {
    let question = "run `cairn-target fabric set-mode mlx5_0 v2 --port 1`? [y/N] ";
    for answer in ["n", "", "what?"] {
        let (said, mode) = fix(answer);
        assert!(
            said.contains(&format!("{question}left as it is\n")),
            "{said}"
        );
        assert!(!said.contains("running:"), "{said}");
        assert_eq!(mode, "IB/RoCE v1", "{answer:?}");
    }
    let (said, mode) = fix("y");
    assert!(said.contains(&format!("{question}running: ")), "{said}");
    assert_eq!(mode.trim(), "RoCE v2", "{said}");
}

#[test]
fn a_refused_file_counts_as_errors() {
    let folder = tempfile::tempdir().unwrap();
    machine(folder.path());
    let file = folder.path().join("target.toml");
    let root = folder.path().to_str().unwrap();
    let doctor = |text: &str| {
        fs::write(&file, text).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_cairn-target-process"))
            .args(["doctor", "--interval", "0", "--root", root, "--config"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let number = said
            .rsplit_once(" error")
            .unwrap()
            .0
            .rsplit_once(' ')
            .unwrap()
            .1;
        (output.status.code(), number.parse::<u32>().unwrap())
    };
    let (code, one) = doctor("listener = 7\n");
    assert_eq!(code, Some(2));
    let (_, three) = doctor("listener = 7\nsubsystem = 7\nmetrics = 7\n");
    assert_eq!(three, one + 2);
}
