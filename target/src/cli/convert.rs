//! Commands that convert configurations from and to other targets.

#![expect(clippy::disallowed_methods, reason = "a command for one file")]

use std::path::{Path, PathBuf};

use cairn_config::{Config, Flags};
use cairn_control::whole_numbers;
use cairn_doctor::cli::print_finding;
use cairn_doctor::rules::Severity;
use cairn_interop::{Converted, from_nvmet, from_spdk, to_nvmet, to_spdk};
use clap::Subcommand;
use serde_json::Value;

use super::result_file::ResultFile;

/// Source of an import.
#[derive(Debug, Subcommand)]
pub(super) enum Import {
    /// Converts a configuration of the kernel target, saved by nvmetcli, to one of Cairn
    Nvmet {
        /// File written by `nvmetcli save`
        file: PathBuf,
        #[command(flatten)]
        result: ResultFile,
    },
    /// Converts a configuration of SPDK's target to one of Cairn
    Spdk {
        /// File written by `rpc.py save_config`
        file: PathBuf,
        #[command(flatten)]
        result: ResultFile,
    },
}

/// Destination of an export.
#[derive(Debug, Subcommand)]
pub(super) enum Export {
    /// Converts a configuration file to JSON for `nvmetcli restore`
    Nvmet {
        /// The configuration file
        file: PathBuf,
        #[command(flatten)]
        result: ResultFile,
    },
    /// Converts a configuration file to JSON for `rpc.py load_config`
    Spdk {
        /// The configuration file
        file: PathBuf,
        #[command(flatten)]
        result: ResultFile,
    },
}

const PARTIAL: u8 = 4;

pub(super) fn import(import: &Import) -> Result<u8, String> {
    let (Import::Nvmet { file, result } | Import::Spdk { file, result }) = import;
    let converted = match import {
        Import::Nvmet { .. } => from_nvmet(&json(file)?, check_key)?,
        Import::Spdk { .. } => from_spdk(&json(file)?)?,
    };
    report(&converted);
    let text = converted.text.trim_end();
    // Invalid text is printed too, because the user can correct it.
    result.print(text);
    let name = format!("made from {}", file.display());
    Config::parse(&name, &converted.text, &Flags::default()).map_err(|error| error.to_string())?;
    let verdict = verdict(&converted, result)?;
    result.write(text)?;
    Ok(verdict)
}

fn check_key(text: &str) -> Result<(), String> {
    let key = text.parse::<nvme_auth::Secret>();
    key.map(drop).map_err(|error| error.to_string())
}

fn verdict(converted: &Converted, result: &ResultFile) -> Result<u8, String> {
    if !converted.opens.is_empty() {
        let consequence = match result.path() {
            Some(path) => format!("{} was not written", path.display()),
            None => "do not use the result".to_owned(),
        };
        return Err(format!(
            "{consequence}: it would lack the restrictions of access named by the errors above"
        ));
    }
    if converted.is_partial {
        let text = "the result is partial: it lacks what the notes above leave out";
        print_finding(Severity::Warning, text);
        if let Some(path) = result.path().filter(|path| path.exists()) {
            return Err(format!(
                "{} stays as it is, because a partial result replaces no file: give a new one by \
                 --file, and compare",
                path.display()
            ));
        }
    }
    Ok(if converted.is_partial { PARTIAL } else { 0 })
}

pub(super) fn export(export: &Export) -> Result<u8, String> {
    let (Export::Nvmet { file, result } | Export::Spdk { file, result }) = export;
    let config = Config::from_file(file, &Flags::default()).map_err(|error| error.to_string())?;
    let converted = match export {
        Export::Nvmet { .. } => to_nvmet(&config),
        Export::Spdk { .. } => to_spdk(&config),
    };
    report(&converted);
    result.print(&converted.text);
    let verdict = verdict(&converted, result)?;
    result.write(&converted.text)?;
    Ok(verdict)
}

fn report(converted: &Converted) {
    for note in &converted.notes {
        let severity = match converted.opens.contains(note) {
            true => Severity::Error,
            false => Severity::Note,
        };
        print_finding(severity, note);
    }
}

fn json(file: &Path) -> Result<Value, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| failed(&error))?;
    let mut value = serde_json::from_str(&text).map_err(|error| failed(&error))?;
    whole_numbers(&mut value);
    Ok(value)
}
