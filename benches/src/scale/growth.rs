//! Memory of idle queue pairs and controllers, and connection rate.

use std::time::{Duration, Instant};

use anyhow::Result;
use cairn_roce::Soft;

use crate::hosts::{self, Wish};
use crate::report::{Growth, Report};
use crate::served::{Core, Program, Served, on_core};

const QUEUE_PAIRS: u16 = 1000;
const HOSTS: u16 = 8;
const CONTROLLERS: u16 = 60;
const SETTLE: Duration = Duration::from_millis(300);

pub(crate) fn measure(program: &Program, report: &mut Report) -> Result<()> {
    let wish = |io_queues| Wish {
        io_queues,
        depth: 127,
        kato_ms: 0,
    };
    let soft = Soft::default();
    let served = Served::start(program, "")?;
    let first = hosts::connect(&soft, 1, wish(1))?;
    std::thread::sleep(SETTLE);
    let before = served.memory()?;
    let begun = Instant::now();
    let hosts = on_core(Core::First, || {
        hosts::connect(&soft, HOSTS, wish(QUEUE_PAIRS / HOSTS - 1))
    })?;
    let connected_in = begun.elapsed();
    std::thread::sleep(SETTLE);
    let of_queue_pairs = served.memory()? - before;
    hosts::disconnect(hosts)?;
    hosts::disconnect(first)?;
    drop(served);

    let served = Served::start(program, "")?;
    let first = hosts::connect(&soft, 1, wish(1))?;
    std::thread::sleep(SETTLE);
    let before = served.memory()?;
    let hosts = hosts::connect(&soft, CONTROLLERS, wish(0))?;
    std::thread::sleep(SETTLE);
    let of_controllers = served.memory()? - before;
    hosts::disconnect(hosts)?;
    hosts::disconnect(first)?;
    report.growth = Some(Growth {
        queue_pairs: QUEUE_PAIRS,
        connected_in,
        bytes_per_queue_pair: of_queue_pairs / u64::from(QUEUE_PAIRS),
        bytes_per_controller: of_controllers / u64::from(CONTROLLERS),
    });
    Ok(())
}
