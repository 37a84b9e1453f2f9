//! Listeners drained by an administrator: hosts move to other paths and are disconnected, and no
//! host can connect until the drain is undone.
//!
//! The configuration does not change: after a restart no listener is drained.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::control::Control;
use super::listeners::{ListenerId, OpenListener};

/// State of a drained listener.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drained {
    id: ListenerId,
    pub(crate) address: SocketAddr,
    /// True while hosts have time to move to other paths.
    pub(crate) is_under_way: bool,
    /// Associations through the listener.
    pub(crate) associations: usize,
    /// Commands in flight when the hosts were disconnected.
    pub(crate) cut_off: u64,
}

/// Listener to drain, by address and port; all if `None`.
pub(crate) type Which = Option<(IpAddr, u16)>;

fn is_it(listener: &OpenListener, which: Which) -> bool {
    let own = (listener.config.address, listener.config.port);
    which.is_none_or(|which| which == own)
}

impl Control {
    /// Starts a drain, or changes its time limit. Empty if no listener matches.
    pub(super) fn drain_listeners(&mut self, which: Which, within: Duration) -> Vec<Drained> {
        let mut begun = Vec::new();
        for listener in self.listeners.iter_mut().filter(|one| is_it(one, which)) {
            listener.drained = true;
            listener.cut_off = 0;
            begun.push((listener.address(), Arc::clone(&listener.shared)));
        }
        for (address, shared) in &begun {
            // Cause: a request of the control socket.
            tracing::info!(%address, "drains: hosts are sent to other paths");
            self.retire(*address, Arc::clone(shared), within);
        }
        self.update_discovery();
        let ids = begun.iter().map(|(_, shared)| shared.id);
        let ids: Vec<ListenerId> = ids.collect();
        self.drained_listeners(|listener| ids.contains(&listener.shared.id))
    }

    /// Current state of drains begun earlier.
    pub(super) fn look_at_drained(&self, before: &[Drained]) -> Vec<Drained> {
        self.drained_listeners(|listener| before.iter().any(|one| one.id == listener.shared.id))
    }

    fn drained_listeners(&self, which: impl Fn(&OpenListener) -> bool) -> Vec<Drained> {
        let listeners = self.listeners.iter();
        let drained = listeners.filter(|listener| listener.drained && which(listener));
        drained
            .map(|listener| Drained {
                id: listener.shared.id,
                address: listener.address(),
                is_under_way: self.is_retiring(listener.shared.id),
                associations: self.activity(&listener.shared).associations,
                cut_off: listener.cut_off,
            })
            .collect()
    }

    /// Ends a drain so that hosts can connect again; returns the number of matching listeners.
    /// Hosts that are still connected stay connected.
    pub(super) fn undo_drain(&mut self, which: Which) -> usize {
        let mut count = 0;
        let mut undone = Vec::new();
        for listener in self.listeners.iter_mut().filter(|one| is_it(one, which)) {
            count += 1;
            if std::mem::take(&mut listener.drained) {
                let shared = Arc::clone(&listener.shared);
                shared.removed.store(false, Ordering::Relaxed);
                undone.push((listener.address(), shared));
            }
        }
        for (address, listener) in undone {
            self.forget_retiring(listener.id);
            self.update_ana(&listener);
            // Cause: a request of the control socket.
            tracing::info!(%address, "drained no longer: hosts may connect");
        }
        self.update_discovery();
        count
    }
}
