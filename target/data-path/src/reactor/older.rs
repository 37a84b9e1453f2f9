//! Requests that wait for older changes of the same blocks: see [`crate::order`].

use std::time::{Duration, Instant};

use super::time::Now;
use crate::order::OVERTAKEN_AFTER;
use crate::request::{Request, RequestId, RequestTable, Stage};

#[derive(Debug, Clone, Copy)]
struct Wait {
    id: RequestId,
    late: bool,
}

#[derive(Debug, Default)]
pub(super) struct Older {
    waiting: Vec<Wait>,
}

impl Older {
    pub(super) fn add(&mut self, requests: &mut RequestTable, id: RequestId) {
        requests.set_stage(id, Stage::Running, Stage::AwaitingOlder);
        self.waiting.push(Wait { id, late: false });
    }

    #[inline(always)]
    pub(super) fn any_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn next(&self, requests: &RequestTable, now: &Now) -> Option<Instant> {
        let due = |wait: &&Wait| !wait.late;
        let left = |wait: &Wait| OVERTAKEN_AFTER.saturating_sub(age(requests, wait.id, now));
        let first = self.waiting.iter().filter(due).map(left).min();
        first.map(|left| now.at + left)
    }

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

    pub(super) fn take(&mut self, requests: &mut RequestTable, id: RequestId) {
        self.waiting.retain(|wait| wait.id != id);
        requests.set_stage(id, Stage::AwaitingOlder, Stage::Running);
    }
}

fn age(requests: &RequestTable, id: RequestId, now: &Now) -> Duration {
    Duration::from_nanos(requests[id].times.here_for_ns(now.ns))
}
