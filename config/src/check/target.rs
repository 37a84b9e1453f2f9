use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cairn_rdma::Roce;
use nvme_proto::limits::{IO_QUEUE_ENTRIES_MAX, IO_QUEUES_MAX};
use nvme_proto::wire::Nqn;

use super::{Check, subsystem};
use crate::config::{
    Log, LogFormat, POLL_IDLE_DEFAULT_US, Provider, REACTORS_MAX, Reactors, Subsystem, Target,
};
use crate::file::{ReactorCount, TargetTable};
use crate::key_path::KeyPath;
use crate::{size, suggest};

const PROVIDERS: [(&str, Provider); 3] = [
    ("auto", Provider::Auto),
    ("verbs", Provider::Verbs),
    ("soft", Provider::Soft),
];
const ON_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];
const AUTO_NEVER: [(&str, bool); 2] = [("auto", true), ("never", false)];
const ROCE_IS_V1: [(&str, bool); 2] = [("v1", true), ("v2", false)];
/// Maximum VLAN ID; 4095 is reserved (802.1Q, 9.6).
const VID_MAX: i64 = 4094;
const LOG_FORMATS: [(&str, LogFormat); 2] = [("text", LogFormat::Text), ("json", LogFormat::Json)];
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

const QUEUE_DEPTH: RangeInclusive<i64> = 16..=IO_QUEUE_ENTRIES_MAX as i64;
const IO_QUEUES: RangeInclusive<i64> = 1..=IO_QUEUES_MAX as i64;
const IN_CAPSULE_DATA_DEFAULT_BYTES: u64 = 4 << 10;
const IN_CAPSULE_DATA_MAX_BYTES: u64 = 16 << 10;
/// Unit of in-capsule data. The disk gets the data directly from the receive buffer, so the data
/// must be whole logical blocks.
const IN_CAPSULE_DATA_UNIT_BYTES: u64 = 512;
/// Minimum transfer: two pages of 4 KiB, because an MDTS of 0 (one page) means no limit.
const MDTS_MIN_BYTES: u64 = 8 << 10;
const MDTS_MAX_BYTES: u64 = 4 << 20;
const MDTS_DEFAULT_BYTES: u64 = 1 << 20;
/// Minimum size of the data buffers, in maximum transfers: a Compare holds the host's data and the
/// disk's data.
const TRANSFERS_MIN: u64 = 2;
const DATA_BUFFERS_MIN_BYTES: u64 = 1 << 20;
const DATA_BUFFERS_MAX_BYTES: u64 = 64 << 30;
const DATA_BUFFERS_DEFAULT_BYTES: u64 = 16 << 20;

pub(super) fn check(check: &mut Check<'_>, place: &KeyPath, table: &TargetTable) -> Target {
    let number = |check: &mut Check<'_>, key: &str, value, range, default: i64| {
        let number = check.number(&place.key(key), value, range);
        number.unwrap_or(default).unsigned_abs()
    };
    let poll_idle_us = number(
        check,
        "poll_idle_us",
        table.poll_idle_us,
        0..=1_000_000,
        POLL_IDLE_DEFAULT_US.into(),
    );
    let io_timeout_s = number(check, "io_timeout_s", table.io_timeout_s, 0..=3600, 30);
    let receives = number(check, "receives", table.receives, 64..=32768, 1024);
    let queue_depth = number(check, "queue_depth", table.queue_depth, QUEUE_DEPTH, 128);
    let io_queues = number(check, "io_queues", table.io_queues, IO_QUEUES, 128);
    let max_transfer_bytes = mdts(check, place, table);
    Target {
        reactors: reactors(check, place, table),
        poll_idle: Duration::from_micros(poll_idle_us),
        poll_drives: table.poll_drives.unwrap_or(false),
        io_timeout: Duration::from_secs(io_timeout_s),
        data_buffers_bytes: data_buffers(check, place, table, max_transfer_bytes),
        receives: receives as u32,
        in_capsule_data_bytes: in_capsule_data(check, place, table) as u32,
        max_transfer_bytes: max_transfer_bytes as u32,
        queue_depth: queue_depth as u16,
        io_queues: io_queues as u16,
        state_directory: state_directory(check, place, table),
        discovery_nqn: discovery_nqn(check, place, table),
        roce: roce(check, place, table.roce.as_deref(), table.vlan, Roce::V2),
        congestion_control: on_off(
            check,
            place,
            "congestion_control",
            table.congestion_control.as_deref(),
        ),
        segmentation_offload: on_off(
            check,
            place,
            "segmentation_offload",
            table.segmentation_offload.as_deref(),
        ),
        send_with_invalidate: check
            .word(
                &place.key("send_with_invalidate"),
                table.send_with_invalidate.as_deref(),
                &AUTO_NEVER,
            )
            .unwrap_or(true),
        ack_timeout: check
            .number(&place.key("ack_timeout_ms"), table.ack_timeout_ms, 1..=8000)
            .map(|ms| Duration::from_millis(ms.unsigned_abs())),
        log: log(check, place, table),
    }
}

