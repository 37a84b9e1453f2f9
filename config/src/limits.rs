//! How much hosts may take.

use std::fmt;
use std::time::Duration;

use crate::size;

/// How much hosts may take, in a second or at a time; `None`: as much as they can.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// I/O commands.
    pub iops: Option<u64>,
    /// Bytes read.
    pub read: Option<u64>,
    /// Bytes written.
    pub write: Option<u64>,
    /// Bytes read and written.
    pub total: Option<u64>,
    /// Of a namespace: commands that its disk has at a time.
    pub outstanding: Option<u32>,
    /// What of the time before may be made up for, if another time is configured than
    /// [`BURST_DEFAULT`].
    pub burst: Option<Duration>,
    /// Of a host: how many parts it gets of a limit that it shares with others, which have one
    /// each if nothing else is configured.
    pub weight: Option<u32>,
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [
            ("read", self.read),
            ("write", self.write),
            ("total", self.total),
        ];
        let bytes = bytes.into_iter();
        let bytes = bytes.filter_map(|(key, rate)| Some(format!("{key} {}", size::format(rate?))));
        let iops = self.iops.map(|iops| format!("iops {iops}"));
        let mut all: Vec<String> = iops.into_iter().chain(bytes).collect();
        if !all.is_empty() {
            let burst = self.burst.unwrap_or(BURST_DEFAULT).as_millis();
            all.push(format!("burst_ms {burst}"));
        }
        let outstanding = self.outstanding.map(|most| format!("outstanding {most}"));
        all.extend(outstanding);
        if all.is_empty() {
            return f.write_str("none");
        }
        f.write_str(&all.join(", "))
    }
}

/// The burst that limits have unless another is configured.
pub const BURST_DEFAULT: Duration = Duration::from_millis(20);
