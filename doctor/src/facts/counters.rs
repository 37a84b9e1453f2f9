//! Counters of a port. RoCE traffic bypasses the counters of the netdev.

use std::collections::BTreeMap;

use crate::source::{Source, Unknown};

/// Counters by name.
pub type Counters = BTreeMap<String, u64>;

/// File among the counters that is a setting: time during which the driver caches values.
const LIFESPAN: &str = "lifespan";

/// Reads every file of a directory that contains a number.
///
/// Unreadable files are skipped: devices list counters that they refuse to read.
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
