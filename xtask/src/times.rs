//! Durations of earlier steps and scenarios, from which the remaining time is estimated.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const UNKNOWN_S: f32 = 60.0;

/// Seconds assumed for long steps that never ran, measured in a fresh clone on two cores.
const FRESH_S: [(&str, f32); 2] = [("tests", 540.0), ("real kernel", 600.0)];

pub(crate) struct Times {
    path: PathBuf,
    known: BTreeMap<String, f32>,
    measured: BTreeMap<String, f32>,
}

fn read(path: &Path) -> BTreeMap<String, f32> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

impl Times {
    pub(crate) fn open(path: PathBuf) -> Self {
        Self {
            known: read(&path),
            measured: BTreeMap::new(),
            path,
        }
    }

    pub(crate) fn of(&self, name: &str) -> Duration {
        let fresh = || FRESH_S.iter().find(|(step, _)| *step == name);
        let seconds = self.measured.get(name).or(self.known.get(name)).copied();
        let seconds = seconds.or_else(|| fresh().map(|(_, seconds)| *seconds));
        Duration::from_secs_f32(seconds.unwrap_or(UNKNOWN_S).max(0.0))
    }

    pub(crate) fn set(&mut self, name: &str, took: Duration) {
        self.measured.insert(name.to_owned(), took.as_secs_f32());
    }

    /// Merges the durations into the file, which another process may have changed. Ignores errors.
    pub(crate) fn save(&self) {
        let mut kept = read(&self.path);
        kept.extend(self.measured.clone());
        if let Ok(text) = serde_json::to_string_pretty(&kept) {
            let _ = std::fs::write(&self.path, text);
        }
    }
}

pub(crate) fn left(left: Duration) -> String {
    match left.as_secs() {
        0..60 => "less than a minute left".to_owned(),
        seconds => format!("about {} min left", seconds.div_ceil(60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_in_minutes() {
        assert_eq!(left(Duration::from_secs(59)), "less than a minute left");
        assert_eq!(left(Duration::from_secs(60)), "about 1 min left");
        assert_eq!(left(Duration::from_secs(61)), "about 2 min left");
    }

    #[test]
    fn what_was_measured_goes_before_what_is_assumed() {
        let mut times = Times {
            path: PathBuf::new(),
            known: BTreeMap::new(),
            measured: BTreeMap::new(),
        };
        assert_eq!(times.of("new"), Duration::from_secs(60));
        assert_eq!(times.of("tests"), Duration::from_secs(540));
        times.set("tests", Duration::from_secs(7));
        assert_eq!(times.of("tests"), Duration::from_secs(7));
    }
}
