//! Configurations of other targets become one of Cairn's, and one of Cairn's becomes theirs.
//!
//! What has no counterpart is left out and named, never guessed.

mod nvmet;
mod nvmet_saved;
mod spdk;
mod spdk_saved;

use std::path::{Path, PathBuf};

use cairn_config::{Config, EditError, Flags, Listener};
use cairn_rdma::PKey;
use clap::Subcommand;
use serde_json::Value;

use super::print_line;

/// What is read.
#[derive(Debug, Subcommand)]
pub(super) enum Import {
    /// Prints the configuration of a kernel target, which nvmetcli saved, as one of Cairn
    Nvmet {
        /// What `nvmetcli save` wrote
        file: PathBuf,
    },
    /// Prints the configuration of a target of SPDK as one of Cairn
    Spdk {
        /// What `rpc.py save_config` wrote
        file: PathBuf,
    },
}

/// What is written.
#[derive(Debug, Subcommand)]
pub(super) enum Export {
    /// Prints a configuration file as JSON that `nvmetcli restore` reads
    Nvmet {
        /// The configuration file
        file: PathBuf,
    },
    /// Prints a configuration file as JSON that `rpc.py load_config` reads
    Spdk {
        /// The configuration file
        file: PathBuf,
    },
}

/// What was made, and what was left out.
struct Converted {
    text: String,
    notes: Vec<String>,
}

/// The notes of a conversion.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn add(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }

    /// Settings of `table` that are set and not `known`.
    fn unknown(&mut self, what: &str, table: &Value, known: &[&str]) {
        let table = table.as_object().into_iter().flatten();
        let is_set = |value: &Value| match value {
            // nvmet shows -1 for what it chooses itself, and an OUI with its zeroes.
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

    /// Those of `settings` that are set.
    fn without_counterpart<const N: usize>(&mut self, what: &str, settings: [(&str, bool); N]) {
        for (key, _) in settings.iter().filter(|(_, is_set)| *is_set) {
            self.add(format!("{what}: {key} has no counterpart"));
        }
    }

    /// What neither nvmet nor SPDK has of a listener.
    fn of_listener(&mut self, what: &str, listener: &Listener) {
        let settings = [
            ("allowed_addresses", listener.allowed_addresses.is_some()),
            ("roce", listener.roce.is_some()),
            ("tos", listener.traffic_class.is_some()),
            ("hop_limit", listener.hop_limit.is_some()),
            ("pkey", listener.pkey != PKey::default()),
        ];
        self.without_counterpart(what, settings);
    }

    /// What was made, or why something was left out.
    fn made<T>(&mut self, made: Result<T, EditError>) {
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
    // It is printed all the same: a person can repair it.
    let name = format!("made from {}", file.display());
    match Config::parse(&name, &converted.text, &Flags::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
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
    Ok(())
}

fn report(notes: &[String]) {
    for note in notes {
        eprintln!("note: {note}");
    }
}

fn json(file: &Path) -> Result<Value, String> {
    let failed = |error: &dyn std::fmt::Display| format!("error: {}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    serde_json::from_str(&text).map_err(|error| failed(&error))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Text, or a number that one target writes as such and another as text.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_so) => Some(u8::from(*is_so).to_string()),
        _ => None,
    }
}

fn number(value: &Value) -> Option<u32> {
    text(value)?.parse().ok()
}

/// Absent, if it is all zeroes.
fn identity(value: &Value) -> Option<String> {
    let text = text(value)?;
    let is_set = text.bytes().any(|byte| !matches!(byte, b'0' | b'-'));
    is_set.then_some(text)
}
