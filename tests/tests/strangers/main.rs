//! Strangers attack a target that serves other hosts. They forge their identity and leave exchanges
//! unfinished.
//!
//! They send only on the loopback interface, from addresses of this test.

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

/// Limit of every wait.
const PATIENCE: Duration = Duration::from_secs(20);
