//! Path to a namespace: a controller, with the reported identity and ANA state.

use std::fmt;
use std::time::{Duration, Instant};

use nvme_proto::host::multipath::{AnaLog, AnaLogError, time_in_doubt};
use nvme_proto::host::requeue;
use nvme_proto::host::{AssociationState, Notice};
use nvme_proto::wire::cross_reset::Instance;
use nvme_proto::wire::identify::{Cmic, Cns, IDENTIFY_BYTES, IdentifyNamespace};
use nvme_proto::wire::log::{AnaState, LogPage};
use nvme_proto::wire::{FromBytes, NSID_ALL, Sqe, Status};

use super::{Identity, Namespace};
use crate::buffer::{Buffer, Data};
use crate::command;
use crate::controller::Controller;
use crate::error::HostError;
use crate::event::Event;
use crate::queue::{Ended, IoQueue, Response, Ticket};
use crate::reading::Reading;

/// Maximum size of the ANA log in bytes: about a million namespaces.
const ANA_LOG_MAX: usize = 4 << 20;
const SCRATCH_BYTES: usize = 64 << 10;
const TRIES_MAX: u8 = 5;
const TRY_AGAIN: Duration = Duration::from_millis(200);
const LOOK_AGAIN: Duration = Duration::from_secs(10);
const CHANGED_LIST_BYTES: u32 = 4096;
const ANATT_LEAST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Log page 04h, read only to re-arm its event.
    ChangedNamespaces,
    Descriptors,
    Namespace,
    AnaLog,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ChangedNamespaces => "the Changed Namespace List",
            Self::Descriptors => "the identifiers of the namespace",
            Self::Namespace => "Identify Namespace",
            Self::AnaLog => "the ANA log",
        })
    }
}

const QUESTIONS: [Question; 4] = [
    Question::ChangedNamespaces,
    Question::Descriptors,
    Question::Namespace,
    Question::AnaLog,
];

#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Namespace(Namespace),
    Ana(Option<AnaState>),
    Refused(String),
}

#[derive(Debug)]
pub(super) struct Path {
    pub(super) controller: Controller,
    nsid: u32,
    scratch: Buffer,
    due: [bool; QUESTIONS.len()],
    asked: Option<(Question, Ticket)>,
    ana_log: Option<Reading>,
    failures: u8,
    ask_at: Duration,
    identity: Option<Identity>,
    pub(super) refused: Option<String>,
    pub(super) proven: bool,
    pub(super) in_question: bool,
    pub(super) commands: u64,
    owners: Vec<Vec<u16>>,
    /// Number of the connection, unique among all paths.
    pub(super) era: u64,
    /// Instance of the controller while it is live.
    pub(super) instance: Option<Instance>,
    /// True if a Cross-Controller Reset has ended the lost controller.
    pub(super) is_reset: bool,
}

impl Path {
    pub(super) fn new(controller: Controller, nsid: u32) -> Result<Self, HostError> {
        let options = controller.options();
        let entries = usize::from(options.entries());
        let owners = vec![vec![0; entries]; usize::from(options.io_queues)];
        Ok(Self {
            scratch: controller.buffer(SCRATCH_BYTES)?,
            controller,
            nsid,
            due: [false; QUESTIONS.len()],
            asked: None,
            ana_log: None,
            failures: 0,
            ask_at: Duration::ZERO,
            identity: None,
            refused: None,
            proven: false,
            in_question: false,
            commands: 0,
            owners,
            era: 0,
            instance: None,
            is_reset: false,
        })
    }

    pub(super) fn note(&mut self, event: &Event) {
        match event {
            Event::Live { .. } => {
                self.due = [false, true, true, true];
                (self.refused, self.ana_log) = (None, None);
                (self.failures, self.ask_at) = (0, Duration::ZERO);
            }
            Event::Notice(Notice::NamespacesChanged) => {
                self.due = [true, true, true, true];
                self.in_question = true;
            }
            Event::Notice(Notice::AnaChanged) => self.request_ana_log(),
            _ => {}
        }
    }

