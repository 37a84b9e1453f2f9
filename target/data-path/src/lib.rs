//! Data path of the Cairn target: reactors, registry, and metrics.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]
// Public items are for `cairn-target`; names and types document them.
#![allow(missing_docs)]

pub mod ana;
pub mod audit;
pub mod capsules;
pub mod depth;
pub mod durable;
pub mod ending;
mod fair_queue;
pub mod ids;
pub mod limits;
pub mod marking;
pub mod metrics;
pub mod namespace;
pub mod order;
pub mod protection_file;
pub mod qpair;
pub mod reactor;
pub mod regions;
pub mod registry;
pub mod request;
pub mod reservation_file;
pub mod reservations;
pub mod size_file;
pub mod usage;
pub mod work_id;

pub use usage::Usage;
