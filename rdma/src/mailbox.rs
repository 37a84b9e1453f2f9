//! Messages to a thread that sleeps on file descriptors, rare ones: a look at an empty mailbox
//! takes no lock.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::error::FabricError;
use crate::sync::{AtomicBool, Mutex, MutexGuard};
use crate::wake::Wake;

/// Messages that wait for one thread.
///
/// That there are some, what [`Self::is_empty`] says, and whether the descriptor is readable
/// change together, under the lock: what its owner sees of one holds for the others.
#[derive(Debug)]
pub struct Mailbox<T> {
    waiting: Mutex<VecDeque<T>>,
    /// Saves the lock when there is nothing, which is nearly always.
    full: AtomicBool,
    wake: Wake,
}

impl<T> Mailbox<T> {
    /// An empty one.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn new() -> Result<Self, FabricError> {
        Ok(Self {
            waiting: Mutex::new(VecDeque::new()),
            full: AtomicBool::new(false),
            wake: Wake::new()?,
        })
    }

    /// Readable while there are messages.
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.wake.fd()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.full.load(Ordering::Acquire)
    }

    /// Adds a message.
    pub fn put(&self, message: T) {
        let mut waiting = self.lock();
        waiting.push_back(message);
        self.full.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// Takes the oldest message.
    pub fn take(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut waiting = self.lock();
        let message = waiting.pop_front();
        if waiting.is_empty() {
            self.full.store(false, Ordering::Release);
            self.wake.clear();
        }
        message
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        // Whole after any panic: a change is one push, or one pop.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, cairn_loom))]
mod loom_models {
    use std::sync::Arc;

    use super::*;

    /// Two threads send; their owner sleeps whenever there is nothing. Every message arrives,
    /// each sender's in order, and nothing wakes the owner for nothing afterwards.
    #[test]
    fn a_sleeper_misses_no_message() {
        crate::sync::loomed(|| {
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let senders = [10, 20].map(|first| {
                let mailbox = Arc::clone(&mailbox);
                loom::thread::spawn(move || {
                    mailbox.put(first);
                    mailbox.put(first + 1);
                })
            });
            let mut seen = Vec::new();
            while seen.len() < 4 {
                match mailbox.take() {
                    Some(message) => seen.push(message),
                    None => mailbox.wake.sleep(),
                }
            }
            for sender in senders {
                sender.join().unwrap();
            }
            for first in [10, 20] {
                let of_one: Vec<i32> = seen
                    .iter()
                    .copied()
                    .filter(|m| m / 10 * 10 == first)
                    .collect();
                assert_eq!(of_one, [first, first + 1]);
            }
            assert!(mailbox.is_empty());
            assert!(
                !mailbox.wake.is_readable(),
                "an empty mailbox wakes its owner"
            );
        });
    }
}

#[cfg(all(test, not(cairn_loom)))]
mod tests {
    use super::*;
    use crate::wake::wait_readable;
    use std::time::Duration;

    #[test]
    fn it_is_readable_while_there_are_messages() {
        let mailbox = Mailbox::new().unwrap();
        let is_readable = || wait_readable([mailbox.fd()], Some(Duration::ZERO)) == [true];
        assert!(mailbox.is_empty() && !is_readable());
        mailbox.put(1);
        mailbox.put(2);
        assert!(is_readable());
        assert_eq!(mailbox.take(), Some(1));
        assert!(!mailbox.is_empty() && is_readable());
        assert_eq!(mailbox.take(), Some(2));
        assert!(mailbox.is_empty() && !is_readable());
        assert_eq!(mailbox.take(), None);
    }
}
