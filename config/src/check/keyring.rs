use std::path::{Path, PathBuf};

use super::Check;
use crate::config::{KEY_PREFIX, KEYS_MAX, NamedKey};
use crate::file::KeyTable;
use crate::key_path::KeyPath;
use crate::suggest;

const NAME_MAX: usize = 255;

pub(super) fn check(check: &mut Check<'_>, place: &KeyPath, tables: &[KeyTable]) -> Vec<NamedKey> {
    check.count(place, tables.len(), KEYS_MAX);
    let mut firsts: Vec<(&str, usize)> = Vec::new();
    let mut keys = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let at = place.index(index);
        let path = path(check, &at, table.path.as_deref());
        let Some(name) = name(check, &at, table.name.as_deref()) else {
            continue;
        };
        if let Some((_, first)) = firsts.iter().find(|(other, _)| *other == name) {
            let first = place.index(*first).key("name");
            check
                .repeated(&at.key("name"), &first, format_args!("the key \"{name}\""))
                .help("give one of them another name");
            continue;
        }
        firsts.push((name, index));
        keys.push(NamedKey {
            name: name.to_owned(),
            path: path.unwrap_or_default(),
            is_removed: table.removed.unwrap_or(false),
        });
    }
    keys
}

fn name<'a>(check: &mut Check<'_>, place: &KeyPath, text: Option<&'a str>) -> Option<&'a str> {
    let Some(text) = text else {
        check.missing(place, "name", "name it, such as name = \"db1\"");
        return None;
    };
    let is_good = !text.is_empty() && text.len() <= NAME_MAX;
    if is_good && text.bytes().all(|byte| byte.is_ascii_graphic()) && !has_keyring(text) {
        return Some(text);
    }
    check
        .wrong(&place.key("name"), "not a valid name of a key")
        .help(format!(
            "write 1 to {NAME_MAX} letters, digits and signs, without a \":\" but at the start"
        ));
    None
}

fn has_keyring(name: &str) -> bool {
    name.find(':').is_some_and(|at| at > 0)
}

fn path(check: &mut Check<'_>, place: &KeyPath, text: Option<&str>) -> Option<PathBuf> {
    const HELP: &str = "write the absolute path of a file with the key, as `cairn-target key \
                        generate --file FILE` makes it";
    let Some(text) = text else {
        check.missing(place, "path", HELP);
        return None;
    };
    if Path::new(text).is_absolute() && !text.contains('\0') {
        return Some(PathBuf::from(text));
    }
    // The problem has no location, because its excerpt of the file could print a secret.
    let mut problem = crate::problem::Problem::new("the path of the key is not absolute");
    problem.help(HELP);
    check.problems.push(problem);
    None
}

pub(super) fn named(
    check: &mut Check<'_>,
    place: &KeyPath,
    name: &str,
    keys: &[NamedKey],
) -> Option<NamedKey> {
    let found = keys.iter().find(|key| key.name == name);
    if found.is_none() {
        let names = || keys.iter().map(|key| &*key.name);
        let help = match suggest::nearest(name, names()) {
            Some(near) => format!("did you mean \"{KEY_PREFIX}{near}\"?"),
            None => "add it: [[key]] with its name and path".to_owned(),
        };
        let message = format!("no key has the name \"{}\"", name.escape_debug());
        check.wrong(place, message).help(help);
    }
    found.cloned()
}
