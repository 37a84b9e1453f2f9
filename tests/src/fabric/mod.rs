//! Conformance suite for fabric providers.
//!
//! Each case connects to itself at the given address. All waits have deadlines, so that a lost
//! completion fails the case.

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

/// Environment of the suite.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Provider under test.
    pub provider: Arc<dyn Provider>,
    /// Address of a device, for both ends of connections.
    pub ip: IpAddr,
}

/// Cases in execution order.
#[must_use]
pub fn cases() -> Vec<Case<Setting>> {
    let mut all = connections::cases();
    all.extend(messages::cases());
    all.extend(one_sided::all_cases());
    all.extend(failures::cases());
    all.extend(waiting::cases());
    all
}
