//! Listeners that an administrator drains: the hosts go on by other paths and are disconnected, and
//! no host can connect until that is undone.
//!
//! The configuration stays as it is: a target that starts anew drains nothing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::control::Control;
use super::listeners::{ListenerId, OpenListener};

/// A listener that is drained.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drained {
    id: ListenerId,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Whether its hosts have time to go on by other paths.
    pub(crate) is_under_way: bool,
    /// Those who came by it and are connected.
    pub(crate) associations: usize,
    /// Commands that were under way when its hosts were disconnected.
    pub(crate) cut_off: u64,
}

/// Which listeners: one, or all.
pub(crate) type Which = Option<(IpAddr, u16)>;

fn is_it(listener: &OpenListener, which: Which) -> bool {
    let own = (listener.config.address, listener.config.port);
    which.is_none_or(|which| which == own)
}

impl Control {
    /// Begins to drain, or sets another time for it. Empty: there is no such listener.
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

    /// How far those are.
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

    /// Lets hosts connect again; how many listeners there are. Hosts that are still connected stay
    /// so.
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
