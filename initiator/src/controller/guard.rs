//! Checks of namespaces and of lost writes (unanswered when their connection closed) after a
//! reconnection.
//!
//! An opened namespace is identified again after each reconnection and report of changed
//! namespaces ([`Controller::expect_disk`](super::Controller::expect_disk)).
//!
//! Other writes to the blocks of a lost write wait until the target can no longer execute it
//! ([`multipath`](nvme_proto::host::multipath#writes-with-unknown-outcome)).

use std::collections::BTreeSet;
use std::time::Duration;

use nvme_proto::host::multipath::Doubts;
use nvme_proto::wire::identify::{Cns, IDENTIFY_BYTES, IdentifyNamespace, NamespaceList};
use nvme_proto::wire::log::LogPage;
use nvme_proto::wire::{FromBytes, NSID_ALL, Sqe, Status};

use crate::command;
use crate::namespace::{Disk, DiskIdentity, Namespace};

/// Maximum lost writes whose blocks are recorded; with more, all writes wait.
const DOUBTS_MAX: usize = 256;

#[derive(Debug)]
struct Opened {
    nsid: u32,
    disk: Disk,
    in_question: bool,
    replaced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Changes,
    Descriptors,
    Namespace,
}

#[derive(Debug)]
struct Question {
    nsid: u32,
    step: Step,
    sent: bool,
    /// True if the caller has opened the namespace again, so the response must be ignored.
    void: bool,
    identity: DiskIdentity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Same,
    /// The namespace is missing or is another disk.
    Replaced {
        nsid: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Known,
    Replaced,
    Unknown,
}

#[derive(Debug, Default)]
pub(crate) struct Changes {
    nsids: BTreeSet<u32>,
    /// True if every namespace may have changed, because log page 04h had no room for all NSIDs.
    all: bool,
}

impl Changes {
    pub(crate) fn add(&mut self, page: &[u8; IDENTIFY_BYTES]) {
        let list = NamespaceList::read_from_bytes(page).expect("4096 bytes");
        self.nsids.extend(list.iter());
        self.all |= self.nsids.remove(&NSID_ALL);
        if self.all {
            self.nsids.clear();
        }
    }

    pub(crate) fn into_list(self) -> Option<Vec<u32>> {
        (!self.all).then(|| self.nsids.into_iter().collect())
    }
}

#[derive(Debug)]
pub(super) struct Guard {
    opened: Vec<Opened>,
    question: Option<Question>,
    doubts: Doubts,
    /// Unanswered writes of queues closed by a reset. After the reset, the controller cannot
    /// execute these writes.
    of_reset: Doubts,
    lost: bool,
    pub(super) changes: u64,
    arms: bool,
    changed: Changes,
}

impl Guard {
    pub(super) fn new() -> Self {
        Self {
            opened: Vec::new(),
            question: None,
            doubts: Doubts::new(DOUBTS_MAX),
            of_reset: Doubts::new(DOUBTS_MAX),
            lost: false,
            changes: 0,
            arms: false,
            changed: Changes::default(),
        }
    }

    pub(super) fn open(&mut self, namespace: &Namespace) {
        self.opened.retain(|own| own.nsid != namespace.nsid);
        self.opened.push(Opened {
            nsid: namespace.nsid,
            disk: namespace.disk(),
            in_question: false,
            replaced: false,
        });
        let unsent = self.question.take_if(|question| !question.sent);
        self.arms |= unsent.is_some_and(|question| question.step == Step::Changes);
        if let Some(question) = &mut self.question {
            question.void |= question.nsid == namespace.nsid;
        }
    }

    pub(super) fn changed(&mut self) {
        self.arms = !self.opened.is_empty();
        self.doubt_namespaces();
    }

    pub(super) fn take_changes(&mut self) -> Option<Changes> {
        let asks = |question: &Question| question.step == Step::Changes;
        let waits = self.arms || self.question.as_ref().is_some_and(asks);
        (!waits).then(|| std::mem::take(&mut self.changed))
    }

    fn doubt_namespaces(&mut self) {
        self.changes += 1;
        for own in &mut self.opened {
            own.in_question = true;
        }
    }

    pub(super) fn lost(&mut self) {
        self.lost = true;
        self.doubts.take(&mut self.of_reset);
    }

