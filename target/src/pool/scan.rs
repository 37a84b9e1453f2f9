#![expect(clippy::disallowed_methods, reason = "each directory has a thread")]

use std::fs;
use std::io;
use std::path::Path;

use cairn_config::FileId;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

const NAMES_MAX: usize = 65_536;

const LOST_AND_FOUND: &str = "lost+found";

const UNFINISHED: [&str; 5] = [".tmp", ".part", ".partial", ".new", "~"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) name: String,
    pub(super) id: FileId,
    pub(super) birth: Birth,
    pub(super) bytes: u64,
    /// Seconds since 1970.
    pub(super) changed: i64,
}

/// Creation time of a file in seconds and nanoseconds; `Unknown` if the file system has none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Birth {
    At(i64, u32),
    Unknown,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    pub(super) files: Vec<Found>,
    pub(super) ignored: Vec<(String, &'static str)>,
}

impl Listing {
    pub(super) fn ignore(&mut self, reason_at: impl Fn((u64, u64)) -> Option<&'static str>) {
        let ignored = &mut self.ignored;
        self.files.retain(|file| {
            let reason = reason_at((file.id.device, file.id.inode));
            ignored.extend(reason.map(|reason| (file.name.clone(), reason)));
            reason.is_none()
        });
    }
}

pub(super) fn scan(folder: &Path) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for (index, entry) in fs::read_dir(folder)?.enumerate() {
        if index == NAMES_MAX {
            return Err(io::Error::other(format!("more than {NAMES_MAX} names")));
        }
        let name = entry?.file_name();
        let shown = name.to_string_lossy();
        if shown.starts_with('.') || UNFINISHED.iter().any(|end| shown.ends_with(end)) {
            continue;
        }
        let Some(plain) = name.to_str().filter(|name| is_printable(name)) else {
            let why = "the name is not printable UTF-8: rename the file";
            listing.ignored.push((shown.into_owned(), why));
            continue;
        };
        examine(folder, plain, &mut listing)?;
    }
    listing.files.sort_by(|a, b| a.name.cmp(&b.name));
    listing.ignored.sort();
    Ok(listing)
}

fn is_printable(name: &str) -> bool {
    !name.contains(char::is_control) && !name.escape_debug().to_string().contains("\\u{")
}

fn examine(folder: &Path, name: &str, listing: &mut Listing) -> io::Result<()> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let statx = match rustix::fs::statx(CWD, folder.join(name), flags, wanted) {
        Ok(statx) => statx,
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    if name == LOST_AND_FOUND {
        return Ok(());
    }
    let ignored = match FileType::from_raw_mode(statx.stx_mode.into()) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory: export it separately"),
        FileType::Symlink => {
            Some("a symbolic link, which the target does not follow: make a hard link")
        }
        _ => Some("not a regular file"),
    };
    if let Some(why) = ignored {
        listing.ignored.push((name.to_owned(), why));
        return Ok(());
    }
    let has_birth = statx.stx_mask & StatxFlags::BTIME.bits() != 0;
    let birth = if has_birth {
        Birth::At(statx.stx_btime.tv_sec, statx.stx_btime.tv_nsec)
    } else {
        Birth::Unknown
    };
    listing.files.push(Found {
        name: name.to_owned(),
        id: FileId {
            device: rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor),
            inode: statx.stx_ino,
        },
        birth,
        bytes: statx.stx_size,
        changed: statx.stx_ctime.tv_sec.max(statx.stx_mtime.tv_sec),
    });
    Ok(())
}
