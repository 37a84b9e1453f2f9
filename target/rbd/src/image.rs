//! An image that is open.

use std::fmt;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use crate::cluster::{Cluster, c_string};
use crate::error::{OpenError, check, words};
use crate::keeper::{self, Note};
use crate::sys::{self, Functions, ImageInfo};

/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_FEATURE_JOURNALING`.
const FEATURE_JOURNALING: u64 = 1 << 6;

/// Which image, and whose eyes see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// Pool.
    pub pool: String,
    /// Namespace of the pool, if not the one without a name.
    pub namespace: Option<String>,
    /// Image.
    pub image: String,
    /// Snapshot of it: then it can only be read.
    pub snapshot: Option<String>,
    /// The cluster's configuration, if not in its usual place.
    pub conf: Option<PathBuf>,
    /// The user's name without `client.`; `admin` if none is given.
    pub user: Option<String>,
    /// The file with the user's key, if it is not where the configuration says.
    pub keyring: Option<PathBuf>,
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rbd:{}/", self.pool)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        write!(f, "{}", self.image)?;
        match &self.snapshot {
            Some(snapshot) => write!(f, "@{snapshot}"),
            None => Ok(()),
        }
    }
}

/// How an image is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// It is only read.
    pub read_only: bool,
    /// Others may write to it, too: its exclusive lock is not kept from them.
    pub shared: bool,
}

/// How an image is laid out over objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of an object.
    pub object_bytes: u64,
    /// Bytes of a stripe's unit: the object's where it has no stripes.
    pub stripe_bytes: u64,
    /// Objects that a stripe goes over.
    pub stripe_objects: u64,
}

/// What is known of an image now.
#[derive(Default)]
pub(crate) struct State {
    /// Its bytes.
    pub(crate) bytes: AtomicU64,
    /// Why it cannot be used any more: an errno, or 0.
    pub(crate) failure: AtomicI32,
}

/// The image itself and the client it was opened by, which are closed together.
pub(crate) struct Open {
    pub(crate) functions: &'static Functions,
    pub(crate) image: sys::Image,
    pub(crate) cluster: Cluster,
}

// SAFETY: rbd_image_t may be used by any thread (librbd.h).
unsafe impl Send for Open {}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.image.is_null() {
            // SAFETY: it is open, and nothing else uses it any more. Its client closes after it.
            unsafe { (self.functions.rbd_close)(self.image) };
        }
    }
}

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
        let watched = (!read_only).then(|| identity.header.clone());
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

    /// What tells it from every other image of every cluster.
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

/// Its bytes. Blocks.
pub(crate) fn size_of_image(functions: &Functions, image: sys::Image) -> Result<u64, i32> {
    let mut bytes = 0;
    // SAFETY: the caller has the image open; the size is written before it is read.
    check(unsafe { (functions.rbd_get_size)(image, &mut bytes) })?;
    Ok(bytes)
}

struct Identity {
    text: String,
    /// The object that watchers of the image watch.
    header: String,
}

impl Open {
    fn open(&mut self, spec: &Spec, read_only: bool) -> Result<(), OpenError> {
        let name = c_string(&spec.image)?;
        let snapshot = spec.snapshot.as_deref().map(c_string).transpose()?;
        let snapshot = snapshot.as_ref().map_or(std::ptr::null(), |it| it.as_ptr());
        let open = if read_only {
            self.functions.rbd_open_read_only
        } else {
            self.functions.rbd_open
        };
        // SAFETY: the pool is open; the names are C strings, or null for no snapshot.
        let opened = unsafe {
            open(
                self.cluster.pool(),
                name.as_ptr(),
                &mut self.image,
                snapshot,
            )
        };
        let Err(errno) = check(opened) else {
            return Ok(());
        };
        self.image = null_mut();
        let shown = spec.to_string();
        let place = shown.trim_start_matches("rbd:");
        Err(match (errno, &spec.snapshot) {
            (libc::ENOENT, None) => OpenError::new(format!(
                "there is no image {place}: `rbd ls {}` shows those that are there; make it, for \
                 example `rbd create --size 10G {place}`",
                spec.pool
            )),
            (libc::ENOENT, Some(_)) => OpenError::new(format!(
                "there is no {place}: `rbd snap ls {}/{}` shows the snapshots",
                spec.pool, spec.image
            )),
            _ => refused(&shown, errno),
        })
    }

    fn facts(&self) -> Result<(ImageInfo, Layout), i32> {
        // SAFETY: all zeroes are a value of it: numbers.
        let mut info: ImageInfo = unsafe { std::mem::zeroed() };
        let (mut unit, mut count) = (0, 0);
        // SAFETY: the image is open, and each result is of the type that the function writes.
        unsafe {
            check((self.functions.rbd_stat)(
                self.image,
                &mut info,
                size_of::<ImageInfo>(),
            ))?;
            check((self.functions.rbd_get_stripe_unit)(self.image, &mut unit))?;
            check((self.functions.rbd_get_stripe_count)(
                self.image, &mut count,
            ))?;
        }
        let layout = Layout {
            object_bytes: info.object_bytes,
            stripe_bytes: unit,
            stripe_objects: count,
        };
        Ok((info, layout))
    }

    fn identity(&self, spec: &Spec) -> Result<Identity, OpenError> {
        let (fsid, pool) = self.cluster.place()?;
        let mut id = [0_u8; 128];
        // SAFETY: the image is open, and the buffer is as long as is said.
        let got =
            unsafe { (self.functions.rbd_get_id)(self.image, id.as_mut_ptr().cast(), id.len()) };
        check(got).map_err(|errno| {
            OpenError::new(format!(
                "{spec} has no id ({}): it is of format 1, which Ceph no longer makes: \
                 `rbd migration prepare` brings it to format 2",
                words(errno)
            ))
        })?;
        let id = sys::text(&id);
        let namespace = spec.namespace.as_deref().unwrap_or("");
        let snapshot = spec.snapshot.as_deref().unwrap_or("");
        Ok(Identity {
            text: format!("rbd {fsid} {pool} {namespace}/{id}@{snapshot}"),
            header: format!("rbd_header.{id}"),
        })
    }

    /// Keeps other clients from writing, unless they may.
    fn claim(&self, name: &str, shared: bool) -> Result<(), OpenError> {
        let mut features = 0;
        // SAFETY: the image is open; the features are written before they are read.
        check(unsafe { (self.functions.rbd_get_features)(self.image, &mut features) })
            .map_err(|errno| refused(name, errno))?;
        if features & FEATURE_JOURNALING != 0 {
            // Cause: the configuration.
            tracing::warn!(
                image = name,
                "the image has the feature journaling: each write is written twice"
            );
        }
        if shared {
            return Ok(());
        }
        if features & FEATURE_EXCLUSIVE_LOCK == 0 {
            // Cause: the configuration.
            tracing::warn!(
                image = name,
                "the image lacks the feature exclusive-lock: nothing keeps another client from \
                 writing to it: `rbd feature enable {} exclusive-lock`",
                name.trim_start_matches("rbd:")
            );
            return Ok(());
        }
        // SAFETY: the image is open.
        let locked = unsafe { (self.functions.rbd_lock_acquire)(self.image, sys::LOCK_EXCLUSIVE) };
        check(locked).map_err(|errno| match errno {
            libc::EROFS | libc::EBUSY => OpenError::new(format!(
                "{name} is in use by another client, which keeps its exclusive lock: `rbd lock ls \
                 {0}` and `rbd status {0}` show it (shared = true on both, for two paths to one \
                 namespace)",
                name.trim_start_matches("rbd:")
            )),
            _ => refused(name, errno),
        })
    }
}

fn refused(name: &str, errno: i32) -> OpenError {
    let place = name.trim_start_matches("rbd:");
    OpenError::new(match errno {
        libc::EPERM | libc::EACCES => format!(
            "the user may not open {name}: give it the caps `mon 'profile rbd' osd 'profile rbd \
             pool={}'`",
            place.split('/').next().unwrap_or(place)
        ),
        libc::ENOSYS => format!(
            "this librbd does not know a feature of {name}: `rbd info {place}` shows them; \
             install a newer librbd, or `rbd feature disable {place} FEATURE`"
        ),
        libc::ESHUTDOWN => format!(
            "{name}: the cluster has blocklisted this client: `ceph osd blocklist ls` shows it"
        ),
        _ => format!("{name} cannot be opened: {}", words(errno)),
    })
}
