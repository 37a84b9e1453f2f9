//! Commands whose stdout has no reader, as in `cairn-target check FILE | head -1`.

use std::collections::BTreeSet;
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use cairn_tests::harness::own_loopback_address;

use libtest_mimic::Failed;

use super::{Bench, EXAMPLE_ADDRESS, NQN, texts};

fn unread(bench: &Bench, line: &str, both: bool) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = bench.command(&format!("exec {line}"));
    if both {
        command.stderr(writer.try_clone().unwrap());
    } else {
        command.stderr(Stdio::piped());
    }
    command
        .stdout(writer)
        .spawn()
        .unwrap()
        .wait_with_output()
        .unwrap()
}

fn commands_of(program: &clap::Command) -> Vec<clap::Command> {
    let mut all = Vec::new();
    for command in program.get_subcommands() {
        let below = commands_of(command);
        all.push(command.clone());
        all.extend(below);
    }
    all
}

fn built(mut command: clap::Command) -> clap::Command {
    command.build();
    command
}

pub(crate) fn helps() -> Result<(), Failed> {
    let bench = Bench::new();
    let mut ran = 0;
    for program in [
        cairn_initiator_cli::command_line(),
        cairn_target::cli::command_line(),
    ] {
        let program = built(program);
        let mut lines = vec![program.get_name().to_owned()];
        let below = commands_of(&program).into_iter();
        let below = below.filter_map(|one| one.get_bin_name().map(str::to_owned));
        lines.extend(below.filter(|name| !name.contains(" help")));
        for line in lines {
            let output = unread(&bench, &format!("{line} --help"), false);
            let (_, stderr) = texts(&output);
            assert_eq!(
                (output.status.code(), stderr.as_str()),
                (Some(0), ""),
                "{line}"
            );
            ran += 1;
        }
    }
    assert!(ran > 80, "{ran} helps");
    bench.stop()
}

fn arguments(command: &str) -> Option<String> {
    let named = format!("-a {EXAMPLE_ADDRESS} --provider soft -n {NQN}");
    Some(match command {
        "discover" | "list" | "list-subsys" => format!("-a {EXAMPLE_ADDRESS} --provider soft"),
        "get-log" => format!("{named} -L smart"),
        "get-feature" => format!("{named} -f 6"),
        "set-feature" => format!("{named} -f 0x0b -V 0x100"),
        "write" | "compare" => format!("{named} -d /dev/zero {}", destroys(command)),
        "compare-and-write" => {
            format!("{named} --expected /dev/zero -d /dev/zero --destroy-data")
        }
        "write-zeroes" => format!("{named} --destroy-data"),
        "dsm" => format!("{named} --slbs 0 --blocks 1 --ad --destroy-data"),
        "copy" => format!("{named} --slbs 0 --blocks 0 --sdlba 1 --destroy-data"),
        "bench" => format!("{named} --rw=randread --size=64k --eta never"),
        "verify" => format!("{named} --size 4k"),
        "ping" => format!("{named} --time 10"),
        "fabric" | "doctor" => String::new(),
        "completions" => "bash".to_owned(),
        "manual" => ".".to_owned(),
        "link" | "help" => return None,
        _ => named,
    })
}

fn destroys(command: &str) -> &'static str {
    if command == "write" {
        "--destroy-data"
    } else {
        ""
    }
}

const ALONE: &[&str] = &[
    "check t.toml",
    "check t.toml -o json",
    "schema",
    "completions bash",
    "manual .",
    "export spdk t.toml",
    "export nvmet t.toml",
    "import nvmet nvmet.json",
    "import spdk spdk.json",
    "key generate",
    "fabric",
    "doctor --config t.toml",
];

