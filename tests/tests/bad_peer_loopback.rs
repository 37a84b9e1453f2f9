//! Misbehaving hosts against an in-process target, one test per case.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cairn_tests::bad_peer::{self, Setting};
use cairn_tests::harness::{NQN, Scratch, TestTarget, nqn, subsystem};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let trials = bad_peer::cases()
        .into_iter()
        .map(|case| {
            Trial::test(case.name, move || {
                let disk = Scratch::new(case.name, 64 << 20);
                let mut toml = subsystem(NQN, &[&disk.export(512)]);
                if case.name.starts_with("list") {
                    // The fewest requests, so that some lists need several steps.
                    toml.insert_str(0, "[target]\nreceives = 64\n");
                }
                let target = TestTarget::start(&toml);
                let setting = Setting {
                    provider: target.provider(),
                    remote: target.remote(),
                    subnqn: nqn(NQN),
                    nsid: 1,
                    patience: Duration::from_secs(60),
                    seed: 1,
                    random_capsules: 10_000,
                    dials: Arc::default(),
                };
                bad_peer::run(&case, &setting).map_err(|error| format!("{error:#}"))?;
                target.stop();
                Ok(())
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
