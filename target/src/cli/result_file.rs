//! Option `--file` of commands that print a configuration.

#![expect(clippy::disallowed_methods, reason = "a command for one file")]

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use cairn_config::{Draft, without_secrets};
use clap::Args;

use super::print_line;

#[derive(Debug, Args)]
pub(super) struct ResultFile {
    /// File for the result; it stays as it is if the command fails [default: stdout]
    #[arg(id = "result_file", long = "file", value_name = "FILE")]
    path: Option<PathBuf>,
}

impl ResultFile {
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(super) fn print(&self, text: &str) {
        if self.path.is_none() {
            print_line(text);
        }
    }

    pub(super) fn write(&self, text: &str) -> Result<(), String> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        replace(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// Replaces the file atomically, and keeps its permissions.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let path = match fs::symlink_metadata(path) {
        // The rename replaces the target of a symbolic link, not the link.
        Ok(_) => fs::canonicalize(path)?,
        Err(_) => path.to_owned(),
    };
    let like = fs::metadata(&path).ok();
    if let Some(like) = &like {
        if !like.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        check_content(&path, like.len(), text)?;
    }
    let mut new = path.clone().into_os_string();
    new.push(format!(".new.{}", std::process::id()));
    let new = PathBuf::from(new);
    // Only the owner may read a new file with a secret.
    let mode = if without_secrets(text) == text {
        0o666
    } else {
        0o600
    };
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
    let written = || -> io::Result<()> {
        if let Some(like) = like {
            file.set_permissions(like.permissions())?;
            // Only root may give a file to its former owner; otherwise the new owner stays.
            let _ = fchown(&file, Some(like.uid()), Some(like.gid()));
        }
        writeln!(file, "{}", text.trim_end())?;
        file.sync_all()?;
        fs::rename(&new, &path)
    };
    let written = written();
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// Refuses to overwrite content of another syntax, such as a disk image or a key.
fn check_content(path: &Path, length: u64, new: &str) -> io::Result<()> {
    let old = || cairn_config::read_file(path).ok();
    if length == 0 || old().is_some_and(|old| syntax(&old) == syntax(new)) {
        return Ok(());
    }
    let syntax = syntax(new).unwrap_or("configuration");
    let refusal = format!("it is not a {syntax} file: name another file");
    Err(io::Error::other(refusal))
}

fn syntax(text: &str) -> Option<&'static str> {
    if serde_json::from_str::<serde_json::Map<_, _>>(text).is_ok() {
        return Some("JSON");
    }
    let is_blank = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let is_toml = !text.lines().all(is_blank) && Draft::new(text).is_ok();
    is_toml.then_some("TOML")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        let result = ResultFile {
            path: Some(path.clone()),
        };
        result.write("a = 1").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        result.write("a = 2\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "a = 2\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        let result = ResultFile {
            path: Some(folder.path().to_owned()),
        };
        assert!(result.write("a = 3").unwrap_err().contains("regular"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_with_a_secret_is_readable_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |text: &str| {
            let path = folder.path().join("new");
            ResultFile {
                path: Some(path.clone()),
            }
            .write(text)
            .unwrap();
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            fs::remove_file(path).unwrap();
            mode
        };
        let plain = mode("dhchap_key = \"/k\"");
        assert_eq!(plain & 0o400, 0o400);
        assert_eq!(mode("dhchap_key = \"DHHC-1:00:c2VjcmV0:\""), 0o600);
        assert_eq!(mode("{\"dhchap_key\": \"DHHC-1:00:c2VjcmV0:\"}"), 0o600);
    }

    #[test]
    fn only_a_file_of_the_same_kind_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("disk"), folder.path().join("link"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let write = |path: &Path, text: &str| {
            let path = Some(path.to_owned());
            ResultFile { path }.write(text)
        };
        let (toml, json) = ("[target]\nmdts = 1\n", "{\n  \"subsystems\": []\n}\n");
        write(&link, toml).unwrap_err();
        let foreign: [&[u8]; 6] = [
            &[0; 4096],
            b"\xeb\x3c\x90",
            b"DHHC-1:00:AAECAwQF:\n",
            b"# only a comment\n",
            b"nqn.2014-08.org.nvmexpress:uuid:1\n",
            b"#!/bin/sh\nexit 0\n",
        ];
        for (new, other) in [(toml, json), (json, toml)] {
            for old in foreign.into_iter().chain([other.as_bytes()]) {
                fs::write(&path, old).unwrap();
                for at in [&path, &link] {
                    let error = write(at, new).unwrap_err();
                    assert!(error.contains("name another file"), "{error}");
                }
                assert_eq!(fs::read(&path).unwrap(), old);
            }
            for old in ["", new] {
                fs::write(&path, old).unwrap();
                write(&link, new).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), new);
            }
        }
        assert!(link.is_symlink());
        assert!(write(Path::new("/dev/null"), toml).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
