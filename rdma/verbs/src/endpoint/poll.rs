use std::collections::VecDeque;

use cairn_rdma::{Completion, CompletionKind, Event, QpId, SendWork, WorkStatus};

use crate::send_ring::SendEntry;
use crate::sys;

use super::VerbsEndpoint;
use super::work_id::{Owner, WorkId, same_generation};

const BATCH: usize = 32;

pub(super) struct Staged {
    batch: Box<[sys::ibv_wc; BATCH]>,
    next: usize,
    end: usize,
    flushed: VecDeque<Completion>,
    rounds: u64,
}

impl Staged {
    pub(super) fn new() -> Self {
        // SAFETY: all-zero bytes are a valid ibv_wc.
        let empty: sys::ibv_wc = unsafe { std::mem::zeroed() };
        Self {
            batch: Box::new([empty; BATCH]),
            next: 0,
            end: 0,
            flushed: VecDeque::new(),
            rounds: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.next == self.end && self.flushed.is_empty()
    }

    pub(super) fn has_flushed(&self) -> bool {
        !self.flushed.is_empty()
    }

    pub(super) fn rounds(&self) -> u64 {
        self.rounds
    }

    pub(super) fn next_full_round(&self) -> u64 {
        let under_way = u64::from(self.next != self.end);
        self.rounds + under_way + 1
    }

    pub(super) fn flush(&mut self, qp: QpId, works: &[SendWork]) {
        for work in works {
            self.flush_entry(qp, SendEntry::of(work));
        }
    }

    pub(super) fn flush_entry(&mut self, qp: QpId, entry: SendEntry) {
        self.flushed.push_back(Completion {
            id: entry.id,
            qp,
            kind: entry.kind,
            status: WorkStatus::Flushed,
            byte_len: 0,
            invalidated_rkey: None,
        });
    }

    fn take(&mut self) -> Option<sys::ibv_wc> {
        if self.next == self.end {
            return None;
        }
        let wc = self.batch[self.next];
        self.next += 1;
        if self.next == self.end && self.end < BATCH {
            self.rounds += 1;
        }
        Some(wc)
    }
}

impl VerbsEndpoint {
    pub(super) fn take_completions(&mut self, out: &mut [Completion]) -> usize {
        let mut count = 0;
        while count < out.len() {
            let Some(wc) = self.staged.take() else {
                let drained = count > 0 && self.staged.end < BATCH;
                if drained || !self.stage() {
                    break;
                }
                continue;
            };
            if let Some(completion) = self.translate(&wc) {
                out[count] = completion;
                count += 1;
            }
        }
        while count < out.len() {
            let Some(completion) = self.staged.flushed.pop_front() else {
                break;
            };
            out[count] = completion;
            count += 1;
        }
        count
    }

    pub(super) fn stage(&mut self) -> bool {
        if self.staged.next != self.staged.end {
            return true;
        }
        let polled = match self.dead {
            true => Ok(0),
            false => self.completions.poll(&mut self.staged.batch[..]),
        };
        let count = polled.unwrap_or_else(|error| {
            self.break_endpoint(format!("ibv_poll_cq: {error}"));
            0
        });
        self.staged.next = 0;
        self.staged.end = count;
        if count == 0 {
            self.staged.rounds += 1;
        }
        count > 0
    }

    fn translate(&mut self, wc: &sys::ibv_wc) -> Option<Completion> {
        let status = WorkStatus::of_code(wc.status);
        let completion = match WorkId::from_raw(wc.wr_id).owner() {
            Owner::Receive(posting) => self.received(posting, wc, status)?,
            Owner::Send {
                slot,
                generation,
                sequence,
            } => {
                let id = self.table.at(slot)?;
                if !same_generation(id, generation) {
                    return None;
                }
                let pair = self.table.get_mut(id)?.pair.as_mut()?;
                if sequence == pair.mark() {
                    while let Some(entry) = pair.ended_by_mark() {
                        self.staged.flush_entry(id, entry);
                    }
                    return None;
                }
                let entry = pair.complete(sequence)?;
                let landed = status.is_success() && entry.kind == CompletionKind::Read;
                Completion {
                    id: entry.id,
                    qp: id,
                    kind: entry.kind,
                    status,
                    byte_len: if landed { wc.byte_len } else { 0 },
                    invalidated_rkey: None,
                }
            }
        };
        if !status.is_success() {
            self.break_down(completion.qp);
        }
        Some(completion)
    }

    pub(super) fn break_down(&mut self, id: QpId) {
        self.end_connection(id, cairn_rdma::DisconnectReason::Transport);
    }

    pub(super) fn push_event(&mut self, event: Event) {
        self.events.push_back(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_headers_numbers() {
        for (code, status) in [
            (sys::IBV_WC_SUCCESS, WorkStatus::Success),
            (sys::IBV_WC_LOC_LEN_ERR, WorkStatus::LocalLength),
            (sys::IBV_WC_LOC_QP_OP_ERR, WorkStatus::LocalQpOperation),
            (sys::IBV_WC_LOC_PROT_ERR, WorkStatus::LocalProtection),
            (sys::IBV_WC_WR_FLUSH_ERR, WorkStatus::Flushed),
            (sys::IBV_WC_BAD_RESP_ERR, WorkStatus::BadResponse),
            (sys::IBV_WC_LOC_ACCESS_ERR, WorkStatus::LocalAccess),
            (
                sys::IBV_WC_REM_INV_REQ_ERR,
                WorkStatus::RemoteInvalidRequest,
            ),
            (sys::IBV_WC_REM_ACCESS_ERR, WorkStatus::RemoteAccess),
            (sys::IBV_WC_REM_OP_ERR, WorkStatus::RemoteOperation),
            (sys::IBV_WC_RETRY_EXC_ERR, WorkStatus::RetryExceeded),
            (sys::IBV_WC_RNR_RETRY_EXC_ERR, WorkStatus::RnrRetryExceeded),
            (sys::IBV_WC_GENERAL_ERR, WorkStatus::Other(21)),
        ] {
            assert_eq!(WorkStatus::of_code(code), status);
        }
    }
}
