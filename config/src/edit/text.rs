//! Text of a document, updated while namespaces are added and removed.
//!
//! With ten thousand namespaces, rendering by `toml_edit` takes most of the time of an edit. The
//! text is therefore rendered again only after other changes, or if the changed range is uncertain.

use std::collections::HashMap;
use std::ops::Range;

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::{comments_apart, has_nsid};

/// Marks the start of a namespace in a rendered text; not permitted in TOML.
const MARK: char = '\0';

#[derive(Debug, Clone)]
pub(super) struct Text {
    whole: String,
    /// End of the last namespace of each subsystem, as a byte offset in `whole`, by NQN.
    ends: HashMap<String, usize>,
    /// True if the text has a multi-line string, whose lines could look like a namespace.
    has_long_strings: bool,
}

impl Text {
    pub(super) fn after_addition(
        kept: Option<Self>,
        document: &mut DocumentMut,
        at: usize,
        nqn: &str,
    ) -> Option<Self> {
        let added = rendered(document, at, namespaces(document, at)?.iter().last()?)?;
        match kept {
            Some(mut text) if text.ends.contains_key(nqn) => {
                text.insert(nqn, &added);
                Some(text)
            }
            kept => Self::put_together(kept, document, at, nqn, &added),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.whole
    }

    /// Returns the byte range of a namespace; `None` if uncertain, or if its removal also changes
    /// other text.
    pub(super) fn find(
        &self,
        document: &DocumentMut,
        at: usize,
        nqn: &str,
        nsid: u32,
    ) -> Option<Range<usize>> {
        let tables = namespaces(document, at)?;
        let index = tables.iter().position(|table| has_nsid(table, nsid))?;
        let (table, next) = (tables.get(index)?, tables.get(index + 1));
        // `toml_edit` writes tables without a position after the last positioned table. Removing
        // that table would move the tables without a position.
        let leads = table.position().is_some() && next.is_none_or(|one| one.position().is_none());
        if leads || tables.len() == 1 || !comments_apart(table).is_empty() || self.has_long_strings
        {
            return None;
        }
        let gone = rendered(document, at, table)?;
        let before_end = self.whole.get(..*self.ends.get(nqn)?)?;
        // `before_end` ends with the subsystem's last namespace. NSIDs are unique in a subsystem,
        // so the last match is this namespace.
        let start = before_end.rfind(&gone)?;
        let place = start..start + gone.len();
        if next.is_none() {
            let last = rendered(document, at, tables.get(index.checked_sub(1)?)?)?;
            let is_end = place.end == before_end.len();
            if !is_end || !before_end.get(..start)?.ends_with(&last) {
                return None;
            }
        }
        Some(place)
    }

    pub(super) fn cut(&mut self, place: Range<usize>) {
        for end in self.ends.values_mut().filter(|end| **end > place.start) {
            *end -= place.len();
        }
        self.whole.replace_range(place, "");
    }

    fn insert(&mut self, nqn: &str, added: &str) {
        let Some(start) = self.ends.get(nqn).copied() else {
            return;
        };
        self.whole.insert_str(start, added);
        self.has_long_strings |= has_long_strings(added);
        for end in self.ends.values_mut().filter(|end| **end >= start) {
            *end += added.len();
        }
    }

    fn put_together(
        kept: Option<Self>,
        document: &mut DocumentMut,
        at: usize,
        nqn: &str,
        added: &str,
    ) -> Option<Self> {
        let last = namespaces_mut(document, at)?.iter_mut().last()?;
        let decor = last.decor().clone();
        let before = decor.prefix().map_or(Some("\n"), |text| text.as_str())?;
        last.decor_mut().set_prefix(format!("{MARK}{before}"));
        let mut whole = document.to_string();
        *namespaces_mut(document, at)?.iter_mut().last()?.decor_mut() = decor;
        let start = whole.find(MARK)?;
        whole.remove(start);
        if !whole.get(start..)?.starts_with(added) {
            return None;
        }
        let mut ends = kept.map(|text| text.ends).unwrap_or_default();
        for end in ends.values_mut().filter(|end| **end >= start) {
            *end += added.len();
        }
        ends.insert(nqn.to_owned(), start + added.len());
        Some(Self {
            has_long_strings: has_long_strings(&whole),
            whole,
            ends,
        })
    }
}

fn has_long_strings(text: &str) -> bool {
    text.contains("\"\"\"") || text.contains("'''")
}

fn rendered(document: &DocumentMut, at: usize, namespace: &Table) -> Option<String> {
    let subsystem = subsystems(document)?.get(at)?;
    let mut alone = Table::new();
    alone.decor_mut().set_suffix(MARK.to_string());
    let tables = [namespace.clone()].into_iter().collect();
    alone.insert_formatted(subsystem.key("namespace")?, Item::ArrayOfTables(tables));
    let tables = [alone].into_iter().collect();
    let mut around = DocumentMut::new();
    around.insert_formatted(document.key("subsystem")?, Item::ArrayOfTables(tables));
    let text = around.to_string();
    let (_, own) = text.split_once(&format!("{MARK}\n"))?;
    Some(own.to_owned())
}

fn subsystems(document: &DocumentMut) -> Option<&ArrayOfTables> {
    document.get("subsystem")?.as_array_of_tables()
}

fn namespaces(document: &DocumentMut, at: usize) -> Option<&ArrayOfTables> {
    let subsystem = subsystems(document)?.get(at)?;
    subsystem.get("namespace")?.as_array_of_tables()
}

fn namespaces_mut(document: &mut DocumentMut, at: usize) -> Option<&mut ArrayOfTables> {
    let subsystems = document.get_mut("subsystem")?.as_array_of_tables_mut()?;
    let subsystem = subsystems.get_mut(at)?;
    subsystem.get_mut("namespace")?.as_array_of_tables_mut()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Draft, NewNamespace};