    pub(super) fn fate(&self) -> String {
        let remote = self.controller.options().remote;
        match &self.refused {
            Some(why) => format!("{remote}: {why}"),
            None if self.controller.is_live() => {
                format!("{remote} is connected, and its ANA state lets no command through")
            }
            None => self.controller.lost_for_good().to_string(),
        }
    }

    pub(super) fn request_ana_log(&mut self) {
        self.ana_log = None;
        self.due[Question::AnaLog as usize] = true;
    }

    pub(super) fn is_asking(&self) -> bool {
        self.refused.is_none() && (self.asked.is_some() || self.due.contains(&true))
    }

    pub(super) fn asks_at(&self) -> Option<Duration> {
        let waits = self.asked.is_none() && self.due.contains(&true) && self.controller.is_live();
        waits.then_some(self.ask_at)
    }

    pub(super) fn pause(&self, status: Status) -> Duration {
        requeue::pause(status, self.controller.identity())
    }

    pub(super) fn anatt(&self) -> Duration {
        let seconds = u64::from(self.controller.identity().anatt);
        Duration::from_secs(seconds).max(ANATT_LEAST)
    }

    pub(super) fn time_in_doubt(&self) -> Duration {
        let kato_ms = self.controller.options().kato_ms;
        time_in_doubt(kato_ms, self.controller.identity())
    }

    pub(super) fn inquire(&mut self, now: Duration) -> Option<Answer> {
        if let Some((question, ticket)) = self.asked {
            let answer = self.controller.take(ticket)?.answer;
            self.asked = None;
            if let Some(answer) = self.take_answer(question, answer, now) {
                return Some(answer);
            }
        }
        if self.controller.state() != AssociationState::Live || now < self.ask_at {
            return None;
        }
        let next = self.due.iter().position(|&due| due)?;
        let question = QUESTIONS[next];
        if question == Question::AnaLog && !Cmic(self.controller.identity().cmic).ana() {
            self.due[next] = false;
            return Some(Answer::Ana(Some(AnaState::OPTIMIZED)));
        }
        let (sqe, length) = self.ask(question);
        let data = Data::start_of(self.scratch.lend(), length);
        if let Ok(ticket) = self.controller.submit_admin(sqe, data) {
            self.due[next] = false;
            self.asked = Some((question, ticket));
        }
        None
    }

    fn ask(&mut self, question: Question) -> (Sqe, u32) {
        let identify = IDENTIFY_BYTES as u32;
        match question {
            Question::ChangedNamespaces => {
                let page = LogPage::CHANGED_NAMESPACES;
                let sqe = command::get_log_page(page, NSID_ALL, 0, CHANGED_LIST_BYTES, false);
                (sqe, CHANGED_LIST_BYTES)
            }
            Question::Descriptors => {
                let cns = Cns::NAMESPACE_DESCRIPTORS;
                (command::identify(cns, self.nsid), identify)
            }
            Question::Namespace => (command::identify(Cns::NAMESPACE, self.nsid), identify),
            Question::AnaLog => {
                let (length, piece_max) = (self.ana_log_bytes(), self.piece_max());
                let begin = || {
                    let page = (LogPage::ANA, NSID_ALL);
                    Reading::new(page, 0, length, piece_max, false)
                };
                let reading = self.ana_log.get_or_insert_with(begin);
                reading.next().expect("a page that ends is parsed")
            }
        }
    }

    fn ana_log_bytes(&self) -> usize {
        let id = self.controller.identity();
        let groups = id.nanagrpid.get() as usize;
        let namespaces = id.mnan.get().max(id.nn.get().min(1024)) as usize;
        let bytes = 16 + groups.saturating_mul(32) + namespaces.saturating_mul(4);
        bytes.min(ANA_LOG_MAX)
    }

    fn piece_max(&self) -> usize {
        SCRATCH_BYTES.min(self.controller.transfer_max() as usize)
    }

