//! Files are closed on threads of their own: close(2) may wait for a disk or its server, and
//! the last user of a disk that is removed can be a reactor or the control plane.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::simulated_disk::SimulatedDisk;

/// Files that are closed at a time. While that many hang, others stay open.
const CLOSERS_MAX: usize = 64;

/// How long an open waits for the close of the same disk.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a disk is on this machine: (device, inode).
pub(super) type Place = (u64, u64);

/// An open disk, and the lock on it. Dropped, it is closed elsewhere.
#[derive(Debug)]
pub(super) struct OpenFile(Option<Files>);

#[derive(Debug)]
struct Files {
    file: File,
    /// Holds the lock. Not the file itself: rings may keep that open a little longer.
    lock: Option<File>,
    place: Place,
}

/// What is to be closed, and what is being closed.
#[derive(Debug)]
struct State {
    queue: VecDeque<Files>,
    /// Places of the files in the queue, and of those that are being closed.
    places: Vec<Place>,
    closers: usize,
}

static STATE: Mutex<State> = Mutex::new(State {
    queue: VecDeque::new(),
    places: Vec::new(),
    closers: 0,
});
static CLOSED: Condvar = Condvar::new();

impl OpenFile {
    pub(super) fn new(file: File, place: Place) -> Self {
        let lock = None;
        Self(Some(Files { file, lock, place }))
    }

    pub(super) fn keep_lock(&mut self, lock: Option<File>) {
        self.0
            .as_mut()
            .expect("it is open until it is dropped")
            .lock = lock;
    }

    fn files(&self) -> &Files {
        self.0.as_ref().expect("it is open until it is dropped")
    }

    pub(super) fn place(&self) -> Place {
        self.files().place
    }
}

impl Deref for OpenFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.files().file
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let files = self.0.take().expect("it is dropped once");
        // Simulations have one thread, and such files do not hang.
        if SimulatedDisk::find(files.file.as_raw_fd()).is_none() {
            close(files);
        }
    }
}

/// Waits until nothing at this place is being closed; `false` if that takes too long.
pub(super) fn wait_for(place: Place) -> bool {
    let is_closing = |state: &mut State| state.places.contains(&place);
    let waited = CLOSED.wait_timeout_while(state(), CLOSE_TIMEOUT, is_closing);
    let waited = waited.unwrap_or_else(PoisonError::into_inner);
    !waited.1.timed_out()
}

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(files: Files) {
    let mut state = state();
    state.places.push(files.place);
    state.queue.push_back(files);
    if state.closers == CLOSERS_MAX {
        return;
    }
    state.closers += 1;
    drop(state);
    let closer = std::thread::Builder::new().name("closer".into());
    if closer.spawn(close_all).is_err() {
        // No thread can be had: better late than never.
        close_all();
    }
}

/// A closer's life.
fn close_all() {
    let mut state = state();
    while let Some(Files { file, lock, place }) = state.queue.pop_front() {
        drop(state);
        drop((file, lock));
        state = self::state();
        let at = state.places.iter().position(|closing| *closing == place);
        state.places.swap_remove(at.expect("it was noted"));
        CLOSED.notify_all();
    }
    state.closers -= 1;
}
