//! An image that is open.

use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;

use crate::cluster::Cluster;
use crate::error::{OpenError, check};
use crate::keeper::{self, Note};
use crate::open::{Open, State, refused, size_of_image};
use crate::spec::{Access, Layout, Spec};
use crate::sys::{self, Functions};

/// What operations hold: while there is one, the image stays open.
pub(crate) struct Handle {
    pub(crate) functions: &'static Functions,
    pub(crate) image: sys::Image,
    name: String,
    notes: Sender<Note>,
}

// SAFETY: rbd_image_t may be used by any thread (librbd.h).
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        keeper::note_close(&self.name);
        // Its keeper closes it, for as long as that takes.
        let _ = self.notes.send(Note::Close);
    }
}

/// An image that is open. When the last user of it is gone, a thread of its own closes it.
pub struct Image {
    pub(crate) handle: Arc<Handle>,
    state: Arc<State>,
    identity: String,
    layout: Layout,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Image({})", self.name())
    }
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
        on_change: Box<dyn Fn() + Send>,
    ) -> Result<Self, OpenError> {
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
        let notes = keeper::start(open, name.clone(), watched, Arc::clone(&state), on_change)?;
        Ok(Self {
            handle: Arc::new(Handle {
                functions,
                image,
                name,
                notes,
            }),
            state,
            identity: identity.text,
            layout,
        })
    }

    /// `rbd:POOL/IMAGE`, as an export names it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.handle.name
    }

    /// What distinguishes it from every other image of every cluster.
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
        self.state.bytes.load(Ordering::Relaxed)
    }

    /// Why it cannot be used any more, if so: the cluster has blocklisted its client, or it was
    /// removed. An errno.
    #[must_use]
    #[inline]
    pub fn failure(&self) -> Option<i32> {
        match self.state.failure.load(Ordering::Relaxed) {
            0 => None,
            errno => Some(errno),
        }
    }

    /// Its bytes, as the cluster says. Blocks.
    ///
    /// # Errors
    /// The cluster's, an errno.
    pub fn measure(&self) -> Result<u64, i32> {
        let bytes = size_of_image(self.handle.functions, self.handle.image)?;
        self.state.bytes.store(bytes, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Waits until all writes that were begun are on the OSDs. Blocks.
    ///
    /// # Errors
    /// The cluster's, an errno.
    pub fn flush(&self) -> Result<(), i32> {
        // SAFETY: the image is open for as long as the handle lives.
        check(unsafe { (self.handle.functions.rbd_flush)(self.handle.image) })
    }
}
