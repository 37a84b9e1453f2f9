use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use cairn_base::ImageSpec;

use crate::cluster::Cluster;
use crate::error::{OpenError, check};
use crate::keeper::{self, Note};
use crate::open::{ImageState, OnChange, Open, refused, size_of_image};
use crate::spec::{Access, Layout};
use crate::sys::{self, Functions};

/// Open image and client. Each pending operation holds a reference.
pub(crate) struct Handle {
    pub(crate) functions: &'static Functions,
    pub(crate) image: sys::Image,
    name: String,
    is_noted: AtomicBool,
    state: Arc<ImageState>,
    notes: Sender<Note>,
}

impl Handle {
    fn note_close(&self) {
        if !self.is_noted.swap(true, Ordering::Relaxed) {
            keeper::note_close(&self.name);
        }
    }
}

// SAFETY: rbd_image_t may be used by any thread (librbd.h).
unsafe impl Send for Handle {}
// SAFETY: rbd_image_t may be used by any thread (librbd.h).
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        self.note_close();
        let _ = self.notes.send(Note::Close);
    }
}

/// Open RBD image. After the last reference is dropped, a keeper thread closes the image.
pub struct Image {
    current: RwLock<Arc<Handle>>,
    spec: ImageSpec,
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

struct Opened {
    handle: Arc<Handle>,
    identity: String,
    layout: Layout,
}

impl Image {
    /// Opens an image. Blocks until the cluster replies. `on_change` is called by the keeper's
    /// thread after a change of the size or a permanent failure, and by [`Self::open_again`].
    ///
    /// # Errors
    /// The image cannot be opened, or another client uses it.
    pub fn open(
        spec: &ImageSpec,
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

    /// Opens the image with a new client after the cluster blocklisted the old client, whose
    /// operations end on their own. Blocks until the cluster replies.
    ///
    /// # Errors
    /// As for [`Self::open`], or the name now belongs to another image. The image then keeps the
    /// old client.
    pub fn open_again(&self) -> Result<(), OpenError> {
        let opened = open(&self.spec, self.access, &self.on_change)?;
        if opened.identity != self.identity {
            return Err(OpenError::new(format!(
                "{} is another image than before: remove the namespace, reload, and add it again",
                self.spec
            )));
        }
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        *current = opened.handle;
        drop(current);
        (self.on_change)();
        Ok(())
    }

    /// Announces that the image is unused. It closes after its pending operations; a later open of
    /// the same image waits for the close.
    pub fn let_go(&self) {
        self.current().note_close();
    }

    #[inline]
    pub(crate) fn current(&self) -> RwLockReadGuard<'_, Arc<Handle>> {
        self.current.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name in the form `rbd:POOL/IMAGE`.
    #[must_use]
    pub fn name(&self) -> String {
        self.spec.to_string()
    }

    /// Returns an identity that is unique across clusters.
    #[must_use]
    pub fn identity(&self) -> &str {
        &self.identity
    }

    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the last known size in bytes, without a library call.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.current().state.bytes.load(Ordering::Relaxed)
    }

    /// Returns the errno of a permanent failure, such as a blocklisted client or a removed image.
    #[must_use]
    #[inline]
    pub fn failure(&self) -> Option<i32> {
        match self.current().state.failure.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(errno),
        }
    }

    /// Returns [`Self::bytes`], or the errno of a permanent failure.
    #[inline]
    pub fn usable_bytes(&self) -> Result<u64, i32> {
        let current = self.current();
        match current.state.failure.load(Ordering::Relaxed) {
            0 => Ok(current.state.bytes.load(Ordering::Relaxed)),
            errno => Err(errno),
        }
    }

    /// Reads the size in bytes. Blocks until the cluster replies.
    pub fn measure(&self) -> Result<u64, i32> {
        let handle = Arc::clone(&self.current());
        let bytes = size_of_image(handle.functions, handle.image)?;
        handle.state.bytes.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Blocks until all started writes are on the OSDs.
    pub fn flush(&self) -> Result<(), i32> {
        let handle = Arc::clone(&self.current());
        // SAFETY: the image is open for as long as the handle lives.
        check(unsafe { (handle.functions.rbd_flush)(handle.image) })
    }
}

fn open(spec: &ImageSpec, access: Access, on_change: &OnChange) -> Result<Opened, OpenError> {
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
    let state = Arc::new(ImageState::default());
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
