//! Configuration file of a running target, read and replaced only here.
//!
//! A change is written to a temporary file, comes into force, and is renamed over the configuration
//! file. Each step can fail, so the text in force and every text that the file may contain are
//! recorded. Any other text comes from another program.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use super::stale;
use crate::files;

#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(
        "{} has changed since the target read it: {}", _0.display(), stale::remedy(_0, true)
    )]
    Changed(PathBuf),
    #[error("cannot write {}: {source}: {}", path.display(), remedy(path, source))]
    System { path: PathBuf, source: io::Error },
    /// The new content was renamed into place, but not synced to the disk.
    #[error(
        "cannot write {} to its disk: {source}: look at the disk of its folder (dmesg){}", path.display(), left(*is_left)
    )]
    Unsynced {
        path: PathBuf,
        source: io::Error,
        is_left: bool,
    },
}

fn remedy(path: &Path, error: &io::Error) -> String {
    let known = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => return stale::remedy(path, false),
        Some(Errno::ISDIR) => return stale::remedy(path, true),
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => "make room for it, then try again",
        Some(Errno::IO) => "look at the disk of its folder (dmesg)",
        Some(Errno::ACCESS | Errno::PERM) => {
            "let the target's user read the file and write its folder (chown cairn: /etc/cairn), then try again"
        }
        _ => "make the file and its folder readable and writable for the target",
    };
    known.to_owned()
}

fn left(is_left: bool) -> &'static str {
    if is_left {
        ". The file still has the change, which is not in force: the next change removes it, a reload or a \
         restart makes it"
    } else {
        ""
    }
}

#[derive(Debug, Clone)]
pub(super) struct ConfigFile {
    path: Option<PathBuf>,
    state: Arc<Mutex<KnownTexts>>,
}

#[derive(Debug)]
struct KnownTexts {
    text: Arc<str>,
    /// Texts that the file may contain; several while the result of a commit is unknown.
    may_have: Vec<Arc<str>>,
    /// Temporary files of refused edits, for [`ConfigFile::sweep`].
    left: Vec<FileLocation>,
}

impl KnownTexts {
    fn new(text: Arc<str>) -> Self {
        let may_have = vec![Arc::clone(&text)];
        Self {
            text,
            may_have,
            left: Vec::new(),
        }
    }

    fn found(&mut self, now: &[u8]) -> bool {
        let is_it = |text: &&Arc<str>| text.as_bytes() == now;
        let Some(text) = self.may_have.iter().find(is_it).cloned() else {
            return false;
        };
        self.may_have = vec![text];
        true
    }
}

impl ConfigFile {
    pub(super) fn new(path: Option<PathBuf>, text: String) -> Self {
        let state = Arc::new(Mutex::new(KnownTexts::new(text.into())));
        Self { path, state }
    }

    pub(super) fn text(&self) -> Arc<str> {
        Arc::clone(&self.state().text)
    }

    pub(super) fn adopt(&self, text: String) {
        self.record(text.into());
    }

    fn record(&self, text: Arc<str>) {
        let mut state = self.state();
        let left = std::mem::take(&mut state.left);
        *state = KnownTexts {
            left,
            ..KnownTexts::new(text)
        };
    }

    pub(super) async fn sweep(&self) {
        let left = std::mem::take(&mut self.state().left);
        if let Some(path) = self.path.as_deref().filter(|_| !left.is_empty()) {
            let remove = move |_: &Path| left.iter().for_each(FileLocation::discard);
            let _ = files::call(path, remove).await;
        }
    }

