//! Search for an order of concurrent commands that explains their answers (linearizability).

use std::collections::BTreeSet;

use nvme_proto::wire::Status;

use super::spec::{Answer, Command, NAMESPACES, NSID_ALL, State};

#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) by: usize,
    pub(super) nsid: u32,
    pub(super) command: Command,
    pub(super) begun: u64,
    /// `None` if the connection was lost: the command was executed at any later time, or never.
    pub(super) ended: Option<(u64, Answer)>,
}

impl Sent {
    /// True if the target refused this change of PTPL during another change by the controller.
    fn was_interrupted(&self, batch: &[Self]) -> bool {
        let changes = |one: &Self| matches!(one.command, Command::SetPersistence(_));
        let Some((ended, Answer { status, .. })) = &self.ended else {
            return false;
        };
        let beside = |other: &&Self| {
            let goes_on = other.ended.as_ref().is_none_or(|(at, _)| *at > self.begun);
            changes(other) && other.by == self.by && other.begun < *ended && goes_on
        };
        let others = batch.iter().filter(|other| other.begun != self.begun);
        let interrupted = *status == Status::COMMAND_INTERRUPTED && changes(self);
        interrupted && others.clone().any(|other| beside(&other))
    }
}

impl std::fmt::Display for Sent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            by, nsid, command, ..
        } = self;
        write!(
            f,
            "{:>4} controller {by}, NSID {nsid}: {command:?}",
            self.begun
        )?;
        match &self.ended {
            Some((at, answer)) => {
                write!(f, "\n{at:>4}     {}: {:?}", answer.status, answer.shown)
            }
            None => write!(f, "\n         no answer"),
        }
    }
}

/// Returns the possible states after the commands. Empty if no order explains the answers.
pub(super) fn after(before: &BTreeSet<State>, sent: &[Sent]) -> BTreeSet<State> {
    let executed = sent.iter().filter(|one| !one.was_interrupted(sent));
    let sent: Vec<Sent> = executed.flat_map(parts).collect();
    assert!(sent.len() < 32, "a batch of {}", sent.len());
    let answered = (0..sent.len()).filter(|at| sent[*at].ended.is_some());
    let answered: u32 = answered.map(|at| 1 << at).sum();
    let mut seen: BTreeSet<(u32, State)> = BTreeSet::new();
    let mut open: Vec<(u32, State)> = before.iter().map(|state| (0, state.clone())).collect();
    let mut ends = BTreeSet::new();
    while let Some((done, state)) = open.pop() {
        if !seen.insert((done, state.clone())) {
            continue;
        }
        if done & answered == answered {
            ends.insert(state.clone());
        }
        let left = (0..sent.len()).filter(|at| done >> at & 1 == 0);
        // A command that ended before another command began was executed first.
        let first_end = left
            .clone()
            .filter_map(|at| Some(sent[at].ended.as_ref()?.0));
        let first_end = first_end.min().unwrap_or(u64::MAX);
        for at in left.filter(|at| sent[*at].begun < first_end) {
            let one = &sent[at];
            for (answer, next) in state.execute(one.by, one.nsid, &one.command) {
                let told = one.ended.as_ref().map(|(_, told)| told);
                if told.is_none_or(|told| *told == answer) {
                    open.push((done | 1 << at, next));
                }
            }
        }
    }
    ends
}

/// Splits a change of PTPL in all namespaces, because each namespace may change at another time.
fn parts(sent: &Sent) -> Vec<Sent> {
    let Sent { nsid, command, .. } = sent;
    if *nsid != NSID_ALL || !matches!(command, Command::SetPersistence(_)) {
        return vec![sent.clone()];
    }
    let nsids = 1..=NAMESPACES as u32;
    nsids
        .map(|nsid| Sent {
            nsid,
            ..sent.clone()
        })
        .collect()
}
