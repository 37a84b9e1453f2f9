//! Provider conformance suite over the loopback provider, one test per case.

use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;

use cairn_tests::fabric::{self, Setting};
use cairn_tests::provider::ProviderName;
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let trials = fabric::cases()
        .into_iter()
        .map(|case| {
            Trial::test(case.name, move || {
                let setting = Setting {
                    provider: ProviderName::Loopback.open()?,
                    ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
                };
                (case.run)(&setting)
                    .map(|_| ())
                    .map_err(|error| format!("{error:#}").into())
            })
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
