//! Cross-Controller Reset of a lost controller through another path.
//!
//! After a confirmed reset, the target executes no command of the lost controller, so waiting
//! writes are sent. Without a confirmation, the writes wait for `MultipathOptions::write_hold`.

use std::time::Duration;

use nvme_proto::wire::cross_reset::{
    CrossResetEntry, CrossResetLogHeader, CrossResetLsp, CrossResetState, Instance,
};
use nvme_proto::wire::log::{GetLogCdw10, LogPage};
use nvme_proto::wire::{FromBytes, NSID_ALL, Status};

use super::Multipath;
use crate::buffer::Data;
use crate::command;
use crate::queue::{Ended, Ticket};

const LOG_BYTES: u32 = 4096;
/// Interval at which the log of resets is read, because its event may be lost.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy)]
enum Step {
    Unsent,
    Sent { via: usize, ticket: Ticket },
    InProgress { via: usize, look_at: Duration },
    Reading { via: usize, ticket: Ticket },
}

#[derive(Debug)]
pub(super) struct CrossReset {
    path: usize,
    /// Connection ([`Path::era`](super::Path::era)) whose controller is reset.
    era: u64,
    instance: Instance,
    step: Step,
    /// Paths on which the reset failed.
    tried: Vec<usize>,
}

impl CrossReset {
    fn failed(&mut self, via: usize) {
        self.tried.push(via);
        self.step = Step::Unsent;
    }
}

impl Multipath {
    pub(super) fn path_lost(&mut self, index: usize) {
        let path = &mut self.paths[index];
        let era = path.era;
        let in_doubt = self.set.outstanding(index) > 0 || self.doubts.has(era);
        if let Some(instance) = path.instance.take().filter(|_| in_doubt) {
            if let Some(former) = self.resets.iter().position(|reset| reset.path == index) {
                self.end_reset(former);
            }
            self.resets.push(CrossReset {
                path: index,
                era,
                instance,
                step: Step::Unsent,
                tried: Vec::new(),
            });
        }
    }

    pub(super) fn reset_noticed(&mut self, by: usize) {
        for reset in &mut self.resets {
            if let Step::InProgress { via, look_at } = &mut reset.step
                && *via == by
            {
                *look_at = Duration::ZERO;
            }
        }
    }

    pub(super) fn next_look(&self) -> Option<Duration> {
        let looks = self.resets.iter().filter_map(|reset| match reset.step {
            Step::InProgress { look_at, .. } => Some(look_at),
            _ => None,
        });
        looks.min()
    }

    pub(super) fn advance_resets(&mut self) -> bool {
        let mut progress = false;
        let mut at = 0;
        while at < self.resets.len() {
            let (path, era) = (self.resets[at].path, self.resets[at].era);
            let closing = self.paths[path].era == era && self.set.outstanding(path) > 0;
            if !closing && !self.doubts.has(era) {
                self.end_reset(at);
                continue;
            }
            match self.advance_reset(at) {
                Some(true) => {
                    self.confirmed(at);
                    progress = true;
                }
                Some(false) => progress = true,
                None => at += 1,
            }
        }
        progress
    }

    fn confirmed(&mut self, at: usize) {
        let CrossReset { path, era, .. } = self.resets[at];
        self.doubts.release(era);
        self.paths[path].is_reset |= self.paths[path].era == era;
        self.end_reset(at);
    }

    fn end_reset(&mut self, at: usize) {
        let reset = self.resets.swap_remove(at);
        if let Step::Sent { via, ticket } | Step::Reading { via, ticket } = reset.step {
            self.paths[via].controller.forget(ticket);
        }
    }

