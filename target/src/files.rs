//! File access of the control plane. Each call runs on its own thread and has a deadline. Until a
//! late call returns, new calls for its path fail. While [`LATE_MAX`] calls are late, all new calls
//! fail.

use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use crate::panics::{Part, confine_part};

const TIMEOUT: Duration = Duration::from_secs(10);

const LATE_MAX: usize = 64;

struct Running {
    path: PathBuf,
    since: Instant,
    is_late: bool,
}

static RUNNING: Mutex<Vec<Arc<Mutex<Running>>>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Entry(Arc<Mutex<Running>>);

impl Entry {
    fn new(path: &Path) -> io::Result<Self> {
        let mut all = lock(&RUNNING);
        let mut late = 0;
        for other in all.iter() {
            let other = lock(other);
            late += usize::from(other.is_late);
            if other.is_late && other.path == path {
                return Err(unanswered(other.since.elapsed()));
            }
        }
        if late >= LATE_MAX {
            let message = format!(
                "the file systems of {late} paths do not answer: no other file is read until one does"
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
        let running = Arc::new(Mutex::new(Running {
            path: path.to_owned(),
            since: Instant::now(),
            is_late: false,
        }));
        all.push(Arc::clone(&running));
        Ok(Self(running))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        lock(&RUNNING).retain(|one| !Arc::ptr_eq(one, &self.0));
    }
}

fn unanswered(waited: Duration) -> io::Error {
    let message = format!(
        "its file system has not responded for {} seconds: check the file system (df, dmesg), and \
         try again once it responds",
        waited.as_secs()
    );
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Calls `job` with the path on a new thread. Fails if no thread can start, or if this call or an
/// earlier one for the path is late.
pub(crate) async fn call<T: Send + 'static>(
    path: &Path,
    job: impl FnOnce(&Path) -> T + Send + 'static,
) -> io::Result<T> {
    let place = path.to_owned();
    call_or_undo(path, move || job(&place), drop).await
}

#[expect(clippy::disallowed_methods, reason = "this is the way to call it")]
pub(crate) async fn metadata(path: &Path) -> io::Result<Metadata> {
    call(path, |path| std::fs::metadata(path)).await?
}

#[expect(clippy::disallowed_methods, reason = "this is the way to call it")]
pub(crate) fn canonicalize_here(path: &Path) -> io::Result<PathBuf> {
    call_here(path, |path| std::fs::canonicalize(path))?
}

/// Like [`call`], but blocks.
pub(crate) fn call_here<T: Send + 'static>(
    path: &Path,
    job: impl FnOnce(&Path) -> T + Send + 'static,
) -> io::Result<T> {
    call_here_within(TIMEOUT, path, job)
}

pub(crate) fn call_here_within<T: Send + 'static>(
    timeout: Duration,
    path: &Path,
    job: impl FnOnce(&Path) -> T + Send + 'static,
) -> io::Result<T> {
    let entry = Entry::new(path)?;
    let mut waiter = Waiter::of(&entry);
    let (out, result) = sync_channel(1);
    let place = path.to_owned();
    start(entry, move || drop(out.send(job(&place))))?;
    match result.recv_timeout(timeout) {
        Ok(result) => {
            waiter.has_result = true;
            Ok(result)
        }
        Err(RecvTimeoutError::Timeout) => Err(unanswered(timeout)),
        Err(RecvTimeoutError::Disconnected) => {
            waiter.has_result = true;
            Err(panicked())
        }
    }
}

/// Runs `job` like [`call`]. If the call is late or its caller is gone, the thread passes the
/// result to `undo`. Other calls for the path fail until `undo` returns.
pub(crate) async fn call_or_undo<T: Send + 'static>(
    path: &Path,
    job: impl FnOnce() -> T + Send + 'static,
    undo: impl FnOnce(T) + Send + 'static,
) -> io::Result<T> {
    call_within(TIMEOUT, path, job, undo).await
}

struct Waiter {
    running: Arc<Mutex<Running>>,
    has_result: bool,
}

impl Waiter {
    fn of(entry: &Entry) -> Self {
        Self {
            running: Arc::clone(&entry.0),
            has_result: false,
        }
    }
}

fn start(entry: Entry, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let run = move || {
        let _entry = entry;
        confine_part(Part::Control, job);
    };
    std::thread::Builder::new().name("file".into()).spawn(run)?;
    Ok(())
}

fn panicked() -> io::Error {
    io::Error::other("a panic, which is an error in the log")
}

impl Drop for Waiter {
    fn drop(&mut self) {
        lock(&self.running).is_late = !self.has_result;
    }
}

async fn call_within<T: Send + 'static>(
    timeout: Duration,
    path: &Path,
    job: impl FnOnce() -> T + Send + 'static,
    undo: impl FnOnce(T) + Send + 'static,
) -> io::Result<T> {
    let entry = Entry::new(path)?;
    let mut waiter = Waiter::of(&entry);
    let (out, mut result) = oneshot::channel();
    start(entry, move || {
        if let Err(late) = out.send(job()) {
            undo(late);
        }
    })?;
    let ended = tokio::time::timeout(timeout, &mut result).await;
    if let Ok(result) = ended {
        waiter.has_result = true;
        return result.map_err(|_| panicked());
    }
    // After this close, the thread passes its result to `undo`.
    result.close();
    let result = result.try_recv().map_err(|_| unanswered(timeout))?;
    waiter.has_result = true;
    Ok(result)
}

/// Blocks until `calls` completes, for callers without a tokio runtime.
pub(crate) fn wait_for<F: Future>(calls: F) -> io::Result<F::Output> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    Ok(runtime.enable_time().build()?.block_on(calls))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};

    fn held(path: &'static str) -> (Sender<()>, Receiver<u32>, io::Result<u32>) {
        let (release, held) = channel();
        let (undone, was_undone) = channel();
        let ended = wait_for(call_within(
            Duration::from_millis(10),
            Path::new(path),
            move || held.recv().map_or(0, |()| 7),
            move |result| undone.send(result).unwrap(),
        ));
        (release, was_undone, ended.unwrap())
    }

    #[test]
    fn a_late_call_is_undone_and_holds_up_its_path_alone() {
        let (release, was_undone, ended) = held("/hung/one");
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let again = wait_for(call(Path::new("/hung/one"), |_| 1)).unwrap();
        assert!(again.unwrap_err().to_string().contains("has not responded"));
        assert_eq!(
            wait_for(call(Path::new("/other"), |_| 1)).unwrap().unwrap(),
            1
        );
        release.send(()).unwrap();
        let patience = Duration::from_secs(60);
        assert_eq!(was_undone.recv_timeout(patience).unwrap(), 7);
        let deadline = Instant::now() + patience;
        while wait_for(call(Path::new("/hung/one"), |_| 1))
            .unwrap()
            .is_err()
        {
            assert!(Instant::now() < deadline, "the path stays blocked");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_call_that_panics_is_an_error() {
        let ended = wait_for(call(Path::new("/panics"), |_| -> u32 { panic!("planted") }));
        assert!(ended.unwrap().unwrap_err().to_string().contains("panic"));
    }
}
