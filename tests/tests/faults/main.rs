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

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(40);
    while !reached() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(1));
    }
}
