//! Provider conformance suite over user-space RoCE, one test per case: with and without network
//! faults, and over RoCE v1 if packet sockets are permitted.

use std::process::ExitCode;
use std::sync::Arc;

use cairn_roce::FaultOptions;
use cairn_roce::Network;
use cairn_roce::{Soft, SoftOptions};
use cairn_tests::case::Case;
use cairn_tests::fabric::{self, Setting};
use cairn_tests::harness::own_loopback_address;
use cairn_tests::provider::can_open_packet_sockets;
use libtest_mimic::{Arguments, Trial};

fn trial(case: &Case<Setting>, name: &str, options: &SoftOptions) -> Trial {
    let run = case.run;
    let options = options.clone();
    Trial::test(format!("{name}::{}", case.name), move || {
        let setting = Setting {
            provider: Arc::new(Soft::new(options)),
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
        blackhole: None,
    };
    let quiet = SoftOptions::default();
    let bad = SoftOptions {
        network: Network::Bad(Box::default(), bad),
        ..SoftOptions::default()
    };
    let v1 = SoftOptions {
        network: Network::Ethernet { vlan: None },
        ..SoftOptions::default()
    };
    let mut networks = vec![("quiet", quiet), ("bad", bad)];
    if can_open_packet_sockets() {
        networks.push(("v1", v1));
    }
    let trials = networks.iter().flat_map(|(name, options)| {
        let cases = fabric::cases().into_iter();
        cases.map(move |case| trial(&case, name, options))
    });
    let trials = trials.collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
