//! Opening librdmacm, and through it libibverbs, at run time.

use std::sync::OnceLock;

use crate::sys::Symbols;

/// The name the dynamic linker knows; it depends on libibverbs.so.1, whose
/// symbols the same handle resolves.
const RDMACM_SONAME: &str = "librdmacm.so.1";

/// rdma-core's two libraries, opened once and never closed: device drivers
/// leave threads and `atexit` handlers behind that must not lose their code.
pub struct Library {
    symbols: Symbols,
}

/// Why the libraries cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open {RDMACM_SONAME} ({reason}): install rdma-core's libraries \
     (Debian, Ubuntu: apt-get install libibverbs1 librdmacm1 ibverbs-providers) \
     and load the kernel's side (modprobe -a ib_uverbs rdma_ucm), \
     or use --provider soft, which needs neither"
)]
pub struct LibraryError {
    reason: String,
}

static LIBRARY: OnceLock<Library> = OnceLock::new();

impl Library {
    /// Opens the libraries, or returns the ones opened before.
    ///
    /// # Errors
    /// When they are not installed, or lack a function that rdma-core 28 has.
    pub fn open() -> Result<&'static Library, LibraryError> {
        Self::open_named(RDMACM_SONAME)
    }

    fn open_named(soname: &str) -> Result<&'static Library, LibraryError> {
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        // SAFETY: the named library's initialisers are rdma-core's, which are
        // made to be loaded into any process; bindings.rs declares the
        // functions as rdma-core's headers do.
        let symbols = unsafe { Symbols::new(soname) }.map_err(|error| LibraryError {
            reason: error.to_string(),
        })?;
        Ok(LIBRARY.get_or_init(|| Library { symbols }))
    }

    /// The functions.
    pub(crate) fn symbols(&self) -> &Symbols {
        &self.symbols
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_an_error_that_says_what_to_install() {
        let Err(error) = Library::open_named("librdmacm-that-is-not-there.so.1") else {
            // Another test has opened the real one: nothing is missing then.
            assert!(LIBRARY.get().is_some());
            return;
        };
        let text = error.to_string();
        for part in [
            "librdmacm1",
            "libibverbs1",
            "ibverbs-providers",
            "ib_uverbs",
            "rdma_ucm",
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
    }
}
