//! Lookup of a disk's path. Checks and opens use the found descriptor, so later changes of names
//! and links have no effect.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::closing::Place;
use super::error::OpenError;
use super::remedy;

/// File, device or directory found at a path, held by a descriptor without I/O (`O_PATH`).
#[derive(Debug)]
pub struct FoundPath {
    path: PathBuf,
    handle: File,
    metadata: Metadata,
}

/// Object admitted by [`FoundPath::admit`]. A [`Backend`](super::Backend) opens no other objects.
#[derive(Debug)]
pub struct AdmittedPath(FoundPath);

impl FoundPath {
    /// Looks up a path. The call may block.
    pub fn find(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        let handle = options.read(true).custom_flags(libc::O_PATH).open(path)?;
        Ok(Self {
            path: path.to_owned(),
            metadata: handle.metadata()?,
            handle,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the object's path without links; for a device node outside /dev, the kernel's name
    /// of the device in /dev.
    ///
    /// # Errors
    /// /proc or /sys is not mounted.
    pub fn location(&self) -> io::Result<PathBuf> {
        let location = fs::read_link(self.through())?;
        let kind = self.kind();
        let class = match (kind.is_block_device(), kind.is_char_device()) {
            (true, _) => "block",
            (_, true) => "char",
            _ => return Ok(location),
        };
        if location.starts_with("/dev") {
            return Ok(location);
        }
        let number = self.metadata.rdev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let text = fs::read_to_string(format!("/sys/dev/{class}/{major}:{minor}/uevent"))?;
        let name = text.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        let name = name.ok_or_else(|| io::Error::other("the device has no name"))?;
        Ok(Path::new("/dev").join(name))
    }

    pub fn admit(
        self,
        may_open: impl FnOnce(&Self) -> io::Result<bool>,
    ) -> Result<AdmittedPath, OpenError> {
        match may_open(&self) {
            Ok(true) => Ok(AdmittedPath(self)),
            Ok(false) => Err(OpenError::not_admitted(&self.path, self.location())),
            Err(error) => Err(OpenError::not_admitted(&self.path, Err(error))),
        }
    }

    /// Returns (device, inode) of a file, or (device number, 0) of a device.
    #[must_use]
    pub fn place(&self) -> (u64, u64) {
        match self.metadata.rdev() {
            0 => (self.metadata.dev(), self.metadata.ino()),
            device => (device, 0),
        }
    }

    /// Returns the length of a file in bytes; 0 for a device.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.metadata.len()
    }

    /// True for a file in memory, whose contents are lost when the machine stops.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.kind().is_file() && remedy::is_in_memory(&self.handle)
    }

    fn kind(&self) -> FileType {
        self.metadata.file_type()
    }

    fn through(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }
}

impl AdmittedPath {
    #[cfg(test)]
    pub(super) fn any(path: &Path) -> Result<Self, OpenError> {
        let found = FoundPath::find(path).map_err(|error| OpenError::lookup(path, &error))?;
        found.admit(|_| Ok(true))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Returns a path to exactly this object, valid in this process while `self` exists.
    #[must_use]
    pub fn through(&self) -> PathBuf {
        self.0.through()
    }

    pub(super) fn location(&self) -> io::Result<PathBuf> {
        self.0.location()
    }

    pub(super) fn open(&self, options: &OpenOptions) -> io::Result<File> {
        options.open(self.through()).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return io::Error::other("/proc, by which disks are opened, is not mounted");
            }
            error
        })
    }

    pub(super) fn kind(&self) -> FileType {
        self.0.kind()
    }

    pub(super) fn number(&self) -> u64 {
        self.0.metadata.rdev()
    }

    pub(super) fn place(&self) -> Place {
        self.0.place()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_opened_as_it_was_found() {
        let folder = tempfile::tempdir().unwrap();
        let [disk, other, link] = ["disk", "other", "link"].map(|name| folder.path().join(name));
        for (path, text) in [(&disk, "disk"), (&other, "other")] {
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink(&disk, &link).unwrap();
        let found = FoundPath::find(&link).unwrap();
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        assert_eq!(found.location().unwrap(), fs::canonicalize(&disk).unwrap());
        let admitted = found.admit(|_| Ok(true)).unwrap();
        let opened = admitted.open(File::options().read(true)).unwrap();
        assert_eq!(io::read_to_string(opened).unwrap(), "disk");
        let refused = FoundPath::find(&link).unwrap().admit(|_| Ok(false));
        let refused = refused.unwrap_err();
        assert!(refused.is_not_admitted());
        assert!(refused.to_string().contains("other"), "{refused}");
    }

    #[test]
    fn a_device_is_located_by_its_name_in_dev() {
        let null = FoundPath::find(Path::new("/dev/null")).unwrap();
        assert_eq!(null.location().unwrap(), Path::new("/dev/null"));
        let folder = tempfile::tempdir().unwrap();
        let node = folder.path().join("node");
        let number = rustix::fs::makedev(1, 3);
        let kind = rustix::fs::FileType::CharacterDevice;
        let made = rustix::fs::mknodat(rustix::fs::CWD, &node, kind, 0o600.into(), number);
        if let Err(error @ rustix::io::Errno::PERM) = made {
            return cairn_skips::skip(format_args!("cannot make a device node: {error}"));
        }
        made.unwrap();
        let node = FoundPath::find(&node).unwrap();
        assert_eq!(node.location().unwrap(), Path::new("/dev/null"));
    }
}
