//! Connection to a Ceph cluster and a pool. Each image has its own client, so that the blocklisting
//! of a client affects only one image.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use cairn_base::ImageSpec;

use crate::error::{OpenError, check, words};
use crate::sys::{self, Functions};

const CONNECT_TIMEOUT_S: &str = "8";

/// Client options: name, value, and whether to fail if librados rejects the option.
const OPTIONS: [(&str, &str, bool); 6] = [
    // The cache would acknowledge writes before the OSDs have them.
    ("rbd_cache", "false", true),
    // With a timeout, the cluster could still execute an operation that was reported as failed.
    ("rados_osd_op_timeout", "0", true),
    // Unless librbd copies the data, it may never call back after a failed write, such as that of a
    // blocklisted client (seen with 16.2.15).
    ("rbd_disable_zero_copy_writes", "true", false),
    ("rbd_non_blocking_aio", "true", false),
    ("client_mount_timeout", CONNECT_TIMEOUT_S, false),
    // Seconds between the client's checks for recovered OSDs.
    ("objecter_tick_interval", "0.5", false),
];

/// Client and pool. A drop blocks until both are closed.
pub(crate) struct Cluster {
    functions: &'static Functions,
    cluster: sys::Cluster,
    pool: sys::Pool,
}

// SAFETY: rados_t and rados_ioctx_t may be used by any thread (librados.h).
unsafe impl Send for Cluster {}

impl Cluster {
    pub(crate) fn connect(
        functions: &'static Functions,
        spec: &ImageSpec,
    ) -> Result<Self, OpenError> {
        let mut this = Self {
            functions,
            cluster: null_mut(),
            pool: null_mut(),
        };
        let user = spec.user.as_deref().unwrap_or("admin");
        let id = c_string(user)?;
        // SAFETY: the id is a C string; the result is written before it is read.
        let created = unsafe { (functions.rados_create)(&mut this.cluster, id.as_ptr()) };
        check(created)
            .map_err(|errno| OpenError::new(format!("no client of Ceph: {}", words(errno))))?;
        this.configure(spec)?;
        // SAFETY: the client was made above.
        let connected = unsafe { (functions.rados_connect)(this.cluster) };
        check(connected).map_err(|errno| explain_connect(spec, user, errno))?;
        this.open_pool(spec)?;
        Ok(this)
    }

    #[cfg(test)]
    pub(crate) fn none(functions: &'static Functions) -> Self {
        Self {
            functions,
            cluster: null_mut(),
            pool: null_mut(),
        }
    }

    fn configure(&self, spec: &ImageSpec) -> Result<(), OpenError> {
        let conf = spec.conf.as_deref().map(c_path).transpose()?;
        let path = conf.as_ref().map_or(std::ptr::null(), |path| path.as_ptr());
        // SAFETY: the client exists; the path is a C string, or null for default paths.
        let read = unsafe { (self.functions.rados_conf_read_file)(self.cluster, path) };
        check(read).map_err(|errno| {
            let place = spec.conf.as_deref().map(Path::display);
            let place = place.map_or("/etc/ceph/ceph.conf".to_owned(), |path| path.to_string());
            OpenError::new(format!(
                "Ceph's configuration {place} cannot be read: {}: copy it from the cluster \
                 (`ceph config generate-minimal-conf`), or name another one: \
                 ceph = {{ conf = \"/PATH\" }}",
                words(errno)
            ))
        })?;
        for (option, value) in &spec.options {
            self.set(option, value).map_err(|errno| {
                let what = match errno {
                    libc::ENOENT => "this Ceph has no such option".to_owned(),
                    _ => words(errno).to_string(),
                };
                OpenError::new(format!(
                    "librados does not take {option} = \"{value}\": {what}: look at the table \
                     ceph = {{ options = {{ .. }} }}"
                ))
            })?;
        }
        for (option, value, needed) in OPTIONS {
            let set = self.set(option, value);
            if let (Err(errno), true) = (set, needed) {
                return Err(OpenError::new(format!(
                    "librados does not take {option} = {value}: {}",
                    words(errno)
                )));
            }
        }
        if let Some(keyring) = &spec.keyring {
            self.set("keyring", &keyring.to_string_lossy())
                .map_err(|errno| {
                    let place = keyring.display();
                    OpenError::new(format!("keyring {place}: {}", words(errno)))
                })?;
        }
        Ok(())
    }

