//! The fabric over libibverbs and librdmacm.

mod library;
#[allow(dead_code)]
mod sys;

pub use library::{Library, LibraryError};
