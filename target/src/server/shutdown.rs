//! Shutdown of the target in bounded time.

use std::time::{Duration, Instant};

use super::control::Control;
use crate::registry::{ControlMessage, Message};

/// Time for commands in flight to complete and hosts to be disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Further time to close queues regardless of commands, and to finish flushes.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

const FLUSH_INTERVAL: Duration = Duration::from_millis(10);

impl Control {
    /// Closes listeners, completes commands, disconnects hosts and stops.
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

    /// Waits for flushes that hosts requested at their shutdown.
    async fn finish_flushes(&mut self, deadline: Instant) -> Result<(), String> {
        while self.has_flushes() {
            if Instant::now() >= deadline {
                return Err(format!(
                    "{} flushes have not ended: what hosts wrote last may not be durable; look \
                     for a disk that hangs in the kernel's log",
                    self.jobs.running()
                ));
            }
            tokio::time::sleep(FLUSH_INTERVAL).await;
        }
        Ok(())
    }

    /// True if a flush is in progress or queued.
    fn has_flushes(&mut self) -> bool {
        while let Ok(message) = self.messages.try_recv() {
            self.message(message);
        }
        self.jobs.running() > 0 || !self.flushes.is_empty()
    }

    /// Closes listeners; each queue closes after its last response.
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
                // A host that shuts down now still gets its flush.
                Some(message) => self.message(message),
                None => return,
            }
        }
    }

    /// Stops the reactors, which close their queue pairs.
    pub(super) fn stop_reactors(&mut self, deadline: Instant) -> Result<(), String> {
        self.reactors.stop(&self.mailboxes, deadline)
    }
}
