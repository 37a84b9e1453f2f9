//! The host as its driver sees it: back to back with our own controller on one
//! fake clock, and alone with controllers that answer anything.

mod life;
mod random;
mod recovery;
mod renewal;
mod rig;
