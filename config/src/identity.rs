//! Names that are not configured, and that are the same at every start.

use std::fs;

use nvme_proto::wire::Nqn;
use uuid::{Uuid, uuid};

/// The namespace, in RFC 4122's sense, of all that Cairn names.
pub(crate) const CAIRN: Uuid = uuid!("6f0e2f4c-9a4b-4d2e-8c37-2f1d6b0a7e51");

/// What distinguishes this machine from others: its machine id, or its host name where
/// it has none (in most containers). Neither leaves the machine but hashed.
#[must_use]
pub fn machine() -> String {
    ["/etc/machine-id", "/proc/sys/kernel/hostname"]
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|text| text.trim().to_owned())
        .find(|text| !text.is_empty() && text != "uninitialized")
        .unwrap_or_default()
}

/// The serial number of a subsystem that was given none.
pub(crate) fn serial(nqn: &Nqn) -> String {
    let mut serial = Uuid::new_v5(&CAIRN, nqn.raw().as_bytes())
        .simple()
        .to_string();
    serial.truncate(20);
    serial
}
