pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Commit of the build, with "+" for uncommitted changes; "unknown" in development builds.
pub(crate) const COMMIT: &str = env!("CAIRN_COMMIT");

pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("CAIRN_COMMIT"),
    ")"
);
