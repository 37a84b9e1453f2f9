use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::faults::{Fault, Nature, Op, Rule};
use super::wire::{self, Call, Request};

const HEARTBEAT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Server {
    device: File,
    nature: Nature,
    state: Mutex<DiskState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct DiskState {
    pub(super) contents: Vec<u8>,
    pub(super) rules: Vec<Rule>,
    waiting: Vec<DelayedRequest>,
    done: [u64; Op::COUNT],
    closing: bool,
}

#[derive(Debug)]
struct DelayedRequest {
    op: Op,
    request: Request,
    due: Option<Instant>,
    interruptible: bool,
}

impl DiskState {
    pub(super) fn waiting(&self, op: Op) -> usize {
        self.waiting.iter().filter(|other| other.op == op).count()
    }

    pub(super) fn done(&self, op: Op) -> u64 {
        self.done[op as usize]
    }
}

impl Server {
    pub(super) fn new(device: File, nature: Nature, length: u64) -> Self {
        let contents = vec![0; usize::try_from(length).expect("a disk fits in memory")];
        Self {
            device,
            nature,
            state: Mutex::new(DiskState {
                contents,
                ..DiskState::default()
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait(&self, patience: Duration, holds: impl Fn(&DiskState) -> bool) -> bool {
        let waited = self
            .changed
            .wait_timeout_while(self.state(), patience, |state| !holds(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        holds(&state)
    }

    pub(super) fn release(&self, failure: Option<i32>) {
        let mut state = self.state();
        for waiting in std::mem::take(&mut state.waiting) {
            match failure {
                Some(errno) => self.send(&wire::error(waiting.request.id, errno)),
                None => self.carry_out(&mut state, &waiting.request, usize::MAX),
            }
        }
        self.changed.notify_all();
    }

    pub(super) fn close(&self) {
        self.state().closing = true;
        self.changed.notify_all();
    }

    pub(super) fn serve(&self) {
        let mut bytes = vec![0; wire::REQUEST_MAX];
        loop {
            match (&self.device).read(&mut bytes) {
                Ok(length) => self.take(Request::parse(&bytes[..length])),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(_) => return,
            }
        }
    }

    pub(super) fn keep_time(&self, mut sign: impl Write) {
        let mut state = self.state();
        let mut shown = None;
        while !state.closing {
            let now = Instant::now();
            if shown.is_none_or(|shown| now >= shown + HEARTBEAT) {
                let _ = sign.write_all(b"\n");
                shown = Some(now);
            }
            let is_due = |waiting: &DelayedRequest| waiting.due.is_some_and(|due| due <= now);
            while let Some(at) = state.waiting.iter().position(is_due) {
                let waiting = state.waiting.remove(at);
                self.carry_out(&mut state, &waiting.request, usize::MAX);
                self.changed.notify_all();
            }
            let next = state.waiting.iter().filter_map(|waiting| waiting.due).min();
            let pause = next.map_or(HEARTBEAT, |due| due.saturating_duration_since(now));
            let woken = self.changed.wait_timeout(state, pause.min(HEARTBEAT));
            (state, _) = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn take(&self, request: Request) {
        let mut state = self.state();
        if let Call::Interrupt { id } = request.call {
            self.interrupt(&mut state, id);
        } else if let Some((op, bytes)) = disturbable(&request.call) {
            let mut rules = state.rules.iter_mut();
            match rules.find_map(|rule| rule.judge(op, &bytes)) {
                None => self.carry_out(&mut state, &request, usize::MAX),
                Some(Fault::Short(most)) => self.carry_out(&mut state, &request, most as usize),
                Some(Fault::Fail(errno)) => self.send(&wire::error(request.id, errno)),
                Some(fault) => state.waiting.push(DelayedRequest {
                    op,
                    request,
                    due: match fault {
                        Fault::Delay(delay) => Some(Instant::now() + delay),
                        _ => None,
                    },
                    interruptible: fault == Fault::HoldUntilInterrupted,
                }),
            }
        } else {
            self.carry_out(&mut state, &request, usize::MAX);
        }
        self.changed.notify_all();
    }

    fn interrupt(&self, state: &mut DiskState, id: u64) {
        let is_it = |waiting: &DelayedRequest| waiting.request.id == id && waiting.interruptible;
        if let Some(at) = state.waiting.iter().position(is_it) {
            state.waiting.remove(at);
            self.send(&wire::error(id, libc::EINTR));
        }
    }

    fn carry_out(&self, state: &mut DiskState, request: &Request, most: usize) {
        let id = request.id;
        let answer = match &request.call {
            Call::Init => {
                let asynchronous = self.nature == Nature::Disk;
                wire::answer(id, &wire::init_body(asynchronous))
            }
            Call::GetAttributes => {
                wire::answer(id, &wire::attributes_body(state.contents.len() as u64))
            }
            Call::SetAttributes { length } => {
                if let Some(length) = length {
                    state.contents.resize(*length as usize, 0);
                }
                wire::answer(id, &wire::attributes_body(state.contents.len() as u64))
            }
            Call::Statistics => wire::answer(id, &wire::statistics_body()),
            Call::Open => wire::answer(id, &wire::open_body()),
            Call::Read { offset, length } => {
                let end = state.contents.len();
                let from = (*offset as usize).min(end);
                let to = from + (*length as usize).min(most).min(end - from);
                wire::answer(id, &state.contents[from..to])
            }
            Call::Write { offset, data } => {
                let data = &data[..data.len().min(most)];
                let from = *offset as usize;
                let to = from + data.len();
                if state.contents.len() < to {
                    state.contents.resize(to, 0);
                }
                state.contents[from..to].copy_from_slice(data);
                wire::answer(id, &wire::write_body(data.len()))
            }
            Call::Allocate {
                mode,
                offset,
                length,
            } => {
                let zeroes = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_PUNCH_HOLE;
                let end = state.contents.len();
                let from = (*offset as usize).min(end);
                let to = from + (*length as usize).min(end - from);
                if mode & zeroes as u32 != 0 {
                    state.contents[from..to].fill(0);
                }
                wire::answer(id, &[])
            }
            Call::Sync | Call::Close | Call::Nothing => wire::answer(id, &[]),
            Call::Unknown => wire::error(id, libc::ENOSYS),
            Call::Forget | Call::Interrupt { .. } => return,
        };
        if let Some((op, _)) = disturbable(&request.call) {
            state.done[op as usize] += 1;
        }
        self.send(&answer);
    }

    fn send(&self, answer: &[u8]) {
        let _ = (&self.device).write(answer);
    }
}

fn disturbable(call: &Call) -> Option<(Op, Range<u64>)> {
    Some(match *call {
        Call::Open => (Op::Open, 0..u64::MAX),
        Call::Sync => (Op::Sync, 0..u64::MAX),
        Call::GetAttributes => (Op::Look, 0..u64::MAX),
        Call::Close => (Op::Close, 0..u64::MAX),
        Call::Read { offset, length } => (Op::Read, offset..offset + u64::from(length)),
        Call::Write { offset, ref data } => (Op::Write, offset..offset + data.len() as u64),
        Call::Allocate { offset, length, .. } => (Op::Allocate, offset..offset + length),
        _ => return None,
    })
}
