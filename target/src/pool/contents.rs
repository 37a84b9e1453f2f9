//! Scan of a directory: its disks with their NSIDs, and the files left out, with reasons.
//!
//! A new file becomes a namespace if no program has it open for writing, it has not changed for
//! [`SETTLED_S`] seconds, and its size is a multiple of the block size.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use cairn_config::{BlockSize, LeftOut, Pool, PooledFile};
use cairn_disk::{AdmittedPath, FoundPath};
use rustix::fs::{Access, AtFlags, CWD};

use super::scan::{Found, Listing, scan};
use super::table::{self, Choice, Table};
use super::writers::is_written;
use crate::files;
use crate::server::DiskRules;

const SETTLED_S: i64 = 2;

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Table in the file, and the newer table that could not be written.
    unwritten: Option<(Table, Table)>,
    last: Contents,
    said: HashSet<String>,
}

#[derive(Debug, Default, Clone)]
pub(super) struct Contents {
    pub(super) files: Vec<Shown>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) surplus: Vec<String>,
    pub(super) problem: Option<String>,
    pub(super) waits: bool,
    pub(super) is_late: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) nsid: u32,
    pub(super) name: String,
    pub(super) file: PooledFile,
}

impl Contents {
    pub(super) fn without_nsid(&self, pool: &Pool) -> Vec<LeftOut> {
        let (first, last) = (pool.nsids.start(), pool.nsids.end());
        let names = self.surplus.iter().map(|name| LeftOut {
            name: escaped(name),
            reason: format!("the NSIDs {first} to {last} are all in use"),
        });
        names.collect()
    }
}

pub(super) fn escaped(name: &str) -> String {
    name.escape_debug().to_string()
}

enum FileState {
    Whole,
    Soon,
    Written,
    Wrong(String),
}

impl Memory {
    pub(super) fn examine(&mut self, rules: &DiskRules, pool: &Pool, keep: bool) -> Contents {
        let folder = &pool.folder;
        let examined = find(rules, folder).and_then(|found| {
            // `through` leads to the same directory in all steps, even if a symbolic link changes.
            let through = found.through();
            let listing = scan(&through);
            let mut listing =
                listing.map_err(|error| (is_gone(&error), explain_scan(folder, &error)))?;
            listing.ignore(|place| rules.own().role_at(place));
            let table = Table::read(&through);
            let table = table.map_err(|error| (false, explain_table(folder, &error)))?;
            Ok(self.take((pool, &through), listing, table, keep))
        });
        let contents = examined.unwrap_or_else(|(is_gone, problem)| {
            // An unreadable directory that exists keeps its previous contents, because hosts can
            // still use the open files.
            let before = if is_gone {
                Contents::default()
            } else {
                self.last.clone()
            };
            Contents {
                problem: Some(problem),
                ..before
            }
        });
        self.last.clone_from(&contents);
        contents
    }

    fn take(
        &mut self,
        (pool, through): (&Pool, &Path),
        listing: Listing,
        on_disk: Table,
        keep: bool,
    ) -> Contents {
        let mut contents = Contents::default();
        for (name, reason) in listing.ignored {
            self.leave_out(pool, &mut contents, &name, reason.to_owned());
        }
        let base = match self.unwritten.take() {
            Some((then, table)) if then == on_disk => table,
            _ => on_disk.clone(),
        };
        let files = self.choose((pool, through), &listing.files, &base, keep, &mut contents);
        let mut table = base.clone();
        let is_writable = keep || is_writable(through);
        let choice = if is_writable {
            Choice::Next
        } else {
            Choice::Derived
        };
        let mut surplus = table.assign(&files, &pool.nsids, choice);
        if keep
            && on_disk != table
            && let Err(error) = table.write(through)
        {
            self.say(&format!(
                "cannot write {}: {error}: the NSIDs of new files follow from when each was made, \
                 until the target can write in the directory",
                table::place(&pool.folder).display()
            ));
            table = base;
            surplus = table.assign(&files, &pool.nsids, Choice::Derived);
            self.unwritten = Some((on_disk, table.clone()));
        }
        contents.surplus = surplus;
        let shown = files.iter().filter_map(|file| {
            let nsid = table.find(file, &pool.nsids)?;
            let (id, bytes) = (file.id, file.bytes);
            Some(Shown {
                nsid,
                name: file.name.clone(),
                file: PooledFile { id, bytes },
            })
        });
        contents.files = shown.collect();
        contents.files.sort_by_key(|one| one.nsid);
        contents
    }