    fn set(&self, option: &str, value: &str) -> Result<(), i32> {
        let (Ok(option), Ok(value)) = (CString::new(option), CString::new(value)) else {
            return Err(libc::EINVAL);
        };
        // SAFETY: the client exists; option and value are C strings.
        check(unsafe {
            (self.functions.rados_conf_set)(self.cluster, option.as_ptr(), value.as_ptr())
        })
    }

    fn open_pool(&mut self, spec: &ImageSpec) -> Result<(), OpenError> {
        let name = c_string(&spec.pool)?;
        let functions = self.functions;
        // SAFETY: the client is connected, and the name is a C string.
        let opened =
            unsafe { (functions.rados_ioctx_create)(self.cluster, name.as_ptr(), &mut self.pool) };
        check(opened).map_err(|errno| {
            OpenError::new(match errno {
                libc::ENOENT => format!(
                    "the cluster has no pool {}: `ceph osd pool ls` shows those that it has",
                    spec.pool
                ),
                _ => format!("pool {}: {}", spec.pool, words(errno)),
            })
        })?;
        let namespace = c_string(spec.namespace.as_deref().unwrap_or(""))?;
        // SAFETY: the pool is open, and the namespace is a C string.
        unsafe {
            (functions.rados_ioctx_set_namespace)(self.pool, namespace.as_ptr());
            (functions.rados_set_pool_full_try)(self.pool);
        }
        Ok(())
    }

    pub(crate) fn pool(&self) -> sys::Pool {
        self.pool
    }

    pub(crate) fn flush_watches(&self) {
        // SAFETY: the client is connected.
        unsafe { (self.functions.rados_watch_flush)(self.cluster) };
    }

    pub(crate) fn place(&self) -> Result<(String, i64), OpenError> {
        let mut fsid = [0_u8; 64];
        // SAFETY: the client is connected, and the length is that of the buffer.
        let returned = unsafe {
            (self.functions.rados_cluster_fsid)(self.cluster, fsid.as_mut_ptr().cast(), fsid.len())
        };
        check(returned)
            .map_err(|errno| OpenError::new(format!("the cluster's fsid: {}", words(errno))))?;
        // SAFETY: the pool is open.
        let pool = unsafe { (self.functions.rados_ioctx_get_id)(self.pool) };
        Ok((sys::text(&fsid), pool))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // SAFETY: pool and client are each closed once, the pool first, and have no other users.
        unsafe {
            if !self.pool.is_null() {
                (self.functions.rados_ioctx_destroy)(self.pool);
            }
            if !self.cluster.is_null() {
                (self.functions.rados_shutdown)(self.cluster);
            }
        }
    }
}

fn explain_connect(spec: &ImageSpec, user: &str, errno: i32) -> OpenError {
    let conf = spec.conf.as_deref();
    let conf = conf.map_or_else(|| PathBuf::from("/etc/ceph/ceph.conf"), Path::to_owned);
    let conf = conf.display();
    OpenError::new(match errno {
        libc::ETIMEDOUT => format!(
            "no monitor of the Ceph cluster answered in {CONNECT_TIMEOUT_S} seconds: check \
             mon_host in {conf}, and the cluster by `ceph -s`"
        ),
        libc::ENOENT => format!(
            "there is no key of client.{user} in the keyrings that {conf} names: get it by \
             `ceph auth get client.{user}`, or name it: ceph = {{ id = \"USER\", keyring = \
             \"/PATH\" }}"
        ),
        libc::EACCES | libc::EPERM => format!(
            "the cluster refuses client.{user}: compare its key with `ceph auth get \
             client.{user}`"
        ),
        _ => format!(
            "cannot connect to the Ceph cluster of {conf}: {}",
            words(errno)
        ),
    })
}

pub(crate) fn c_string(text: &str) -> Result<CString, OpenError> {
    CString::new(text).map_err(|_| OpenError::new(format!("{text:?} contains a NUL")))
}

fn c_path(path: &Path) -> Result<CString, OpenError> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| OpenError::new(format!("{} contains a NUL", path.display())))
}

#[cfg(test)]
mod tests {
    use cairn_base::image_spec::is_reserved;

    use super::*;

    #[test]
    fn no_image_sets_an_option_that_the_target_sets() {
        for (option, ..) in OPTIONS {
            assert!(is_reserved(option), "{option}");
        }
    }
}