    pub(super) async fn prepare(&self, text: String) -> Result<Prepared, WriteError> {
        self.sweep().await;
        let text: Arc<str> = text.into();
        let place = match &self.path {
            Some(path) => {
                let (file, new, at) = (self.clone(), Arc::clone(&text), path.clone());
                let write = move || file.write_beside(&at, &new);
                let discard = |written: Result<FileLocation, WriteError>| {
                    if let Ok(place) = written {
                        place.discard();
                    }
                };
                let written = files::call_or_undo(path, write, discard).await;
                Some(written.map_err(|source| system(path, source))??)
            }
            None => None,
        };
        Ok(Prepared {
            file: self.clone(),
            text,
            place,
        })
    }

    fn write_beside(&self, path: &Path, text: &str) -> Result<FileLocation, WriteError> {
        let place = FileLocation::of(path).map_err(|source| system(path, source))?;
        place.check(self)?;
        place.write(text).map_err(|source| {
            place.discard();
            place.system(source)
        })?;
        Ok(place)
    }

    fn state(&self) -> MutexGuard<'_, KnownTexts> {
        // Poisoning is harmless, because a text is recorded before the file gets the text.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) struct Prepared {
    file: ConfigFile,
    text: Arc<str>,
    place: Option<FileLocation>,
}

impl Prepared {
    /// Replaces the file's content. After an error, the file has its former content, or gets it
    /// once the file system responds, except after [`WriteError::Unsynced`] with `is_left`.
    pub(super) async fn commit(mut self) -> Result<(), WriteError> {
        let (file, text, place) = (self.file.clone(), Arc::clone(&self.text), self.place.take());
        if let (Some(place), Some(path)) = (place, file.path.clone()) {
            let (own, new) = (file.clone(), Arc::clone(&text));
            let replace = move || {
                let done = place.commit(&own, &new);
                place.discard();
                (place, own, done)
            };
            let put_back =
                |(place, own, done): (FileLocation, ConfigFile, Result<(), WriteError>)| {
                    if done.is_ok() {
                        place.put_back(&own);
                        place.discard();
                    }
                };
            let ended = files::call_or_undo(&path, replace, put_back).await;
            let (_, _, done) = ended.map_err(|source| system(&path, source))?;
            done?;
        }
        file.record(text);
        Ok(())
    }
}

/// Defers removal of the temporary file, because the control plane must not wait for the file
/// system.
impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.file.state().left.push(place);
        }
    }
}

/// Resolved path of the file, and of its temporary copy. The methods may block.
#[derive(Debug)]
struct FileLocation {
    path: PathBuf,
    new: PathBuf,
    folder: File,
}

impl FileLocation {
    #[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
    fn of(path: &Path) -> io::Result<Self> {
        // The rename replaces the target of a symbolic link, not the link.
        let path = fs::canonicalize(path)?;
        // The folder is opened before any change, because this step can fail.
        let folder = File::open(path.parent().unwrap_or(Path::new("/")))?;
        Ok(Self {
            new: beside(&path),
            path,
            folder,
        })
    }

    #[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
    fn check(&self, file: &ConfigFile) -> Result<(), WriteError> {
        let now = fs::read(&self.path).map_err(|source| self.system(source))?;
        if file.state().found(&now) {
            Ok(())
        } else {
            Err(WriteError::Changed(self.path.clone()))
        }
    }

    /// Replaces the file's text unless another program has changed it. Never locks the state during
    /// file system calls, because the control plane reads it.
    fn commit(&self, file: &ConfigFile, text: &Arc<str>) -> Result<(), WriteError> {
        self.check(file)?;
        file.state().may_have.push(Arc::clone(text));
        let replaced = self.replace();
        replaced.map_err(|source| self.take_back(file, source))
    }

