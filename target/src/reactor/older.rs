//! Changes that wait for older ones of the same blocks: see [`crate::order`].

use std::time::{Duration, Instant};

use super::time::Now;
use crate::order::OVERTAKEN_AFTER;
use crate::request::{Request, RequestId, RequestTable, Stage};

/// Change that waits for an older one.
#[derive(Debug, Clone, Copy)]
struct Wait {
    id: RequestId,
    /// Whether it has overtaken those that have not come to the disk.
    late: bool,
}

/// The changes of a reactor that wait.
#[derive(Debug, Default)]
pub(super) struct Older {
    /// Not more than requests.
    waiting: Vec<Wait>,
}

impl Older {
    /// Has a running request wait.
    pub(super) fn add(&mut self, requests: &mut RequestTable, id: RequestId) {
        requests.set_stage(id, Stage::Running, Stage::AwaitingOlder);
        self.waiting.push(Wait { id, late: false });
    }

    /// Time at which the next change overtakes older ones.
    pub(super) fn next(&self, requests: &RequestTable, now: &Now) -> Option<Instant> {
        let due = |wait: &&Wait| !wait.late;
        let left = |wait: &Wait| OVERTAKEN_AFTER.saturating_sub(age(requests, wait.id, now));
        let first = self.waiting.iter().filter(due).map(left).min();
        first.map(|left| now.at + left)
    }

    /// Takes the changes that have waited for [`OVERTAKEN_AFTER`], each once.
    pub(super) fn take_late(&mut self, requests: &RequestTable, now: &Now) -> Vec<RequestId> {
        let mut late = Vec::new();
        for wait in self.waiting.iter_mut().filter(|wait| !wait.late) {
            wait.late = age(requests, wait.id, now) >= OVERTAKEN_AFTER;
            if wait.late {
                late.push(wait.id);
            }
        }
        late
    }

    /// Takes out those that `goes` says; each runs again and is handed to `each`.
    pub(super) fn take_out(
        &mut self,
        requests: &mut RequestTable,
        goes: impl Fn(&Request) -> bool,
        mut each: impl FnMut(RequestId),
    ) {
        self.waiting.retain(|&Wait { id, .. }| {
            let gone = goes(&requests[id]);
            if gone {
                requests.set_stage(id, Stage::AwaitingOlder, Stage::Running);
                each(id);
            }
            !gone
        });
    }

    /// Takes one out, which runs again.
    pub(super) fn take(&mut self, requests: &mut RequestTable, id: RequestId) {
        self.waiting.retain(|wait| wait.id != id);
        requests.set_stage(id, Stage::AwaitingOlder, Stage::Running);
    }
}

fn age(requests: &RequestTable, id: RequestId, now: &Now) -> Duration {
    Duration::from_nanos(requests[id].times.here_for_ns(now.ns))
}
