//! Counters of a port. RoCE bypasses the netdev's own.

use std::collections::BTreeMap;

use crate::source::{Source, Unknown};

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// How long the driver keeps values before it asks the device again: a setting
/// that stands among the counters.
const LIFESPAN: &str = "lifespan";

/// Every file of a directory that holds a number. One that cannot be read is
/// left out: devices list counters that they refuse to read.
pub(super) fn read(source: &dyn Source, directory: &str) -> Result<Counters, Unknown> {
    let names = source.list(directory)?;
    Ok(names
        .into_iter()
        .filter(|name| name != LIFESPAN)
        .filter_map(|name| {
            let value = source.number(&format!("{directory}/{name}")).ok()?;
            Some((name, value))
        })
        .collect())
}
