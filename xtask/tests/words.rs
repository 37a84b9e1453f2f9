//! Words to avoid in pages, help texts, log lines, errors and comments.
//!
//! CONTRIBUTING.md explains the rules, and docs/architecture.md has a glossary of preferred words.
//! Text in backticks or double quotes is ignored.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

const WORDS: [(&str, &str); 27] = [
    ("whoever", "name the actor: a host, an attacker, a program"),
    ("nobody", "no host, no program, nothing"),
    ("somebody", "name the actor"),
    ("everybody", "all hosts, each program"),
    ("hear", "receive, accept"),
    ("hears", "receives, accepts"),
    ("heard", "received"),
    ("tell", "report, send, show, configure"),
    ("tells", "reports, sends, shows"),
    ("told", "reported, sent, configured"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("want", "require"),
    ("wants", "requires"),
    ("shall", "use the present tense"),
    ("remark", "report"),
    ("news", "an event, a change"),
    ("complaint", "an error, a report"),
    ("be had", "is available, can be used"),
    ("goodbye", "disconnect"),
    ("deaf", "does not receive"),
    ("another day", "give the date"),
    ("by verbs", "with verbs, by libibverbs"),
    ("no rule says", "no rule matches"),
    ("is of one with", "belongs to"),
    ("asks without end", "sends many requests"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn found(text: &str) -> Vec<(&'static str, &'static str)> {
    let text = text.to_lowercase();
    let boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric() && c != '_');
    WORDS
        .into_iter()
        .filter(|(word, _)| {
            text.match_indices(word).any(|(at, _)| {
                boundary(text[..at].chars().next_back())
                    && boundary(text[at + word.len()..].chars().next())
            })
        })
        .collect()
}

fn prose(page: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (at, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let outside: Vec<&str> = line.split('`').step_by(2).collect();
            lines.push((at + 1, outside.join("x")));
        }
    }
    lines
}

/// Returns the text that programs print, with line numbers: string literals, and doc comments that
/// clap prints as help.
fn printed(source: &str) -> Vec<(usize, String)> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let has_help = source.contains("clap::");
    let mut lines = Vec::new();
    let mut is_open = false;
    for (at, line) in source.lines().enumerate() {
        let trimmed = line.trim_start();
        if let Some(help) = trimmed.strip_prefix("/// ") {
            if has_help {
                lines.push((at + 1, help.to_owned()));
            }
        } else if !trimmed.starts_with("//") {
            let begins = usize::from(!is_open);
            let inside: Vec<&str> = line.split('"').skip(begins).step_by(2).collect();
            let quotes = line.matches('"').count();
            is_open = line.ends_with('\\') && (is_open == (quotes % 2 == 0));
            lines.push((at + 1, inside.join(" ")));
        }
    }
    lines
}

fn comments(source: &str) -> Vec<(usize, String)> {
    let comment = |line: &str| {
        let ends = line.match_indices("//").map(|(at, _)| at);
        let outside = |at: &usize| line[..*at].matches('"').count().is_multiple_of(2);
        let text = line[ends.into_iter().find(outside)?..].to_owned();
        let unquoted: Vec<&str> = text.split(['`', '"']).step_by(2).collect();
        Some(unquoted.join("x"))
    };
    let lines = source.lines().enumerate();
    lines
        .filter_map(|(at, line)| Some((at + 1, comment(line)?)))
        .collect()
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut all = common::files_below(folder, ".md");
    all.retain(|page| !page.starts_with(folder.join("decisions")));
    all
}

fn check(files: &[PathBuf], lines: impl Fn(&str) -> Vec<(usize, String)>) {
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        let name = file.strip_prefix(root()).unwrap().display().to_string();
        for (at, line) in lines(&text) {
            let line = line.replace("Wants=", "");
            for (word, instead) in found(&line) {
                wrong.push(format!("{name}:{at}: \"{word}\": {instead}"));
            }
        }
    }
    assert!(wrong.is_empty(), "plainer, please:\n{}", wrong.join("\n"));
}

#[test]
fn pages_are_in_plain_english() {
    let mut files = vec![
        root().join("README.md"),
        root().join("CONTRIBUTING.md"),
        root().join("SECURITY.md"),
    ];
    files.extend(pages(&root().join("docs")));
    assert!(files.len() > 20, "only {} pages are found", files.len());
    check(&files, prose);
}

#[test]
fn programs_print_plain_english() {
    let mut files = common::rust_files(&root());
    let tests = |file: &PathBuf| {
        let inside = file.strip_prefix(root()).unwrap();
        inside.components().any(|part| part.as_os_str() == "tests")
            || inside.file_stem().is_some_and(|stem| stem == "tests")
    };
    files.retain(|file| !tests(file));
    assert!(files.len() > 200, "only {} files are found", files.len());
    check(&files, printed);
}

#[test]
fn comments_are_in_plain_english() {
    let mut files = common::rust_files(&root());
    files.retain(|file| !file.ends_with("xtask/tests/words.rs"));
    assert!(files.len() > 400, "only {} files are found", files.len());
    check(&files, comments);
}

#[test]
fn words_are_found_as_words() {
    assert_eq!(found("Whoever comes").len(), 1);
    assert_eq!(found("a shallow heart, hearing").len(), 0);
    assert_eq!(prose("a `told`\n```\ntold\n```\ntold")[1].1, "told");
    let source = "use clap::Parser;\n/// Told.\nfn f() { g(\"told\"); } // told\n//! told\n";
    let lines = printed(source);
    assert_eq!(
        lines
            .iter()
            .filter(|(_, line)| found(line).len() == 1)
            .count(),
        2
    );
    let source = "f(\"// told\"); // told\n/// `told`, \"told\"\n//! told\nlet told = 1;\n";
    let lines = comments(source);
    let wrong = lines.iter().filter(|(_, line)| !found(line).is_empty());
    let wrong: Vec<usize> = wrong.map(|(at, _)| *at).collect();
    assert_eq!(wrong, [1, 3], "{lines:?}");
}
