//! What a 4k read costs the target, by counts that are the same on a busy machine:
//! instructions, allocations, locks, formatting, system calls, packets.
//!
//! Callgrind runs `cairn-counted` (`src/bin/counted.rs`), built for release: host and
//! target take turns in one thread, and what the target's turns do is what counts.
//! The target proper ("target logic": a capsule in, a response out, a null disk) is
//! what remains without the calls into its provider ([`Endpoint`]).
//!
//! [`BOUNDS`] holds the bounds. A change that makes a number smaller lowers its bound;
//! one that has to raise it says why in its commit.
//!
//! [`Endpoint`]: cairn_rdma::Endpoint

mod callgrind;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use callgrind::{Cost, Profile};

/// Reads that are counted.
const READS: u32 = 4096;

/// Of one read, at most.
struct Bounds {
    fabric: &'static str,
    depth: u32,
    /// Over how many queue pairs.
    queues: u32,
    /// Instructions of target logic. About 5 % above what was measured, with Rust 1.95.
    instructions: f64,
    /// Atomic operations of the target, its provider's included.
    locked: f64,
    /// System calls of the target, its provider's included.
    system_calls: f64,
    /// Packets of both ends.
    packets: f64,
}

/// The scenarios.
///
/// At depth 1 a round of the reactor serves one read, at depth 32 it serves 32; 64 queue
/// pairs have one command each, and one acknowledgement. Over
/// the loopback provider the only system calls are those of looking at what comes
/// seldom, each millisecond. Over user-space RoCE a lone read is one datagram out and
/// one in, and a look that finds nothing; the C library marks the beginning and the end
/// of each of these system calls by an atomic operation, and a look at the mailbox of
/// connections is one. The loopback provider is one structure behind a lock, which is
/// taken by each call of it, and released.
const BOUNDS: [Bounds; 5] = [
    Bounds {
        fabric: "loopback",
        depth: 1,
        queues: 1,
        instructions: 1820.0,
        locked: 7.0,
        system_calls: 0.01,
        packets: 0.0,
    },
    Bounds {
        fabric: "loopback",
        depth: 32,
        queues: 1,
        instructions: 1075.0,
        locked: 0.3,
        system_calls: 0.01,
        packets: 0.0,
    },
    Bounds {
        fabric: "soft",
        depth: 1,
        queues: 1,
        instructions: 2420.0,
        locked: 10.0,
        system_calls: 3.1,
        packets: 4.1,
    },
    Bounds {
        fabric: "soft",
        depth: 32,
        queues: 1,
        instructions: 1095.0,
        locked: 0.5,
        system_calls: 0.2,
        packets: 3.2,
    },
    Bounds {
        fabric: "soft",
        depth: 64,
        queues: 64,
        instructions: 1240.0,
        locked: 0.5,
        system_calls: 0.2,
        packets: 4.2,
    },
];

/// Atomic operations of target logic, for each read: the mailbox is looked at each
/// millisecond, and that takes some; a lock that is taken, or a reference that is
/// counted, would be one for each read at least.
const LOGIC_LOCKED: f64 = 0.05;

/// What allocates, frees or formats, by parts of names.
const FORBIDDEN: [&str; 10] = [
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "_int_free",
    "cfree",
    "__rust_alloc",
    "core::fmt",
    "alloc::fmt",
    "alloc::string",
];

