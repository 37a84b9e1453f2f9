//! Closes disks on dedicated threads, because close(2) may block.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use cairn_base::panics::{Part, confine_part};

use super::lock::Lock;
use crate::ring::Open;
use crate::simulated_disk::SimulatedDisk;

const CLOSERS_MAX: usize = 64;

const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) type Place = (u64, u64);

/// Open disk, with the guard against other users. Rings hold clones until their operations have
/// ended. The last drop closes the disk on another thread.
#[derive(Debug, Clone)]
pub(super) struct OpenFile(Arc<Opened>);

#[derive(Debug)]
struct Opened {
    files: Option<Files>,
    leaves: AtomicBool,
}

#[derive(Debug)]
struct Files {
    file: File,
    guard: Guard,
    place: Place,
}

#[derive(Debug)]
pub(super) enum Guard {
    /// The device is shared, or the file system has no locks.
    None,
    Lock(Lock),
    Claim {
        _behind: Vec<Lock>,
    },
    Device(Arc<File>),
}

#[derive(Debug)]
struct ClosingState {
    queue: VecDeque<Files>,
    places: Vec<Place>,
    leaving: Vec<Place>,
    closers: usize,
}

static STATE: Mutex<ClosingState> = Mutex::new(ClosingState {
    queue: VecDeque::new(),
    places: Vec::new(),
    leaving: Vec::new(),
    closers: 0,
});
static CLOSED: Condvar = Condvar::new();

impl OpenFile {
    pub(super) fn new(file: File, guard: Guard, place: Place) -> Self {
        Self(Arc::new(Opened {
            files: Some(Files { file, guard, place }),
            leaves: AtomicBool::new(false),
        }))
    }

    fn files(&self) -> &Files {
        self.0.files()
    }

    pub(super) fn let_go(&self) {
        let mut state = state();
        if !self.0.leaves.swap(true, Ordering::Relaxed) {
            state.leaving.push(self.place());
        }
    }

    pub(super) fn place(&self) -> Place {
        self.files().place
    }

    pub(super) fn guard(&self) -> &Guard {
        &self.files().guard
    }

    pub(super) fn former(&self) -> FormerFile {
        FormerFile {
            place: self.place(),
            opened: Arc::downgrade(&self.0),
        }
    }

    pub(super) fn keep(&self) -> Open {
        Arc::clone(&self.0) as Open
    }
}

#[derive(Debug)]
pub(super) struct FormerFile {
    place: Place,
    opened: Weak<Opened>,
}

impl FormerFile {
    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn get(&self) -> Option<OpenFile> {
        self.opened.upgrade().map(OpenFile)
    }
}

impl Opened {
    fn files(&self) -> &Files {
        let files = self.files.as_ref();
        files.expect("it is open until it is dropped")
    }
}

impl AsRawFd for Opened {
    fn as_raw_fd(&self) -> RawFd {
        self.files().file.as_raw_fd()
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.files().file
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        let files = self.files.take().expect("it is dropped once");
        let leaves = *self.leaves.get_mut();
        if SimulatedDisk::find(files.file.as_raw_fd()).is_none() {
            close(files, leaves);
            return;
        }
        let place = files.place;
        files.close();
        if leaves {
            state().left(place);
        }
    }
}

impl ClosingState {
    fn left(&mut self, place: Place) {
        let at = self.leaving.iter().position(|leaving| *leaving == place);
        self.leaving.swap_remove(at.expect("it was noted"));
        CLOSED.notify_all();
    }
}

impl Files {
    fn close(self) {
        #[cfg(test)]
        tests::panic_at(self.place);
        drop(self.file);
        drop(self.guard);
    }
}

pub(super) fn wait_for(place: Place) -> bool {
    let is_closing = |state: &mut ClosingState| state.places.contains(&place);
    let waited = CLOSED.wait_timeout_while(state(), CLOSE_TIMEOUT, is_closing);
    let waited = waited.unwrap_or_else(PoisonError::into_inner);
    !waited.1.timed_out()
}

pub(super) fn is_leaving(place: Place) -> bool {
    state().leaving.contains(&place)
}

/// Returns `false` on timeout.
pub(super) fn wait_until_left(place: Place) -> bool {
    let is_there =
        |state: &mut ClosingState| state.leaving.contains(&place) || state.places.contains(&place);
    let waited = CLOSED.wait_timeout_while(state(), LEAVE_TIMEOUT, is_there);
    let waited = waited.unwrap_or_else(PoisonError::into_inner);
    !waited.1.timed_out()
}

fn state() -> MutexGuard<'static, ClosingState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(files: Files, leaves: bool) {
    let mut state = state();
    state.places.push(files.place);
    if leaves {
        state.left(files.place);
    }
    state.queue.push_back(files);
    if state.closers == CLOSERS_MAX {
        return;
    }
    state.closers += 1;
    drop(state);
    let closer = std::thread::Builder::new().name("closer".into());
    if closer.spawn(close_all).is_err() {
        close_all();
    }
}

fn close_all() {
    let mut state = state();
    while let Some(files) = state.queue.pop_front() {
        drop(state);
        let place = files.place;
        confine_part(Part::Close, || files.close());
        state = self::state();
        let at = state.places.iter().position(|closing| *closing == place);
        state.places.swap_remove(at.expect("it was noted"));
        CLOSED.notify_all();
    }
    state.closers -= 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Claim;

    static PANICS_AT: Mutex<Option<Place>> = Mutex::new(None);

    pub(super) fn panic_at(place: Place) {
        let mut panics_at = PANICS_AT.lock().unwrap_or_else(PoisonError::into_inner);
        let panics = panics_at.take_if(|at| *at == place).is_some();
        drop(panics_at);
        assert!(!panics, "on purpose");
    }

    #[test]
    fn a_close_that_panics_closes_its_disk_and_no_closer_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let place = (u64::MAX, 7);
        let closed = || cairn_base::panics::Panics::new(true).of_part(Part::Close);
        let before = closed();
        for round in 1..=3 {
            let file = File::create(&path).unwrap();
            let lock = Lock::take(&file, Claim::default()).unwrap();
            *PANICS_AT.lock().unwrap() = Some(place);
            drop(OpenFile::new(file, Guard::Lock(lock), place));
            assert!(wait_for(place), "the close of round {round} has not ended");
            assert_eq!(closed(), before + round);
        }
        drop(OpenFile::new(
            File::create(&path).unwrap(),
            Guard::None,
            place,
        ));
        assert!(wait_for(place));
        let file = File::create(&path).unwrap();
        assert!(Lock::take(&file, Claim::default()).is_ok());
        assert_eq!(closed(), before + 3);
    }
}
