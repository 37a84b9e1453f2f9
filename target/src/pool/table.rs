//! NSIDs of a directory's files, stored in the directory.
//!
//! Inode and creation time identify a file: a renamed file keeps its NSID, a replacement gets a new
//! NSID. NSIDs of removed files are reused last, in the order of removal.

#![expect(clippy::disallowed_methods, reason = "each directory has a thread")]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::scan::{Birth, Found};
use cairn_data_path::durable;

const NAME: &str = ".cairn-nsids";
const HEADER: &str = "cairn-nsids 1";

/// Maximum size of the file in bytes, enough for 65,536 files and many removed ones.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    Next,
    /// For a table that cannot be written: NSIDs derive from the files' identities, so that added
    /// files change no NSID.
    Derived,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    file: Key,
    /// Sequence number of the removal; 0 while the file exists.
    gone: u64,
    name: String,
}

/// Identity of a file, with its name only if the file system has no creation times.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    inode: u64,
    birth: Birth,
    name: Option<String>,
}

impl Key {
    fn new(inode: u64, birth: Birth, name: &str) -> Self {
        let name = (birth == Birth::Unknown).then(|| name.to_owned());
        Self { inode, birth, name }
    }

    fn of(file: &Found) -> Self {
        Self::new(file.id.inode, file.birth.clone(), &file.name)
    }
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Table {
    rows: BTreeMap<u32, Row>,
    nsids: HashMap<Key, u32>,
}

pub(super) fn place(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

impl Table {
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let opened = File::options()
            .read(true)
            .custom_flags(flags)
            .open(place(folder));
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut text = String::new();
        file.take(BYTES_MAX).read_to_string(&mut text)?;
        Self::parse(&text).ok_or_else(|| io::Error::other("the file is damaged"))
    }

    fn parse(text: &str) -> Option<Self> {
        let body = text.strip_prefix(HEADER)?.strip_prefix('\n')?;
        let mut table = Self::default();
        for line in body.strip_suffix("end\n")?.lines() {
            let mut words = line.splitn(6, ' ');
            let nsid = words.next()?.parse().ok()?;
            let inode = words.next()?.parse().ok()?;
            let (seconds, nanoseconds) = (words.next()?, words.next()?);
            let birth = match (seconds, nanoseconds) {
                ("-", "-") => Birth::Unknown,
                _ => Birth::At(seconds.parse().ok()?, nanoseconds.parse().ok()?),
            };
            let gone = words.next()?.parse().ok()?;
            let name = words.next()?.to_owned();
            let file = Key::new(inode, birth, &name);
            let is_new = table.nsids.insert(file.clone(), nsid).is_none();
            let row = Row { file, gone, name };
            if table.rows.insert(nsid, row).is_some() || !is_new {
                return None;
            }
        }
        Some(table)
    }

    fn text(&self) -> String {
        let mut text = format!("{HEADER}\n");
        for (nsid, Row { file, gone, name }) in &self.rows {
            let birth = match file.birth {
                Birth::At(seconds, nanoseconds) => format!("{seconds} {nanoseconds}"),
                Birth::Unknown => "- -".to_owned(),
            };
            let inode = file.inode;
            let _ = writeln!(text, "{nsid} {inode} {birth} {gone} {name}");
        }
        text.push_str("end\n");
        text
    }

    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        durable::replace(&place(folder), self.text().as_bytes(), 0o666)
    }

    pub(super) fn names(&self) -> HashSet<&str> {
        self.rows.values().map(|row| row.name.as_str()).collect()
    }

    pub(super) fn find(&self, file: &Found, nsids: &RangeInclusive<u32>) -> Option<u32> {
        let nsid = self.nsids.get(&Key::of(file)).copied();
        nsid.filter(|nsid| nsids.contains(nsid))
    }

    /// Assigns an NSID to each file, if possible its former one. Returns the names of files without
    /// a free NSID.
    pub(super) fn assign(
        &mut self,
        files: &[&Found],
        nsids: &RangeInclusive<u32>,
        choice: Choice,
    ) -> Vec<String> {
        let mut new = Vec::new();
        let mut there = HashSet::new();
        for file in files {
            match self.find(file, nsids) {
                Some(nsid) => {
                    there.insert(nsid);
                    let row = self.rows.get_mut(&nsid).expect("both maps have it");
                    row.gone = 0;
                    row.name.clone_from(&file.name);
                }
                None => new.push(*file),
            }
        }
        let mut last = self.rows.values().map(|row| row.gone).max().unwrap_or(0);
        for (nsid, row) in &mut self.rows {
            if row.gone == 0 && !there.contains(nsid) {
                last += 1;
                row.gone = last;
            }
        }
        let mut free = self.free(nsids);
        if choice == Choice::Derived {
            new.sort_by_cached_key(|file| (file.birth.clone(), file.id.inode, file.name.clone()));
            free = derived(&new, &free, nsids);
        }
        let mut free = free.into_iter();
        let mut surplus = Vec::new();
        for file in new {
            match free.next() {
                Some(nsid) => self.give(file, nsid),
                None => surplus.push(file.name.clone()),
            }
        }
        surplus
    }

    fn give(&mut self, file: &Found, nsid: u32) {
        let key = Key::of(file);
        if let Some(former) = self.nsids.insert(key.clone(), nsid) {
            self.rows.remove(&former);
        }
        let row = Row {
            file: key,
            gone: 0,
            name: file.name.clone(),
        };
        if let Some(former) = self.rows.insert(nsid, row) {
            self.nsids.remove(&former.file);
        }
    }