    const NQNS: [&str; 3] = ["a", "b", "c"];
    const TEXTS: [&str; 5] = [
        "[[subsystem]]\nnqn = \"a\"\n[[subsystem]]\nnqn = \"b\"\n",
        r#"# First.

[[ subsystem ]] # One.
nqn = "a"

# Its disks.

# The first.
[[subsystem."namespace"]] # on flash
nsid = 2
export = "null:1MiB"
[subsystem.namespace.limits]
iops = 5
[[subsystem.host]]
nqn = "h"

[[subsystem.namespace]]
nsid = 3
export = "null:1MiB"
[[subsystem]]
nqn = "b"
[[subsystem.namespace]]
nsid = 3
export = "null:1MiB"
# The end.
"#,
        r#"[[subsystem]]
nqn = "a"
[[subsystem.namespace]]
nsid = 1
export = "null:1MiB"
[metrics]
[[subsystem.namespace]]
nsid = 2
export = "null:1MiB"
[control]
[[subsystem.host]]
nqn = "h"
[[subsystem]]
nqn = "c"
namespace = [{ nsid = 1, export = "null:1MiB" }, { nsid = 2, export = "null:2MiB" }]
"#,
        r#"[[subsystem]]
nqn = "a"
[[subsystem.namespace]]
nsid = 1
export = "null:1MiB"
[[subsystem.namespace]]
nsid = 4
name = """

[[subsystem.namespace]]
nsid = 1
export = "null:1MiB"
"""
export = "null:1MiB"
"#,
        "subsystem = [{ nqn = \"a\", namespace = [{ nsid = 1, export = \"x\" }] }, { nqn = \"b\" }]\n",
    ];

    fn changes() -> impl Strategy<Value = Vec<(usize, Option<u32>, bool)>> {
        let nsid = prop_oneof![2 => Just(None), 3 => (1..6u32).prop_map(Some)];
        prop::collection::vec((0..3usize, nsid, any::<bool>()), 1..24)
    }

    proptest! {
        #[test]
        fn the_text_is_the_documents(text in prop::sample::select(&TEXTS[..]), changes in changes()) {
            let mut draft = Draft::new(text).unwrap();
            for (place, nsid, has_long_name) in changes {
                let _ = match nsid {
                    Some(nsid) => draft.remove_namespace(NQNS[place], nsid).map(drop),
                    None => {
                        let name = has_long_name
                            .then(|| "[[subsystem.namespace]]\nnsid = 1\nexport = 'x'\n".to_owned());
                        let export = "null:1MiB".to_owned();
                        let new = NewNamespace { name, export, ..NewNamespace::default() };
                        draft.add_namespace(NQNS[place], &new).map(|_| ())
                    }
                };
                prop_assert_eq!(draft.text(), draft.document.as_document().to_string());
            }
        }
    }

    #[test]
    fn a_namespace_that_comes_or_goes_leaves_the_rest_of_the_text() {
        let mut draft = Draft::new(TEXTS[1]).unwrap();
        let new = NewNamespace {
            export: "null:1MiB".to_owned(),
            ..NewNamespace::default()
        };
        for nqn in ["a", "b", "a", "b"] {
            draft.add_namespace(nqn, &new).unwrap();
            assert!(draft.document.has_text());
        }
        for (nqn, nsid) in [("a", 4), ("b", 2), ("b", 1), ("a", 1)] {
            draft.remove_namespace(nqn, nsid).unwrap();
            assert!(draft.document.has_text(), "{nqn} {nsid}");
        }
        let Draft { document } = &draft;
        assert_eq!(draft.text(), document.as_document().to_string());
    }
}
