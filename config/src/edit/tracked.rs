use std::cell::RefCell;
use std::collections::HashMap;

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::lost::LostSettings;
use super::nsids::Taken;
use super::text::Text;
use super::{Draft, has_nsid, push, remove, text_of};

/// Document of a [`Draft`] that records whether edits only added or only removed namespaces. Any
/// access through [`Self::as_table_mut`] counts as another change.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    document: DocumentMut,
    added: Vec<(String, Table)>,
    removed: Vec<(String, u32)>,
    is_otherwise_changed: bool,
    /// Cache of the NSIDs in use, by NQN.
    taken: HashMap<String, Taken>,
    text: Option<Text>,
}

impl Tracked {
    pub(super) fn new(document: DocumentMut) -> Self {
        Self {
            document,
            added: Vec::new(),
            removed: Vec::new(),
            is_otherwise_changed: false,
            taken: HashMap::new(),
            text: None,
        }
    }

    pub(super) fn settle(&mut self) {
        self.added.clear();
        self.removed.clear();
        self.is_otherwise_changed = false;
    }

    pub(super) fn added(&self) -> Option<&[(String, Table)]> {
        (!self.is_otherwise_changed && self.removed.is_empty()).then_some(&self.added[..])
    }

    pub(super) fn removed(&self) -> Option<&[(String, u32)]> {
        (!self.is_otherwise_changed && self.added.is_empty()).then_some(&self.removed[..])
    }

    pub(super) fn as_document(&self) -> &DocumentMut {
        &self.document
    }

    #[cfg(test)]
    pub(super) fn has_text(&self) -> bool {
        self.text.is_some()
    }

    pub(super) fn text(&self) -> String {
        match &self.text {
            Some(text) => text.as_str().to_owned(),
            None => self.document.to_string(),
        }
    }

    pub(super) fn as_table_mut(&mut self) -> &mut Table {
        self.is_otherwise_changed = true;
        self.taken.clear();
        self.text = None;
        self.document.as_table_mut()
    }

    pub(super) fn set_trailing(&mut self, text: String) {
        self.document.set_trailing(text);
        self.text = None;
    }

    pub(super) fn remove_namespace(
        &mut self,
        at: usize,
        nqn: &str,
        nsid: u32,
    ) -> Option<(String, LostSettings)> {
        let text = self.text.as_ref();
        let cut = text.and_then(|text| text.find(&self.document, at, nqn, nsid));
        let subsystems = self.document.get_mut("subsystem")?;
        let subsystem = subsystems.as_array_of_tables_mut()?.get_mut(at)?;
        let lost = RefCell::<LostSettings>::default();
        let comments = remove(subsystem, "namespace", |table| {
            let is_it = has_nsid(table, nsid);
            if is_it {
                lost.replace(LostSettings::of(table));
            }
            is_it
        })?;
        match (&mut self.text, cut) {
            (Some(text), Some(cut)) => text.cut(cut),
            (text, _) => *text = None,
        }
        self.removed.push((nqn.to_owned(), nsid));
        if let Some(taken) = self.taken.get_mut(nqn) {
            taken.remove(nsid);
        }
        Some((comments, lost.into_inner()))
    }

    pub(super) fn add_namespace(&mut self, at: usize, nqn: &str, table: Table) {
        let subsystems = self.document.get_mut("subsystem");
        let subsystems = subsystems.and_then(Item::as_array_of_tables_mut);
        if let Some(subsystem) = subsystems.and_then(|all| all.get_mut(at)) {
            self.added.push((nqn.to_owned(), table.clone()));
            if let Some(taken) = self.taken.get_mut(nqn) {
                taken.add(&table);
            }
            push(subsystem, "namespace", table);
            self.text = Text::after_addition(self.text.take(), &mut self.document, at, nqn);
        }
    }

    pub(super) fn taken(&mut self, nqn: &str) -> Option<(usize, &Taken)> {
        let (at, subsystem) = self.subsystem(nqn)?;
        if !self.taken.contains_key(nqn) {
            let namespaces = subsystem
                .get("namespace")
                .and_then(Item::as_array_of_tables);
            let taken = Taken::of(namespaces.into_iter().flat_map(ArrayOfTables::iter));
            self.taken.insert(nqn.to_owned(), taken);
        }
        Some((at, self.taken.get(nqn)?))
    }

    pub(super) fn nqns(&self) -> impl Iterator<Item = &str> {
        let all = self.document.get("subsystem");
        let all = all.and_then(Item::as_array_of_tables);
        let all = all.into_iter().flat_map(ArrayOfTables::iter);
        all.filter_map(|table| text_of(table, "nqn"))
    }

    pub(super) fn subsystem(&self, nqn: &str) -> Option<(usize, &Table)> {
        let all = self.document.get("subsystem")?.as_array_of_tables();
        let mut all = all.into_iter().flat_map(ArrayOfTables::iter).enumerate();
        all.find(|(_, table)| text_of(table, "nqn") == Some(nqn))
    }
}

impl Draft {
    /// Resets the record of changes; the text stays.
    pub fn settle(&mut self) {
        self.document.settle();
    }

    pub(crate) fn added(&self) -> Option<&[(String, Table)]> {
        self.document.added()
    }

    pub(crate) fn removed(&self) -> Option<&[(String, u32)]> {
        self.document.removed()
    }

    /// True if the changes only add, or only remove, namespaces.
    #[must_use]
    pub fn changes_namespaces_alone(&self) -> bool {
        self.added().is_some() || self.removed().is_some()
    }

    /// True if nothing changed since the draft was created or settled.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.added().is_some_and(<[_]>::is_empty) && self.removed().is_some_and(<[_]>::is_empty)
    }
}