    #[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
    fn write(&self, text: &str) -> io::Result<()> {
        // An earlier crash may have left a temporary file.
        let _ = fs::remove_file(&self.new);
        let like = fs::metadata(&self.path)?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&self.new)?;
        let now = file.metadata()?;
        if (now.uid(), now.gid()) != (like.uid(), like.gid()) {
            let kept = fchown(&file, Some(like.uid()), Some(like.gid()));
            // Without privileges, the target's user owns the new file, even if another user owned
            // the old one.
            kept.or_else(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => Ok(()),
                _ => Err(error),
            })?;
        }
        file.set_permissions(like.permissions())?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    #[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
    fn replace(&self) -> io::Result<()> {
        fs::rename(&self.new, &self.path)?;
        self.folder.sync_all()
    }

    fn take_back(&self, file: &ConfigFile, source: io::Error) -> WriteError {
        let path = self.path.clone();
        if self.look(file) {
            return WriteError::System { path, source };
        }
        self.put_back(file);
        let is_left = !self.look(file);
        WriteError::Unsynced {
            path,
            source,
            is_left,
        }
    }

    fn put_back(&self, file: &ConfigFile) {
        let former = file.text();
        let back = self.write(&former);
        file.state().may_have.push(former);
        let _ = back.and_then(|()| self.replace());
    }

    #[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
    fn look(&self, file: &ConfigFile) -> bool {
        // An unreadable file may have any recorded text.
        let now = fs::read(&self.path);
        let mut state = file.state();
        let is_known = now.is_ok_and(|now| state.found(&now));
        is_known && state.may_have.iter().all(|text| *text == state.text)
    }

    fn system(&self, source: io::Error) -> WriteError {
        system(&self.path, source)
    }

    #[expect(clippy::disallowed_methods, reason = "on a thread of `files`")]
    fn discard(&self) {
        let _ = fs::remove_file(&self.new);
    }
}

fn system(path: &Path, source: io::Error) -> WriteError {
    WriteError::System {
        path: path.to_owned(),
        source,
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn prepare(file: &ConfigFile, text: &str) -> Result<Prepared, WriteError> {
        files::wait_for(file.prepare(text.to_owned())).unwrap()
    }

    fn commit(prepared: Prepared) -> Result<(), WriteError> {
        files::wait_for(prepared.commit()).unwrap()
    }

    fn file(path: &Path, text: &str) -> ConfigFile {
        ConfigFile::new(Some(path.to_owned()), text.to_owned())
    }

    #[test]
    fn a_file_is_replaced_whole_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = folder.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let file = file(&link, "old");
        let prepared = prepare(&file, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(&*file.text(), "old");
        commit(prepared).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(&*file.text(), "new");
        assert!(link.is_symlink());
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_others_changed_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        fs::write(&path, "theirs").unwrap();
        let file = file(&path, "old");
        let refused = prepare(&file, "new");
        assert!(matches!(refused, Err(WriteError::Changed(_))));
        file.adopt("theirs".into());
        let prepared = prepare(&file, "new").unwrap();
        fs::write(&path, "theirs again").unwrap();
        assert!(matches!(commit(prepared), Err(WriteError::Changed(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "theirs again");
        assert_eq!(&*file.text(), "theirs");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_text_that_the_target_may_have_left_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        fs::write(&path, "left").unwrap();
        let file = file(&path, "old");
        file.state().may_have.push("left".into());
        commit(prepare(&file, "new").unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        fs::write(&path, "left").unwrap();
        assert!(matches!(
            prepare(&file, "more"),
            Err(WriteError::Changed(_))
        ));
    }

    #[test]
    fn a_refused_change_leaves_its_file_to_the_next_sweep() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        fs::write(&path, "old").unwrap();
        let file = file(&path, "old");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        drop(prepare(&file, "new").unwrap());
        assert_eq!(names(), 2);
        let next = prepare(&file, "newer").unwrap();
        drop(next);
        files::wait_for(file.sweep()).unwrap();
        assert_eq!(names(), 1);
        commit(prepare(&file, "newest").unwrap()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "newest");
    }

    #[test]
    fn without_a_file_the_text_alone_changes() {
        let file = ConfigFile::new(None, "old".into());
        commit(prepare(&file, "new").unwrap()).unwrap();
        assert_eq!(&*file.text(), "new");
    }
}
