//! A document that knows whether changes did more than add namespaces, or remove some.

use std::collections::HashMap;

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::nsids::Taken;
use super::text::Text;
use super::{Draft, has_nsid, push, remove, text_of};

/// What [`Draft`] changes. Only what is in this module adds or removes a namespace without being noted
/// as another change.
#[derive(Debug, Clone)]
pub(super) struct Tracked {
    document: DocumentMut,
    /// The namespaces that were added, each with the NQN of its subsystem.
    added: Vec<(String, Table)>,
    /// NQN and NSID of those that were removed.
    removed: Vec<(String, u32)>,
    is_otherwise_changed: bool,
    /// By NQN, of subsystems that were asked for: a look at thousands of tables takes as long as many changes.
    taken: HashMap<String, Taken>,
    /// What the document is as text, if it is known.
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

    /// Forgets the changes so far.
    pub(super) fn settle(&mut self) {
        self.added.clear();
        self.removed.clear();
        self.is_otherwise_changed = false;
    }

    /// What was added, if nothing else was changed.
    pub(super) fn added(&self) -> Option<&[(String, Table)]> {
        (!self.is_otherwise_changed && self.removed.is_empty()).then_some(&self.added[..])
    }

    /// What was removed, if nothing else was changed.
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

    /// Comments mean nothing.
    pub(super) fn set_trailing(&mut self, text: String) {
        self.document.set_trailing(text);
        self.text = None;
    }

    /// Removes a namespace from the subsystem that is at this place among them; returns the comments that stay.
    pub(super) fn remove_namespace(&mut self, at: usize, nqn: &str, nsid: u32) -> Option<String> {
        let text = self.text.as_ref();
        let cut = text.and_then(|text| text.find(&self.document, at, nqn, nsid));
        let subsystems = self.document.get_mut("subsystem")?;
        let subsystem = subsystems.as_array_of_tables_mut()?.get_mut(at)?;
        let comments = remove(subsystem, "namespace", |table| has_nsid(table, nsid))?;
        match (&mut self.text, cut) {
            (Some(text), Some(cut)) => text.cut(cut),
            (text, _) => *text = None,
        }
        self.removed.push((nqn.to_owned(), nsid));
        if let Some(taken) = self.taken.get_mut(nqn) {
            taken.remove(nsid);
        }
        Some(comments)
    }

    /// Adds a namespace to the subsystem that is at this place among them.
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

    /// The NSIDs of a subsystem, and its place among all of them.
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

    /// The place of the subsystem among all of them, and its table.
    pub(super) fn subsystem(&self, nqn: &str) -> Option<(usize, &Table)> {
        let all = self.document.get("subsystem")?.as_array_of_tables();
        let mut all = all.into_iter().flat_map(ArrayOfTables::iter).enumerate();
        all.find(|(_, table)| text_of(table, "nqn") == Some(nqn))
    }
}

impl Draft {
    /// Forgets which changes there were: they are part of the text.
    pub fn settle(&mut self) {
        self.document.settle();
    }

    /// The tables of the namespaces that were added, each with the NQN of its subsystem. `None`: there are
    /// other changes, too.
    pub(crate) fn added(&self) -> Option<&[(String, Table)]> {
        self.document.added()
    }

    /// NQN and NSID of the namespaces that were removed. `None`: there are other changes, too.
    pub(crate) fn removed(&self) -> Option<&[(String, u32)]> {
        self.document.removed()
    }

    /// Whether it adds namespaces, or removes some, and changes nothing else.
    #[must_use]
    pub fn changes_namespaces_alone(&self) -> bool {
        self.added().is_some() || self.removed().is_some()
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.added().is_some_and(<[_]>::is_empty) && self.removed().is_some_and(<[_]>::is_empty)
    }
}
