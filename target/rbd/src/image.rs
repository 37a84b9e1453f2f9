//! An image that is open.

use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::cluster::Cluster;
use crate::error::{OpenError, check};
use crate::keeper::{self, Note};
use crate::open::{OnChange, Open, State, refused, size_of_image};
use crate::spec::{Access, Layout, Spec};
use crate::sys::{self, Functions};

/// What operations hold: while there is one, the image stays open.
pub(crate) struct Handle {
    pub(crate) functions: &'static Functions,
    pub(crate) image: sys::Image,
    name: String,
    /// Whether an open of the same image waits for its close already.
    is_noted: AtomicBool,
    state: Arc<State>,
    notes: Sender<Note>,
}

impl Handle {
    /// An open of the same image waits for its close from now on.
    fn note_close(&self) {
        if !self.is_noted.swap(true, Ordering::Relaxed) {
            keeper::note_close(&self.name);
        }
    }
}

// SAFETY: rbd_image_t may be used by any thread (librbd.h).
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        self.note_close();
        // Its keeper closes it, for as long as that takes.
        let _ = self.notes.send(Note::Close);
    }
}

/// An image that is open. When the last user of it is gone, a thread of its own closes it.
pub struct Image {
    /// That of the client that there is now. Held for the time of a look at it.
    current: RwLock<Arc<Handle>>,
    spec: Spec,
    access: Access,
    on_change: OnChange,
    identity: String,
    layout: Layout,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({})", self.spec)
    }
}

/// An image that was opened, and what was found out then.
struct Opened {
    handle: Arc<Handle>,
    identity: String,
    layout: Layout,
}

impl Image {
    /// Opens an image. Blocks as long as the cluster takes. `on_change` is called, on a thread
    /// of its own, when its size is another or it cannot be used any more.
    ///
    /// # Errors
    /// It cannot be opened, or another client has it; says what to do.
    pub fn open(
        spec: &Spec,
        access: Access,
        on_change: Arc<dyn Fn() + Send + Sync>,
    ) -> Result<Self, OpenError> {
        let opened = open(spec, access, &on_change)?;
        Ok(Self {
            current: RwLock::new(opened.handle),
            spec: spec.clone(),
            access,
            on_change,
            identity: opened.identity,
            layout: opened.layout,
        })
    }

    /// Opens it by another client, which takes the place of one that the cluster has shut out. What
    /// the old one has under way ends by itself. Blocks as long as the cluster takes.
    ///
    /// # Errors
    /// As those of [`Self::open`]; or another image has the name now. Then nothing changes.
    pub fn open_again(&self) -> Result<(), OpenError> {
        let opened = open(&self.spec, self.access, &self.on_change)?;
        if opened.identity != self.identity {
            return Err(OpenError::new(format!(
                "{} is another image than before: remove the namespace, reload, and add it again",
                self.spec
            )));
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        // Its keeper closes the old one.
        *current = opened.handle;
        drop(current);
        (self.on_change)();
        Ok(())
    }

    /// Nothing opens operations of it any more: it is closed once those under way have ended, and
    /// an open of the same image waits for that.
    pub fn let_go(&self) {
        self.current().note_close();
    }

    /// The image, as the client has it that there is now.
    #[inline]
    pub(crate) fn current(&self) -> RwLockReadGuard<'_, Arc<Handle>> {
        // No change of it panics.
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// `rbd:POOL/IMAGE`, as an export names it.
    #[must_use]
    pub fn name(&self) -> String {
        self.spec.to_string()
    }

    /// Its identity, which no other image of any cluster has.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// How it is laid out.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Its bytes, as far as is known: no call of the library.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.current().state.bytes.load(Ordering::Relaxed)
    }

    /// Why it cannot be used any more, if so: the cluster has blocklisted its client, or it was
    /// removed. An errno.
    #[must_use]
    #[inline]
    pub fn failure(&self) -> Option<i32> {
        match self.current().state.failure.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(errno),
        }
    }

    /// Its bytes, as [`Self::bytes`], if it can be used.
    ///
    /// # Errors
    /// As [`Self::failure`].
    #[inline]
    pub fn usable_bytes(&self) -> Result<u64, i32> {
        let current = self.current();
        match current.state.failure.load(Ordering::Relaxed) {
            0 => Ok(current.state.bytes.load(Ordering::Relaxed)),
            errno => Err(errno),
        }
    }

    /// Its bytes, as the cluster says. Blocks.
    ///
    /// # Errors
    /// The cluster's, an errno.
    pub fn measure(&self) -> Result<u64, i32> {
        let handle = Arc::clone(&self.current());
        let bytes = size_of_image(handle.functions, handle.image)?;
        handle.state.bytes.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Waits until all writes that were begun are on the OSDs. Blocks.
    ///
    /// # Errors
    /// The cluster's, an errno.
    pub fn flush(&self) -> Result<(), i32> {
        let handle = Arc::clone(&self.current());
        // SAFETY: the image is open for as long as the handle lives.
        check(unsafe { (handle.functions.rbd_flush)(handle.image) })
    }
}

fn open(spec: &Spec, access: Access, on_change: &OnChange) -> Result<Opened, OpenError> {
    let functions = sys::functions()?;
    let read_only = access.read_only || spec.snapshot.is_some();
    let name = spec.to_string();
    keeper::wait_for_close(&name)?;
    let mut open = Open {
        functions,
        image: null_mut(),
        cluster: Cluster::connect(functions, spec)?,
    };
    open.open(spec, read_only)?;
    let (info, layout) = open.facts().map_err(|errno| refused(&name, errno))?;
    let identity = open.identity(spec)?;
    if !read_only {
        open.claim(&name, access.shared)?;
    }
    let state = Arc::new(State::default());
    state.bytes.store(info.size, Ordering::Relaxed);
    let image = open.image;
    let watched = (!read_only).then_some(identity.header.as_str());
    let on_change = Arc::clone(on_change);
    let notes = keeper::start(open, name.clone(), watched, Arc::clone(&state), on_change)?;
    Ok(Opened {
        handle: Arc::new(Handle {
            functions,
            image,
            name,
            is_noted: AtomicBool::new(false),
            state,
            notes,
        }),
        identity: identity.text,
        layout,
    })
}