    fn choose<'f>(
        &mut self,
        (pool, through): (&Pool, &Path),
        all: &'f [Found],
        table: &Table,
        keep: bool,
        contents: &mut Contents,
    ) -> Vec<&'f Found> {
        let mut files = Vec::new();
        let mut inodes = HashSet::new();
        let named = table.names();
        let (first, rest): (Vec<&Found>, Vec<&Found>) = all
            .iter()
            .partition(|file| named.contains(file.name.as_str()));
        for file in first.into_iter().chain(rest) {
            let state = state((pool, through), file, table);
            let wrong = match state {
                FileState::Whole if inodes.insert(file.id.inode) => {
                    files.push(file);
                    continue;
                }
                FileState::Whole => {
                    "this file is already a namespace under another name".to_owned()
                }
                FileState::Wrong(reason) => reason,
                FileState::Soon | FileState::Written if keep => {
                    contents.waits |= matches!(state, FileState::Soon);
                    continue;
                }
                FileState::Soon => {
                    "the file has just changed, and is exported in two seconds".to_owned()
                }
                FileState::Written => {
                    "a program has the file open for writing, and it is exported when the program \
                     closes it"
                        .to_owned()
                }
            };
            self.leave_out(pool, contents, &file.name, wrong);
        }
        files
    }

    fn leave_out(&mut self, pool: &Pool, contents: &mut Contents, name: &str, reason: String) {
        let name = escaped(name);
        self.say(&format!(
            "{}/{name} is left out: {reason}",
            pool.folder.display()
        ));
        contents.left_out.push(LeftOut { name, reason });
    }

    fn say(&mut self, what: &str) {
        const SAID_MAX: usize = 1024;
        if self.said.len() < SAID_MAX && self.said.insert(what.to_owned()) {
            // Logged when an exported directory or the configuration changes.
            tracing::warn!("{what}");
        }
    }
}

/// Returns the state of a file. A file with an NSID stays a namespace while it has at least one
/// block.
fn state((pool, through): (&Pool, &Path), file: &Found, table: &Table) -> FileState {
    let block = u64::from(pool.like.block_size.map_or(512, BlockSize::bytes));
    let empty = || FileState::Wrong("the file is empty: give it the size of a disk".to_owned());
    if table.find(file, &pool.nsids).is_some() {
        let is_whole = file.bytes >= block;
        return if is_whole { FileState::Whole } else { empty() };
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let age = now.map_or(0, |now| now.as_secs() as i64) - file.changed;
    if (0..SETTLED_S).contains(&age) {
        return FileState::Soon;
    }
    if is_written(&through.join(&file.name)) {
        return FileState::Written;
    }
    if file.bytes == 0 {
        return empty();
    }
    if !file.bytes.is_multiple_of(block) {
        let bytes = file.bytes;
        return FileState::Wrong(format!(
            "{bytes} bytes are not a multiple of {block}: round its size up"
        ));
    }
    FileState::Whole
}

/// An error's flag is true if the directory counts as empty.
fn find(rules: &DiskRules, folder: &Path) -> Result<AdmittedPath, (bool, String)> {
    let found =
        FoundPath::find(folder).map_err(|error| (is_gone(&error), explain_scan(folder, &error)))?;
    rules
        .admit_folder(found)
        .map_err(|error| (true, error.to_string()))
}

fn is_writable(folder: &Path) -> bool {
    rustix::fs::accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

fn is_gone(error: &io::Error) -> bool {
    let gone = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    gone.contains(&error.kind())
}

#[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
pub(crate) fn check_folder(folder: &Path) -> Result<(), (io::Error, String)> {
    let listed = files::call_here(folder, |folder| std::fs::read_dir(folder).map(drop));
    listed.and_then(|listed| listed).map_err(|error| {
        let message = explain_scan(folder, &error);
        (error, message)
    })
}

fn explain_scan(folder: &Path, error: &io::Error) -> String {
    let shown = folder.display();
    match error.kind() {
        io::ErrorKind::NotFound => format!("{shown} does not exist: make the directory"),
        io::ErrorKind::NotADirectory => {
            format!("{shown} is not a directory: export it without \"dir:\"")
        }
        io::ErrorKind::PermissionDenied => {
            format!("no permission to read {shown}: let the target's user read it")
        }
        _ => format!("cannot read {shown}: {error}"),
    }
}

fn explain_table(folder: &Path, error: &io::Error) -> String {
    format!(
        "cannot read {}, which has the NSIDs of the files: {error}: restore it, or remove it \
         while no host is connected, to give the files new NSIDs",
        table::place(folder).display()
    )
}
