//! The Cairn target: exports disks over NVMe over Fabrics on RDMA.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod answers;
pub mod cli;
mod exposition;
mod files;
mod health;
mod logging;
mod nouns;
mod own_files;
mod placement;
mod pool;
mod revision;
mod server;
mod steering;
mod top;

use cairn_base::panics;

pub use cairn_base::panics::end_process_on_panic;
pub use cairn_data_path::Usage;
pub use cairn_disk::OpenError;
pub use server::{KeyError, ReloadError, StartError, Starting, StateInUse, SteppedTarget, Target};
