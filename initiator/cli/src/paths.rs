//! Options for several paths to a namespace.

use std::time::Duration;

use cairn_initiator::HostOptions;
use cairn_initiator::multipath::{MultipathOptions, Policy};
use clap::{Args, ValueEnum};

use super::Result;
use super::address::Address;
use super::number::number;

#[derive(Debug, Args)]
pub(super) struct Paths {
    /// Another path to the same namespace, in addition to -a; repeatable. If one path fails, I/O
    /// continues on the others
    #[arg(long = "path", value_name = "ADDR[:PORT]")]
    paths: Vec<String>,
    /// Policy that selects the path of each I/O with --path; the names are Linux's
    #[arg(long, value_enum, default_value_t = IoPolicy::RoundRobin, requires = "paths")]
    iopolicy: IoPolicy,
    /// Seconds that a write of a lost path waits before another path sends it; 0: no wait, as in
    /// Linux [default: until the lost controller no longer executes the write, calculated from
    /// --keep-alive-tmo and the time that the controller reports (CQT)]
    #[arg(long, value_name = "SECONDS", requires = "paths", value_parser = number::<u64>)]
    write_hold: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum IoPolicy {
    /// One path after the other
    RoundRobin,
    /// The path with the fewest outstanding I/Os
    QueueDepth,
}

impl From<IoPolicy> for Policy {
    fn from(policy: IoPolicy) -> Self {
        match policy {
            IoPolicy::RoundRobin => Self::RoundRobin,
            IoPolicy::QueueDepth => Self::QueueDepth,
        }
    }
}

impl Paths {
    pub(super) fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    pub(super) fn with(&self, address: &Address, first: HostOptions) -> Result<Vec<HostOptions>> {
        let mut all = vec![first];
        for path in &self.paths {
            all.push(HostOptions {
                remote: address.other_remote(path)?,
                ..all[0].clone()
            });
        }
        Ok(all)
    }

    pub(super) fn options(&self, nsid: u32) -> MultipathOptions {
        MultipathOptions {
            policy: self.iopolicy.into(),
            write_hold: self.write_hold.map(Duration::from_secs),
            ..MultipathOptions::new(nsid)
        }
    }
}