    /// Advances a reset by one step. Returns true if the reset is confirmed, false if another step
    /// is possible, and `None` if the reset must wait.
    fn advance_reset(&mut self, at: usize) -> Option<bool> {
        let now = self.time();
        let reset = &mut self.resets[at];
        match reset.step {
            Step::Unsent => {
                let via = self.carrier(at).filter(|&via| !self.is_busy(via))?;
                let sqe = command::cross_controller_reset(&self.resets[at].instance);
                let controller = &mut self.paths[via].controller;
                let ticket = controller.submit_admin(sqe, Data::None).ok()?;
                self.resets[at].step = Step::Sent { via, ticket };
                None
            }
            Step::Sent { via, ticket } => {
                let Ended { answer, .. } = self.paths[via].controller.take(ticket)?;
                let look_at = now + LOOK_AGAIN;
                reset.step = Step::InProgress { via, look_at };
                let cqe = answer.ok().map(|response| response.cqe);
                match cqe.map(|cqe| (cqe.status().code(), cqe.dw0.get())) {
                    Some((Status::SUCCESS, Instance::RESET_SUCCESSFUL)) => return Some(true),
                    Some((Status::SUCCESS | Status::CROSS_CONTROLLER_RESET_IN_PROGRESS, _)) => {}
                    _ => reset.failed(via),
                }
                Some(false)
            }
            Step::InProgress { via, .. } if !self.paths[via].controller.is_live() => {
                reset.failed(via);
                Some(false)
            }
            Step::InProgress { look_at, .. } if now < look_at => None,
            Step::InProgress { via, .. } => {
                let look_at = now + LOOK_AGAIN;
                reset.step = Step::InProgress { via, look_at };
                let ticket = self.read_log(via)?;
                self.resets[at].step = Step::Reading { via, ticket };
                None
            }
            Step::Reading { via, ticket } => {
                let ended = self.paths[via].controller.take(ticket)?;
                reset.step = Step::InProgress { via, look_at: now };
                let answer = ended.answer.ok();
                let read = answer.is_some_and(|response| response.cqe.status().is_success());
                let buffer = ended.buffer.filter(|_| read);
                let page = buffer.map(|buffer| buffer.bytes(0, LOG_BYTES as usize));
                self.read_states(via, &page.unwrap_or_default());
                Some(false)
            }
        }
    }

    /// True if a reset command or a read of the log is underway on the path `by`.
    ///
    /// A read removes the entries of all completed resets, even if a reset's command is underway.
    fn is_busy(&self, by: usize) -> bool {
        self.resets.iter().any(|reset| match reset.step {
            Step::Sent { via, .. } | Step::Reading { via, .. } => via == by,
            Step::Unsent | Step::InProgress { .. } => false,
        })
    }

    fn read_log(&mut self, by: usize) -> Option<Ticket> {
        if self.is_busy(by) {
            return None;
        }
        let page = LogPage::CROSS_CONTROLLER_RESET;
        let mut sqe = command::get_log_page(page, NSID_ALL, 0, LOG_BYTES, false);
        let removes = CrossResetLsp(0).with_rmc(true);
        let cdw10 = GetLogCdw10(sqe.cdw10.get()).with_lsp(removes.0);
        sqe.cdw10.set(cdw10.0);
        let controller = &mut self.paths[by].controller;
        let buffer = controller.buffer(LOG_BYTES as usize).ok()?;
        controller.submit_admin(sqe, Data::whole(buffer)).ok()
    }

    fn read_states(&mut self, by: usize, page: &[u8]) {
        let look_at = self.time() + LOOK_AGAIN;
        let mut at = 0;
        while let Some(reset) = self.resets.get_mut(at) {
            let waits = matches!(reset.step, Step::InProgress { via, .. } if via == by);
            match waits.then(|| state_of(&reset.instance, page)) {
                Some(Some(CrossResetState::SUCCESS)) => {
                    self.confirmed(at);
                    continue;
                }
                Some(Some(CrossResetState::IN_PROGRESS)) => {
                    reset.step = Step::InProgress { via: by, look_at };
                }
                Some(_) => reset.failed(by),
                None => {}
            }
            at += 1;
        }
    }

    /// Returns a live path to the same subsystem that supports the reset and is not in `tried`.
    fn carrier(&self, at: usize) -> Option<usize> {
        let reset = &self.resets[at];
        let subnqn = self.paths[reset.path].controller.options().subnqn;
        let mut others = self.paths.iter().enumerate();
        let other = others.find(|(index, other)| {
            other.era != reset.era
                && !reset.tried.contains(index)
                && other.controller.is_live()
                && self.set.ana(*index).is_some()
                && other.controller.options().subnqn == subnqn
                && other.controller.identity().ccrl > 0
        });
        other.map(|(index, _)| index)
    }
}

fn state_of(instance: &Instance, page: &[u8]) -> Option<CrossResetState> {
    let (header, mut rest) = CrossResetLogHeader::read_from_prefix(page).ok()?;
    let mut state = None;
    for _ in 0..header.ne.get() {
        let Ok((entry, after)) = CrossResetEntry::read_from_prefix(rest) else {
            break;
        };
        if (entry.icid.get(), entry.ciu) == (instance.cntlid, instance.ciu) {
            state = Some(CrossResetState(entry.ccrs));
        }
        rest = after;
    }
    state
}
