use std::collections::BTreeMap;

use toml_edit::Table;

use super::text_of;
use crate::config::{DIRECTORY_PREFIX, NSID_MAX};

/// Used NSIDs. The value is true for a pool directory, which uses all NSIDs up to the next entry.
#[derive(Debug, Clone)]
pub(super) struct Taken(BTreeMap<i64, bool>);

impl Taken {
    pub(super) fn of<'t>(tables: impl Iterator<Item = &'t Table>) -> Self {
        Self(tables.filter_map(entry).collect())
    }

    pub(super) fn add(&mut self, table: &Table) {
        self.0.extend(entry(table));
    }

    pub(super) fn remove(&mut self, nsid: u32) {
        self.0.remove(&nsid.into());
    }

    pub(super) fn includes(&self, nsid: u32) -> bool {
        self.0.contains_key(&nsid.into())
    }

    pub(super) fn first_free(&self) -> Option<u32> {
        let mut next = 1;
        let mut is_directory = false;
        for (nsid, is_next_directory) in self.0.range(1..=i64::from(NSID_MAX)) {
            if *nsid > next && !is_directory {
                break;
            }
            (next, is_directory) = (nsid + 1, *is_next_directory);
        }
        let next = u32::try_from(next).ok()?;
        (next <= NSID_MAX && !is_directory).then_some(next)
    }

    pub(super) fn explain_full(&self, nqn: &str) -> String {
        if self.0.values().any(|is_directory| *is_directory) {
            format!(
                "{nqn}: directories occupy all other NSIDs: give an NSID; the directory before it then has \
                 only the NSIDs below"
            )
        } else {
            format!("{nqn} has all {NSID_MAX} namespaces that it can have")
        }
    }
}

fn entry(table: &Table) -> Option<(i64, bool)> {
    let nsid = table.get("nsid")?.as_integer()?;
    let export = text_of(table, "export").unwrap_or_default();
    Some((nsid, export.starts_with(DIRECTORY_PREFIX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(entries: &[(i64, bool)]) -> Taken {
        Taken(entries.iter().copied().collect())
    }

    #[test]
    fn the_lowest_free_one_is_behind_what_directories_have() {
        assert_eq!(taken(&[]).first_free(), Some(1));
        assert_eq!(taken(&[(2, false)]).first_free(), Some(1));
        assert_eq!(
            taken(&[(1, false), (2, false), (4, false)]).first_free(),
            Some(3)
        );
        assert_eq!(
            taken(&[(1, true), (5, false), (6, false)]).first_free(),
            Some(7)
        );
        assert_eq!(
            taken(&[(1, true), (5, false), (9, true)]).first_free(),
            Some(6)
        );
        assert_eq!(taken(&[(1, false), (3, true)]).first_free(), Some(2));
        assert_eq!(taken(&[(1, true)]).first_free(), None);
        let far = [(i64::MIN, true), (1, false), (i64::MAX, false)];
        assert_eq!(taken(&far).first_free(), Some(2));
        let all: Vec<_> = (1..=i64::from(NSID_MAX))
            .map(|nsid| (nsid, false))
            .collect();
        assert_eq!(taken(&all).first_free(), None);
        assert_eq!(taken(&all[1..]).first_free(), Some(1));
        assert_eq!(taken(&all[..all.len() - 1]).first_free(), Some(NSID_MAX));
    }
}
