//! Tests of the host against this crate's controller and against random responses.

mod life;
mod random;
mod recovery;
mod renewal;
mod rig;