#[test]
#[ignore = "builds for release, and needs valgrind: cargo xtask test runs it"]
fn a_read_costs_what_it_may() {
    let program = counted_program();
    let mut faults = Vec::new();
    println!(
        "{:>9} {:>6} {:>6} {:>13} {:>13} {:>8} {:>13} {:>8}",
        "fabric",
        "depth",
        "queues",
        "instructions",
        "of provider",
        "atomics",
        "system calls",
        "packets"
    );
    for bounds in &BOUNDS {
        let counted = Counted::run(&program, bounds);
        let (logic, target) = (counted.logic(), counted.target());
        let packets = counted.packets / f64::from(READS);
        println!(
            "{:>9} {:>6} {:>6} {:>13.0} {:>13.0} {:>8.3} {:>13.3} {:>8.2}",
            bounds.fabric,
            bounds.depth,
            bounds.queues,
            per_read(logic.instructions),
            per_read((target - logic).instructions),
            per_read(logic.locked),
            per_read(target.system_calls),
            packets,
        );
        let mut check = |what: &str, measured: f64, bound: f64| {
            if measured > bound {
                let Bounds {
                    fabric,
                    depth,
                    queues,
                    ..
                } = bounds;
                faults.push(format!(
                    "{fabric}, depth {depth}, {queues} queues: {measured:.3} {what}, more than {bound}"
                ));
            }
        };
        let instructions = per_read(logic.instructions);
        check("instructions", instructions, bounds.instructions);
        let locked = per_read(logic.locked);
        check("atomic operations of target logic", locked, LOGIC_LOCKED);
        check("atomic operations", per_read(target.locked), bounds.locked);
        let system_calls = per_read(target.system_calls);
        check("system calls", system_calls, bounds.system_calls);
        check("packets", packets, bounds.packets);
        faults.extend(counted.forbidden());
    }
    assert!(faults.is_empty(), "for each read:\n{}", faults.join("\n"));
}

fn per_read(count: u64) -> f64 {
    count as f64 / f64::from(READS)
}

/// What came of one scenario.
struct Counted {
    profile: Profile,
    packets: f64,
}

impl Counted {
    fn run(program: &PathBuf, bounds: &Bounds) -> Self {
        let folder = tempfile::tempdir().expect("a folder for what callgrind writes");
        let file = folder.path().join("counts");
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .args(["--compress-strings=no", "--compress-pos=no"])
            .args(["--collect-bus=yes", "--collect-systime=yes"])
            .arg("--toggle-collect=*counted::target_turn*")
            // Before what counts, and after it: the second dump is of what counts.
            .arg("--dump-before=*counted::milestone*")
            .arg(program)
            .args(["--fabric", bounds.fabric])
            .args(["--depth", &bounds.depth.to_string()])
            .args(["--queues", &bounds.queues.to_string()])
            .args(["--reads", &READS.to_string()]);
        let output = valgrind.output().unwrap_or_else(|error| {
            panic!("{error}: is valgrind installed? \"apt-get install valgrind\" brings it")
        });
        let said = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{valgrind:?}: {said}{stderr}");
        let dump = std::fs::read(file.with_extension("2")).expect("the second dump");
        let figures: HashMap<&str, f64> = said
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
            .collect();
        Self {
            profile: Profile::parse(&String::from_utf8_lossy(&dump)),
            packets: figures["sent_packets"],
        }
    }

    /// All that the target did.
    fn target(&self) -> Cost {
        let turn = |name: &str| name.ends_with("counted::target_turn");
        let cost = self.profile.calls(|_| true, turn);
        assert!(
            cost.instructions > u64::from(READS),
            "callgrind has not found the target's turns: {cost:?}"
        );
        cost
    }

    /// The same but for what its provider did.
    fn logic(&self) -> Cost {
        let ours = |name: &str| name.contains("cairn_target::");
        let endpoint = |name: &str| name.contains(" as cairn_rdma::provider::Endpoint>::");
        let provider = self.profile.calls(ours, endpoint);
        assert!(
            provider.instructions > u64::from(READS),
            "callgrind has not found the provider's work: {provider:?}"
        );
        self.target() - provider
    }

    /// Functions at work that have no business in an I/O's way.
    fn forbidden(&self) -> Vec<String> {
        let forbidden = |name: &&str| FORBIDDEN.iter().any(|part| name.contains(part));
        let found = self.profile.functions().filter(forbidden);
        found
            .map(|name| format!("{name} was called, which allocates or formats"))
            .collect()
    }
}

/// `cairn-counted`, as its users would build the target.
fn counted_program() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    // Not by its package alone: dependencies then have the features that they have in
    // any other build of the workspace, and are built once.
    build
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .args(["build", "--quiet", "--locked", "--release"])
        .args(["--bin", "cairn-counted"]);
    assert!(
        build.status().is_ok_and(|status| status.success()),
        "{build:?}"
    );
    // This program is in build/PROFILE/deps.
    let program = std::env::current_exe().expect("this program has a path");
    let folder = program.ancestors().nth(3).expect("cargo's output folder");
    folder.join("release/cairn-counted")
}
