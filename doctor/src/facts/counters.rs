use std::collections::BTreeMap;

use crate::source::{Source, Unknown};

/// Counters by name. Adapters count RoCE traffic in the RDMA port, not in the netdev.
pub type Counters = BTreeMap<String, u64>;

/// File with the time for which the driver caches counters.
const LIFESPAN: &str = "lifespan";

/// Reads all counters in a directory. Unreadable files, which some devices have, are skipped.
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
