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

pub(crate) fn compare_and_write() -> Result<(), Failed> {
    let bench = Bench::new();
    let path = |name: &str| bench.folder.path().join(name);
    for (name, bytes) in [
        ("a", vec![1; 512]),
        ("b", vec![2; 512]),
        ("short", vec![3; 511]),
        ("long", vec![4; 513]),
    ] {
        fs::write(path(name), bytes)?;
    }
    let pair = |expected: &str, data: &str, rest: &str| {
        format!("compare-and-write --expected {expected} {data} --slba 7 {rest}")
    };
    let held = |expected: &str| -> Result<(), Failed> {
        let block = bench.run(&line("read --slba 7")).stdout;
        assert_eq!(block, fs::read(path(expected))?);
        Ok(())
    };
    let confirmed = "--destroy-data";
    is_refused(&bench, &pair("/dev/zero", "-d a", ""), 2, &[confirmed]);
    bench.succeed(&line(&pair("/dev/zero", "-d a", confirmed)))?;
    held("a")?;
    is_refused(
        &bench,
        &pair("b", "-d b", confirmed),
        1,
        &["nothing is written"],
    );
    held("a")?;
    for (expected, data, told) in [
        ("short", "-d b", "--expected short: it has 511 bytes"),
        ("a", "-d long", "-d long: it has more bytes than the block"),
        ("a", "< long", "stdin: it has more bytes"),
        ("absent", "-d b", "--expected absent: No such file"),
    ] {
        is_refused(&bench, &pair(expected, data, confirmed), 1, &[told]);
    }
    let beyond = "compare-and-write --expected a -d b --slba 65536 --destroy-data";
    is_refused(&bench, beyond, 1, &["not all in the namespace"]);
    held("a")?;
    bench.succeed(&line(&pair("a", "< b", confirmed)))?;
    held("b")?;
    bench.stop()
}
