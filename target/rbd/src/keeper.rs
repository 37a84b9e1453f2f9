//! Keeper thread of an open image. It reads the size after a change, detects blocklisting of the
//! client, and closes the image.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cairn_base::panics::{Part, confine_part};

use crate::cluster::c_string;
use crate::error::{OpenError, check, words};
use crate::open::{ImageState, OnChange, Open, size_of_image};

/// Maximum wait of an open for the close of the same image.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(8);

const WATCH_PAUSE: Duration = Duration::from_secs(1);

pub(crate) enum Note {
    Changed,
    WatchLost(i32),
    Close,
}

static CLOSING: Mutex<Vec<String>> = Mutex::new(Vec::new());
static CLOSED: Condvar = Condvar::new();

fn closing() -> MutexGuard<'static, Vec<String>> {
    CLOSING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn note_close(name: &str) {
    closing().push(name.to_owned());
}

pub(crate) fn wait_for_close(name: &str) -> Result<(), OpenError> {
    let is_closing = |names: &mut Vec<String>| names.iter().any(|closing| closing == name);
    let waited = CLOSED.wait_timeout_while(closing(), CLOSE_TIMEOUT, is_closing);
    if !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
        return Ok(());
    }
    Err(OpenError::new(format!(
        "{name} was removed before, and the cluster has not ended its last writes yet: look at \
         the cluster by `ceph -s`, and try again when it has recovered"
    )))
}

pub(crate) fn wait_for_closes(longest: Duration) -> bool {
    let are_closing = |names: &mut Vec<String>| !names.is_empty();
    let waited = CLOSED.wait_timeout_while(closing(), longest, are_closing);
    !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
}

/// Starts the keeper of an image. To detect blocklisting of the client, it watches the header
/// object `watched`, if given.
pub(crate) fn start(
    open: Open,
    name: String,
    watched: Option<&str>,
    state: Arc<ImageState>,
    on_change: OnChange,
) -> Result<Sender<Note>, OpenError> {
    let (sender, notes) = channel();
    let watched = watched.map(c_string).transpose()?;
    let mut keeper = Keeper {
        watch: Box::new(Watch {
            notes: sender.clone(),
            header: watched,
            functions: open.functions,
            pool: open.cluster.pool(),
        }),
        open,
        name,
        state,
        on_change,
        updates: None,
        header: None,
    };
    keeper.watch_updates()?;
    if let Err(errno) = keeper.watch_header() {
        // Logged when the configuration is applied.
        tracing::warn!(
            image = keeper.name, error = %words(errno),
            "cannot watch the image's header: blocklisting of this client is noticed late"
        );
    }
    let thread = std::thread::Builder::new().name("rbd-keeper".into());
    thread
        .spawn(move || keeper.run(&notes))
        .map_err(|error| OpenError::new(format!("cannot start a thread for an image: {error}")))?;
    Ok(sender)
}

struct Watch {
    notes: Sender<Note>,
    header: Option<CString>,
    functions: &'static crate::sys::Functions,
    pool: crate::sys::Pool,
}

// SAFETY: a pool may be used by any thread (librados.h).
unsafe impl Send for Watch {}

struct Keeper {
    open: Open,
    /// Boxed, because librbd's callbacks use this address until the watches are removed.
    watch: Box<Watch>,
    name: String,
    state: Arc<ImageState>,
    on_change: OnChange,
    updates: Option<u64>,
    header: Option<u64>,
}

impl Keeper {
    fn run(mut self, notes: &Receiver<Note>) {
        let work = || while self.is_open_after(notes) {};
        if confine_part(Part::Image, work).is_none() {
            // The image counts as failed, because the target can no longer detect blocklisting.
            self.state.failure.store(libc::EIO, Ordering::Relaxed);
            confine_part(Part::Image, || (self.on_change)());
            while !matches!(notes.recv(), Ok(Note::Close) | Err(_)) {}
        }
        let name = self.name.clone();
        confine_part(Part::Image, || drop(self));
        let mut names = closing();
        let at = names.iter().position(|closing| *closing == name);
        names.swap_remove(at.expect("it was noted"));
        CLOSED.notify_all();
    }

