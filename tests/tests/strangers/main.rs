//! Strangers on the network, and a target that serves others meanwhile: who they are
//! not, they claim to be, and what they begin, they do not end.
//!
//! They send on the loopback interface alone, each from addresses of this test.

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

/// Bounds every wait.
const PATIENCE: Duration = Duration::from_secs(20);