fn state_directory(check: &mut Check<'_>, place: &KeyPath, table: &TargetTable) -> Option<PathBuf> {
    let text = table.state_directory.as_deref()?;
    if Path::new(text).is_absolute() && !text.contains('\0') {
        return Some(PathBuf::from(text));
    }
    let message = format!("\"{}\" is not an absolute path", text.escape_debug());
    check
        .wrong(&place.key("state_directory"), message)
        .help("write a path such as /var/lib/cairn");
    None
}

fn discovery_nqn(check: &mut Check<'_>, place: &KeyPath, table: &TargetTable) -> Nqn {
    const HELP: &str = "name it, such as discovery_nqn = \"nqn.2024-01.com.example:discovery\"; or \
                        leave it out for the well-known name of discovery services";
    let at = place.key("discovery_nqn");
    let text = table.discovery_nqn.as_deref();
    let nqn = text.and_then(|text| subsystem::parse_nqn(check, &at, text));
    match nqn {
        Some(nqn) if nqn.is_empty() => {
            let problem = check.wrong(&at, "the name of the discovery service is empty");
            problem.help(HELP);
        }
        Some(nqn) => return nqn,
        None => {}
    }
    Nqn::discovery()
}

pub(super) fn check_discovery_nqn(
    check: &mut Check<'_>,
    place: &KeyPath,
    target: &Target,
    subsystems: &[Subsystem],
) {
    let nqn = target.discovery_nqn;
    if subsystems.iter().any(|subsystem| subsystem.nqn == nqn) {
        let problem = check.wrong(
            &place.key("discovery_nqn"),
            format!("{nqn} is also the name of a subsystem"),
        );
        problem.help("give the discovery service or the subsystem another name");
    }
}

pub(super) fn roce(
    check: &mut Check<'_>,
    place: &KeyPath,
    version: Option<&str>,
    vlan: Option<i64>,
    otherwise: Roce,
) -> Roce {
    let named = check.word(&place.key("roce"), version, &ROCE_IS_V1);
    let is_v1 = match version {
        Some(_) => named,
        None => Some(matches!(otherwise, Roce::V1 { .. })),
    };
    let vlan = check.number(&place.key("vlan"), vlan, 0..=VID_MAX);
    if is_v1 == Some(true) {
        let vlan = vlan.map(|vid| vid as u16);
        return Roce::V1 { vlan };
    }
    if vlan.is_some() && is_v1.is_some() {
        check
            .wrong(&place.key("vlan"), "RoCE v2 writes no VLAN tags")
            .help(
                "listen on an address of a VLAN interface, so that the kernel writes the tags; or set roce = \"v1\"",
            );
    }
    Roce::V2
}

fn on_off(check: &mut Check<'_>, place: &KeyPath, key: &'static str, word: Option<&str>) -> bool {
    let place = place.key(key);
    check.word(&place, word, &ON_OFF).unwrap_or(true)
}

pub(super) fn provider(check: &mut Check<'_>, place: &KeyPath, table: &TargetTable) -> Provider {
    named_provider(check, place, table.provider.as_deref()).unwrap_or(Provider::Auto)
}

pub(super) fn named_provider(
    check: &mut Check<'_>,
    place: &KeyPath,
    name: Option<&str>,
) -> Option<Provider> {
    check.word(&place.key("provider"), name, &PROVIDERS)
}

fn reactors(check: &mut Check<'_>, place: &KeyPath, table: &TargetTable) -> Reactors {
    let at = place.key("reactors");
    let count = match &table.reactors {
        None => None,
        Some(ReactorCount::Word(word)) if word == "auto" => None,
        Some(ReactorCount::Word(word)) => {
            check
                .wrong(&at, format!("\"{word}\" is not a number of reactors"))
                .help("write a number without quotes, or \"auto\"");
            None
        }
        Some(ReactorCount::Number(number)) => check
            .number(&at, Some(*number), 1..=REACTORS_MAX as i64)
            .map(|count| count as usize),
    };
    let Some(cores) = &table.cores else {
        return count.map_or(Reactors::Auto, Reactors::Count);
    };
    if let Some(count) = count.filter(|count| *count != cores.len()) {
        let message = format!("{count} reactors, but \"cores\" lists {}", cores.len());
        check
            .wrong(&at, message)
            .help("leave \"reactors\" out: each core of \"cores\" gets one reactor");
    }
    Reactors::Cores(pinned(check, &place.key("cores"), cores))
}

