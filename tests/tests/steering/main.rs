//! The control socket of a target that runs: what it changes, what it leaves alone, and what
//! strangers at it can do.

mod ana;
mod audit;
mod changes;
mod convert;
mod convert_values;
mod crowd;
mod disks;
mod drain;
mod hung_files;
mod keys;
mod limits;
mod listeners;
mod log;
mod manuals;
mod missing;
mod pools;
mod pools_faults;
mod pools_many;
mod removals;
mod restrictions;
mod spdk;
mod spdk_client;
mod spdk_client_methods;
mod spdk_loaded;
mod spdk_saved;
mod spdk_shown;
mod strangers;
mod target;
mod thousands;
mod warnings;
mod written;
