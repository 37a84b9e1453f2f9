//! The Cairn target: exports disks over NVMe over Fabrics on RDMA.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod ana;
mod audit;
mod capsules;
pub mod cli;
mod depth;
mod durable;
mod ending;
mod exposition;
mod files;
mod health;
mod ids;
mod limits;
mod logging;
mod marking;
mod metrics;
mod namespace;
mod order;
mod placement;
mod pool;
mod protection_file;
mod qpair;
mod reactor;
mod regions;
mod registry;
mod request;
mod revision;
mod server;
mod steering;
mod top;
mod usage;
mod work_id;

use cairn_base::panics;

pub use cairn_base::panics::end_process_on_panic;
pub use cairn_disk::OpenError;
pub use server::{KeyError, ReloadError, StartError, Starting, SteppedTarget, Target};
pub use usage::Usage;
