//! What must not reach a controller that is back: I/O for a namespace that is another
//! disk by now, and writes over such as its lost association may still carry out.
//!
//! A namespace that was opened is identified again whenever the controller is back or
//! reports a change. Until that is answered its commands wait; if it is another disk they
//! fail, until the caller opens it anew. A disk without identifiers cannot be known again, so it
//! counts as another one. After a change the list of changed namespaces (log page 04h) is read
//! first: that arms the event for the next one.
//!
//! A write whose connection was lost is in doubt for a while
//! ([`multipath`](nvme_proto::host::multipath#a-write-in-doubt)): the rule, and the time,
//! are those of several paths, since the target behind an address may be another one
//! after a loss, and the first one only paused.

use std::collections::BTreeSet;
use std::time::Duration;

use nvme_proto::host::multipath::Doubts;
use nvme_proto::wire::identify::{Cns, IDENTIFY_BYTES, IdentifyNamespace, NamespaceList};
use nvme_proto::wire::log::LogPage;
use nvme_proto::wire::{FromBytes, NSID_ALL, Sqe, Status};

use crate::command;
use crate::namespace::{Disk, DiskIdentity, Namespace};

/// Lost writes that are kept one by one; beyond them, all blocks count as in doubt.
const DOUBTS_MAX: usize = 256;

/// A namespace that was opened.
#[derive(Debug)]
struct Opened {
    nsid: u32,
    disk: Disk,
    /// It is to be identified again.
    in_question: bool,
    /// It is another disk, or there is none.
    replaced: bool,
}

/// What is asked, in this order; the list of changes is not about a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Changes,
    Descriptors,
    Namespace,
}

#[derive(Debug)]
struct Question {
    /// 0 for the list of changes.
    nsid: u32,
    step: Step,
    /// It is with the controller.
    sent: bool,
    /// The caller opened the namespace anew meanwhile: the answer is of no interest.
    void: bool,
    identity: DiskIdentity,
}

/// What an answer has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// Nothing yet.
    Nothing,
    /// The disk that it was.
    Same,
    /// Another disk, or none.
    Replaced {
        /// NSID.
        nsid: u32,
    },
}

/// How an I/O command stands to the disk that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// The namespace is that disk, as far as is known.
    Known,
    /// It is another disk, or none.
    Replaced,
    /// It was not opened.
    Unknown,
}

/// NSIDs that the controller has reported as changed, for the caller.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    nsids: BTreeSet<u32>,
    /// There were too many to name.
    all: bool,
}

impl Changes {
    /// Adds those of a log page 04h.
    pub(crate) fn add(&mut self, page: &[u8; IDENTIFY_BYTES]) {
        let list = NamespaceList::read_from_bytes(page).expect("4096 bytes");
        self.nsids.extend(list.iter());
        self.all |= self.nsids.remove(&NSID_ALL);
        if self.all {
            self.nsids.clear();
        }
    }

    /// `None`: too many to name.
    pub(crate) fn into_list(self) -> Option<Vec<u32>> {
        (!self.all).then(|| self.nsids.into_iter().collect())
    }
}

/// What is held back of a controller's commands.
#[derive(Debug)]
pub(super) struct Guard {
    opened: Vec<Opened>,
    question: Option<Question>,
    doubts: Doubts,
    /// Those of queues that were let go for a reset. If that succeeds, the controller has
    /// ended their commands.
    of_reset: Doubts,
    /// Whether the controller was lost since it was last live.
    lost: bool,
    /// How often namespaces may have changed.
    pub(super) changes: u64,
    /// The list of changes is to be read.
    arms: bool,
    /// What it had, until the caller asks.
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

    /// The caller knows this namespace now, whatever it was before.
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

    /// The controller reports that namespaces have changed.
    pub(super) fn changed(&mut self) {
        self.arms = !self.opened.is_empty();
        self.doubt_namespaces();
    }

    /// The changes that were reported and not taken; `None` while there is an answer to wait for.
    pub(super) fn take_changes(&mut self) -> Option<Changes> {
        let asks = |question: &Question| question.step == Step::Changes;
        let waits = self.arms || self.question.as_ref().is_some_and(asks);
        (!waits).then(|| std::mem::take(&mut self.changed))
    }

    /// All that was opened may have changed.
    fn doubt_namespaces(&mut self) {
        self.changes += 1;
        for own in &mut self.opened {
            own.in_question = true;
        }
    }

    /// The controller is lost.
    pub(super) fn lost(&mut self) {
        self.lost = true;
        self.doubts.take(&mut self.of_reset);
    }

    /// It takes commands, for the first time or again.
    pub(super) fn live(&mut self) {
        if !std::mem::take(&mut self.lost) {
            self.of_reset.expire(Duration::MAX);
        }
        self.question = None;
        self.arms = false;
        self.doubt_namespaces();
    }

    /// The connection of a command that was sent and not answered is closed.
    pub(super) fn unanswered(&mut self, sqe: &Sqe, is_reset: bool, until: Duration) {
        let doubts = if is_reset {
            &mut self.of_reset
        } else {
            &mut self.doubts
        };
        doubts.add(sqe, until);
    }

    /// Forgets doubts that are over; whether there were any.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let due = self.doubts.deadline().is_some_and(|at| at <= now);
        self.doubts.expire(now);
        due
    }

    /// When to [`expire`](Self::expire) something.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.doubts.deadline()
    }

    /// Whether an I/O command has to wait.
    pub(super) fn holds(&self, sqe: &Sqe) -> bool {
        if !self.doubts.is_empty() && self.doubts.hold(sqe) {
            return true;
        }
        let nsid = sqe.nsid.get();
        let mut opened = self.opened.iter();
        opened.any(|own| own.nsid == nsid && self.is_in_question(own))
    }

    /// Whether a namespace is the disk that a command is for. `None`: whatever was opened.
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

    /// What to ask the controller.
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

    /// That is with the controller.
    pub(super) fn asked(&mut self) {
        if let Some(question) = &mut self.question {
            question.sent = true;
        }
    }

    /// The controller has answered it.
    pub(super) fn answered(&mut self, status: Status, data: &[u8; IDENTIFY_BYTES]) -> Found {
        let Some(mut question) = self.question.take().filter(|question| !question.void) else {
            return Found::Nothing;
        };
        if question.step == Step::Changes {
            // A controller without the page has no event to arm either.
            if status.is_success() {
                self.changed.add(data);
            }
            return Found::Nothing;
        }
        if question.step == Step::Descriptors {
            // Controllers before NVMe 1.3 have no descriptors; that is no failure.
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
