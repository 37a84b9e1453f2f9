use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Maximum bytes reserved for requests and responses of one user; a single request may exceed it.
pub const USER_BYTES_MAX: usize = 64 << 20;

#[derive(Debug, Default)]
pub(crate) struct Budget {
    used: Mutex<usize>,
    freed: Notify,
}

impl Budget {
    /// Waits until `bytes` fit into the limit, or until the user has no reservation. The caller
    /// must hold no reservation, because two such callers would wait for each other.
    pub(crate) async fn reserve(self: &Arc<Self>, bytes: usize) -> Reservation {
        loop {
            let freed = self.freed.notified();
            let mut freed = std::pin::pin!(freed);
            freed.as_mut().enable();
            {
                let mut used = self.lock();
                if *used == 0 || *used + bytes <= USER_BYTES_MAX {
                    *used += bytes;
                    let budget = Arc::clone(self);
                    return Reservation { budget, bytes };
                }
            }
            freed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Reservation {
    /// Changes the reserved bytes to the actual size without waiting, even beyond the limit.
    pub(crate) fn set(&mut self, bytes: usize) {
        let mut used = self.budget.lock();
        *used = *used - self.bytes + bytes;
        if bytes < self.bytes {
            self.budget.freed.notify_waiters();
        }
        self.bytes = bytes;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn what_does_not_fit_waits_until_others_have_freed_it() {
        let budget = Arc::new(Budget::default());
        let Poll::Ready(mut first) = poll(std::pin::pin!(budget.reserve(1 << 20))) else {
            panic!("nothing else is held");
        };
        first.set(USER_BYTES_MAX);
        let mut second = std::pin::pin!(budget.reserve(1));
        assert!(poll(second.as_mut()).is_pending());
        first.set(USER_BYTES_MAX - 1);
        let Poll::Ready(second) = poll(second) else {
            panic!("it fits");
        };
        let mut third = std::pin::pin!(budget.reserve(2 * USER_BYTES_MAX));
        assert!(poll(third.as_mut()).is_pending());
        drop(first);
        assert!(poll(third.as_mut()).is_pending());
        drop(second);
        assert!(poll(third).is_ready(), "a lone request may hold more");
        assert_eq!(*budget.lock(), 0);
    }
}
