use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) commit: String,
    pub(crate) load_before: f64,
    pub(crate) load_after: f64,
}

impl Machine {
    pub(crate) fn here(workspace: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let load = load();
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: field(&read("/proc/meminfo"), "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib >> 10),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            commit: commit(workspace),
            load_before: load,
            load_after: load,
        }
    }

    pub(crate) fn ended(&mut self) {
        self.load_after = load();
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} cores of {}, {} MiB, Linux {}; commit {}; load {:.2} before, {:.2} after",
            self.cores,
            self.cpu,
            self.memory_mib,
            self.kernel,
            self.commit,
            self.load_before,
            self.load_after
        )
    }
}

fn field(text: &str, name: &str) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = pairs.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = text.split(' ').next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

fn commit(workspace: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git")
            .arg("-C")
            .arg(workspace)
            .args(arguments)
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else {
        return "unknown".to_owned();
    };
    let clean = git(&["status", "--porcelain"]).is_some_and(|changes| changes.is_empty());
    if clean { commit } else { commit + "+" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: A CPU @ 3 GHz\nmodel name\t: another\n";
        assert_eq!(field(text, "model name").unwrap(), "A CPU @ 3 GHz");
        assert_eq!(field(text, "model"), None);
        assert_eq!(field("MemTotal:  123 kB", "MemTotal").unwrap(), "123 kB");
    }
}
