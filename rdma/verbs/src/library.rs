use std::sync::OnceLock;

use crate::sys::Symbols;

/// Name of librdmacm. Its handle also finds the functions of libibverbs.
const RDMACM_SONAME: &str = "librdmacm.so.1";

/// Functions of rdma-core. The libraries are never unloaded, because device drivers leave threads
/// and `atexit` handlers.
pub struct Library {
    symbols: Symbols,
}

/// Reason why the libraries cannot be used.
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
    /// Returns the libraries, loaded at the first call.
    ///
    /// # Errors
    /// The libraries are not installed, or lack a function of rdma-core 28.
    pub fn open() -> Result<&'static Library, LibraryError> {
        Self::open_named(RDMACM_SONAME)
    }

    fn open_named(soname: &str) -> Result<&'static Library, LibraryError> {
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        let symbols = Self::load_named(soname)?;
        Ok(LIBRARY.get_or_init(|| Library { symbols }))
    }

    fn load_named(soname: &str) -> Result<Symbols, LibraryError> {
        // SAFETY: any process may load rdma-core's libraries and run their initialisers.
        // `bindings.rs` declares the functions as rdma-core's headers do.
        unsafe { Symbols::new(soname) }.map_err(|error| LibraryError {
            reason: error.to_string(),
        })
    }

    #[cfg(feature = "quirks")]
    pub(crate) fn load() -> Result<Symbols, LibraryError> {
        Self::load_named(RDMACM_SONAME)
    }

    #[cfg(any(test, feature = "quirks"))]
    pub(crate) fn with(symbols: Symbols) -> Self {
        Self { symbols }
    }

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