    fn is_open_after(&mut self, notes: &Receiver<Note>) -> bool {
        match notes.recv() {
            Ok(Note::Changed) => self.look(),
            Ok(Note::WatchLost(errno)) => self.watch_again(errno),
            Ok(Note::Close) | Err(_) => return false,
        }
        true
    }

    fn look(&self) {
        match size_of_image(self.open.functions, self.open.image) {
            Ok(bytes) => {
                if self.state.bytes.swap(bytes, Ordering::Relaxed) != bytes {
                    (self.on_change)();
                }
            }
            // Logged when an administrator changes the image.
            Err(errno) => tracing::warn!(
                image = self.name, error = %words(errno),
                "the image changed, and its new size cannot be read"
            ),
        }
    }

    fn argument(&self) -> *mut c_void {
        std::ptr::from_ref::<Watch>(&self.watch).cast_mut().cast()
    }

    fn watch_updates(&mut self) -> Result<(), OpenError> {
        let mut handle = 0;
        // SAFETY: the image is open. The argument stays at its address until `unwatch`.
        let watched = unsafe {
            (self.open.functions.rbd_update_watch)(
                self.open.image,
                &mut handle,
                updated,
                self.argument(),
            )
        };
        check(watched).map_err(|errno| {
            OpenError::new(format!("{} cannot be watched: {}", self.name, words(errno)))
        })?;
        self.updates = Some(handle);
        Ok(())
    }

    fn watch_header(&mut self) -> Result<(), i32> {
        let Some(header) = &self.watch.header else {
            return Ok(());
        };
        let mut cookie = 0;
        // SAFETY: the pool is open; the name is a C string. The argument stays at its address until
        // `unwatch`.
        let watched = unsafe {
            (self.open.functions.rados_watch3)(
                self.open.cluster.pool(),
                header.as_ptr(),
                &mut cookie,
                notified,
                watch_lost,
                0,
                self.argument(),
            )
        };
        check(watched)?;
        self.header = Some(cookie);
        Ok(())
    }

    fn watch_again(&mut self, errno: i32) {
        let Some(cookie) = self.header.take() else {
            return;
        };
        // SAFETY: the watch was set with this pool.
        unsafe { (self.open.functions.rados_unwatch2)(self.open.cluster.pool(), cookie) };
        match self.watch_header() {
            Ok(()) => self.look(),
            Err(errno @ (libc::ESHUTDOWN | libc::ENOENT)) => self.fail(errno),
            Err(again) => {
                // Logged at most once a second.
                tracing::warn!(
                    image = self.name, error = %words(errno), again = %words(again),
                    "the watch on the image's header failed: retrying"
                );
                std::thread::sleep(WATCH_PAUSE);
                self.header = Some(cookie);
                let _ = self.watch.notes.send(Note::WatchLost(again));
            }
        }
    }

    fn fail(&self, errno: i32) {
        self.state.failure.store(errno, Ordering::Relaxed);
        if errno == libc::ESHUTDOWN {
            // Logged once for each image.
            tracing::error!(
                image = self.name,
                "the cluster has blocklisted this client: all commands fail; reload once no other \
                 client writes to the image"
            );
        } else {
            // Logged once for each image.
            tracing::error!(
                image = self.name,
                "the image or its pool was removed: all commands fail; remove the namespace"
            );
        }
        (self.on_change)();
    }

    fn unwatch(&mut self) {
        if let Some(handle) = self.updates.take() {
            // SAFETY: the watch was set with this image, which is open.
            unsafe { (self.open.functions.rbd_update_unwatch)(self.open.image, handle) };
        }
        if let Some(cookie) = self.header.take() {
            // SAFETY: the watch was set with this pool.
            unsafe { (self.open.functions.rados_unwatch2)(self.open.cluster.pool(), cookie) };
        }
        self.open.cluster.flush_watches();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.unwatch();
    }
}

/// # Safety
/// The argument must belong to a keeper whose watch has not been removed.
unsafe fn watch_of<'a>(argument: *mut c_void) -> &'a Watch {
    // SAFETY: the caller passes a set watch's argument; a keeper's watch is never moved.
    unsafe { &*argument.cast::<Watch>() }
}

