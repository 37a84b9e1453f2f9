//! Queue of rare messages to a thread that sleeps on file descriptors.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, Mutex, MutexGuard};
use crate::wake::Wake;

/// Queue of messages to one thread. [`Self::is_empty`] takes no lock.
#[derive(Debug)]
pub struct Mailbox<T> {
    waiting: Mutex<MessageQueue<T>>,
    full: AtomicBool,
    wake: Wake,
}

#[derive(Debug)]
struct MessageQueue<T> {
    messages: VecDeque<T>,
    nudged: bool,
    closed: bool,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            waiting: Mutex::new(MessageQueue {
                messages: VecDeque::new(),
                nudged: false,
                closed: false,
            }),
            full: AtomicBool::new(false),
            wake: Wake::new()?,
        })
    }

    /// Returns a descriptor that is readable while the mailbox has messages, and from
    /// [`Self::nudge`] to [`Self::rest`].
    #[must_use]
    #[inline]
    pub fn fd(&self) -> RawFd {
        self.wake.fd()
    }

    /// True if there are no messages.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.full.load(Ordering::Acquire)
    }

    /// Adds a message; a closed mailbox drops it.
    pub fn put(&self, message: T) {
        let mut waiting = self.lock();
        if waiting.closed {
            // Dropping a message may take the lock, so the lock is released first.
            drop(waiting);
            return drop(message);
        }
        waiting.messages.push_back(message);
        self.full.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// Takes the oldest message.
    #[inline]
    pub fn take(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut waiting = self.lock();
        let message = waiting.messages.pop_front();
        if waiting.messages.is_empty() {
            self.full.store(false, Ordering::Release);
            if !waiting.nudged {
                self.wake.clear();
            }
        }
        message
    }

    /// Makes the descriptor readable without a message.
    pub fn nudge(&self) {
        let mut waiting = self.lock();
        waiting.nudged = true;
        self.wake.wake();
    }

    /// Ends the effect of [`Self::nudge`]. The owner calls this before sleeping.
    #[inline]
    pub fn rest(&self) {
        let mut waiting = self.lock();
        if std::mem::take(&mut waiting.nudged) && waiting.messages.is_empty() {
            self.wake.clear();
        }
    }

    /// Drops all messages, including later ones.
    pub fn close(&self) {
        let mut waiting = self.lock();
        waiting.closed = true;
        let messages = std::mem::take(&mut waiting.messages);
        self.full.store(false, Ordering::Release);
        self.wake.clear();
        drop(waiting);
        drop(messages);
    }

    fn lock(&self) -> MutexGuard<'_, MessageQueue<T>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, cairn_loom))]
mod loom_models {
    use std::sync::Arc;

    use super::*;

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

    #[test]
    fn a_nudge_and_a_message_both_wake() {
        crate::sync::loomed(|| {
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let nudged = Arc::new(AtomicBool::new(false));
            let other = {
                let (mailbox, nudged) = (Arc::clone(&mailbox), Arc::clone(&nudged));
                loom::thread::spawn(move || {
                    mailbox.put(1);
                    nudged.store(true, Ordering::Release);
                    mailbox.nudge();
                })
            };
            let mut seen = 0;
            loop {
                seen += usize::from(mailbox.take().is_some());
                mailbox.rest();
                if seen == 1 && nudged.load(Ordering::Acquire) {
                    break;
                }
                if mailbox.is_empty() {
                    mailbox.wake.sleep();
                }
            }
            other.join().unwrap();
            mailbox.rest();
            assert!(mailbox.is_empty() && !mailbox.wake.is_readable());
        });
    }

    #[test]
    fn a_message_to_a_mailbox_that_closes_is_dropped() {
        crate::sync::loomed(|| {
            let mailbox = Arc::new(Mailbox::new().unwrap());
            let message = Arc::new(());
            let sender = {
                let (mailbox, message) = (Arc::clone(&mailbox), Arc::clone(&message));
                loom::thread::spawn(move || mailbox.put(message))
            };
            mailbox.close();
            sender.join().unwrap();
            assert_eq!(Arc::strong_count(&message), 1);
            assert!(mailbox.is_empty() && !mailbox.wake.is_readable());
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
    #[test]
    fn a_nudge_lasts_until_its_owner_rests() {
        let mailbox = Mailbox::new().unwrap();
        let is_readable = || wait_readable([mailbox.fd()], Some(Duration::ZERO)) == [true];
        mailbox.nudge();
        assert!(mailbox.is_empty() && is_readable());
        mailbox.put(1);
        assert_eq!(mailbox.take(), Some(1));
        assert!(is_readable(), "the nudge is not a message's");
        mailbox.rest();
        assert!(!is_readable());
        mailbox.put(2);
        mailbox.rest();
        assert!(is_readable(), "a message wakes until it is taken");
        mailbox.close();
        mailbox.put(3);
        assert!(mailbox.is_empty() && !is_readable());
    }
}
