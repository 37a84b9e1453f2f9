//! The fabric conformance suite over user-space RoCE on the loopback interface,
//! one test a case: on a quiet network, and on one that loses, repeats, reorders
//! and damages packets.

use std::process::ExitCode;
use std::sync::Arc;

use cairn_roce::phy::fault::FaultOptions;
use cairn_roce::{Soft, SoftOptions};
use cairn_tests::case::Case;
use cairn_tests::fabric::{self, Setting};
use cairn_tests::harness::own_loopback_address;
use libtest_mimic::{Arguments, Trial};

fn trial(case: &Case<Setting>, network: &str, fault: Option<FaultOptions>) -> Trial {
    let run = case.run;
    Trial::test(format!("{network}::{}", case.name), move || {
        let setting = Setting {
            provider: Arc::new(Soft::new(SoftOptions {
                fault,
                ..SoftOptions::default()
            })),
            ip: own_loopback_address().into(),
        };
        run(&setting)
            .map(|_| ())
            .map_err(|error| format!("{error:#}").into())
    })
}

fn main() -> ExitCode {
    let bad = FaultOptions {
        loss_per_mille: 10,
        duplication_per_mille: 10,
        corruption_per_mille: 5,
        reordering_per_mille: 10,
        seed: 1,
    };
    let quiet = fabric::cases().into_iter();
    let mut trials: Vec<_> = quiet.map(|case| trial(&case, "quiet", None)).collect();
    let bad = fabric::cases()
        .into_iter()
        .map(|case| trial(&case, "bad", Some(bad)));
    trials.extend(bad);
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
