//! Fast successive connects; in `cargo xtask soak`, more than there are controller IDs.

use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostOptions, Recovery, command};
use cairn_roce::Soft;
use cairn_tests::harness::namespace;
use cairn_tests::process::TargetProcess;

use crate::number;
use crate::resources::Resources;

#[test]
#[ignore = "it takes as long as it is given: cargo xtask soak"]
fn connects() {
    let count = number("CAIRN_SOAK_CONNECTS").unwrap_or(2000);
    let target = TargetProcess::start_alone(&namespace(1, "mem:1MiB"));
    let provider = Soft::default();
    let options = HostOptions {
        recovery: Recovery::NONE,
        ..target.options("visitor")
    };
    let mut before = None;
    let started = Instant::now();
    for n in 0..count {
        let mut host = Host::connect(&provider, options.clone()).unwrap();
        if n % 16 == 0 {
            host.run(command::flush(1), Data::None).unwrap();
        }
        if n % 3 > 0 {
            host.shutdown().unwrap();
        }
        if n == 200 {
            before = Some(quiet(&target));
        }
    }
    println!("{count} connects in {:.1?}", started.elapsed());
    let Some(before) = before else { return };
    let deadline = Instant::now() + Duration::from_secs(30);
    while !Resources::of_target(&target).is_back_at(&before) {
        assert!(
            Instant::now() < deadline,
            "{:?} is more than {before:?}",
            Resources::of_target(&target)
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn quiet(target: &TargetProcess) -> Resources {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let resources = Resources::of_target(target);
        if resources.is_idle() {
            return resources;
        }
        assert!(Instant::now() < deadline, "{resources:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
