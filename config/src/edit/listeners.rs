use cairn_base::{Traddr, Trid};

use toml_edit::{Array, Item, Table, Value, value};

use super::{Draft, EditError, Losses, ana, push, remove, set_given, tables, text_of};
use crate::config::PORT_DEFAULT;
use cairn_base::shell::shell_word;

const KEY: &str = "listeners";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewListener {
    pub address: Traddr,
    pub port: u16,
    /// RDMA provider: "auto", "verbs" or "soft".
    pub provider: Option<String>,
    /// RoCE version: "v1" or "v2".
    pub roce: Option<String>,
    pub vlan: Option<u16>,
    pub ana: Option<String>,
    /// Partition key; `None` for 0xffff.
    pub pkey: Option<u16>,
    /// PORTID; the lowest unused if `None`.
    pub port_id: Option<u16>,
}

impl NewListener {
    #[must_use]
    pub fn at(address: Traddr, port: u16) -> Self {
        Self {
            address,
            port,
            provider: None,
            roce: None,
            vlan: None,
            ana: None,
            pkey: None,
            port_id: None,
        }
    }

    pub(super) fn table(&self) -> Table {
        let mut table = Table::new();
        table["address"] = value(self.address.to_string());
        if self.port != PORT_DEFAULT {
            table["port"] = value(i64::from(self.port));
        }
        set_given(
            &mut table,
            [
                ("provider", self.provider.as_ref()),
                ("roce", self.roce.as_ref()),
                ("ana", self.ana.as_ref()),
            ],
        );
        set_given(
            &mut table,
            [
                ("vlan", self.vlan.map(i64::from)),
                ("pkey", self.pkey.map(i64::from)),
                ("port_id", self.port_id.map(i64::from)),
            ],
        );
        table
    }
}

impl Draft {
    pub fn add_listener(&mut self, new: &NewListener) -> Result<(), EditError> {
        let is_it = |table: &Table| is_listener(table, new.address, new.port);
        if tables(self.document.as_table_mut(), "listener").any(|table| is_it(table)) {
            let message = format!("{} port {} is there already", new.address, new.port);
            return Err(EditError::Exists(message));
        }
        push(self.document.as_table_mut(), "listener", new.table());
        Ok(())
    }

    /// Removes a listener, its entries in subsystems' lists, and its ANA overrides.
    pub fn remove_listener(&mut self, address: Traddr, port: u16) -> Result<Losses, EditError> {
        let is_it = |table: &Table| is_listener(table, address, port);
        let Some(apart) = remove(self.document.as_table_mut(), "listener", is_it) else {
            let message = format!("the configuration has no listener {address} port {port}");
            return Err(EditError::Missing(message));
        };
        self.keep(&apart);
        let at = Trid::new(address, port);
        let (mut apart, mut losses) = (String::new(), Losses::new());
        let is_last = tables(self.document.as_table_mut(), "listener")
            .next()
            .is_none();
        if is_last {
            losses.push(
                "no listener is left, so no host can connect: cairn-target listener add ADDR"
                    .to_owned(),
            );
        }
        for subsystem in tables(self.document.as_table_mut(), "subsystem") {
            let nqn = text_of(subsystem, "nqn").unwrap_or_default().to_owned();
            if let Some(own) = own_list(subsystem) {
                let before = own.len();
                own.retain(|one| !is_at(one, at));
                if own.is_empty() && before > 0 && !is_last {
                    losses.push(format!(
                        "no listener leads to {nqn} any more, so no host can connect to it: \
                         cairn-target subsystem set {} --listener ADDR, or --every-listener",
                        shell_word(&nqn, "NQN")
                    ));
                }
            }
            apart += &ana::forget(subsystem, |own, _| own == at);
        }
        self.keep(&apart);
        Ok(losses)
    }

    /// Adds a listener to a subsystem's list; returns false if it already leads to the subsystem.
    pub fn add_listener_to(&mut self, nqn: &str, at: Trid) -> Result<bool, EditError> {
        let Some(own) = own_list(self.subsystem(nqn)?) else {
            return Ok(false);
        };
        if own.iter().any(|one| is_at(one, at)) {
            return Ok(false);
        }
        own.push(at.to_string());
        Ok(true)
    }

    /// Removes a listener from a subsystem, and from the file if no other subsystem uses it.
    ///
    /// `all` contains the file's listeners. A subsystem without a list gets a list of all listeners
    /// except `at`.
    pub fn remove_listener_from(
        &mut self,
        nqn: &str,
        at: Trid,
        all: &[Trid],
    ) -> Result<(), EditError> {
        let leads = |subsystem: &mut Table| {
            let own = own_list(subsystem);
            own.is_none_or(|own| own.iter().any(|one| is_at(one, at)))
        };
        if !leads(self.subsystem(nqn)?) || !all.contains(&at) {
            let message = format!("the listener {at} does not lead to {nqn}");
            return Err(EditError::Missing(message));
        }
        let is_other = |table: &Table| text_of(table, "nqn") != Some(nqn);
        let is_used = tables(self.document.as_table_mut(), "subsystem")
            .any(|table| is_other(table) && leads(table));
        if !is_used {
            return self.remove_listener(at.address, at.port).map(drop);
        }
        let subsystem = self.subsystem(nqn)?;
        match own_list(subsystem) {
            Some(own) => own.retain(|one| !is_at(one, at)),
            None => {
                let others = all.iter().filter(|other| **other != at);
                set(subsystem, &others.copied().collect::<Vec<_>>());
            }
        }
        let apart = ana::forget(subsystem, |own, _| own == at);
        self.keep(&apart);
        Ok(())
    }
}

pub(super) fn set(subsystem: &mut Table, own: &[Trid]) {
    subsystem[KEY] = value(Array::from_iter(own.iter().map(Trid::to_string)));
}

pub(super) fn set_every(subsystem: &mut Table) {
    subsystem.remove(KEY);
}

fn own_list(subsystem: &mut Table) -> Option<&mut Array> {
    subsystem.get_mut(KEY).and_then(Item::as_array_mut)
}

fn is_at(one: &Value, at: Trid) -> bool {
    one.as_str().and_then(address_of) == Some(at)
}

pub(super) fn address_of(text: &str) -> Option<Trid> {
    Trid::parse(text, PORT_DEFAULT).ok()
}

pub(super) fn is_listener(table: &Table, address: Traddr, port: u16) -> bool {
    let own = text_of(table, "address").and_then(|text| text.parse().ok());
    let port_default = i64::from(PORT_DEFAULT);
    let own_port = table
        .get("port")
        .map_or(Some(port_default), Item::as_integer);
    own == Some(address) && own_port == Some(port.into())
}
