use std::fs;

use libtest_mimic::Failed;

use super::{Bench, EXAMPLE_ADDRESS, NQN, texts};

fn line(command: &str) -> String {
    let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
    format!("cairn-initiator {name} -a {EXAMPLE_ADDRESS} --provider soft -n {NQN} {rest}")
}

#[track_caller]
fn is_refused(bench: &Bench, command: &str, code: i32, parts: &[&str]) {
    let output = bench.run(&line(command));
    let (stdout, stderr) = texts(&output);
    assert_eq!(output.status.code(), Some(code), "{command}: {stderr}");
    for part in parts {
        assert!(
            stderr.contains(part) || stdout.contains(part),
            "{command}: {stdout}{stderr}"
        );
    }
}

pub(crate) fn read() -> Result<(), Failed> {
    let bench = Bench::new();
    let path = |name: &str| bench.folder.path().join(name);
    for (name, content) in [("disk.img", vec![0; 4096]), ("notes", b"x".to_vec())] {
        fs::write(path(name), &content)?;
        let told = ["it is not empty", "redirect stdout"];
        is_refused(&bench, &format!("read -d {name}"), 1, &told);
        assert!(fs::read(path(name))? == content, "{name} has changed");
    }
    bench.succeed(&line("read -d new"))?;
    fs::write(path("empty"), "")?;
    bench.succeed(&line("read -d empty"))?;
    bench.succeed(&line("read -d /dev/null"))?;
    bench.succeed(&line("read > notes"))?;
    for name in ["new", "empty", "notes"] {
        assert_eq!(fs::read(path(name))?, [0; 512], "{name}");
    }
    bench.stop()
}
