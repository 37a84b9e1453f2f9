//! Cost of reads and writes at the target, independent of the machine's load.
//!
//! callgrind runs a release build of `cairn-counted` (`src/bin/counted.rs`) and counts only the
//! target's instructions; [`ends`] also counts the host's. The cost of target logic excludes the
//! provider ([`Endpoint`]). A change that reduces a cost lowers its limit in [`BOUNDS`]. A commit
//! that raises a limit explains why.
//!
//! [`Endpoint`]: cairn_rdma::Endpoint

mod attacked;
mod callgrind;
mod ends;
mod images;
mod paths;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;

use callgrind::{Cost, Profile};

struct Bounds {
    fabric: &'static str,
    job: &'static str,
    disk: &'static str,
    bytes: u32,
    commands: u32,
    depth: u32,
    queues: u32,
    instructions: f64,
    locked: f64,
    system_calls: f64,
    packets: f64,
    adapter: Adapter,
}

impl Bounds {
    fn logic_locked(&self) -> f64 {
        match self.disk {
            "mem" => LOGIC_LOCKED + f64::from(self.bytes / 4096),
            _ => LOGIC_LOCKED,
        }
    }
}

struct Adapter {
    doorbells: f64,
    work_requests: f64,
    receive_doorbells: f64,
    completions: f64,
}

const NO_ADAPTER: Adapter = Adapter {
    doorbells: 0.0,
    work_requests: 0.0,
    receive_doorbells: 0.0,
    completions: 0.0,
};

/// Maximum costs by workload.
///
/// Limits of instructions are about 1 % above the measured numbers, because the compiler's output
/// depends on the folder of the sources.
///
/// At depth 32, one iteration of the target's reactor serves up to 32 commands. Over loopback, only
/// periodic checks make system calls. Over user-space RoCE, a single read needs one call to send
/// and two to receive.
const BOUNDS: [Bounds; 15] = [
    Bounds {
        fabric: "loopback",
        job: "read",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 1,
        queues: 1,
        instructions: 1860.0,
        locked: 7.0,
        system_calls: 0.01,
        packets: 0.0,
        adapter: Adapter {
            doorbells: 1.01,
            work_requests: 2.01,
            receive_doorbells: 1.01,
            completions: 2.01,
        },
    },
    Bounds {
        fabric: "loopback",
        job: "read",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 32,
        queues: 1,
        instructions: 1100.0,
        locked: 0.3,
        system_calls: 0.01,
        packets: 0.0,
        adapter: Adapter {
            doorbells: 0.033,
            work_requests: 2.01,
            receive_doorbells: 0.033,
            completions: 1.04,
        },
    },
    Bounds {
        fabric: "loopback",
        job: "write",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 32,
        queues: 1,
        instructions: 1605.0,
        locked: 0.3,
        system_calls: 0.01,
        packets: 0.0,
        adapter: Adapter {
            doorbells: 0.033,
            work_requests: 1.01,
            receive_doorbells: 0.033,
            completions: 1.04,
        },
    },
    Bounds {
        fabric: "loopback",
        job: "fetch",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 32,
        queues: 1,
        instructions: 2410.0,
        locked: 0.5,
        system_calls: 0.01,
        packets: 0.0,
        adapter: Adapter {
            doorbells: 0.065,
            work_requests: 2.01,
            receive_doorbells: 0.065,
            completions: 2.07,
        },
    },
    Bounds {
        fabric: "soft",
        job: "read",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 1,
        queues: 1,
        instructions: 2390.0,
        locked: 10.0,
        system_calls: 3.1,
        packets: 4.1,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "read",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 32,
        queues: 1,
        instructions: 1118.0,
        locked: 0.5,
        system_calls: 0.2,
        packets: 3.2,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "write",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 1,
        queues: 1,
        instructions: 2900.0,
        locked: 10.0,
        system_calls: 3.1,
        packets: 4.2,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "write",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 32,
        queues: 1,
        instructions: 1625.0,
        locked: 0.5,
        system_calls: 0.2,
        packets: 3.2,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "fetch",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 32,
        queues: 1,
        instructions: 2450.0,
        locked: 0.7,
        system_calls: 0.22,
        packets: 4.2,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "read",
        disk: "null",
        bytes: 128 * 1024,
        commands: 256,
        depth: 8,
        queues: 1,
        instructions: 1600.0,
        locked: 9.0,
        system_calls: 2.8,
        packets: 36.0,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "fetch",
        disk: "null",
        bytes: 128 * 1024,
        commands: 256,
        depth: 8,
        queues: 1,
        instructions: 3090.0,
        locked: 6.0,
        system_calls: 1.8,
        packets: 36.5,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "fetch",
        disk: "mem",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 32,
        queues: 1,
        instructions: 3000.0,
        locked: 1.7,
        system_calls: 0.22,
        packets: 4.2,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "fetch",
        disk: "mem",
        bytes: 128 * 1024,
        commands: 256,
        depth: 8,
        queues: 1,
        instructions: 19700.0,
        locked: 38.0,
        system_calls: 1.8,
        packets: 36.5,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "read",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 64,
        queues: 64,
        instructions: 1320.0,
        locked: 0.5,
        system_calls: 0.2,
        packets: 4.2,
        adapter: NO_ADAPTER,
    },
    Bounds {
        fabric: "soft",
        job: "read",
        disk: "null",
        bytes: 4 * 1024,
        commands: 4096,
        depth: 256,
        queues: 256,
        instructions: 1330.0,
        locked: 0.5,
        system_calls: 0.2,
        packets: 4.3,
        adapter: NO_ADAPTER,
    },
];