fn pinned(check: &mut Check<'_>, place: &KeyPath, cores: &[i64]) -> Vec<usize> {
    /// Maximum core: `cpu_set_t` of sched_setaffinity(2) has 1024 bits.
    const CORE_MAX: i64 = 1023;
    check.count(place, cores.len(), REACTORS_MAX);
    if cores.is_empty() {
        check
            .wrong(place, "an empty list of cores leaves no reactor")
            .help("list at least one core, or leave \"cores\" out");
    }
    for (index, core) in cores.iter().enumerate() {
        let at = place.index(index);
        check.number(&at, Some(*core), 0..=CORE_MAX);
        if let Some(first) = cores[..index].iter().position(|other| other == core) {
            check
                .repeated(&at, &place.index(first), format_args!("core {core}"))
                .help("list each core once: it gets one reactor");
        }
    }
    cores
        .iter()
        .map(|core| (*core).clamp(0, CORE_MAX) as usize)
        .collect()
}

fn mdts(check: &mut Check<'_>, place: &KeyPath, table: &TargetTable) -> u64 {
    let at = place.key("mdts");
    let range = MDTS_MIN_BYTES..=MDTS_MAX_BYTES;
    let bytes = check
        .size(&at, table.mdts.as_deref(), range)
        .unwrap_or(MDTS_DEFAULT_BYTES);
    if bytes.is_power_of_two() {
        return bytes;
    }
    let below = size::format(bytes.next_power_of_two() / 2);
    check
        .wrong(&at, "mdts must be a power of two")
        .help(format!("the next one below is \"{below}\""));
    MDTS_DEFAULT_BYTES
}

fn data_buffers(
    check: &mut Check<'_>,
    place: &KeyPath,
    table: &TargetTable,
    max_transfer_bytes: u64,
) -> u64 {
    let at = place.key("data_buffers");
    let range = DATA_BUFFERS_MIN_BYTES..=DATA_BUFFERS_MAX_BYTES;
    let bytes = check
        .size(&at, table.data_buffers.as_deref(), range)
        .unwrap_or(DATA_BUFFERS_DEFAULT_BYTES);
    let need_bytes = TRANSFERS_MIN * max_transfer_bytes;
    if bytes < need_bytes {
        let [have, need, one] = [bytes, need_bytes, max_transfer_bytes].map(size::format);
        let message = format!("{have} of data buffers do not hold two transfers of {one}");
        check
            .wrong(&at, message)
            .help(format!("write at least \"{need}\" here, or lower \"mdts\""));
    }
    bytes
}

fn in_capsule_data(check: &mut Check<'_>, place: &KeyPath, table: &TargetTable) -> u64 {
    let at = place.key("in_capsule_data");
    let range = 0..=IN_CAPSULE_DATA_MAX_BYTES;
    let bytes = check
        .size(&at, table.in_capsule_data.as_deref(), range)
        .unwrap_or(IN_CAPSULE_DATA_DEFAULT_BYTES);
    if !bytes.is_multiple_of(IN_CAPSULE_DATA_UNIT_BYTES) {
        check
            .wrong(&at, "in_capsule_data must be a multiple of 512 bytes")
            .help(
                "write a multiple of 512 bytes, such as \"4KiB\", or \"0\" for no data in capsules",
            );
    }
    bytes
}

fn log(check: &mut Check<'_>, place: &KeyPath, table: &TargetTable) -> Log {
    let filter = table.log.as_deref().unwrap_or("info");
    let at = place.key("log");
    for directive in filter.split(',') {
        let level = directive
            .rsplit_once('=')
            .map_or(directive, |(_, level)| level)
            .trim();
        if !LOG_LEVELS
            .iter()
            .any(|name| name.eq_ignore_ascii_case(level))
        {
            let help = match suggest::nearest(level, LOG_LEVELS) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("the levels are {}", suggest::choices(LOG_LEVELS)),
            };
            check
                .wrong(&at, format!("\"{level}\" is not a log level"))
                .help(help);
        }
    }
    let format = check.word(
        &place.key("log_format"),
        table.log_format.as_deref(),
        &LOG_FORMATS,
    );
    Log {
        filter: filter.to_owned(),
        format: format.unwrap_or(LogFormat::Text),
    }
}