extern "C" fn updated(argument: *mut c_void) {
    // SAFETY: the library calls back only while the watch is set.
    let _ = unsafe { watch_of(argument) }.notes.send(Note::Changed);
}

extern "C" fn watch_lost(argument: *mut c_void, _cookie: u64, error: c_int) {
    // SAFETY: the library calls back only while the watch is set.
    let watch = unsafe { watch_of(argument) };
    let _ = watch.notes.send(Note::WatchLost(-error));
}

extern "C" fn notified(
    argument: *mut c_void,
    notification: u64,
    cookie: u64,
    _sender: u64,
    _data: *mut c_void,
    _bytes: usize,
) {
    // SAFETY: the library calls back only while the watch is set.
    let watch = unsafe { watch_of(argument) };
    let Some(header) = &watch.header else { return };
    // SAFETY: the pool is open while the watch is set; an empty answer has no bytes.
    unsafe {
        (watch.functions.rados_notify_ack)(
            watch.pool,
            header.as_ptr(),
            notification,
            cookie,
            std::ptr::null(),
            0,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicPtr, AtomicU32};
    use std::time::Instant;

    use super::*;
    use crate::cluster::Cluster;
    use crate::sys::{Functions, Image, UpdateCallback};

    static CLOSED_IMAGES: AtomicU32 = AtomicU32::new(0);
    static WATCHER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

    unsafe extern "C" fn watch(
        _: Image,
        handle: *mut u64,
        _: UpdateCallback,
        argument: *mut c_void,
    ) -> c_int {
        // SAFETY: the caller passes a pointer valid for this call.
        unsafe { *handle = 7 };
        WATCHER.store(argument, Ordering::Relaxed);
        0
    }

    unsafe extern "C" fn unwatch(_: Image, handle: u64) -> c_int {
        assert_eq!(handle, 7);
        WATCHER.store(std::ptr::null_mut(), Ordering::Relaxed);
        0
    }

    unsafe extern "C" fn size(_: Image, bytes: *mut u64) -> c_int {
        // SAFETY: the caller passes a pointer valid for this call.
        unsafe { *bytes = 1 << 20 };
        0
    }

    unsafe extern "C" fn flushed(_: *mut c_void) -> c_int {
        0
    }

    unsafe extern "C" fn close(_: Image) -> c_int {
        CLOSED_IMAGES.fetch_add(1, Ordering::Relaxed);
        0
    }

    #[test]
    fn a_keeper_that_panics_fails_its_image_and_closes_it() {
        let functions: &'static Functions = Box::leak(Box::new(Functions {
            rbd_update_watch: watch,
            rbd_update_unwatch: unwatch,
            rbd_get_size: size,
            rados_watch_flush: flushed,
            rbd_close: close,
            ..Functions::none()
        }));
        let open = Open {
            functions,
            image: std::ptr::dangling_mut(),
            cluster: Cluster::none(functions),
        };
        let state: Arc<ImageState> = Arc::default();
        let panics = || cairn_base::panics::Panics::new(true).of_part(Part::Image);
        let before = panics();
        let on_change = Arc::new(|| panic!("on purpose"));
        let name = "a keeper that panics";
        let notes = start(open, name.to_owned(), None, Arc::clone(&state), on_change).unwrap();
        assert_eq!(state.failure.load(Ordering::Relaxed), 0);

        updated(WATCHER.load(Ordering::Relaxed));
        let deadline = Instant::now() + Duration::from_secs(30);
        while panics() < before + 2 {
            assert!(Instant::now() < deadline, "it has not panicked");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(state.failure.load(Ordering::Relaxed), libc::EIO);
        assert_eq!(CLOSED_IMAGES.load(Ordering::Relaxed), 0);

        note_close(name);
        notes.send(Note::Close).unwrap();
        wait_for_close(name).unwrap();
        assert_eq!(CLOSED_IMAGES.load(Ordering::Relaxed), 1);
        assert!(WATCHER.load(Ordering::Relaxed).is_null());
    }
}
