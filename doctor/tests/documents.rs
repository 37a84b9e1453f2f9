//! Pages in docs/roce: commands print the output shown, and named tests exist.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use cairn_doctor::rules::RULES;
use cairn_trouble as trouble;

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn pages() -> Vec<(String, String)> {
    let entries = fs::read_dir(workspace().join("docs/roce")).unwrap();
    let pages = entries.map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    pages.collect()
}

fn commands(page: &str) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let mut is_console = false;
    for line in page.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            is_console = kind == "console";
        } else if let Some(command) = line.strip_prefix("$ ").filter(|_| is_console) {
            commands.push((command.to_owned(), Vec::new()));
        } else if is_console && line != "..." {
            let (_, shown) = commands.last_mut().expect("a command before what it shows");
            shown.push(line.to_owned());
        }
    }
    commands
}

#[test]
fn each_command_of_a_page_says_what_the_page_shows() {
    std::env::set_current_dir(workspace().join("doctor/tests")).unwrap();
    let mut run = 0;
    for (page, text) in pages() {
        for (command, shown) in commands(&text) {
            let (out, result) = common::run(&command);
            assert!(result.is_ok(), "{page}: {command}: {result:?}");
            let mut lines = out.lines();
            for line in &shown {
                assert!(
                    lines.any(|own| own.trim_end() == line.trim_end()),
                    "{page}: {command} does not say (there)\n{line}\nbut\n{out}"
                );
            }
            assert!(!shown.is_empty(), "{page}: {command} shows nothing");
            run += 1;
        }
    }
    assert!(run >= 12, "{run} commands");
}

#[test]
fn each_other_command_of_a_page_is_one() {
    let mut seen = 0;
    for (page, text) in pages() {
        let spans = text.split(['`', '\n']).map(str::trim);
        for span in spans.filter(|span| {
            let ours = ["fabric", "doctor"].iter().any(|verb| {
                let after = |program: &str| span.strip_prefix(&format!("{program} {verb}"));
                let rest = after("cairn-target").or_else(|| after("cairn-initiator"));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
            });
            ours && !span.contains(" FILE") && !span.contains(" ADDR")
        }) {
            let command = span.split([',', '|', '#', ';']).next().unwrap_or_default();
            assert!(common::parses(command.trim()), "{page}: {command}");
            seen += 1;
        }
    }
    assert!(seen >= 4, "{seen} commands");
}

#[test]
fn each_topic_has_a_page_with_a_command() {
    let pages = pages();
    for topic in [
        "versions",
        "gids",
        "tos-dscp-pfc",
        "lag",
        "counters",
        "troubleshooting",
    ] {
        let name = format!("{topic}.md");
        let (_, text) = pages.iter().find(|(page, _)| *page == name).unwrap();
        assert!(!commands(text).is_empty(), "{name}");
    }
}

fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn each_test_and_each_rule_in_the_table_is_there() {
    let (_, table) = pages()
        .into_iter()
        .find(|(name, _)| name == "rules.md")
        .unwrap();
    let mut code = String::new();
    for folder in [
        "doctor",
        "rdma",
        "nvme-proto/tests",
        "target/src",
        "tests/tests",
    ] {
        sources(&workspace().join(folder), &mut code);
    }
    let mut named = 0;
    for test in table
        .split('`')
        .filter(|word| word.contains('_') && !word.contains([' ', '/', '*']))
    {
        assert!(code.contains(&format!("fn {test}()")), "no test {test}");
        named += 1;
    }
    assert!(named > 55, "{named} tests in the table");
    for rule in &RULES {
        assert!(
            table.contains(rule.name),
            "rule {} is not in the table",
            rule.name
        );
        assert!(!rule.about.is_empty());
    }
}

#[test]
fn no_library_of_rdma_names_a_program() {
    for folder in [
        "doctor/src",
        "rdma/src",
        "rdma/trouble/src",
        "rdma/roce/src",
        "rdma/roce-proto/src",
        "rdma/verbs/src",
    ] {
        let mut code = String::new();
        sources(&workspace().join(folder), &mut code);
        assert!(code.len() > 10_000, "{folder} has few sources");
        for program in ["cairn-target", "cairn-initiator"] {
            let line = code.lines().find(|line| line.contains(program));
            assert_eq!(line, None, "in {folder}");
        }
    }
}

#[test]
fn every_error_name_has_a_line_in_troubleshooting() {
    let (_, page) = pages()
        .into_iter()
        .find(|(name, _)| name == "troubleshooting.md")
        .unwrap();
    for status in [12, 13, 10, 1] {
        let what = trouble::of_completion(status).what;
        let (name, _) = what.split_once(':').unwrap();
        assert!(page.contains(name), "{name}");
    }
}
