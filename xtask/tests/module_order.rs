//! Module dependencies of each crate must be acyclic.
//!
//! docs/architecture.md lists each crate's modules. A module may use only modules listed earlier.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const ARCHITECTURE: &str = include_str!("../../docs/architecture.md");
const SECTION: &str = "## The order of modules";

/// Pairs of modules that use each other, with their folder.
const EXCEPTIONS: [(&str, &str, &str); 1] = [
    // The trait `Device` opens endpoints, and an endpoint keeps its device open.
    ("rdma/verbs/src", "device", "endpoint"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn documented() -> Vec<(String, Vec<String>)> {
    let (_, section) = ARCHITECTURE.split_once(SECTION).expect("the section");
    let section = section.split("\n## ").next().unwrap();
    section
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|row| {
            let (krate, modules) = row.split_once("` | `").expect("two columns");
            let modules = modules.trim_end_matches("` |").split(' ');
            (krate.to_owned(), modules.map(str::to_owned).collect())
        })
        .collect()
}

fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

fn names_after_super(code: &str, depth: usize, is_root_of_folder: bool) -> BTreeSet<String> {
    let ups = if is_root_of_folder { depth } else { depth + 1 };
    let mut names = names_after(code, &"super::".repeat(ups));
    names.remove("super");
    names
}

fn names_after(code: &str, path: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in code.match_indices(path) {
        if code[..at].ends_with("::") {
            continue;
        }
        let rest = &code[at + path.len()..];
        let Some(group) = rest.strip_prefix('{') else {
            names.insert(word(rest).to_owned());
            continue;
        };
        let mut depth = 0;
        let mut begins = true;
        for (at, c) in group.char_indices() {
            match c {
                '}' if depth == 0 => break,
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && (c.is_alphanumeric() || c == '_') => {
                    names.insert(word(&group[at..]).to_owned());
                    begins = false;
                }
                _ => {}
            }
        }
    }
    names
}

fn path_in_crate(folder: &Path) -> String {
    let names = folder.components().map(|name| name.as_os_str().to_str());
    let below = names.skip_while(|name| *name != Some("src")).skip(1);
    let below = below.map(|name| format!("{}::", name.expect("a name in UTF-8")));
    format!("crate::{}", below.collect::<String>())
}

fn uses(folder: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let path = path_in_crate(folder);
    let is_test = |file: &Path| file.file_stem().is_some_and(|stem| stem == "tests");
    for file in common::rust_files(folder) {
        if is_test(&file) {
            continue;
        }
        let inside = file.strip_prefix(folder).unwrap();
        let depth = inside.components().count() - 1;
        let first = inside.components().next().unwrap().as_os_str();
        let module = first.to_string_lossy().trim_end_matches(".rs").to_owned();
        if ["lib", "main", "mod", "bin"].contains(&module.as_str()) {
            continue;
        }
        let code = code(&fs::read_to_string(&file).unwrap());
        let is_root_of_folder = inside.ends_with("mod.rs");
        let used = uses.entry(module).or_default();
        used.extend(names_after(&code, &path));
        used.extend(names_after_super(&code, depth, is_root_of_folder));
    }
    let modules: BTreeSet<String> = uses.keys().cloned().collect();
    for (module, used) in &mut uses {
        used.retain(|name| name != module && modules.contains(name));
    }
    uses
}

#[test]
fn modules_use_only_those_before_them() {
    let mut wrong = Vec::new();
    let mut exceptions = BTreeSet::new();
    let documented = documented();
    assert!(documented.len() >= 8, "{documented:?}");
    for (krate, order) in documented {
        let uses = uses(&root().join(&krate));
        for module in uses.keys().filter(|module| !order.contains(module)) {
            wrong.push(format!("{krate}: {module} is not on the page"));
        }
        for module in order.iter().filter(|module| !uses.contains_key(*module)) {
            wrong.push(format!("{krate}: {module} is on the page only"));
        }
        let place = |name: &str| order.iter().position(|module| module == name);
        for (module, used) in &uses {
            for name in used.iter().filter(|name| place(name) > place(module)) {
                if EXCEPTIONS.contains(&(krate.as_str(), module, name)) {
                    exceptions.insert((krate.clone(), module.clone(), name.clone()));
                } else {
                    wrong.push(format!(
                        "{krate}: {module} uses {name}, which comes after it"
                    ));
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "docs/architecture.md, \"{SECTION}\":\n{}",
        wrong.join("\n")
    );
    assert_eq!(
        exceptions.len(),
        EXCEPTIONS.len(),
        "an exception that is not needed any more"
    );
}

#[test]
fn a_use_is_found_however_it_is_written() {
    let text = "use crate::one::X;\nuse crate::{two, three::{four, five}, six::Y};\n// crate::no\n\
                fn f() { crate::seven::g(); }\n#[cfg(test)]\nmod tests {\nuse crate::no;\n";
    let names: Vec<String> = names_after(&code(text), "crate::").into_iter().collect();
    assert_eq!(names, ["one", "seven", "six", "three", "two"]);
    let names = names_after(&code(text), "crate::seven::");
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["g"]);
    assert_eq!(path_in_crate(Path::new("a/src/b/c")), "crate::b::c::");
    let names = names_after_super("use super::super::a::b;\nuse super::c;", 1, false);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a"]);
    let names = names_after_super("use super::{a, b::{c, d}};", 0, false);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    let names = names_after_super("fn f() { super::a::b(super::super::c); }", 0, false);
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["a"]);
}
