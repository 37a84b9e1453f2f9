//! Host with this crate's controller, and with random responses.

mod life;
mod random;
mod recovery;
mod renewal;
mod rig;
