//! The end, in bounded time.

use std::time::{Duration, Instant};

use super::control::Control;
use crate::reactor::ReactorHandle;
use crate::registry::{ControlMessage, Mailbox, Message};

/// For commands in progress to end and hosts to be disconnected.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// After that, for queues to be closed whatever is in progress.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

impl Control {
    /// Stops listening, finishes what is in progress, disconnects, ends.
    pub(super) async fn shut_down(&mut self) -> Result<(), String> {
        tracing::info!("stopping: no new connections, finishing commands in progress");
        self.listeners.clear();
        for reactor in self.mailboxes.iter() {
            reactor.send(Message::Drain);
        }
        if tokio::time::timeout(DRAIN_TIMEOUT, self.drained())
            .await
            .is_err()
        {
            tracing::warn!("commands are still in progress after {DRAIN_TIMEOUT:?}: closing");
        }
        self.stop_reactors()
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
        stop_all(&self.mailboxes, std::mem::take(&mut self.reactors))
    }
}

/// Ends reactors, within [`STOP_TIMEOUT`].
pub(super) fn stop_all(mailboxes: &[Mailbox], reactors: Vec<ReactorHandle>) -> Result<(), String> {
    for reactor in mailboxes {
        reactor.send(Message::Stop);
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    let join = |reactor: ReactorHandle| reactor.join_until(deadline);
    // All are waited for, also if one fails.
    let ends: Vec<_> = reactors.into_iter().map(join).collect();
    ends.into_iter().collect()
}