    fn free(&self, nsids: &RangeInclusive<u32>) -> Vec<u32> {
        let unused = nsids.clone().filter(|nsid| !self.rows.contains_key(nsid));
        let gone = self.rows.range(nsids.clone());
        let mut gone: Vec<_> = gone.filter(|(_, row)| row.gone > 0).collect();
        gone.sort_by_key(|(_, row)| row.gone);
        unused
            .chain(gone.into_iter().map(|(nsid, _)| *nsid))
            .collect()
    }
}

/// Returns for each file the first free NSID at or after the hash of its identity, or else the
/// lowest free NSID.
fn derived(files: &[&Found], free: &[u32], nsids: &RangeInclusive<u32>) -> Vec<u32> {
    let (first, last) = (*nsids.start(), *nsids.end());
    let mut free: BTreeSet<u32> = free.iter().copied().collect();
    let chosen = files.iter().map_while(|file| {
        let key = Key::of(file);
        let text = format!("{} {:?} {:?}", key.inode, key.birth, key.name);
        let wanted = first + (hash(&text) % (u64::from(last - first) + 1)) as u32;
        let nsid = free
            .range(wanted..)
            .next()
            .or_else(|| free.first())
            .copied()?;
        free.remove(&nsid);
        Some(nsid)
    });
    chosen.collect()
}

/// Returns the FNV-1a hash, which must never change, because NSIDs depend on it.
fn hash(text: &str) -> u64 {
    let bytes = text.bytes();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_config::FileId;

    fn file(name: &str, inode: u64) -> Found {
        Found {
            name: name.to_owned(),
            id: FileId { device: 1, inode },
            birth: Birth::At(7, inode as u32),
            bytes: 4096,
            changed: 0,
        }
    }

    #[test]
    fn an_nsid_that_was_used_is_the_last_to_be_used_again() {
        let mut table = Table::default();
        let nsids = 5..=7;
        let files: Vec<Found> = (1..=9).map(|inode| file("disk one", inode)).collect();
        let nsid = |table: &Table, file| table.find(file, &nsids);
        let assign =
            |table: &mut Table, files: &[&Found]| table.assign(files, &nsids, Choice::Next);
        assert!(assign(&mut table, &[&files[0], &files[1]]).is_empty());
        assert_eq!(nsid(&table, &files[1]), Some(6));
        assert!(assign(&mut table, &[&files[0]]).is_empty());
        assert!(assign(&mut table, &[&files[2]]).is_empty());
        assert_eq!(nsid(&table, &files[2]), Some(7));
        let all = [&files[2], &files[3]];
        assert!(assign(&mut table, &all).is_empty());
        assert_eq!(nsid(&table, &files[3]), Some(6));
        assert_eq!(nsid(&table, &files[1]), None);
        let many: Vec<&Found> = files[2..].iter().collect();
        assert_eq!(assign(&mut table, &many).len(), many.len() - 3);
        assert_eq!(Table::parse(&table.text()), Some(table));
    }

    #[test]
    fn a_file_that_comes_back_has_its_nsid_and_one_in_its_place_has_another() {
        let (mut table, nsids) = (Table::default(), 1..=9);
        let (old, new) = (file("a", 1), file("a", 2));
        table.assign(&[&old], &nsids, Choice::Next);
        table.assign(&[&new], &nsids, Choice::Next);
        assert_eq!(table.find(&new, &nsids), Some(2));
        table.assign(&[&old, &new], &nsids, Choice::Next);
        assert_eq!(table.find(&old, &nsids), Some(1));
        let again = Found {
            birth: Birth::At(8, 0),
            ..file("a", 1)
        };
        assert_eq!(table.find(&again, &nsids), None);
    }

    #[test]
    fn a_table_that_was_cut_off_or_changed_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = Table::default();
        table.assign(&[&file("a", 1), &file("b", 2)], &(1..=9), Choice::Next);
        table.write(folder.path()).unwrap();
        assert_eq!(Table::read(folder.path()).unwrap(), table);
        let text = table.text();
        for length in 0..text.len() {
            assert_eq!(Table::parse(&text[..length]), None, "{length}");
        }
        assert_eq!(Table::parse(&text.replace("2 2", "1 2")), None);
    }

    #[test]
    fn derived_nsids_stay_at_a_restart_and_when_files_come() {
        let nsids = 1..=500;
        let files: Vec<Found> = (1..=400).map(|inode| file("disk", inode)).collect();
        let derive = |files: &[Found]| {
            let mut table = Table::default();
            let files: Vec<&Found> = files.iter().collect();
            assert!(table.assign(&files, &nsids, Choice::Derived).is_empty());
            let found = files.iter().map(|file| table.find(file, &nsids).unwrap());
            found.collect::<Vec<u32>>()
        };
        let all = derive(&files);
        let distinct: HashSet<&u32> = all.iter().collect();
        assert_eq!(distinct.len(), files.len());
        assert!(all.iter().all(|nsid| nsids.contains(nsid)));
        assert_eq!(derive(&files[..300]), all[..300]);
        let mut turned: Vec<Found> = files.clone();
        turned.reverse();
        let mut of_turned = derive(&turned);
        of_turned.reverse();
        assert_eq!(of_turned, all);
        let mut table = Table::default();
        let many: Vec<&Found> = files.iter().collect();
        assert_eq!(table.assign(&many, &(7..=9), Choice::Derived).len(), 397);
        assert!((7..=9).all(|nsid| table.rows.contains_key(&nsid)));
    }

    #[test]
    fn a_pipe_in_the_place_of_a_table_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo")
            .arg(place(folder.path()))
            .status();
        assert!(made.unwrap().success());
        let error = Table::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        std::fs::remove_file(place(folder.path())).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", place(folder.path())).unwrap();
        assert!(Table::read(folder.path()).is_err());
    }
}
