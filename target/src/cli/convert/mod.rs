//! Conversion of configurations from and to other targets. Settings without counterpart are left
//! out and named, never guessed.

#![expect(clippy::disallowed_methods, reason = "a command for one file")]

mod fields;
mod nvmet;
mod nvmet_saved;
mod spdk;
mod spdk_saved;

use std::cell::{Cell, RefCell};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cairn_config::{Config, EditError, Flags, Listener};
use cairn_rdma::PKey;
use clap::Subcommand;
use serde_json::Value;

use super::print_line;
use crate::steering::whole_numbers;

/// Source of an import.
#[derive(Debug, Subcommand)]
pub(super) enum Import {
    /// Converts a configuration of the kernel target, saved by nvmetcli, to one of Cairn
    Nvmet {
        /// File written by `nvmetcli save`
        file: PathBuf,
    },
    /// Converts a configuration of SPDK's target to one of Cairn
    Spdk {
        /// File written by `rpc.py save_config`
        file: PathBuf,
    },
}

const ELSEWHERE: &str = "its address has an interface of one machine, and hosts are on others";

/// Destination of an export.
#[derive(Debug, Subcommand)]
pub(super) enum Export {
    /// Converts a configuration file to JSON for `nvmetcli restore`
    Nvmet {
        /// The configuration file
        file: PathBuf,
    },
    /// Converts a configuration file to JSON for `rpc.py load_config`
    Spdk {
        /// The configuration file
        file: PathBuf,
    },
}

struct Converted {
    text: String,
    notes: Vec<String>,
    opens: bool,
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

pub(super) fn import(import: &Import) -> Result<(), String> {
    let (file, converted) = match import {
        Import::Nvmet { file } => (file, nvmet::import(&json(file)?)?),
        Import::Spdk { file } => (file, spdk::import(&json(file)?)?),
    };
    report(&converted.notes);
    print_line(converted.text.trim_end());
    // The text is printed even if invalid, so that the user can fix it.
    let name = format!("made from {}", file.display());
    match Config::parse(&name, &converted.text, &Flags::default()) {
        Ok(_) => refuse_opened(&converted),
        Err(error) => Err(error.to_string()),
    }
}

fn refuse_opened(converted: &Converted) -> Result<(), String> {
    match converted.opens {
        false => Ok(()),
        true => {
            Err("error: a restriction of access has no counterpart: see the notes above".to_owned())
        }
    }
}

pub(super) fn export(export: &Export) -> Result<(), String> {
    let (Export::Nvmet { file } | Export::Spdk { file }) = export;
    let config = Config::from_file(file, &Flags::default()).map_err(|error| error.to_string())?;
    let converted = match export {
        Export::Nvmet { .. } => nvmet_saved::export(&config),
        Export::Spdk { .. } => spdk_saved::export(&config),
    };
    report(&converted.notes);
    print_line(&converted.text);
    refuse_opened(&converted)
}

fn report(notes: &[String]) {
    for note in notes {
        eprintln!("note: {note}");
    }
}

fn json(file: &Path) -> Result<Value, String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: {}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let mut value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    whole_numbers(&mut value);
    Ok(value)
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
