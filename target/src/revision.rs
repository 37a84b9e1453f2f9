//! Which program this is.

/// Its version.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit that it was built from, with a "+" if files differed from it; "unknown" in builds for development.
pub(crate) const COMMIT: &str = env!("CAIRN_COMMIT");

/// Both, in one line.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("CAIRN_COMMIT"),
    ")"
);
