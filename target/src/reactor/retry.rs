//! Block I/O that the disk asks to try again. A pause before each try keeps a disk that
//! never stops asking from taking the reactor.

use std::time::Instant;

use crate::request::{Request, RequestId, RequestTable, Stage};

/// A request, and when it is tried again.
#[derive(Debug, Clone, Copy)]
struct Retry {
    at: Instant,
    id: RequestId,
}

/// The requests that are tried again later.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// Not more than requests.
    waiting: Vec<Retry>,
}

impl Retries {
    /// Has a request that the backend gave back wait for its next try.
    pub(super) fn add(&mut self, request: &mut Request, id: RequestId, now: Instant) {
        request.set_stage(Stage::InBackend, Stage::AwaitingRetry);
        let block = request.block.as_ref().expect("block I/O is planned");
        let at = now + block.pause();
        self.waiting.push(Retry { at, id });
    }

    /// When the next one is to be tried again.
    pub(super) fn next(&self) -> Option<Instant> {
        self.waiting.iter().map(|retry| retry.at).min()
    }

    /// Takes those whose pause is over. They run again.
    pub(super) fn take_due(&mut self, requests: &mut RequestTable, now: Instant) -> Vec<RequestId> {
        let due = self.waiting.extract_if(.., |retry| retry.at <= now);
        let due: Vec<RequestId> = due.map(|retry| retry.id).collect();
        for &id in &due {
            requests.set_stage(id, Stage::AwaitingRetry, Stage::Running);
        }
        due
    }

    /// Takes out those that `goes` says; each runs again and is handed to `each`.
    pub(super) fn take_out(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        self.waiting.retain(|retry| {
            let gone = goes(&requests[retry.id]);
            if gone {
                requests.set_stage(retry.id, Stage::AwaitingRetry, Stage::Running);
                each(retry.id);
            }
            !gone
        });
    }
}
