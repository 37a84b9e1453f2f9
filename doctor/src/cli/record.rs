//! Creation of result files. Block devices and unrelated files are never overwritten.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

const FIRST_LINE_MAX: usize = 4096;

/// Writes a recording to a file, a pipe or a character device. Only a recording or an empty file is
/// overwritten.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let may_overwrite = |file: &File| match is_recording(file)? {
        true => Ok(()),
        false => Err(io::Error::other("it is not a recording: name another file")),
    };
    create(path, may_overwrite)?.write_all(text.as_bytes())
}

/// Opens a result file: a new or empty file, a pipe or a character device.
///
/// A file with content is emptied if `may_overwrite` permits it.
pub fn create(
    path: &Path,
    may_overwrite: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<File> {
    // A pipe is opened only for writing: otherwise this process would count as its reader.
    let is_special = fs::metadata(path).is_ok_and(|found| !found.is_file());
    let mut options = OpenOptions::new();
    options.read(!is_special).write(true);
    let file = options.create(true).truncate(false).open(path)?;
    let found = file.metadata()?;
    if found.file_type().is_block_device() {
        return Err(io::Error::other("it is a block device: name a file"));
    }
    if found.is_file() && found.len() != 0 {
        may_overwrite(&file)?;
        file.set_len(0)?;
    }
    Ok(file)
}

/// True if the file begins like a [`Recorder`](crate::source::Recorder) text: with a path in
/// brackets, or with `[?]`.
fn is_recording(file: &File) -> io::Result<bool> {
    let mut bytes = [0; FIRST_LINE_MAX];
    let length = file.read_at(&mut bytes, 0)?;
    let mut lines = bytes[..length].split(|&byte| byte == b'\n');
    let line = lines.next().unwrap_or_default();
    Ok(line == b"[?]" || (line.starts_with(b"[/") && line.ends_with(b"]")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_recording_is_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let long = "[?]\npause e0 ! no\n";
        for text in [long, "[/sys/class/net]\nlo/\n[?]\n", "[?]\n"] {
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        for other in ["\0\0\0\0", "[target]\n", "[", "[/sys", "# a\n[?]\n"] {
            fs::write(&path, other).unwrap();
            let error = write(&path, long).unwrap_err();
            assert!(error.to_string().contains("not a recording"), "{error}");
            assert_eq!(fs::read_to_string(&path).unwrap(), other);
        }
        fs::write(&path, "").unwrap();
        write(&path, long).unwrap();
        write(Path::new("/dev/null"), long).unwrap();
    }
}
