//! Conformance test suite for fabric providers.
//!
//! Each case connects a device to itself. Every wait has a timeout, so that a lost completion fails
//! the case.

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

#[derive(Debug, Clone)]
pub struct Setting {
    pub provider: Arc<dyn Provider>,
    /// Address of the device that serves both sides of each connection.
    pub ip: IpAddr,
}

#[must_use]
pub fn cases() -> Vec<Case<Setting>> {
    let mut all = connections::cases();
    all.extend(messages::cases());
    all.extend(one_sided::all_cases());
    all.extend(failures::cases());
    all.extend(waiting::cases());
    all
}
