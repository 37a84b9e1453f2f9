//! The locks and atomics by which threads meet here: the standard library's, or loom's, which
//! tries every order in which they can meet (`cargo xtask loom`).

#[cfg(not(cairn_loom))]
pub(crate) use std::sync::atomic::AtomicBool;
#[cfg(not(cairn_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};

#[cfg(cairn_loom)]
pub(crate) use loom::sync::atomic::AtomicBool;
#[cfg(cairn_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};

/// Runs `model` in every order in which its threads can meet, but for those with more than
/// three places where a thread that could go on has to wait.
#[cfg(all(test, cairn_loom))]
pub(crate) fn loomed(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}
