//! Tests named by pages must exist: packages, test programs and filters. Links must lead to a file
//! and a heading.
//!
//! A filter must match a part of `module::function`, as in nextest.

#[path = "common/mod.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Minimum references to tests that a working search finds in the pages.
const SEEN_MIN: usize = 200;

const QUESTIONS: usize = 40;

static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").unwrap());

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn packages() -> BTreeMap<String, PathBuf> {
    let name = Regex::new(r#"(?m)^name = "([^"]+)""#).unwrap();
    let manifests = sources::files_below(&root(), "Cargo.toml").into_iter();
    manifests
        .filter_map(|path| {
            let text = read(&path);
            let name = name.captures(&text)?.get(1)?.as_str().to_owned();
            Some((name, path.parent()?.to_owned()))
        })
        .collect()
}

type Files = Vec<(String, String)>;

fn load(paths: &[PathBuf], base: &Path) -> Files {
    let module = |path: &PathBuf| {
        let below = path.strip_prefix(base).unwrap().with_extension("");
        let parts = below.iter().map(|part| part.to_string_lossy());
        let parts = parts.filter(|part| !["mod", "lib", "main"].contains(&&**part));
        parts.map(|part| format!("{part}::")).collect()
    };
    let load = |path: &PathBuf| (module(path), read(path));
    paths.iter().map(load).collect()
}

fn library(package: &Path) -> Files {
    let folder = package.join("src");
    match folder.is_dir() {
        true => load(&sources::rust_files(&folder), &folder),
        false => Files::new(),
    }
}

fn program(package: &Path, name: &str) -> Files {
    let tests = package.join("tests");
    let (folder, file) = (tests.join(name), tests.join(format!("{name}.rs")));
    let mut files = Files::new();
    if folder.is_dir() {
        files.extend(load(&sources::rust_files(&folder), &folder));
    }
    if file.is_file() {
        files.extend(load(&[file], &tests));
    }
    files
}

fn programs(package: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(package.join("tests")).into_iter().flatten();
    let paths = entries.map(|entry| entry.unwrap().path().with_extension(""));
    paths
        .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        .collect()
}

fn defines(text: &str, part: &str) -> bool {
    text.match_indices(part).any(|(at, _)| {
        let before = &text[..at];
        let before = before.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_');
        ["fn ", "mod ", "\"", "\n    ", "\n        "]
            .iter()
            .any(|start| before.ends_with(start))
    })
}

fn selects(filter: &str, (module, text): &(String, String)) -> bool {
    if module.contains(filter) {
        return true;
    }
    let (modules, name) = filter.rsplit_once("::").unwrap_or(("", filter));
    let is_inside = |part: &str| module.contains(part) || text.contains(&format!("mod {part}"));
    modules.split("::").all(is_inside) && defines(text, name)
}

#[derive(Default)]
struct Reference {
    packages: Vec<String>,
    programs: Vec<String>,
    filters: Vec<String>,
}

impl Reference {
    fn parse(arguments: &str) -> Self {
        let mut reference = Self::default();
        let mut words = arguments.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "-p" => reference.packages.extend(words.next().map(Into::into)),
                "--test" => reference.programs.extend(words.next().map(Into::into)),
                "--run-ignored" | "--test-threads" | "--profile" | "--filterset" => {
                    words.next();
                }
                _ if word.starts_with('-') => {}
                _ => reference.filters.push(word.to_owned()),
            }
        }
        if reference.packages.is_empty() {
            reference.packages.push("cairn-tests".to_owned());
        }
        reference
    }

    fn check(&self, packages: &BTreeMap<String, PathBuf>) -> Result<(), String> {
        let mut files = Files::new();
        for package in &self.packages {
            let folder = packages.get(package);
            let folder = folder.ok_or_else(|| format!("no package {package}"))?;
            let known = programs(folder);
            let all = self.programs.is_empty();
            let chosen = known
                .iter()
                .filter(|name| all || self.programs.contains(name));
            let chosen: Vec<&String> = chosen.collect();
            if chosen.is_empty() && !all {
                return Err(format!("{package} has no test program {:?}", self.programs));
            }
            files.extend(library(folder));
            files.extend(chosen.into_iter().flat_map(|name| program(folder, name)));
        }
        let found = |filter: &&String| files.iter().any(|file| selects(filter, file));
        match self.filters.iter().find(|filter| !found(filter)) {
            Some(filter) => Err(format!("no test {filter}")),
            None => Ok(()),
        }
    }
}

