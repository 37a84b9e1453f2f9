//! Block I/O that the disk asks to try again. A pause before each try keeps a disk that
//! never stops asking from taking the reactor.

use std::time::Instant;

use super::Reactor;
use crate::request::{Request, RequestId, Stage};

/// A request, and when it is tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Retry {
    at: Instant,
    id: RequestId,
}

impl Reactor {
    /// Tries again after a pause.
    pub(super) fn retry_later(&mut self, id: RequestId) {
        let request = &mut self.queues.requests[id];
        request.set_stage(Stage::InBackend, Stage::AwaitingRetry);
        let block = request.block.as_ref().expect("block I/O is planned");
        let at = self.time.now + block.pause();
        self.io.retries.push(Retry { at, id });
    }

    /// When the next one is to be tried again.
    pub(super) fn next_retry(&self) -> Option<Instant> {
        self.io.retries.iter().map(|retry| retry.at).min()
    }

    /// Tries those again whose pause is over; whether there were any.
    pub(super) fn serve_retries(&mut self) -> bool {
        let now = self.time.now;
        let due = self.io.retries.extract_if(.., |retry| retry.at <= now);
        let due: Vec<RequestId> = due.map(|retry| retry.id).collect();
        for &id in &due {
            self.queues
                .requests
                .set_stage(id, Stage::AwaitingRetry, Stage::Running);
            let block = self.queues.requests[id].block.as_ref();
            let span = block.expect("block I/O is planned").span;
            self.begin_block(id, span);
        }
        !due.is_empty()
    }

    /// Takes out those that `goes` says; each runs again and is handed to `each`.
    pub(super) fn take_retries(
        &mut self,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        let requests = &mut self.queues.requests;
        self.io.retries.retain(|retry| {
            let gone = goes(&requests[retry.id]);
            if gone {
                requests.set_stage(retry.id, Stage::AwaitingRetry, Stage::Running);
                each(retry.id);
            }
            !gone
        });
    }
}
