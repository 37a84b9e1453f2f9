//! Locks and atomics of the standard library, or of loom for models (`cargo xtask loom`).

#[cfg(not(cairn_loom))]
pub(crate) use std::sync::atomic::AtomicBool;
#[cfg(not(cairn_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(cairn_loom)]
pub(crate) use loom::sync::atomic::AtomicBool;
#[cfg(cairn_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

#[cfg(all(test, cairn_loom))]
pub(crate) fn loomed(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}
