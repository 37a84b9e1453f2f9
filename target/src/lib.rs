//! The Cairn target: exports disks over NVMe over Fabrics on RDMA.

mod ana;
mod capsules;
pub mod cli;
mod ending;
mod exposition;
mod holdings;
mod ids;
mod image;
mod marking;
mod metrics;
mod namespace;
mod outlook;
mod placement;
mod qpair;
mod reactor;
mod registry;
mod request;
mod server;
mod steering;
mod top;
mod work_id;

use cairn_rdma::panics;

pub use cairn_disk::OpenError;
pub use cairn_rdma::panics::end_process_on_panic;
pub use holdings::Holdings;
pub use server::{ReloadError, StartError, Starting, SteppedTarget, Target};
