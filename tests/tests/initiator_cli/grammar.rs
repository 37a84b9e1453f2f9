//! Checks every command of `cairn-target` and `cairn-initiator` against the rules in docs/cli.md.

use std::collections::BTreeMap;
use std::process::{Command as Process, Output};

use cairn_doctor::cli::Format;
use clap::{Arg, Command};

const PAGE: &str = include_str!("../../../docs/cli.md");

pub(super) const TESTS: &[(&str, fn())] = &[
    (
        "every_command_has_examples_that_it_accepts",
        every_command_has_examples_that_it_accepts,
    ),
    (
        "nouns_are_singular_and_verbs_are_few",
        nouns_are_singular_and_verbs_are_few,
    ),
    ("former_spellings_still_work", former_spellings_still_work),
    (
        "results_have_one_option_for_their_format",
        results_have_one_option_for_their_format,
    ),
    (
        "options_of_one_name_are_alike",
        options_of_one_name_are_alike,
    ),
    (
        "addresses_of_the_target_may_have_a_port",
        addresses_of_the_target_may_have_a_port,
    ),
    (
        "every_command_has_the_common_options",
        every_command_has_the_common_options,
    ),
    (
        "failures_have_their_exit_code_and_one_prefix",
        failures_have_their_exit_code_and_one_prefix,
    ),
    (
        "quiet_prints_warnings_and_errors_alone",
        quiet_prints_warnings_and_errors_alone,
    ),
    (
        "both_programs_name_their_commit",
        both_programs_name_their_commit,
    ),
    ("the_page_names_every_format", the_page_names_every_format),
];

const OTHER_VERBS: &[&str] = &[
    "connection disconnect",
    "host any",
    "reservation clear",
    "key generate",
    "key check",
    "import nvmet",
    "import spdk",
    "export nvmet",
    "export spdk",
    "fabric watch",
    "fabric explain",
    "fabric set-mode",
    "fabric set-tos",
];

/// Options whose values may differ between commands. Only some commands accept a directory as
/// `export`. `traddr` includes a port only in commands without an option for the port.
const AMBIGUOUS: &[&str] = &["export", "traddr"];

pub(super) struct Found {
    pub(super) path: String,
    pub(super) command: Command,
}

pub(super) fn commands(mut root: Command) -> Vec<Found> {
    root.build();
    let mut all = Vec::new();
    add(&root, "", &mut all);
    all
}

fn add(command: &Command, path: &str, all: &mut Vec<Found>) {
    for one in command.get_subcommands() {
        let is_own = one.get_name() != "help" && !one.is_hide_set();
        if is_own {
            let path = format!("{path} {}", one.get_name()).trim().to_owned();
            add(one, &path, all);
            let command = one.clone();
            all.push(Found { path, command });
        }
    }
}