/// Maximum atomic operations of target logic per command without memory disks; a lock costs at
/// least 1.
const LOGIC_LOCKED: f64 = 0.05;

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
fn a_command_costs_what_it_may() {
    let program = counted_program();
    let mut faults = Vec::new();
    println!(
        "{:>9} {:>6} {:>5} {:>7} {:>6} {:>6} {:>13} {:>13} {:>8} {:>13} {:>8} \
         {:>9} {:>13} {:>17} {:>11}",
        "fabric",
        "job",
        "disk",
        "bytes",
        "depth",
        "queues",
        "instructions",
        "of provider",
        "atomics",
        "system calls",
        "packets",
        "doorbells",
        "work requests",
        "receive doorbells",
        "completions"
    );
    for bounds in &BOUNDS {
        faults.extend(Counted::run(&program, bounds, &[]).judge(bounds));
    }
    assert!(
        faults.is_empty(),
        "for each command:\n{}",
        faults.join("\n")
    );
}

struct Counted {
    profile: Profile,
    figures: HashMap<String, f64>,
}

impl Counted {
    fn judge(&self, bounds: &Bounds) -> Vec<String> {
        let Bounds {
            fabric,
            job,
            disk,
            bytes,
            depth,
            queues,
            ..
        } = bounds;
        let commands = f64::from(bounds.commands);
        let per_command = |count: u64| count as f64 / commands;
        let (logic, target) = (self.logic(bounds), self.target(bounds));
        let instructions = per_command(logic.instructions);
        let provider = per_command((target - logic).instructions);
        let locked = per_command(logic.locked);
        let system_calls = per_command(target.system_calls);
        let figure = |name: &str| self.figures[name] / commands;
        let (packets, adapter) = (figure("sent_packets"), &bounds.adapter);
        let (doorbells, work_requests) = (figure("send_posts"), figure("sends"));
        let (receive_doorbells, completions) = (figure("receive_posts"), figure("completions"));
        println!(
            "{fabric:>9} {job:>6} {disk:>5} {bytes:>7} {depth:>6} {queues:>6} {instructions:>13.0} \
             {provider:>13.0} {locked:>8.3} {system_calls:>13.3} {packets:>8.2} \
             {doorbells:>9.3} {work_requests:>13.3} {receive_doorbells:>17.3} {completions:>11.3}"
        );
        let counts = [
            ("instructions", instructions, bounds.instructions),
            (
                "atomic operations of target logic",
                locked,
                bounds.logic_locked(),
            ),
            (
                "atomic operations",
                per_command(target.locked),
                bounds.locked,
            ),
            ("system calls", system_calls, bounds.system_calls),
            ("packets", packets, bounds.packets),
            ("doorbells", doorbells, adapter.doorbells),
            ("work requests", work_requests, adapter.work_requests),
            (
                "doorbells for receives",
                receive_doorbells,
                adapter.receive_doorbells,
            ),
            ("completions", completions, adapter.completions),
        ];
        let above = counts
            .iter()
            .filter(|(_, measured, bound)| measured > bound);
        let faults = above.map(|(what, measured, bound)| {
            format!(
                "{fabric}, {job} of {bytes} bytes, disk {disk}, depth {depth}, {queues} queues: \
                 {measured:.3} {what}, more than {bound}"
            )
        });
        faults.chain(self.forbidden()).collect()
    }

