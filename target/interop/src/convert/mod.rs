//! Conversion of configurations from and to other targets. Settings without counterpart are left
//! out and named, never guessed.

#![expect(clippy::disallowed_methods, reason = "a command for one file")]

mod fields;
mod nvmet;
mod nvmet_saved;
mod spdk;
mod spdk_saved;

pub use nvmet::from_nvmet;
pub use nvmet_saved::to_nvmet;
pub use spdk::from_spdk;
pub use spdk_saved::to_spdk;

use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::rc::Rc;

use cairn_config::{EditError, Listener};
use cairn_rdma::PKey;
use serde_json::Value;

const ELSEWHERE: &str = "its address has an interface of one machine, and hosts are on others";

#[derive(Debug)]
pub struct Converted {
    pub text: String,
    /// Settings without counterpart.
    pub notes: Vec<String>,
    /// True if a restriction of access has no counterpart.
    pub opens: bool,
}

#[derive(Clone, Default)]
struct Notes {
    all: Rc<RefCell<Vec<String>>>,
    opens: Rc<Cell<bool>>,
}

impl Notes {
    fn add(&self, note: impl Into<String>) {
        let note = note.into();
        let mut notes = self.all.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    fn opens(&self, note: impl Into<String>) {
        self.add(note);
        self.opens.set(true);
    }

    fn into_converted(self, text: String) -> Converted {
        Converted {
            text,
            notes: self.all.take(),
            opens: self.opens.get(),
        }
    }

    fn unknown(&self, what: &str, table: &Value, known: &[&str]) {
        let table = table.as_object().into_iter().flatten();
        let is_set = |value: &Value| match value {
            // nvmet shows -1 for values that it chooses, and zeroes for an OUI.
            Value::String(text) => !matches!(text.as_str(), "" | "0" | "none" | "-1" | "0x000000"),
            Value::Number(number) => number.as_u64() != Some(0),
            Value::Bool(is_so) => *is_so,
            Value::Array(array) => !array.is_empty(),
            Value::Object(object) => !object.is_empty(),
            Value::Null => false,
        };
        for (key, value) in table {
            if !known.contains(&key.as_str()) && is_set(value) {
                self.add(format!("{what}: {key} has no counterpart"));
            }
        }
    }

    fn without_counterpart<const N: usize>(&self, what: &str, settings: [(&str, bool); N]) {
        for (key, _) in settings.iter().filter(|(_, is_set)| *is_set) {
            self.add(format!("{what}: {key} has no counterpart"));
        }
    }

    fn of_listener(&self, what: &str, listener: &Listener) {
        let settings = [
            ("roce", listener.roce.is_some()),
            ("tos", listener.traffic_class.is_some()),
            ("hop_limit", listener.hop_limit.is_some()),
            ("pkey", listener.pkey != PKey::default()),
        ];
        self.without_counterpart(what, settings);
        if listener.allowed_addresses.is_some() {
            self.opens(format!(
                "{what}: allowed_addresses has no counterpart, and hosts at every address could \
                 connect"
            ));
        }
    }

    fn made<T>(&self, made: Result<T, EditError>) {
        if let Err(error) = made {
            self.add(error.to_string());
        }
    }
}

/// Decides by the file type if the path exists here, otherwise by its name.
fn is_device(path: &Path) -> bool {
    match std::fs::metadata(path).map(|there| there.file_type()) {
        Ok(kind) => kind.is_block_device() || kind.is_char_device(),
        Err(_) => {
            let files = ["/dev/shm", "/dev/mqueue", "/dev/hugepages"];
            path.starts_with("/dev") && !files.iter().any(|folder| path.starts_with(folder))
        }
    }
}
