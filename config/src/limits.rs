use std::fmt;
use std::time::Duration;

use crate::size;

/// Limits for hosts. Rates are per second; `None` means no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// I/O commands per second.
    pub iops: Option<u64>,
    /// Bytes read per second.
    pub read: Option<u64>,
    /// Bytes written per second.
    pub write: Option<u64>,
    /// Bytes read and written per second.
    pub total: Option<u64>,
    /// Maximum outstanding commands of the disk, for a namespace only.
    pub outstanding: Option<u32>,
    /// Time for which unused rate accumulates in the token bucket; `None` is [`BURST_DEFAULT`].
    pub burst: Option<Duration>,
    /// Weight of a host in shared limits; `None` is 1.
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

pub const BURST_DEFAULT: Duration = Duration::from_millis(20);
