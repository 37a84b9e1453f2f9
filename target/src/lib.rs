//! The Cairn target: exports disks over NVMe over Fabrics on RDMA.

mod ana;
mod arena;
mod backend;
mod bare_disk;
pub mod cli;
mod ending;
mod exposition;
mod holdings;
mod ids;
mod marking;
mod memlock;
mod metrics;
mod namespace;
mod outlook;
mod placement;
pub mod pool;
mod qpair;
mod reactor;
mod registry;
mod request;
mod ring;
mod server;
mod simulated_disk;
mod steering;
mod submission;
mod top;
mod work_id;
mod workers;

use cairn_rdma::panics;

pub use backend::OpenError;
pub use bare_disk::BareDisk;
pub use cairn_rdma::panics::end_process_on_panic;
pub use holdings::Holdings;
pub use server::{ReloadError, StartError, Starting, SteppedTarget, Target};
pub use simulated_disk::{CacheFate, Habits, Lie, Operation, SimulatedDisk};
