//! Option `--file` of commands that print a configuration.

#![expect(clippy::disallowed_methods, reason = "a command for one file")]

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

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

    /// Prints the result, unless it has a file.
    pub(super) fn print(&self, text: &str) {
        if self.path.is_none() {
            print_line(text);
        }
    }

    /// Writes the result into its file, if there is one.
    pub(super) fn write(&self, text: &str) -> Result<(), String> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        replace(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

/// Replaces the file by a complete new one with the permissions of the old one.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // The rename replaces the target of a symbolic link, not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let like = fs::metadata(&path).ok();
    if like.as_ref().is_some_and(|like| !like.is_file()) {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut new = path.clone().into_os_string();
    new.push(format!(".new.{}", std::process::id()));
    let new = PathBuf::from(new);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&new)?;
    let written = || -> io::Result<()> {
        if let Some(like) = like {
            file.set_permissions(like.permissions())?;
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
}