fn references(text: &str, programs: &BTreeSet<String>) -> Vec<String> {
    let environment = Regex::new(r"^(\w+=\S*(\([^)]*\)\S*)? )+").unwrap();
    let mut found = Vec::new();
    let code = text
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2));
    for (span, is_code) in text
        .lines()
        .map(|line| (line, false))
        .chain(code.map(|c| (c, true)))
    {
        let span = span.trim().trim_start_matches("$ ");
        let span = span.split("   ").next().unwrap_or_default();
        let span = environment.replace(span, "");
        let command = ["cargo test ", "cargo nextest run "];
        if let Some(rest) = command.iter().find_map(|c| span.strip_prefix(c)) {
            found.push(rest.to_owned());
        } else if span.starts_with("-p ") || span.starts_with("--test ") {
            found.push(span.into_owned());
        } else if let Some((program, _)) = span.split_once(' ')
            && is_code
            && programs.contains(program)
            && !text.contains("ceph osd")
        {
            found.push(format!("--test {span}"));
        }
    }
    found
}

#[test]
fn each_test_that_a_page_names_exists() {
    let packages = packages();
    let programs = programs(&root().join("tests"));
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in sources::files_below(&root(), ".md") {
        for reference in references(&read(&page), &programs) {
            seen += 1;
            if let Err(error) = Reference::parse(&reference).check(&packages) {
                wrong.push(format!("{}: `{reference}`: {error}", page.display()));
            }
        }
    }
    assert!(seen > SEEN_MIN, "{seen} references");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn wrong_references_are_errors() {
    let packages = packages();
    let check = |text| Reference::parse(text).check(&packages);
    assert_eq!(check("-p xtask --test references wrong_references"), Ok(()));
    for wrong in [
        "-p cairn-nothing",
        "-p xtask --test nothing",
        concat!("-p xtask --test references no_such", "_name_in_it"),
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}

fn outside_of_code(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn anchors(page: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for line in outside_of_code(page).filter(|line| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.replace(|c: char| !(c.is_alphanumeric() || " -_".contains(c)), "");
        let anchor = kept.replace(' ', "-");
        let mut unique = anchor.clone();
        let mut count = 0;
        while !anchors.insert(unique.clone()) {
            count += 1;
            unique = format!("{anchor}-{count}");
        }
    }
    anchors
}

fn broken(page: &Path, text: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = match path {
        "" => page.to_owned(),
        path => page.parent().unwrap().join(path),
    };
    if !file.exists() {
        return Some(format!("no file {path}"));
    }
    if anchor.is_empty() || !file.to_string_lossy().ends_with(".md") {
        return None;
    }
    let known = match path {
        "" => anchors(text),
        _ => anchors(&fs::read_to_string(&file).unwrap()),
    };
    (!known.contains(anchor)).then(|| format!("no heading #{anchor} in {}", file.display()))
}

#[test]
fn links_of_pages_lead_to_a_file_and_a_heading() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for page in sources::files_below(&root(), ".md") {
        let text = fs::read_to_string(&page).unwrap();
        for line in outside_of_code(&text) {
            for link in LINK.captures_iter(line) {
                seen += 1;
                if let Some(reason) = broken(&page, &text, &link[1]) {
                    wrong.push(format!("{}: {}: {reason}", page.display(), &link[1]));
                }
            }
        }
    }
    assert!(seen > 500, "only {seen} links are found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_question_of_the_index_has_a_heading_that_answers_it() {
    let index = fs::read_to_string(root().join("docs/questions.md")).unwrap();
    let questions: Vec<&str> = index
        .lines()
        .filter(|line| line.starts_with("- "))
        .collect();
    assert!(
        questions.len() >= QUESTIONS,
        "{} questions",
        questions.len()
    );
    for question in questions {
        let link = LINK.captures(question);
        let link = link.unwrap_or_else(|| panic!("{question} has no link"));
        assert!(question.contains("?]("), "{question} is no question");
        assert!(link[1].contains('#'), "{question} names no heading");
    }
}

#[test]
fn links_that_lead_nowhere_are_found() {
    let page = root().join("README.md");
    let text = "# One & `two`: three\n# One\n# One\n```\n# code\n```\n";
    for link in [
        "#one--two-three",
        "#one-1",
        "docs/",
        "https://example.com/#x",
    ] {
        assert_eq!(broken(&page, text, link), None, "{link}");
    }
    for link in [
        "#two",
        "#one-2",
        "#code",
        "docs/nothing.md",
        "docs/walk.md#nothing",
    ] {
        assert!(broken(&page, text, link).is_some(), "{link}");
    }
}
