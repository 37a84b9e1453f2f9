//! The end, in bounded time.

use std::time::{Duration, Instant};

use super::control::Control;
use crate::registry::{ControlMessage, Message};

/// For commands in progress to end and hosts to be disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// After that, for queues to be closed whatever is in progress, and for flushes to end.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// How often to look whether flushes have ended.
const FLUSH_INTERVAL: Duration = Duration::from_millis(10);

impl Control {
    /// Stops listening, finishes what is in progress, disconnects, ends.
    pub(super) async fn shut_down(&mut self) -> Result<(), String> {
        // Cause: the end of the target.
        tracing::info!("stopping: no new connections, finishing commands in progress");
        self.drain();
        if tokio::time::timeout(DRAIN_TIMEOUT, self.drained())
            .await
            .is_err()
        {
            // Cause: the end of the target.
            tracing::warn!("commands are still in progress after {DRAIN_TIMEOUT:?}: closing");
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        let stopped = self.stop_reactors(deadline);
        let flushed = self.finish_flushes(deadline).await;
        self.end_audit();
        stopped.and(flushed)
    }

    /// Waits for flushes that hosts asked for as they shut down.
    async fn finish_flushes(&mut self, deadline: Instant) -> Result<(), String> {
        while self.has_flushes() {
            if Instant::now() >= deadline {
                return Err(format!(
                    "{} flushes have not ended: what hosts wrote last may not be durable; look \
                     for a disk that hangs in the kernel's log",
                    self.reactors.tasks()
                ));
            }
            tokio::time::sleep(FLUSH_INTERVAL).await;
        }
        Ok(())
    }

    /// Whether a flush is under way, or begins after one that has just ended.
    fn has_flushes(&mut self) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            self.message(message);
        }
        self.reactors.tasks() > 0 || !self.flushing.is_empty()
    }

    /// Stops listening, and has each queue closed when its last command is answered.
    pub(super) fn drain(&mut self) {
        self.listeners.clear();
        for reactor in self.mailboxes.iter() {
            reactor.send(Message::Drain);
        }
    }

    async fn drained(&mut self) {
        let mut left = self.mailboxes.len();
        while left > 0 {
            match self.messages.recv().await {
                Some(ControlMessage::Drained) => left -= 1,
                // A host that shuts down now still has its disks flushed.
                Some(message) => self.message(message),
                None => return,
            }
        }
    }

    /// Ends the reactors, which close what is open.
    pub(super) fn stop_reactors(&mut self, deadline: Instant) -> Result<(), String> {
        self.reactors.stop(&self.mailboxes, deadline)
    }
}
