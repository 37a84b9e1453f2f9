//! Tests of the host through its driver interface: against this crate's controller on one fake
//! clock, and against controllers with arbitrary answers.

mod life;
mod random;
mod recovery;
mod renewal;
mod rig;
