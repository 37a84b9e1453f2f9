//! Locks and atomics of the standard library, or of loom for models (`cargo xtask loom`).

#[cfg(not(cairn_loom))]
pub use std::sync::atomic::AtomicBool;
#[cfg(not(cairn_loom))]
pub use std::sync::{Mutex, MutexGuard};

#[cfg(cairn_loom)]
pub use loom::sync::atomic::AtomicBool;
#[cfg(cairn_loom)]
pub use loom::sync::{Mutex, MutexGuard};

/// Checks a model with at most three preemptions in each execution.
#[cfg(cairn_loom)]
pub fn loomed(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}
