//! Hung and failing disks, and suspended and killed processes.

mod audit;
mod connects;
mod disk;
mod freezer;
mod full;
mod hung;
mod killed;
mod opens;
mod pauses;
mod removed;
mod signals;
mod stale;
mod stopped;
mod sync;

use std::time::{Duration, Instant};

use cairn_initiator::Host;
use nvme_proto::wire::FromBytes;
use nvme_proto::wire::log::{LogPage, SmartLog};

fn smart(host: &mut Host) -> SmartLog {
    let log = host.log_page(LogPage::SMART, 0, size_of::<SmartLog>(), false);
    SmartLog::read_from_bytes(&log.unwrap()).unwrap()
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !reached() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}
