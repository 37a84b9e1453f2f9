use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::said;

pub(super) fn all() -> Result<String> {
    let mut text = String::from("Cairn is licensed under MIT or Apache-2.0, at your choice.\n\n");
    text += &ours();
    text += "\nIt contains these crates:\n\n";
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, licence, folder) in dependencies()? {
        writeln!(text, "{name}: {licence}")?;
        for file in files(&folder)? {
            let own = String::from_utf8_lossy(&fs::read(file)?).trim().to_owned();
            texts.entry(own).or_default().insert(name.clone());
        }
    }
    for (own, names) in texts {
        let names: Vec<String> = names.into_iter().collect();
        write!(text, "\n\n-- {}\n\n{own}\n", names.join(", "))?;
    }
    Ok(text)
}

pub(super) fn engine() -> String {
    "The engine is licensed under GPL-2.0-or-later or MIT, at your choice; fio, which loads it, is \
     GPL-2.0. /usr/share/doc/cairn/copyright has the licences of what it contains.\n"
        .to_owned()
}

fn ours() -> String {
    ["LICENSE-MIT", "LICENSE-APACHE"]
        .map(|file| fs::read_to_string(file).unwrap_or_default())
        .join("\n")
}

fn dependencies() -> Result<Vec<(String, String, PathBuf)>> {
    let metadata = said(Command::new("cargo").args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform=x86_64-unknown-linux-gnu",
    ]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node["id"]), node))
        .collect();
    let is_ours = |name: &str| ["cairn-target", "cairn-initiator-cli", "cairn-fio"].contains(&name);
    let first = packages.iter();
    let first = first.filter(|(_, package)| is_ours(&text(&package["name"])));
    let mut todo: Vec<String> = first.map(|(id, _)| id.clone()).collect();
    let mut seen = BTreeSet::new();
    while let Some(id) = todo.pop() {
        let node = nodes.get(&id).context("cargo metadata lists each crate")?;
        for dependency in list(&node["deps"]) {
            let kinds = list(&dependency["dep_kinds"]);
            if kinds.iter().any(|kind| kind["kind"].is_null()) {
                todo.push(text(&dependency["pkg"]));
            }
        }
        todo.retain(|next| !seen.contains(next));
        seen.insert(id);
    }
    let mut all = Vec::new();
    for package in seen.iter().filter_map(|id| packages.get(id)) {
        if package["source"].is_null() {
            continue;
        }
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let folder = manifest.parent().map(Path::to_owned);
        let name = format!("{} {}", text(&package["name"]), text(&package["version"]));
        all.push((name, text(&package["license"]), folder.unwrap_or_default()));
    }
    all.sort();
    Ok(all)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_uppercase();
        let is_licence = ["LICEN", "COPYING", "NOTICE"]
            .iter()
            .any(|begin| name.starts_with(begin));
        if is_licence && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