fn programs() -> [(&'static str, Command); 2] {
    [
        ("cairn-target", cairn_target::cli::command_line()),
        ("cairn-initiator", cairn_initiator_cli::command_line()),
    ]
}

fn each_argument(mut check: impl FnMut(&'static str, &Found, &Arg)) {
    for (program, root) in programs() {
        for found in commands(root) {
            let arguments = found.command.get_arguments();
            for argument in arguments.filter(|one| !one.is_hide_set()) {
                check(program, &found, argument);
            }
        }
    }
}

fn value_name(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let takes = argument.get_action().takes_values();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    if takes {
        names.join(" ")
    } else {
        String::new()
    }
}

fn every_command_has_examples_that_it_accepts() {
    let mut seen = 0;
    for (program, root) in programs() {
        for Found { path, command } in commands(root.clone()) {
            let is_leaf = command.get_subcommands().next().is_none();
            let Some(help) = command.get_after_help() else {
                assert!(!is_leaf, "{program} {path}: no example");
                continue;
            };
            let help = help.to_string();
            let lines = help.lines().skip(1).map(str::trim);
            for line in lines.filter(|line| !line.is_empty()) {
                let starts = format!("{program} {path}");
                let at = line.find(&starts);
                let at = at.unwrap_or_else(|| panic!("{line:?} does not run {starts}"));
                let words = shlex::split(&line[at..]).unwrap();
                let end = ["&", "||", "|", ";"];
                let words = words.iter().take_while(|word| !end.contains(&&***word));
                let parsed = root.clone().try_get_matches_from(words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                seen += 1;
            }
        }
    }
    assert!(seen > 75, "{seen} examples");
}

fn nouns_are_singular_and_verbs_are_few() {
    let verbs = ["list", "show", "add", "remove", "set"];
    let mut others = Vec::new();
    for (program, root) in programs() {
        for Found { path, command } in commands(root) {
            let Some((noun, name)) = path.rsplit_once(' ') else {
                continue;
            };
            assert!(!noun.ends_with('s'), "{program} {path}");
            let is_noun = command.get_subcommands().next().is_some();
            if !is_noun && !verbs.contains(&name) && !others.contains(&path) {
                others.push(path);
            }
        }
    }
    others.sort();
    let mut known = OTHER_VERBS.to_vec();
    known.sort_unstable();
    assert_eq!(others, known);
}

fn former_spellings_still_work() {
    let nqn = "nqn.2024-01.com.example:disks";
    for (former, now) in [
        (vec!["connections", "list"], "connection list"),
        (
            vec!["connections", "remove", nqn, "1"],
            "connection disconnect",
        ),
        (
            vec!["listener", "add", "192.0.2.1", "--port", "4421"],
            "listener add",
        ),
        (
            vec!["referral", "add", "192.0.2.1", "--port", "4421"],
            "referral add",
        ),
        (vec!["drain", "192.0.2.1", "--port", "4421"], "drain"),
        (
            vec!["key", "generate", "--output", "new.key"],
            "key generate",
        ),
        (vec!["top", "-n", "1", "-i", "2"], "top"),
        (vec!["status", "--output-format", "normal"], "status"),
    ] {
        let words = ["cairn-target"].into_iter().chain(former);
        let matches = cairn_target::cli::command_line().try_get_matches_from(words);
        let matches = matches.unwrap_or_else(|error| panic!("{now}: {error}"));
        let mut path = Vec::new();
        let mut at = Some(&matches);
        while let Some((name, below)) = at.and_then(|at| at.subcommand()) {
            path.push(name);
            at = Some(below);
        }
        assert_eq!(path.join(" "), now);
    }
}

fn results_have_one_option_for_their_format() {
    let mut records = Vec::new();
    each_argument(|program, found, argument| {
        if argument.get_long() == Some("output") || argument.get_short() == Some('o') {
            assert_eq!(argument.get_id(), "format", "{program} {}", found.path);
            assert_eq!(argument.get_long(), Some("output"));
            assert_eq!(argument.get_short(), Some('o'));
            let values = argument.get_possible_values();
            let names: Vec<&str> = values.iter().map(|one| one.get_name()).collect();
            match names[..] {
                ["table", "json"] => {}
                ["table", "json", "wide", "name"] => records.push(found.path.clone()),
                _ => panic!("{program} {}: {names:?}", found.path),
            }
            let has_normal = |one: &clap::builder::PossibleValue| one.matches("normal", false);
            assert!(values.iter().any(has_normal), "{program} {}", found.path);
        }
    });
    for (program, root) in programs() {
        for Found { path, command } in commands(root) {
            let is_list = path.split([' ', '-']).any(|word| word == "list");
            let has_format = command.get_arguments().any(|one| one.get_id() == "format");
            assert!(!is_list || has_format, "{program} {path}");
            assert!(!is_list || records.contains(&path), "{program} {path}");
        }
    }
}

fn options_of_one_name_are_alike() {
    let mut known: BTreeMap<(&str, String), (Option<char>, String, String)> = BTreeMap::new();
    let mut wrong = Vec::new();
    each_argument(|program, found, argument| {
        let Some(long) = argument.get_long() else {
            return;
        };
        let is_foreign = argument.get_help_heading() == Some("Job (fio's keys)");
        if is_foreign || AMBIGUOUS.contains(&long) {
            return;
        }
        let value = match value_name(argument) {
            name if name == "on|off" => String::new(),
            name => name,
        };
        let this = (argument.get_short(), value, found.path.clone());
        let first = known
            .entry((program, long.to_owned()))
            .or_insert_with(|| this.clone());
        if (first.0, &first.1) != (this.0, &this.1) {
            wrong.push(format!("--{long} of {program}: {first:?} and {this:?}"));
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(known.len() > 100, "{}", known.len());
}

fn addresses_of_the_target_may_have_a_port() {
    let without = ["address", "peer"];
    each_argument(|program, found, argument| {
        let name = value_name(argument);
        if program == "cairn-target" && name.contains("ADDR") {
            let long = argument.get_long().unwrap_or_default();
            let expected = match without.contains(&long) {
                true => "ADDR",
                false => "ADDR[:PORT]",
            };
            assert_eq!(name, expected, "{} --{long}", found.path);
        }
        let is_port = argument.get_long() == Some("port") || argument.get_id() == "port";
        let is_of_device = found.path.starts_with("fabric");
        assert!(!is_port || is_of_device, "{program} {}", found.path);
    });
    for text in [
        "192.0.2.1",
        "192.0.2.1:4421",
        "2001:db8::1",
        "[2001:db8::1]:4421",
    ] {
        for command in ["listener remove", "referral add", "drain", "top --metrics"] {
            let words = command.split(' ').chain([text]);
            let words = ["cairn-target"].into_iter().chain(words);
            let parsed = cairn_target::cli::command_line().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{command} {text}");
        }
    }
}

fn every_command_has_the_common_options() {
    for (program, root) in programs() {
        for Found { path, command } in commands(root) {
            for long in ["quiet", "no-headers", "help"] {
                let mut all = command.get_arguments();
                let has = all.any(|one| one.get_long() == Some(long));
                assert!(has, "{program} {path} --{long}");
            }
        }
    }
}

fn run(program: &str, args: &[&str]) -> Output {
    let this = std::env::current_exe().unwrap();
    let mut process = Process::new(this);
    process.env(super::PROGRAM, program).args(args);
    process.output().unwrap()
}

fn documented_codes() -> Vec<i32> {
    let (_, table) = PAGE.split_once("| exit code |").unwrap();
    let rows = table.lines().skip(2);
    let rows = rows.take_while(|line| line.starts_with("| "));
    let cells = rows.map(|row| row.trim_matches('|').split('|').next().unwrap().trim());
    cells.map(|code| code.parse().unwrap()).collect()
}

const PARTIAL: &str = "[[listener]]\naddress = \"192.0.2.1\"\n[[subsystem]]\n\
                       nqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n\
                       [[subsystem.namespace]]\nnsid = 1\nexport = \"mem:1MiB\"\n";

fn failures_have_their_exit_code_and_one_prefix() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (none, wrong, partial) = (path("none"), path("wrong.toml"), path("partial.toml"));
    std::fs::write(&wrong, "[target]\nreactors = \"many\"\n").unwrap();
    std::fs::write(&partial, PARTIAL).unwrap();
    let target: &[(i32, &[&str])] = &[
        (0, &["schema"]),
        (0, &["--version"]),
        (1, &["status", "--socket", &none]),
        (1, &["namespace", "remove", "a", "1", "--socket", &none]),
        (1, &["key", "check", &none]),
        (1, &["key", "generate", "--bytes", "7"]),
        (1, &["key", "generate", "--file", &wrong]),
        (1, &["import", "spdk", &none]),
        (1, &["import", "nvmet", &wrong]),
        (1, &["export", "spdk", &wrong]),
        (1, &["top", "--metrics", "127.0.0.1:1"]),
        (1, &["top", "--config", &wrong]),
        (1, &["manual", "/proc/none"]),
        (1, &["fabric", "explain", "no such error"]),
        (1, &["fabric", "set-tos", "none", "1", "--root", &none]),
        (1, &["fabric", "--root", &none]),
        (4, &["export", "nvmet", &partial]),
        (2, &["serve", "--config", &none]),
        (2, &["serve", "--config", &wrong]),
        (2, &["check", &wrong]),
        (2, &["no-command"]),
        (2, &["status", "-o", "name"]),
        (2, &["listener", "add", "192.0.2.1:port"]),
        (2, &["doctor", "--config", &wrong]),
        (3, &["doctor", "--root", &none]),
        (3, &["doctor", "--fix", "-o", "json"]),
    ];
    let initiator: &[(i32, &[&str])] = &[
        (0, &["completions", "fish"]),
        (0, &["--version"]),
        (1, &["discover", "-a", "127.0.0.1", "-s", "1"]),
        (1, &["list", "-a", "127.0.0.1", "-n", ""]),
        (1, &["link", "-a", "127.0.0.1:1"]),
        (1, &["manual", "/proc/none"]),
        (1, &["fabric", "explain", "no such error"]),
        (2, &["id-ctrl", "-a", "127.0.0.1", "-o", "name"]),
        (2, &["bench", "-a", "127.0.0.1", "--rw=write"]),
        (2, &["write", "-a", "127.0.0.1"]),
        (2, &["write-zeroes", "-a", "127.0.0.1"]),
        (
            2,
            &["dsm", "-a", "127.0.0.1", "--slbs=0", "--blocks=1", "--ad"],
        ),
        (2, &["read"]),
        (3, &["doctor", "--root", &none]),
    ];
    let mut codes = Vec::new();
    for (program, cases) in [("cairn-target", target), ("cairn-initiator", initiator)] {
        for (code, args) in cases {
            let output = run(program, args);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(*code), "{args:?}: {stderr}");
            codes.push(*code);
            let is_error = stderr.starts_with("error: ") && !stderr.starts_with("error: error");
            assert_eq!(is_error, ![0, 4].contains(code), "{args:?}: {stderr}");
        }
    }
    codes.sort_unstable();
    codes.dedup();
    let documented = documented_codes();
    assert!(
        codes.iter().all(|code| documented.contains(code)),
        "{codes:?}"
    );
}

fn quiet_prints_warnings_and_errors_alone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    let text = "[target]\nlog = \"warn\"\n[control]\nsocket = \"off\"\n[[listener]]\naddress = \"192.0.2.77\"\n\
                [[subsystem]]\nnqn = \"nqn.2024-01.com.example:a\"\nallow_any_host = true\n";
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let loud = run("cairn-target", &["check", file]);
    let stderr = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let quiet = run("cairn-target", &["check", file, "--quiet"]);
    assert!(stderr(&quiet).contains("warning: "));
    let converted = |more: &[&str]| {
        let args = [&["export", "nvmet", file], more].concat();
        let output = run("cairn-target", &args);
        stderr(&output).contains("note: ")
    };
    assert!(converted(&[]) && !converted(&["--quiet"]));
    assert_eq!(quiet.stdout, loud.stdout);
    assert_eq!(quiet.status.code(), Some(1));
}

fn both_programs_name_their_commit() {
    for program in ["cairn-target", "cairn-initiator"] {
        let version = run(program, &["--version"]).stdout;
        let version = String::from_utf8(version).unwrap();
        let expected = format!("{program} {} (commit ", env!("CARGO_PKG_VERSION"));
        assert!(version.starts_with(&expected), "{version}");
    }
}

fn the_page_names_every_format() {
    use clap::ValueEnum;
    for format in Format::value_variants() {
        let value = format.to_possible_value().unwrap();
        let name = format!("`{}`", value.get_name());
        assert!(PAGE.contains(&name), "{name}");
    }
}
