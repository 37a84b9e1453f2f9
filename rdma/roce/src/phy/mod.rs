//! How packets leave the process and come in.

pub mod fault;
pub mod netdev;
pub mod receive;
pub mod send;
pub mod socket;