    fn run(program: &PathBuf, bounds: &Bounds, more: &[&str]) -> Self {
        Self::run_end("target", program, bounds, more)
    }

    fn run_end(end: &str, program: &PathBuf, bounds: &Bounds, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder for what callgrind writes");
        let file = folder.path().join("counts");
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args(["--quiet", "--tool=callgrind"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .args(["--compress-strings=no", "--compress-pos=no"])
            .args(["--collect-bus=yes", "--collect-systime=yes"])
            .arg(format!("--toggle-collect=*counted::{end}_turn*"))
            .arg("--dump-before=*counted::milestone*")
            .arg(program)
            .args(["--fabric", bounds.fabric])
            .args(["--depth", &bounds.depth.to_string()])
            .args(["--queues", &bounds.queues.to_string()])
            .args(["--job", bounds.job])
            .args(["--disk", &format!("{}:64MiB", bounds.disk)])
            .args(["--bytes", &bounds.bytes.to_string()])
            .args(["--commands", &bounds.commands.to_string()])
            .args(more);
        let output = valgrind.output().unwrap_or_else(|error| {
            panic!("{error}: is valgrind installed? \"apt-get install valgrind\" brings it")
        });
        let said = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{valgrind:?}: {said}{stderr}");
        let dump = std::fs::read(file.with_extension("2")).expect("the second dump");
        let figures = said
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter_map(|(name, number)| Some((name.to_owned(), number.parse().ok()?)))
            .collect();
        Self {
            profile: Profile::parse(&String::from_utf8_lossy(&dump)),
            figures,
        }
    }

    fn target(&self, bounds: &Bounds) -> Cost {
        let turn = |name: &str| name.ends_with("counted::target_turn");
        let cost = self.profile.calls(|_| true, turn);
        assert!(
            cost.instructions > u64::from(bounds.commands),
            "callgrind has not found the target's turns: {cost:?}"
        );
        cost
    }

    fn logic(&self, bounds: &Bounds) -> Cost {
        let ours =
            |name: &str| name.contains("cairn_data_path::") || name.contains("cairn_target::");
        let endpoint = |name: &str| name.contains(" as cairn_rdma::provider::Endpoint>::");
        let provider = self.profile.calls(ours, endpoint);
        assert!(
            provider.instructions > u64::from(bounds.commands),
            "callgrind has not found the provider's work: {provider:?}"
        );
        self.target(bounds) - provider
    }

    fn forbidden(&self) -> Vec<String> {
        let forbidden = |name: &&str| FORBIDDEN.iter().any(|part| name.contains(part));
        let found = self.profile.functions().filter(forbidden);
        found
            .map(|name| format!("{name} was called, which allocates or formats"))
            .collect()
    }
}

fn counted_program() -> PathBuf {
    release_folder().join("cairn-counted")
}

fn release_folder() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .args(["build", "--quiet", "--locked", "--release"])
        .args(["--bin", "cairn-counted", "--example", "cairn-bench-disk"]);
    assert!(
        build.status().is_ok_and(|status| status.success()),
        "{build:?}"
    );
    let program = std::env::current_exe().expect("this program has a path");
    let folder = program.ancestors().nth(3).expect("cargo's output folder");
    folder.join("release")
}
