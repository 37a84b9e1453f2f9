//! Settings lost with a removed namespace.

use toml_edit::Table;

use super::text_of;
use crate::config::DIRECTORY_PREFIX;

const RESTRICTIONS: [&str; 4] = ["hosts", "limits", "read_only", "write_protection"];
const RESTRICTIONS_MAX: usize = 512;

fn restrictions(namespace: &Table) -> String {
    let given = RESTRICTIONS.iter().filter_map(|key| {
        let item = namespace.get(key)?;
        let value = item.as_value().map(|value| value.to_string());
        let value = value.map_or("...".to_owned(), |value| value.trim().replace('\n', ""));
        Some(format!("{key} = {value}"))
    });
    let mut text = given.collect::<Vec<_>>().join(", ");
    if let Some((end, _)) = text.char_indices().nth(RESTRICTIONS_MAX) {
        text.truncate(end);
        text += "...";
    }
    text
}

#[derive(Debug, Default)]
pub(super) struct LostSettings {
    pub(super) restrictions: String,
    pub(super) directory: Option<String>,
}

impl LostSettings {
    pub(super) fn of(namespace: &Table) -> Self {
        let export = text_of(namespace, "export").unwrap_or_default();
        Self {
            restrictions: restrictions(namespace),
            directory: export.strip_prefix(DIRECTORY_PREFIX).map(str::to_owned),
        }
    }
}
