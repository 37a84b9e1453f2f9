use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{Access, access};

#[derive(Debug, Default)]
pub(super) struct LostDevices(Vec<(String, Instant)>);

impl LostDevices {
    pub(super) fn note(&mut self, name: String, now: Instant) {
        // `name` is added unchecked, because its sysfs folder may still exist.
        self.0
            .retain(|(known, _)| *known != name && !is_back(known));
        self.0.push((name, now));
    }

    pub(super) fn present(&self, now: Instant) -> Vec<(String, Duration)> {
        let lost = self.0.iter().filter(|(name, _)| !is_back(name));
        let lost = lost.map(|(name, at)| (name.clone(), now.saturating_duration_since(*at)));
        lost.collect()
    }
}

fn is_back(name: &str) -> bool {
    let path = Path::new("/sys/class/infiniband").join(name);
    access(path, Access::EXISTS).is_ok()
}
