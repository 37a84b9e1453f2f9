//! Instructions of both ends of user-space RoCE, by layer. Valgrind lacks `VPCLMULQDQ`, which
//! would make the ICRC cheaper.

use super::{Adapter, Bounds, Counted, NO_ADAPTER, counted_program};

struct Row {
    job: &'static str,
    bytes: u32,
    commands: u32,
    /// Maximum instructions of the host's end and of the target's end, without those of
    /// [`BY_PROCESSOR`].
    most: [f64; 2],
}

const ROWS: [Row; 4] = [
    Row {
        job: "read",
        bytes: 4 << 10,
        commands: 4096,
        most: [4540.0, 4540.0],
    },
    Row {
        job: "write",
        bytes: 4 << 10,
        commands: 4096,
        most: [3870.0, 3890.0],
    },
    Row {
        job: "read",
        bytes: 128 << 10,
        commands: 512,
        most: [29_250.0, 26_980.0],
    },
    Row {
        job: "fetch",
        bytes: 128 << 10,
        commands: 512,
        most: [25_200.0, 41_180.0],
    },
];

const ENDS: [&str; 2] = ["host", "target"];

/// Parts of function names. A function belongs to the first layer that names it.
const LAYERS: [(&str, &[&str]); 5] = [
    ("ICRC", &["crc32fast"]),
    ("copies", &["memcpy", "memmove", "memset"]),
    ("packets", &["cairn_roce_proto::wire", "cairn_roce::phy"]),
    ("queue pairs", &["cairn_roce", "cairn_base::mapping"]),
    ("NVMe", &[""]),
];

/// Layers of functions that are chosen by the processor.
const BY_PROCESSOR: [&str; 2] = ["ICRC", "copies"];

#[test]
#[ignore = "builds for release, and needs valgrind: cargo xtask test runs it"]
fn both_ends_cost_what_they_may() {
    let program = counted_program();
    let mut faults = Vec::new();
    for row in &ROWS {
        for (end, most) in ENDS.iter().zip(row.most) {
            let bounds = row.bounds();
            let profile = Counted::run_end(end, &program, &bounds, &[]).profile;
            let layer_of = |name: &str| {
                let is_in =
                    |(_, parts): &(_, &[&str])| parts.iter().any(|part| name.contains(part));
                LAYERS.iter().position(is_in)
            };
            let layers = LAYERS.iter().enumerate().map(|(layer, (named, _))| {
                let own = profile.own(|name| layer_of(name) == Some(layer));
                (named, own.instructions as f64 / f64::from(row.commands))
            });
            let layers: Vec<_> = layers.collect();
            let all: f64 = layers.iter().map(|(_, count)| count).sum();
            println!("{} of {}, {end}: {all:.0} {layers:.0?}", row.job, row.bytes);
            let own = layers
                .iter()
                .filter(|(name, _)| !BY_PROCESSOR.contains(name));
            let own: f64 = own.map(|(_, count)| count).sum();
            assert!(
                all > 1000.0,
                "callgrind has not found the turns of the {end}"
            );
            if own > most {
                let (job, bytes) = (row.job, row.bytes);
                faults.push(format!(
                    "{job} of {bytes} bytes, {end}: {own:.0} of {most:.0}"
                ));
            }
        }
    }
    assert!(
        faults.is_empty(),
        "for each command:\n{}",
        faults.join("\n")
    );
}

impl Row {
    fn bounds(&self) -> Bounds {
        Bounds {
            fabric: "soft",
            job: self.job,
            disk: "null",
            bytes: self.bytes,
            commands: self.commands,
            depth: 32,
            queues: 1,
            instructions: f64::INFINITY,
            locked: f64::INFINITY,
            system_calls: f64::INFINITY,
            packets: f64::INFINITY,
            adapter: Adapter { ..NO_ADAPTER },
        }
    }
}
