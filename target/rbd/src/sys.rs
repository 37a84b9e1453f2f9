//! Functions of librados and librbd, loaded at run time.
//!
//! Why `unsafe` here: loading a library runs its code, and only C headers (`librados.h`,
//! `librbd.h`) define its types. All versions with the same soname have the same types.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::OpenError;

/// `rados_t`.
pub(crate) type Cluster = *mut c_void;
/// `rados_ioctx_t`.
pub(crate) type Pool = *mut c_void;
/// `rbd_image_t`.
pub(crate) type Image = *mut c_void;
/// `rbd_completion_t`.
pub(crate) type Completion = *mut c_void;

/// `rbd_callback_t`.
pub(crate) type Callback = extern "C" fn(Completion, *mut c_void);
/// `rbd_update_callback_t`.
pub(crate) type UpdateCallback = extern "C" fn(*mut c_void);
/// `rados_watchcb2_t`: argument, notification, cookie, sender, data, bytes.
pub(crate) type WatchCallback = extern "C" fn(*mut c_void, u64, u64, u64, *mut c_void, usize);
/// `rados_watcherrcb_t`: argument, cookie, error.
pub(crate) type WatchErrorCallback = extern "C" fn(*mut c_void, u64, c_int);

/// `rbd_image_info_t`.
#[repr(C)]
pub(crate) struct ImageInfo {
    pub(crate) size: u64,
    pub(crate) object_bytes: u64,
    pub(crate) objects: u64,
    pub(crate) order: c_int,
    pub(crate) block_name_prefix: [c_char; 24],
    pub(crate) parent_pool: i64,
    pub(crate) parent_name: [c_char; 96],
}

/// `RBD_LOCK_MODE_EXCLUSIVE`.
pub(crate) const LOCK_EXCLUSIVE: c_int = 0;
/// `RBD_WRITE_ZEROES_FLAG_THICK_PROVISION`.
pub(crate) const ZEROES_THICK: c_int = 1;

macro_rules! table {
    ($($library:ident { $($name:ident: fn($($argument:ty),*) -> $result:ty;)* })*) => {
        pub(crate) struct Functions {
            $($(pub(crate) $name: unsafe extern "C" fn($($argument),*) -> $result,)*)*
        }

        impl Functions {
            #[cfg(test)]
            pub(crate) fn none() -> Self {
                Self {
                    $($($name: {
                        unsafe extern "C" fn none($(_: $argument),*) -> $result {
                            unreachable!(stringify!($name))
                        }
                        none
                    },)*)*
                }
            }

            fn find($($library: &'static Library),*) -> Result<Self, libloading::Error> {
                // SAFETY: the types are those of the libraries' headers.
                unsafe {
                    Ok(Self {
                        $($($name: *$library.get(concat!(stringify!($name), "\0").as_bytes())?,)*)*
                    })
                }
            }
        }
    };
}

table! {
    rados {
        rados_create: fn(*mut Cluster, *const c_char) -> c_int;
        rados_conf_read_file: fn(Cluster, *const c_char) -> c_int;
        rados_conf_set: fn(Cluster, *const c_char, *const c_char) -> c_int;
        rados_connect: fn(Cluster) -> c_int;
        rados_shutdown: fn(Cluster) -> ();
        rados_cluster_fsid: fn(Cluster, *mut c_char, usize) -> c_int;
        rados_ioctx_create: fn(Cluster, *const c_char, *mut Pool) -> c_int;
        rados_ioctx_destroy: fn(Pool) -> ();
        rados_ioctx_get_id: fn(Pool) -> i64;
        rados_ioctx_set_namespace: fn(Pool, *const c_char) -> ();
        rados_set_pool_full_try: fn(Pool) -> ();
        rados_watch3: fn(Pool, *const c_char, *mut u64, WatchCallback, WatchErrorCallback, u32, *mut c_void) -> c_int;
        rados_unwatch2: fn(Pool, u64) -> c_int;
        rados_watch_flush: fn(Cluster) -> c_int;
        rados_notify_ack: fn(Pool, *const c_char, u64, u64, *const c_char, c_int) -> c_int;
    }
    rbd {
        rbd_open: fn(Pool, *const c_char, *mut Image, *const c_char) -> c_int;
        rbd_open_read_only: fn(Pool, *const c_char, *mut Image, *const c_char) -> c_int;
        rbd_close: fn(Image) -> c_int;
        rbd_stat: fn(Image, *mut ImageInfo, usize) -> c_int;
        rbd_get_size: fn(Image, *mut u64) -> c_int;
        rbd_get_features: fn(Image, *mut u64) -> c_int;
        rbd_get_stripe_unit: fn(Image, *mut u64) -> c_int;
        rbd_get_stripe_count: fn(Image, *mut u64) -> c_int;
        rbd_get_id: fn(Image, *mut c_char, usize) -> c_int;
        rbd_update_watch: fn(Image, *mut u64, UpdateCallback, *mut c_void) -> c_int;
        rbd_update_unwatch: fn(Image, u64) -> c_int;
        rbd_lock_acquire: fn(Image, c_int) -> c_int;
        rbd_flush: fn(Image) -> c_int;
        rbd_aio_create_completion: fn(*mut c_void, Callback, *mut Completion) -> c_int;
        rbd_aio_get_return_value: fn(Completion) -> isize;
        rbd_aio_release: fn(Completion) -> ();
        rbd_aio_read: fn(Image, u64, usize, *mut c_char, Completion) -> c_int;
        rbd_aio_write: fn(Image, u64, usize, *const c_char, Completion) -> c_int;
        rbd_aio_discard: fn(Image, u64, u64, Completion) -> c_int;
        rbd_aio_write_zeroes: fn(Image, u64, usize, Completion, c_int, c_int) -> c_int;
        rbd_aio_flush: fn(Image, Completion) -> c_int;
    }
}

const RADOS: &str = "librados.so.2";
const RBD: &str = "librbd.so.1";

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// Loads the libraries, which stay loaded. After a failure, the next call retries.
pub(crate) fn functions() -> Result<&'static Functions, OpenError> {
    if let Some(functions) = FUNCTIONS.get() {
        return Ok(functions);
    }
    let found = Functions::find(load(RADOS)?, load(RBD)?).map_err(|error| {
        OpenError::new(format!(
            "librbd is too old: {error}: Ceph 16 (Pacific) or later is needed"
        ))
    })?;
    let functions = FUNCTIONS.get_or_init(|| found);
    skip_destructors();
    Ok(functions)
}

/// If the libraries are loaded, lets exit(3) end the process without the C++ destructors registered
/// before this call: threads of the libraries may still use the objects.
pub(crate) fn skip_destructors() {
    if FUNCTIONS.get().is_none() {
        return;
    }
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    extern "C" fn end(status: c_int, _: *mut c_void) {
        // SAFETY: the call only ends the process.
        unsafe { libc::_exit(status) }
    }
    // SAFETY: glibc declares the function so; `end` needs no argument. The newest registered
    // function runs first.
    unsafe { on_exit(end, std::ptr::null_mut()) };
}

fn load(name: &'static str) -> Result<&'static Library, OpenError> {
    // SAFETY: Ceph's client libraries run nothing at load but the constructors of C++ objects.
    let library = unsafe { Library::new(name) }.map_err(|error| {
        OpenError::new(format!(
            "{name} cannot be loaded: {error}: install Ceph's client libraries (librbd1 and \
             librados2 on Debian and Ubuntu, librbd1 on Fedora and RHEL)"
        ))
    })?;
    Ok(Box::leak(Box::new(library)))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<ImageInfo>() == 160);
