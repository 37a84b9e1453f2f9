//! Attacks on a target that serves other hosts, with forged identities and unfinished exchanges,
//! over the loopback interface.

mod adapters;
mod congestion;
mod forged;
mod log;
mod metrics;
mod requests;
mod silent;
mod sources;

use std::time::Duration;

use cairn_tests::victim::Victim;

const PATIENCE: Duration = Duration::from_secs(20);