const STEERING: &[&str] = &[
    "status",
    "status -o json",
    "subsystem list",
    "subsystem add nqn.2024-01.com.example:b",
    "subsystem set nqn.2024-01.com.example:b --model M",
    "host add nqn.2024-01.com.example:b nqn.2024-01.com.example:h",
    "host remove nqn.2024-01.com.example:b nqn.2024-01.com.example:h",
    "subsystem remove nqn.2024-01.com.example:b",
    "namespace list -o json",
    "namespace list",
    "namespace add NQN null:1MiB",
    "namespace set NQN 2 --ana-group 2",
    "namespace remove NQN 2",
    "listener list",
    "host list NQN",
    "host group list",
    "host key show NQN",
    "referral list",
    "referral add 192.0.2.9",
    "referral remove 192.0.2.9",
    "limit list",
    "limit set NQN --iops 5000",
    "limit remove NQN",
    "reservation list",
    "reservation show NQN 1",
    "reservation clear NQN 1 --quiet",
    "connection list",
    "drain",
    "drain --undo",
    "log",
    "log debug",
    "config show",
    "rpc cairn_status",
];

/// Checks that a command whose stdout has no reader neither panics nor prints an error about it.
/// With `environment`, the exit code is 0 and stderr empty; otherwise, both are as with a reader.
fn is_quiet(bench: &Bench, line: &str, environment: &str) {
    let line = format!("{environment} cairn-target {}", line.replace("NQN", NQN));
    let output = unread(bench, &format!("env {line}"), false);
    let (_, stderr) = texts(&output);
    let code = output.status.code();
    assert!(
        code.is_some_and(|code| code <= 4),
        "{line}: {code:?} {stderr}"
    );
    assert!(
        !stderr.contains("panicked") && !stderr.contains("roken pipe"),
        "{line}: {stderr}"
    );
    if environment.is_empty() {
        let usual = bench.run(line.trim_start());
        let usual = (usual.status.code(), texts(&usual).1);
        assert_eq!((code, stderr), usual, "{line}");
    } else {
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{line}");
    }
}

pub(crate) fn target() -> Result<(), Failed> {
    let bench = Bench::new();
    let address = own_loopback_address();
    let folder = bench.folder.path();
    let config = format!(
        "[target]\nprovider = \"soft\"\n[control]\nsocket = \"{}\"\n[[listener]]\naddress = \"{address}\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n[[subsystem.namespace]]\nnsid = 1\n\
         export = \"mem:1MiB\"\n",
        folder.join("socket").display()
    );
    std::fs::write(folder.join("t.toml"), config)?;
    bench.succeed("cairn-target export nvmet t.toml > nvmet.json; cairn-target export spdk t.toml > spdk.json")?;
    for line in ALONE {
        is_quiet(&bench, line, "");
        let code = unread(&bench, &format!("cairn-target {line}"), true)
            .status
            .code();
        assert!(
            code.is_some_and(|code| code <= 4),
            "{line} without stderr: {code:?}"
        );
    }
    let mut served = bench
        .command("exec cairn-target serve --config t.toml")
        .stdout(Stdio::null())
        .spawn()?;
    let end = Instant::now() + Duration::from_secs(60);
    while !folder.join("socket").exists() {
        assert!(Instant::now() < end, "the target does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    for line in STEERING {
        is_quiet(&bench, line, "CAIRN_CONTROL=socket");
    }
    served.kill()?;
    served.wait()?;
    bench.stop()
}

pub(crate) fn commands() -> Result<(), Failed> {
    let bench = Bench::new();
    let program = built(cairn_initiator_cli::command_line());
    for command in program.get_subcommands() {
        let Some(arguments) = arguments(command.get_name()) else {
            continue;
        };
        let line = format!("cairn-initiator {} {arguments}", command.get_name());
        let usual = bench.run(&line);
        let output = unread(&bench, &line, false);
        let (_, stderr) = texts(&output);
        let is_lost = command.get_name() == "read";
        assert_eq!(
            output.status.code() == usual.status.code(),
            !is_lost,
            "{line}: {stderr}"
        );
        let more: BTreeSet<&str> = stderr.lines().collect();
        let (_, usual) = texts(&usual);
        let known: BTreeSet<&str> = usual.lines().collect();
        let is_new = |line: &&&str| line.contains("error") || line.contains("panic");
        let new: Vec<_> = more.difference(&known).filter(is_new).collect();
        assert!(new.is_empty(), "{line}: {new:?}");
        let code = unread(&bench, &line, true).status.code();
        assert_eq!(code, output.status.code(), "{line} without stderr");
    }
    bench.stop()
}
