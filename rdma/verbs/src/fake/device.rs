use std::collections::VecDeque;
use std::ffi::c_int;

use super::{ONE, zeroed};
use crate::quirks::Quirks;
use crate::sys;

pub(crate) struct Pair {
    pub(crate) raw: usize,
    pub(super) number: u32,
    pub(super) is_shared: bool,
    pub(super) has_failed: bool,
    /// Posted receives of the queue pair's own queue. With a shared queue, the list contains only
    /// the receive of the arriving message.
    pub(crate) receives: VecDeque<Receive>,
    /// Addresses to which the device may write.
    pub(super) held: Vec<u64>,
    pub(super) sends: VecDeque<u64>,
}

#[derive(Clone, Copy)]
pub(crate) struct Receive {
    pub(super) wr_id: u64,
    pub(super) addr: u64,
}

#[derive(Default)]
pub(crate) struct State {
    pub(super) quirks: Option<Quirks>,
    /// True if a queue pair in the error state flushes its work; otherwise, the work never
    /// completes.
    pub(crate) drains: bool,
    pub(crate) keeps_running: bool,
    pub(crate) send_error: c_int,
    pub(crate) unnamed: bool,
    pub(crate) receive_error: c_int,
    pub(crate) poll_fails: bool,
    pub(crate) destroyed: u32,
    pub(crate) reused: u32,
    pub(crate) opcodes: Vec<(sys::ibv_wr_opcode, bool)>,
    pub(crate) ack_timeouts: Vec<u8>,
    pub(crate) registered: Vec<sys::ibv_access_flags>,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) shared: VecDeque<Receive>,
    pub(super) completions: VecDeque<sys::ibv_wc>,
    pub(super) events: VecDeque<(sys::ibv_event_type, usize)>,
    pub(super) unacknowledged: Vec<usize>,
    pub(crate) pair: usize,
    pub(crate) queue: usize,
    pub(crate) receives: usize,
    pub(super) context: usize,
    pub(super) is_opened: bool,
}

impl State {
    pub(crate) fn quirks(&self) -> Quirks {
        self.quirks.unwrap_or(Quirks::NONE)
    }

    pub(crate) fn posted(&self) -> usize {
        let own = self.pairs.iter().map(|pair| pair.receives.len());
        self.shared.len() + own.sum::<usize>()
    }

    pub(super) fn at(&mut self, raw: usize) -> Option<&mut Pair> {
        self.pairs.iter_mut().find(|pair| pair.raw == raw)
    }

    pub(super) fn complete(&mut self, wr_id: u64, status: sys::ibv_wc_status, number: u32) {
        let mut wc = zeroed::<sys::ibv_wc>();
        (wc.wr_id, wc.status, wc.qp_num) = (wr_id, status, number);
        self.completions.push_back(*wc);
    }

    pub(crate) fn begin_message(&mut self, raw: usize) {
        let receive = self.shared.pop_front().expect("a receive is posted");
        let pair = self.at(raw).expect("a live queue pair");
        pair.held.push(receive.addr);
        pair.receives.push_back(receive);
    }

    pub(crate) fn deliver(&mut self, raw: usize) -> bool {
        if self.at(raw).is_some_and(|pair| pair.is_shared) && !self.shared.is_empty() {
            self.begin_message(raw);
        }
        let Some(pair) = self.at(raw) else {
            return false;
        };
        let Some(receive) = pair.receives.pop_front() else {
            return false;
        };
        pair.held.retain(|addr| *addr != receive.addr);
        let number = pair.number;
        self.complete(receive.wr_id, sys::IBV_WC_SUCCESS, number);
        true
    }

    pub(crate) fn fail(&mut self, raw: usize, status: sys::ibv_wc_status) {
        let (drains, quirks) = (self.drains, self.quirks());
        let Some(pair) = self.at(raw) else { return };
        if !drains || std::mem::replace(&mut pair.has_failed, true) {
            return;
        }
        let (number, is_shared) = (pair.number, pair.is_shared);
        let mut sends = std::mem::take(&mut pair.sends);
        let receives = std::mem::take(&mut pair.receives);
        if !quirks.blames_oldest {
            sends.drain(..sends.len().saturating_sub(1).min(1));
        }
        if let Some(first) = sends.pop_front() {
            self.complete(first, status, number);
        }
        for wr_id in sends {
            self.complete(wr_id, sys::IBV_WC_WR_FLUSH_ERR, number);
        }
        for receive in receives {
            if !quirks.swallows_receives {
                self.complete(receive.wr_id, sys::IBV_WC_WR_FLUSH_ERR, number);
            }
        }
        if quirks.no_last_wqe && status != sys::IBV_WC_WR_FLUSH_ERR {
            self.raise(sys::IBV_EVENT_QP_FATAL, raw);
        } else if is_shared {
            self.raise(sys::IBV_EVENT_QP_LAST_WQE_REACHED, raw);
        }
    }

    pub(super) fn raise(&mut self, kind: sys::ibv_event_type, object: usize) {
        self.events.push_back((kind, object));
        self.unacknowledged.push(object);
        // SAFETY: the context lives until the device is closed, and eight bytes are written to an
        // eventfd.
        unsafe {
            let fd = (*(self.context as *mut sys::ibv_context)).async_fd;
            libc::write(fd, (&raw const ONE).cast(), 8);
        }
    }

    pub(super) fn queue_receives(&mut self, pair: Option<usize>, mut wr: *mut sys::ibv_recv_wr) {
        while !wr.is_null() {
            // SAFETY: the chain is valid in the call.
            let receive = unsafe {
                let sged = (*wr).num_sge > 0;
                let addr = if sged { (*(*wr).sg_list).addr } else { 0 };
                let wr_id = (*wr).wr_id;
                wr = (*wr).next;
                Receive { wr_id, addr }
            };
            let is_held = |pair: &Pair| receive.addr != 0 && pair.held.contains(&receive.addr);
            self.reused += u32::from(self.pairs.iter().any(is_held));
            match pair.and_then(|raw| self.at(raw)) {
                Some(pair) => {
                    pair.held.push(receive.addr);
                    pair.receives.push_back(receive);
                }
                None => self.shared.push_back(receive),
            }
        }
    }
}