    fn take_answer(
        &mut self,
        question: Question,
        answer: Result<Response, HostError>,
        now: Duration,
    ) -> Option<Answer> {
        let status = answer.ok()?.cqe.status();
        if question == Question::ChangedNamespaces {
            return None;
        }
        if !status.is_success() {
            return self.failed(question, status, now);
        }
        self.failures = 0;
        match question {
            Question::ChangedNamespaces => None,
            Question::Descriptors => {
                let bytes = self.scratch.bytes(0, IDENTIFY_BYTES);
                self.identity = Some(Identity::of_descriptors(&bytes));
                None
            }
            Question::Namespace => Some(self.read_namespace()),
            Question::AnaLog => self.read_ana_log(),
        }
    }

    /// Repeats the query after a delay. After [`TRIES_MAX`] retries, or if the controller set DNR,
    /// refuses the path until a later query succeeds.
    fn failed(&mut self, question: Question, status: Status, now: Duration) -> Option<Answer> {
        self.ana_log = None;
        self.failures = self.failures.saturating_add(1);
        if !status.dnr() && self.failures <= TRIES_MAX {
            self.ask_at = now + self.pause(status).max(TRY_AGAIN);
            self.due[question as usize] = true;
            return None;
        }
        let refused = self.refuse(format!("{question} cannot be read: {status}"));
        self.ask_at = now + LOOK_AGAIN;
        self.due = [false, true, true, true];
        Some(refused)
    }

    fn read_ana_log(&mut self) -> Option<Answer> {
        let reading = self.ana_log.as_mut()?;
        let (_, piece) = reading.next()?;
        reading.take(&self.scratch.bytes(0, piece as usize));
        let whole = reading.next().is_none();
        let answer = match AnaLog::parse(reading.bytes()) {
            Ok(log) => Answer::Ana(log.state_of(self.nsid)),
            Err(AnaLogError::Short) if !whole => {
                self.due[Question::AnaLog as usize] = true;
                return None;
            }
            Err(error) => self.refuse(error.to_string()),
        };
        self.ana_log = None;
        Some(answer)
    }

    fn read_namespace(&mut self) -> Answer {
        let bytes = self.scratch.bytes(0, IDENTIFY_BYTES);
        let id = IdentifyNamespace::read_from_bytes(&bytes).expect("4096 bytes");
        let identity = self.identity.take().unwrap_or_default();
        let identity = identity.completed_by(&id);
        let format = id
            .lba_format()
            .filter(|format| (9..=16).contains(&format.lbads));
        match format {
            Some(format) if id.nsze.get() > 0 && format.ms.get() == 0 => {
                Answer::Namespace(Namespace {
                    nsid: self.nsid,
                    identity,
                    blocks: id.nsze.get(),
                    block_bytes: 1 << format.lbads,
                })
            }
            _ => self.refuse(format!(
                "namespace {} is not there, or not usable",
                self.nsid
            )),
        }
    }

    fn refuse(&mut self, why: String) -> Answer {
        self.due = [false; QUESTIONS.len()];
        Answer::Refused(why)
    }

    pub(super) fn queue_for(&self, slot: u16) -> Option<IoQueue> {
        let queue = self.controller.io_queue(usize::from(slot));
        let room = self.controller.outstanding(queue) < usize::from(self.controller.depth(queue));
        (self.controller.is_live() && self.controller.is_up(queue) && room).then_some(queue)
    }

    pub(super) fn note_owner(&mut self, ticket: Ticket, slot: u16) {
        self.commands += 1;
        self.owners[usize::from(ticket.qid()) - 1][usize::from(ticket.cid())] = slot;
    }

    pub(super) fn reap(&mut self, queue: IoQueue) -> Option<(u16, Result<Response, HostError>)> {
        let (ticket, Ended { answer, .. }) = self.controller.reap(queue)?;
        let slot = self.owners[queue.index() - 1][usize::from(ticket.cid())];
        Some((slot, answer))
    }

    pub(super) fn queues(&self) -> impl Iterator<Item = IoQueue> + use<> {
        IoQueue::all(self.owners.len() as u16)
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.controller.next_deadline()
    }
}
