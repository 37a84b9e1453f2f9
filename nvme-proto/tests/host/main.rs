//! Tests of the host against this crate's controller on one fake clock, and against arbitrary
//! controllers.

mod life;
mod random;
mod recovery;
mod renewal;
mod rig;
