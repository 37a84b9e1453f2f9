use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::sync::Arc;

use super::claim::Claim;
use super::closing::{FormerFile, Guard, OpenFile, Place};
use super::lock::Lock;

/// Weak references to open disks that a new configuration replaces. A new disk with the same file
/// or device takes over the lock or claim.
#[derive(Debug, Default)]
pub struct Formers(HashMap<Place, Vec<FormerFile>>);

impl Formers {
    pub(super) fn insert(&mut self, file: FormerFile) {
        self.0.entry(file.place()).or_default().push(file);
    }

    fn at(&self, place: Place) -> impl Iterator<Item = OpenFile> {
        let files = self.0.get(&place).into_iter().flatten();
        files.filter_map(FormerFile::get)
    }

    pub(super) fn lock(
        &self,
        place: Place,
        file: &File,
        claim: Claim,
    ) -> Option<io::Result<(Lock, File)>> {
        let shared = |former: OpenFile| match former.guard() {
            Guard::Lock(lock) => Some(file.try_clone().and_then(|file| lock.share(file, claim))),
            _ => None,
        };
        self.at(place).find_map(shared)
    }

    pub(super) fn claimed(&self, place: Place) -> Option<File> {
        let of = |former: OpenFile| match former.guard() {
            Guard::Claim { .. } => former.try_clone().ok(),
            _ => None,
        };
        self.at(place).find_map(of)
    }

    pub(super) fn device(&self, place: Place) -> Option<Arc<File>> {
        let of = |former: OpenFile| match former.guard() {
            Guard::Device(device) => Some(Arc::clone(device)),
            _ => None,
        };
        self.at(place).find_map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::closing::LEAVE_TIMEOUT;
    use crate::backend::open::wait_for_close;
    use crate::backend::{Backend, OpenError};
    use std::path::Path;
    use std::time::{Duration, Instant};

    #[test]
    fn a_file_takes_its_own_place_and_is_locked_all_the_while() {
        let folder = tempfile::tempdir().unwrap();
        let path = disk(&folder);
        let open = |claim, formers: &Formers| Backend::open_after(&path, None, claim, formers);
        let is_free = |claim| open(claim, &Formers::default()).is_ok();
        let writer = Claim::default();
        let reader = Claim {
            read_only: true,
            ..writer
        };
        let first = open(writer, &Formers::default()).unwrap();
        let mut formers = Formers::default();
        formers.add(&first);
        let place = first.place().unwrap();
        let second = open(reader, &formers).unwrap();
        drop(second);
        assert!(wait_for_close(&path, place).is_ok() && !is_free(reader));
        let second = open(reader, &formers).unwrap();
        drop(first);
        assert!(wait_for_close(&path, place).is_ok());
        assert!(is_free(reader) && !is_free(writer));
        assert!(open(writer, &formers).is_err());
        drop(second);
        assert!(is_free(writer));
    }

    fn disk(folder: &tempfile::TempDir) -> std::path::PathBuf {
        let path = folder.path().join("disk");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        path
    }

    fn open(path: &Path) -> Result<Backend, OpenError> {
        Backend::open_after(path, None, Claim::default(), &Formers::default())
    }

    #[test]
    fn a_disk_that_was_let_go_opens_again_when_its_last_user_drops_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = disk(&folder);
        let first = open(&path).unwrap();
        let since = Instant::now();
        let refused = open(&path).unwrap_err().to_string();
        assert!(refused.contains("already exported"), "{refused}");
        assert!(since.elapsed() < LEAVE_TIMEOUT);
        first.let_go();
        first.let_go();
        let place = first.place().unwrap();
        let user = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(first);
        });
        let second = open(&path).unwrap();
        user.join().unwrap();
        let refused = open(&path).unwrap_err().to_string();
        assert!(refused.contains("already exported"), "{refused}");
        drop(second);
        assert!(wait_for_close(&path, place).is_ok());
        drop(open(&path).unwrap());
    }

    #[test]
    fn a_disk_that_does_not_end_its_commands_is_waited_for_with_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let path = disk(&folder);
        let first = open(&path).unwrap();
        first.let_go();
        let since = Instant::now();
        let refused = open(&path).unwrap_err().to_string();
        assert!(refused.contains("has not ended the commands"), "{refused}");
        assert!(since.elapsed() >= LEAVE_TIMEOUT, "{:?}", since.elapsed());
        drop(first);
        drop(open(&path).unwrap());
    }
}
