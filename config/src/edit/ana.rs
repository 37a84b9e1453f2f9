use cairn_base::{Traddr, Trid};

use toml_edit::{Item, Table, value};

use super::listeners::{address_of, is_listener};
use super::{Draft, EditError, make_tables, push, remove, tables, text_of};

const KEY: &str = "ana";

impl Draft {
    /// Sets the ANA state of `group` at a listener. `None` means all groups without an entry in the
    /// listener's tables `ana_group`.
    pub fn set_ana(
        &mut self,
        address: Traddr,
        port: u16,
        group: Option<u32>,
        state: &str,
    ) -> Result<(), EditError> {
        let mut listeners = tables(self.document.as_table_mut(), "listener");
        let Some(listener) = listeners.find(|table| is_listener(table, address, port)) else {
            let message = format!("the configuration has no listener {address} port {port}");
            return Err(EditError::Missing(message));
        };
        let Some(group) = group else {
            listener["ana"] = value(state);
            return Ok(());
        };
        make_tables(listener, "ana_group");
        let is_it = |table: &&mut Table| {
            table.get("id").and_then(Item::as_integer) == Some(i64::from(group))
        };
        let name = |table: &mut Table| table["id"] = value(i64::from(group));
        set_state(listener, "ana_group", is_it, name, state);
        Ok(())
    }

    /// Sets a subsystem's ANA state of `group` at a listener. `None` sets all groups, and removes
    /// their single states.
    pub fn set_ana_of(
        &mut self,
        nqn: &str,
        at: Trid,
        group: Option<u32>,
        state: &str,
    ) -> Result<(), EditError> {
        let subsystem = self.subsystem(nqn)?;
        let mut apart = String::new();
        if group.is_none() {
            apart = forget(subsystem, |own, group| own == at && group.is_some());
        }
        let is_it = |table: &&mut Table| place(table) == (Some(at), group.map(i64::from));
        let name = |table: &mut Table| {
            table["listener"] = value(at.to_string());
            if let Some(group) = group {
                table["ana_group"] = value(i64::from(group));
            }
        };
        set_state(subsystem, KEY, is_it, name, state);
        self.keep(&apart);
        Ok(())
    }

    /// Removes a subsystem's ANA state of `group` at a listener; `None` removes all its states
    /// there. The listener's states then apply.
    pub fn inherit_ana(
        &mut self,
        nqn: &str,
        at: Trid,
        group: Option<u32>,
    ) -> Result<(), EditError> {
        let subsystem = self.subsystem(nqn)?;
        let wanted = group.map(i64::from);
        let is_it = |own, group: Option<i64>| own == at && (wanted.is_none() || group == wanted);
        if !tables(subsystem, KEY).any(|table| is_named(table, is_it)) {
            let of = group.map_or(String::new(), |group| format!(" for the ANA group {group}"));
            let message = format!("{nqn} has no ANA state of its own at {at}{of}");
            return Err(EditError::Missing(message));
        }
        let apart = forget(subsystem, is_it);
        self.keep(&apart);
        Ok(())
    }
}

fn set_state(
    parent: &mut Table,
    key: &str,
    is_it: impl Fn(&&mut Table) -> bool,
    name: impl FnOnce(&mut Table),
    state: &str,
) {
    if let Some(table) = tables(parent, key).find(is_it) {
        table["state"] = value(state);
        return;
    }
    let mut table = Table::new();
    name(&mut table);
    table["state"] = value(state);
    push(parent, key, table);
}

pub(super) fn forget(subsystem: &mut Table, is_it: impl Fn(Trid, Option<i64>) -> bool) -> String {
    let mut kept = String::new();
    while let Some(apart) = remove(subsystem, KEY, |table| is_named(table, &is_it)) {
        kept += &apart;
    }
    kept
}

fn is_named(table: &Table, is_it: impl Fn(Trid, Option<i64>) -> bool) -> bool {
    let (at, group) = place(table);
    at.is_some_and(|at| is_it(at, group))
}

fn place(table: &Table) -> (Option<Trid>, Option<i64>) {
    let group = table.get("ana_group").and_then(Item::as_integer);
    (text_of(table, "listener").and_then(address_of), group)
}
