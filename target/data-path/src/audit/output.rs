#![expect(clippy::disallowed_methods, reason = "the audit log has a thread")]

use std::fs::{File, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::event::START;

pub const JOURNAL: &str = "/run/systemd/journal/socket";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Destination {
    File(PathBuf),
    Journal,
    Datagram(PathBuf),
}

impl Destination {
    pub(super) fn all(config: &cairn_config::Audit) -> Vec<Self> {
        let file = config.file.clone().map(Self::File);
        let journal = config.journal.then_some(Self::Journal);
        let datagram = config.datagram.clone().map(Self::Datagram);
        [file, journal, datagram].into_iter().flatten().collect()
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Journal => "journal",
            Self::Datagram(_) => "datagram",
        }
    }

    pub(super) fn open(&self) -> io::Result<Output> {
        match self {
            Self::File(path) => Ok(Output::File(open_file(path)?)),
            Self::Journal => Ok(Output::Journal(connect(Path::new(JOURNAL))?)),
            Self::Datagram(path) => Ok(Output::Datagram(connect(path)?)),
        }
    }

    /// Returns true if the path no longer names the open file, as after a log rotation.
    pub(super) fn has_left(&self, output: &Output) -> bool {
        let (Self::File(path), Output::File(file)) = (self, output) else {
            return false;
        };
        let place = |found: Metadata| (found.dev(), found.ino());
        match std::fs::symlink_metadata(path) {
            Ok(found) => file
                .metadata()
                .is_ok_and(|open| place(open) != place(found)),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::File(path) | Self::Datagram(path) => path.display().fmt(f),
            Self::Journal => f.write_str(JOURNAL),
        }
    }
}

#[derive(Debug)]
pub(super) enum Output {
    File(File),
    Journal(UnixDatagram),
    Datagram(UnixDatagram),
}

impl Output {
    /// Writes the line; a file gets only the bytes from `from` on. Returns the bytes written,
    /// newline included.
    pub(super) fn write(&mut self, line: &str, from: usize) -> io::Result<usize> {
        match self {
            Self::File(file) => {
                let ended = format!("{line}\n");
                file.write(&ended.as_bytes()[from..])
            }
            Self::Journal(socket) => {
                let entry = format!("MESSAGE={line}\nPRIORITY=5\nSYSLOG_IDENTIFIER=cairn-audit\n");
                socket.send(entry.as_bytes())?;
                Ok(line.len() + 1)
            }
            Self::Datagram(socket) => {
                socket.send(line.as_bytes())?;
                Ok(line.len() + 1)
            }
        }
    }
}

/// Refuses a block device, and a file with content other than an audit log.
///
/// A file with only part of the first line is an audit log: a killed process may leave one.
pub fn check_file(file: &File) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.file_type().is_block_device() {
        return Err(io::Error::other("it is a block device: name a file"));
    }
    if !metadata.is_file() {
        return Ok(());
    }
    let mut bytes = [0; START.len()];
    let length = metadata.len().min(START.len() as u64) as usize;
    file.read_exact_at(&mut bytes[..length], 0)?;
    if !START.as_bytes().starts_with(&bytes[..length]) {
        return Err(io::Error::other(
            "it is not an audit log: name another file, or move this one",
        ));
    }
    Ok(())
}

/// Refuses symbolic links, which another user may have made, and files of other programs. Does not
/// block on a FIFO.
fn open_file(path: &Path) -> io::Result<File> {
    let mut file = File::options()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    check_file(&file)?;
    let metadata = file.metadata()?;
    if metadata.is_file() && ends_within_line(&file, &metadata)? {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

fn ends_within_line(file: &File, metadata: &Metadata) -> io::Result<bool> {
    let mut last = [b'\n'];
    if let Some(at) = metadata.len().checked_sub(1) {
        file.read_at(&mut last, at)?;
    }
    Ok(last != *b"\n")
}

fn connect(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