    pub(super) fn live(&mut self) {
        if !std::mem::take(&mut self.lost) {
            self.of_reset.expire(Duration::MAX);
        }
        self.question = None;
        self.arms = false;
        self.doubt_namespaces();
    }

    pub(super) fn unanswered(&mut self, sqe: &Sqe, is_reset: bool, until: Duration) {
        let doubts = if is_reset {
            &mut self.of_reset
        } else {
            &mut self.doubts
        };
        doubts.add(sqe, until);
    }

    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let due = self.doubts.deadline().is_some_and(|at| at <= now);
        self.doubts.expire(now);
        due
    }

    pub(super) fn deadline(&self) -> Option<Duration> {
        self.doubts.deadline()
    }

    pub(super) fn holds(&self, sqe: &Sqe) -> bool {
        if !self.doubts.is_empty() && self.doubts.hold(sqe) {
            return true;
        }
        let nsid = sqe.nsid.get();
        let mut opened = self.opened.iter();
        opened.any(|own| own.nsid == nsid && self.is_in_question(own))
    }

    pub(super) fn standing(&self, nsid: u32, disk: Option<&Disk>) -> Standing {
        match self.opened.iter().find(|own| own.nsid == nsid) {
            None => Standing::Unknown,
            Some(own) if own.replaced || disk.is_some_and(|disk| *disk != own.disk) => {
                Standing::Replaced
            }
            Some(_) => Standing::Known,
        }
    }

    fn is_in_question(&self, own: &Opened) -> bool {
        let asked = self.question.as_ref();
        own.in_question || asked.is_some_and(|question| question.nsid == own.nsid && !question.void)
    }

    pub(super) fn next_question(&mut self) -> Option<Sqe> {
        if self.question.is_none() && std::mem::take(&mut self.arms) {
            self.question = Some(Question {
                nsid: 0,
                step: Step::Changes,
                sent: false,
                void: false,
                identity: DiskIdentity::default(),
            });
        }
        if self.question.is_none() {
            let own = self.opened.iter_mut().find(|own| own.in_question)?;
            own.in_question = false;
            self.question = Some(Question {
                nsid: own.nsid,
                step: Step::Descriptors,
                sent: false,
                void: false,
                identity: DiskIdentity::default(),
            });
        }
        let question = self.question.as_ref().filter(|question| !question.sent)?;
        let cns = match question.step {
            Step::Changes => {
                let (page, length) = (LogPage::CHANGED_NAMESPACES, IDENTIFY_BYTES as u32);
                return Some(command::get_log_page(page, NSID_ALL, 0, length, false));
            }
            Step::Descriptors => Cns::NAMESPACE_DESCRIPTORS,
            Step::Namespace => Cns::NAMESPACE,
        };
        Some(command::identify(cns, question.nsid))
    }

    pub(super) fn asked(&mut self) {
        if let Some(question) = &mut self.question {
            question.sent = true;
        }
    }

    pub(super) fn answered(&mut self, status: Status, data: &[u8; IDENTIFY_BYTES]) -> Found {
        let Some(mut question) = self.question.take().filter(|question| !question.void) else {
            return Found::Nothing;
        };
        if question.step == Step::Changes {
            if status.is_success() {
                self.changed.add(data);
            }
            return Found::Nothing;
        }
        if question.step == Step::Descriptors {
            if status.is_success() {
                question.identity = DiskIdentity::of_descriptors(data);
            }
            question.step = Step::Namespace;
            question.sent = false;
            self.question = Some(question);
            return Found::Nothing;
        }
        let nsid = question.nsid;
        let own = self.opened.iter_mut().find(|own| own.nsid == nsid);
        let own = own.expect("what is asked about was opened");
        let identify = IdentifyNamespace::read_from_bytes(data).expect("4096 bytes");
        let found = Namespace::parse(nsid, &identify, &[]);
        let identity = question.identity.completed_by(&identify);
        let is_same = status.is_success()
            && identity != DiskIdentity::default()
            && found.is_ok_and(|found| {
                let block_bytes = found.block_bytes;
                own.disk
                    == Disk {
                        identity,
                        block_bytes,
                    }
            });
        own.replaced |= !is_same;
        if own.replaced {
            Found::Replaced { nsid }
        } else {
            Found::Same
        }
    }
}
