use std::ops::RangeInclusive;
use std::time::Duration;

use super::Check;
use crate::file::LimitsTable;
use crate::key_path::KeyPath;
use crate::limits::Limits;

/// Permitted rates in bytes per second. At the lowest rate, a command of 1 MiB takes 16 s; Linux
/// hosts abort it after 30 s.
const BANDWIDTH: RangeInclusive<u64> = 64 << 10..=1 << 40;
const IOPS_MAX: i64 = 1_000_000_000;
const BURST_MAX_MS: i64 = 60_000;
const OUTSTANDING_MAX: i64 = 65_535;

pub(super) fn of_namespace(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: Option<&LimitsTable>,
) -> Limits {
    let limits = rates(check, place, table);
    let asked = table.and_then(|table| table.outstanding);
    let outstanding = check.number(&place.key("outstanding"), asked, 1..=OUTSTANDING_MAX);
    Limits {
        outstanding: outstanding.map(|most| most as u32),
        ..limits
    }
}

pub(super) fn check(check: &mut Check<'_>, place: &KeyPath, table: Option<&LimitsTable>) -> Limits {
    if table.is_some_and(|table| table.outstanding.is_some()) {
        check
            .wrong(
                &place.key("outstanding"),
                "\"outstanding\" is a limit of a namespace",
            )
            .help("write it into the limits of a [[subsystem.namespace]]");
    }
    rates(check, place, table)
}

fn rates(check: &mut Check<'_>, place: &KeyPath, table: Option<&LimitsTable>) -> Limits {
    let Some(table) = table else {
        return Limits::default();
    };
    let iops = check.number(&place.key("iops"), table.iops, 1..=IOPS_MAX);
    let mut bandwidth =
        |key: &str, text: &Option<String>| check.size(&place.key(key), text.as_deref(), BANDWIDTH);
    let limits = Limits {
        iops: iops.map(|iops| iops as u64),
        read: bandwidth("read", &table.read),
        write: bandwidth("write", &table.write),
        total: bandwidth("total", &table.total),
        outstanding: None,
        burst: None,
        weight: None,
    };
    let at = place.key("burst_ms");
    let burst = check.number(&at, table.burst_ms, 1..=BURST_MAX_MS);
    let texts = [&table.read, &table.write, &table.total];
    let dropped = ["iops", "read", "write", "total"]
        .iter()
        .any(|key| check.dropped.contains(&place.key(key)));
    let none = table.iops.is_none() && texts.iter().all(|text| text.is_none()) && !dropped;
    if none && table.burst_ms.is_some() {
        check
            .wrong(&at, "\"burst_ms\" has no effect without a limit")
            .help("set iops, read, write or total, or remove it");
    }
    Limits {
        burst: burst.map(|ms| Duration::from_millis(ms as u64)),
        ..limits
    }
}
