//! The end, in bounded time.

use std::time::{Duration, Instant};

use super::control::Control;
use crate::registry::{ControlMessage, Message};

/// For commands in progress to end and hosts to be disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// After that, for queues to be closed whatever is in progress.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl Control {
    /// Stops listening, finishes what is in progress, disconnects, ends.
    pub(super) async fn shut_down(&mut self) -> Result<(), String> {
        tracing::info!("stopping: no new connections, finishing commands in progress");
        self.drain();
        if tokio::time::timeout(DRAIN_TIMEOUT, self.drained())
            .await
            .is_err()
        {
            tracing::warn!("commands are still in progress after {DRAIN_TIMEOUT:?}: closing");
        }
        self.stop_reactors()
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
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Ends the reactors, which close what is open.
    pub(super) fn stop_reactors(&mut self) -> Result<(), String> {
        self.crew
            .stop(&self.mailboxes, Instant::now() + STOP_TIMEOUT)
    }
}
