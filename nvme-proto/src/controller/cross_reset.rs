//! Cross-Controller Reset (Base 2.3, 5.4.3): ends another association of the same host.
//!
//! An [`Instance`] identifies an association. The association has ended when all its queues are
//! closed: its commands then reach no disk. Resetting an unknown instance fails, because the
//! instance may be alive at another target.

use alloc::vec::Vec;
use core::time::Duration;

use zerocopy::{FromZeros, IntoBytes};

use crate::limits::{CROSS_RESET_ANSWER_MS, CROSS_RESET_LOG_ENTRIES, CROSS_RESETS};
use crate::window::Window;
use crate::wire::Status;
use crate::wire::aen::AsyncEvent;
use crate::wire::cross_reset::{
    CrossResetEntry, CrossResetFlags, CrossResetLogHeader, CrossResetState, Instance,
};

use super::{Action, Completion, Controller, Outcome, Refusal, refusal};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Present,
    Departed,
}

#[derive(Debug)]
struct Unanswered {
    cid: u16,
    instance: Instance,
    until: Duration,
}

#[derive(Debug, Default)]
pub(super) struct CrossResets {
    unanswered: Vec<Unanswered>,
    log: Vec<(Instance, CrossResetState)>,
}

impl CrossResets {
    fn begin(&mut self, cid: u16, instance: Instance, now: Duration) -> Result<(), Refusal> {
        let logged = self.log.iter();
        let logged = logged.filter(|(_, state)| *state == CrossResetState::IN_PROGRESS);
        let in_progress = self.unanswered.iter().map(|unanswered| unanswered.instance);
        let in_progress = in_progress.chain(logged.map(|(instance, _)| *instance));
        let refused = if in_progress.clone().any(|other| other == instance) {
            Status::CROSS_CONTROLLER_RESET_IN_PROGRESS
        } else if in_progress.count() >= CROSS_RESETS {
            Status::CROSS_CONTROLLER_RESET_LIMIT_EXCEEDED
        } else if self.log.len() + self.unanswered.len() >= CROSS_RESET_LOG_ENTRIES {
            Status::CROSS_CONTROLLER_RESET_LOG_FULL
        } else {
            self.unanswered.push(Unanswered {
                cid,
                instance,
                until: now + Duration::from_millis(CROSS_RESET_ANSWER_MS),
            });
            return Ok(());
        };
        Err(Refusal::transient(refused))
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.unanswered.iter().map(|reset| reset.until).min()
    }

    pub(super) fn put_log(&self, page: &mut Window<'_>) {
        let mut header = CrossResetLogHeader::new_zeroed();
        header.ne.set(self.log.len() as u16);
        page.put(0, header.as_bytes());
        let mut at = size_of::<CrossResetLogHeader>() as u64;
        for (instance, state) in &self.log {
            let mut entry = CrossResetEntry::new_zeroed();
            entry.icid.set(instance.cntlid);
            entry.ciu = instance.ciu;
            entry.acid.set(u16::MAX);
            entry.ccrs = state.0;
            let flags = CrossResetFlags(0).with_validated(true);
            entry.ccrf = flags.with_initiated(true).0;
            page.put(at, entry.as_bytes());
            at += size_of::<CrossResetEntry>() as u64;
        }
    }

    pub(super) fn log_bytes(&self) -> u64 {
        (size_of::<CrossResetEntry>() * (1 + self.log.len())) as u64
    }

    pub(super) fn remove_completed(&mut self) {
        self.log
            .retain(|(_, state)| *state == CrossResetState::IN_PROGRESS);
    }
}

#[derive(Debug)]
pub(super) struct Identity {
    last: Instance,
    was_enabled: bool,
}

impl Identity {
    pub(super) fn new(cntlid: u16, random: u64) -> Self {
        let ciu = random.to_le_bytes()[0];
        let last = Instance {
            cntlid,
            ciu,
            cirn: random,
        };
        Self {
            last,
            was_enabled: false,
        }
    }

    pub(super) fn instance(&self) -> Option<Instance> {
        self.was_enabled.then_some(self.last)
    }

    pub(super) fn enabled(&mut self) -> Option<Instance> {
        let former = self.instance();
        self.was_enabled = true;
        self.last.ciu = self.last.ciu.checked_add(1).unwrap_or(1);
        self.last.cirn = mix(self.last.cirn);
        former
    }
}

/// Mixing function of SplitMix64.
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Controller {
    pub(crate) fn instance(&self) -> Option<Instance> {
        self.identity.instance()
    }

    /// Parks the command if `fate` is `Present`, within the limits; the subsystem must then
    /// terminate the instance.
    pub(crate) fn cross_reset(
        &mut self,
        cid: u16,
        instance: Instance,
        fate: Result<Fate, Refusal>,
        now: Duration,
    ) -> Outcome {
        self.keep_alive.restart(now);
        let begun = match fate {
            _ if !self.is_ready() => {
                Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR).at(refusal::byte::OPC))
            }
            Ok(Fate::Present) => self.cross_resets.begin(cid, instance, now),
            Ok(Fate::Departed) => return Outcome::Complete(successful(cid)),
            Err(refusal) => Err(refusal),
        };
        match begun {
            Ok(()) => Outcome::Parked,
            Err(refusal) => Outcome::Complete(self.refuse(cid, refusal)),
        }
    }

    pub(crate) fn instance_departed(&mut self, instance: &Instance, actions: &mut Vec<Action>) {
        let cntlid = self.cntlid;
        let resets = &mut self.cross_resets;
        let of_it = |reset: &mut Unanswered| reset.instance == *instance;
        let answered = resets.unanswered.extract_if(.., of_it);
        actions.extend(answered.map(|reset| Action::Complete {
            cntlid,
            completion: successful(reset.cid),
        }));
        let logged = resets
            .log
            .iter_mut()
            .find(|(of, state)| of == instance && *state == CrossResetState::IN_PROGRESS);
        if let Some((_, state)) = logged {
            *state = CrossResetState::SUCCESS;
            self.raise(AsyncEvent::NOTICE_CROSS_CONTROLLER_RESET, actions);
        }
    }

    pub(crate) fn answer_late_resets(&mut self, now: Duration, actions: &mut Vec<Action>) {
        let cntlid = self.cntlid;
        let CrossResets { unanswered, log } = &mut self.cross_resets;
        for reset in unanswered.extract_if(.., |reset| reset.until <= now) {
            log.push((reset.instance, CrossResetState::IN_PROGRESS));
            actions.push(Action::Complete {
                cntlid,
                completion: Completion::success(reset.cid, 0),
            });
        }
    }
}

fn successful(cid: u16) -> Completion {
    Completion::success(cid, Instance::RESET_SUCCESSFUL.into())
}
