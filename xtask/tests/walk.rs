//! Files and functions in docs/walk.md and docs/roce/walk.md must exist.
//!
//! Each walk follows the I/O path, and never returns to an earlier file.

mod common;

use std::fs;
use std::path::Path;

const WALK: &str = include_str!("../../docs/walk.md");
const ROCE_WALK: &str = include_str!("../../docs/roce/walk.md");

const ROOMS: [&str; 8] = [
    "mod",
    "stages/receive",
    "stages/plan",
    "stages/buffers",
    "stages/fetch",
    "stages/disk",
    "stages/respond",
    "stages/sent",
];

fn code_words(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn steps(section: &str) -> Vec<(&'static str, Vec<&'static str>)> {
    let (_, text) = WALK.split_once(section).expect("the section");
    let text = text.split("\n## ").next().unwrap();
    let rows = text
        .lines()
        .filter(|line| line.contains("| `target/data-path/src/"));
    rows.map(|row| {
        let (step, functions) = row.trim_end_matches(" |").rsplit_once(" | ").unwrap();
        let (_, file) = step.rsplit_once(" | ").unwrap();
        let functions = code_words(functions).collect();
        (file.trim_matches('`'), functions)
    })
    .collect()
}

fn source(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

#[test]
fn each_walk_goes_forward_and_its_functions_exist() {
    for section in ["## One READ\n", "## One WRITE\n"] {
        let steps = steps(section);
        let files: Vec<String> = ROOMS
            .iter()
            .map(|room| format!("target/data-path/src/reactor/{room}.rs"))
            .collect();
        let walked: Vec<&str> = steps.iter().map(|(file, _)| *file).collect();
        assert_eq!(walked, files, "{section}");
        for (file, functions) in steps {
            let source = source(file);
            assert!(!functions.is_empty(), "{file}");
            for function in functions {
                let defined = format!("fn {function}(");
                assert!(source.contains(&defined), "{file} has no {function}");
            }
        }
    }
}

#[test]
fn every_name_on_the_page_exists() {
    let (mut files, mut names) = (Vec::new(), Vec::new());
    for text in WALK.split("```").step_by(2) {
        for word in code_words(text) {
            match word.ends_with(".rs") || word.contains('/') {
                true => files.push(word),
                false => names.push(word),
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folder = root.join("target/data-path/src/reactor");
    let files_of_reactor = common::rust_files(&folder);
    let sources: String = files_of_reactor
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    for name in names {
        let found = [
            format!("fn {name}("),
            format!("struct {name} "),
            format!("struct {name}<"),
            format!("enum {name} "),
            format!(" {name}: "),
        ];
        let found = found.iter().any(|text| sources.contains(text.as_str()))
            || source("target/data-path/src/qpair/mod.rs").contains(&format!(" {name}: "));
        assert!(found, "docs/walk.md: {name}");
    }
    for file in files {
        let exists =
            root.join(file).exists() || root.join("target/data-path/src").join(file).exists();
        assert!(exists, "docs/walk.md: {file}");
    }
}

#[test]
fn each_step_through_roce_is_in_its_file() {
    let rows = ROCE_WALK.lines().filter(|line| line.contains("| `rdma/"));
    let mut count = 0;
    for row in rows {
        let (step, functions) = row.rsplit_once(" | ").unwrap();
        let (_, files) = step.rsplit_once(" | ").unwrap();
        let sources: String = code_words(files).map(source).collect();
        for function in code_words(functions) {
            let defined = [format!("fn {function}("), format!("fn {function}<")];
            let found = defined.iter().any(|text| sources.contains(text.as_str()));
            assert!(found, "{files} has no {function}");
            count += 1;
        }
    }
    assert!(count >= 30, "only {count} functions are found");
}
