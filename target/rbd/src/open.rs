use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64};

use cairn_base::ImageSpec;

use crate::cluster::{Cluster, c_string};
use crate::error::{OpenError, check, words};
use crate::spec::Layout;
use crate::sys::{self, Functions, ImageInfo};

/// `RBD_FEATURE_EXCLUSIVE_LOCK`.
const FEATURE_EXCLUSIVE_LOCK: u64 = 1 << 2;
/// `RBD_FEATURE_JOURNALING`.
const FEATURE_JOURNALING: u64 = 1 << 6;

pub(crate) type OnChange = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(crate) struct ImageState {
    pub(crate) bytes: AtomicU64,
    /// Errno of a permanent failure, or 0.
    pub(crate) failure: AtomicI32,
}

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
            // SAFETY: the image is open and has no other users. The client closes afterwards.
            unsafe { (self.functions.rbd_close)(self.image) };
        }
    }
}

pub(crate) fn size_of_image(functions: &Functions, image: sys::Image) -> Result<u64, i32> {
    let mut bytes = 0;
    // SAFETY: the caller has opened the image; the size is written before it is read.
    check(unsafe { (functions.rbd_get_size)(image, &mut bytes) })?;
    Ok(bytes)
}

pub(crate) struct Identity {
    pub(crate) text: String,
    pub(crate) header: String,
}

impl Open {
    pub(crate) fn open(&mut self, spec: &ImageSpec, read_only: bool) -> Result<(), OpenError> {
        let name = c_string(&spec.image)?;
        let snapshot = spec.snapshot.as_deref().map(c_string).transpose()?;
        let snapshot = snapshot.as_ref().map_or(std::ptr::null(), |it| it.as_ptr());
        let open = if read_only {
            self.functions.rbd_open_read_only
        } else {
            self.functions.rbd_open
        };
        // SAFETY: the pool is open; the names are C strings, or null without a snapshot.
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

    pub(crate) fn facts(&self) -> Result<(ImageInfo, Layout), i32> {
        // SAFETY: the structure contains only numbers, for which zeroes are valid.
        let mut info: ImageInfo = unsafe { std::mem::zeroed() };
        let (mut unit, mut count) = (0, 0);
        // SAFETY: the image is open; each result has the type that the function writes.
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

    pub(crate) fn identity(&self, spec: &ImageSpec) -> Result<Identity, OpenError> {
        let (fsid, pool) = self.cluster.place()?;
        let mut id = [0_u8; 128];
        // SAFETY: the image is open, and the length is that of the buffer.
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

    pub(crate) fn claim(&self, name: &str, shared: bool) -> Result<(), OpenError> {
        let mut features = 0;
        // SAFETY: the image is open; the features are written before they are read.
        check(unsafe { (self.functions.rbd_get_features)(self.image, &mut features) })
            .map_err(|errno| refused(name, errno))?;
        if features & FEATURE_JOURNALING != 0 {
            // Logged when the configuration is applied.
            tracing::warn!(
                image = name,
                "the image has the feature journaling: each write is written twice"
            );
        }
        if shared {
            return Ok(());
        }
        if features & FEATURE_EXCLUSIVE_LOCK == 0 {
            // Logged when the configuration is applied.
            tracing::warn!(
                image = name,
                "the image lacks the feature exclusive-lock, so other clients can write to it: \
                 run `rbd feature enable {} exclusive-lock`",
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

pub(crate) fn refused(name: &str, errno: i32) -> OpenError {
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
