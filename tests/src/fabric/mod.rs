//! What any provider of the fabric model must do.
//!
//! Each case opens its own listener, endpoints and memory, talks to itself over
//! the given address, and waits for everything with a deadline: a provider
//! that loses a completion fails a case, it does not hang the run.

mod connections;
mod failures;
mod messages;
mod one_sided;
mod pair;
mod waiting;

use std::net::IpAddr;
use std::sync::Arc;

use cairn_rdma::Provider;

use crate::case::Case;

/// Where the suite runs.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The provider under test.
    pub provider: Arc<dyn Provider>,
    /// An address of one of its devices. Both ends of every connection are here.
    pub ip: IpAddr,
}

/// The whole suite, in the order in which to read and run it.
#[must_use]
pub fn cases() -> Vec<Case<Setting>> {
    let mut all = connections::cases();
    all.extend(messages::cases());
    all.extend(one_sided::all_cases());
    all.extend(failures::cases());
    all.extend(waiting::cases());
    all
}
