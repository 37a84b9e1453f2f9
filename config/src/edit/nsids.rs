//! Which NSIDs of a subsystem are free.

use std::collections::BTreeMap;

use toml_edit::Table;

use super::text_of;
use crate::config::{DIRECTORY_PREFIX, NSID_MAX};

/// Those that the file names, and which of them are directories: these have all up to the next.
pub(super) struct Taken(BTreeMap<i64, bool>);

impl Taken {
    pub(super) fn of<'t>(tables: impl Iterator<Item = &'t mut Table>) -> Self {
        let numbered = tables.filter_map(|table| {
            let nsid = table.get("nsid")?.as_integer()?;
            let export = text_of(table, "export").unwrap_or_default();
            Some((nsid, export.starts_with(DIRECTORY_PREFIX)))
        });
        Self(numbered.collect())
    }

    pub(super) fn includes(&self, nsid: u32) -> bool {
        self.0.contains_key(&nsid.into())
    }

    /// The lowest that nothing has, no file of a directory either.
    pub(super) fn first_free(&self) -> Option<u32> {
        let mut is_directory = false;
        (1..=NSID_MAX).find(|nsid| {
            let named = self.0.get(&i64::from(*nsid));
            is_directory = *named.unwrap_or(&is_directory);
            named.is_none() && !is_directory
        })
    }

    pub(super) fn explain_full(&self, nqn: &str) -> String {
        if self.0.values().any(|is_directory| *is_directory) {
            format!(
                "{nqn}: files of directories have all other NSIDs: give an NSID; the directory before it \
                 then has those below it alone"
            )
        } else {
            format!("{nqn} has all {NSID_MAX} namespaces that it can have")
        }
    }
}
