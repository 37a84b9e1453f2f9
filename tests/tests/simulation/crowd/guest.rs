//! Simulated host that uses the same blocks as other hosts. It may pause, die or restart.

use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use cairn_initiator::{
    Buffer, Controller, Data, Event, HostError, HostOptions, Identity, Loss, Recovery, Response,
    Ticket, command,
};
use cairn_rdma::Provider;
use cairn_roce::Soft;
use cairn_sim::Random;
use cairn_tests::harness::{NQN, host_nqn, nqn};
use nvme_proto::host::AssociationState;

use super::ledger::Ledger;
use super::stage::Stage;
use crate::history::{End, Id, Kind, Value};

const SLOTS: usize = 12;
pub(super) const TRANSFER_BYTES: usize = 8192;

#[derive(Debug, Clone)]
pub(super) struct Traits {
    pub(super) number: u8,
    /// Identity of the host, which several simulated hosts may share.
    pub(super) identity: u8,
    pub(super) io_queues: u16,
    pub(super) kato_ms: u32,
    pub(super) only: Option<usize>,
}

pub(super) struct Guest {
    pub(super) traits: Traits,
    who: String,
    soft: Soft,
    pub(super) target: usize,
    association: Option<Association>,
    lost: Vec<(usize, Id)>,
    pub(super) ended: Option<Instant>,
    next_value: Value,
    pub(super) paused: bool,
    pub(super) slowest: Duration,
}

struct Association {
    controller: Controller,
    buffers: Vec<Option<Buffer>>,
    slots: Vec<Option<Open>>,
    live: bool,
}

struct Open {
    ticket: Ticket,
    id: Id,
    namespace: usize,
    kind: Kind,
    blocks: Range<usize>,
    since: Instant,
}

impl Guest {
    pub(super) fn new(traits: Traits, stage: &mut Stage) -> Self {
        Self {
            who: format!("host {}", traits.number),
            soft: stage.soft(),
            target: 0,
            association: None,
            lost: Vec::new(),
            ended: None,
            next_value: u64::from(traits.number) << 40 | 1,
            paused: false,
            slowest: Duration::ZERO,
            traits,
        }
    }

    pub(super) fn address(&self) -> IpAddr {
        IpAddr::from([10, 0, 1, self.traits.number])
    }

    pub(super) fn is_live(&self) -> bool {
        self.association.as_ref().is_some_and(|it| it.live)
    }

    pub(super) fn is_away(&self) -> bool {
        self.association.is_none()
    }

    pub(super) fn pending(&self) -> usize {
        let slots = self.association.iter().flat_map(|it| &it.slots);
        slots.flatten().count()
    }

    pub(super) fn connect(&mut self, stage: &Stage) {
        let remote = stage.remote(self.target);
        let local = self.address();
        stage.note(|| format!("{} connects to {remote}", self.who));
        let device = self.soft.device_for(remote, Some(local));
        let device = device.expect("the address is free");
        let options = HostOptions {
            local: Some(local),
            io_queues: self.traits.io_queues,
            queue_entries: 16,
            kato_ms: self.traits.kato_ms,
            timeout: Duration::from_secs(10),
            command_timeout: Duration::from_secs(30),
            recovery: Recovery::NONE,
            requeue: false,
            hostid: [self.traits.identity; 16],
            ..HostOptions::new(
                remote,
                nqn(NQN),
                Identity::named(host_nqn(&self.traits.identity.to_string())),
            )
        };
        let controller = Controller::begin(&device, options, stage.now());
        let controller = controller.expect("there is memory");
        let buffers = controller.buffer(SLOTS * TRANSFER_BYTES);
        let buffers = buffers.expect("there is memory").split(TRANSFER_BYTES);
        self.association = Some(Association {
            buffers: buffers.into_iter().map(Some).collect(),
            controller,
            slots: (0..SLOTS).map(|_| None).collect(),
            live: false,
        });
    }

    pub(super) fn poll(&mut self, stage: &Stage, ledgers: &mut [Ledger]) -> Option<Instant> {
        let managed = self.soft.step();
        let own = self.poll_association(stage, ledgers);
        let after = self.soft.step();
        [managed, own, after].into_iter().flatten().min()
    }

    fn poll_association(&mut self, stage: &Stage, ledgers: &mut [Ledger]) -> Option<Instant> {
        let now = stage.now();
        let mut busy = true;
        while busy {
            busy = self.association.as_mut()?.controller.poll(now);
            self.collect(stage, ledgers);
            self.take_events(stage, ledgers);
            let endpoint = self.association.as_mut()?.controller.endpoint();
            busy |= endpoint.arm().unwrap_or(false);
        }
        self.association.as_ref()?.controller.next_deadline()
    }

    fn take_events(&mut self, stage: &Stage, ledgers: &mut [Ledger]) {
        let Some(association) = &mut self.association else {
            return;
        };
        let mut gone = false;
        while let Some(event) = association.controller.take_event() {
            stage.note(|| format!("{}: {event:?}", self.who));
            match event {
                Event::Live { .. } => {
                    association.live = true;
                    bury(&mut self.lost, ledgers, |ledger, _, _| !ledger.hangs);
                }
                Event::Lost(error)
                | Event::TryFailed { error, .. }
                | Event::NotReauthenticated(error) => check(&error),
                Event::Gone(error) => {
                    error.iter().for_each(check);
                    gone = true;
                }
                Event::FailFast | Event::Notice(_) | Event::Reauthenticated => {}
            }
        }
        if gone || association.controller.state() == AssociationState::Gone {
            self.collect(stage, ledgers);
            self.let_go(stage, ledgers);
        }
    }

    fn let_go(&mut self, stage: &Stage, ledgers: &mut [Ledger]) {
        let Some(association) = self.association.take() else {
            return;
        };
        self.ended = Some(stage.now());
        for open in association.slots.into_iter().flatten() {
            self.lose(&open, ledgers);
        }
    }

    fn lose(&mut self, open: &Open, ledgers: &mut [Ledger]) {
        if open.kind.writes() {
            self.lost.push((open.namespace, open.id));
        } else if open.kind == Kind::Read {
            ledgers[open.namespace].end(open.id, End::Failed);
        }
    }

    pub(super) fn kill(&mut self, stage: &mut Stage, ledgers: &mut [Ledger]) {
        stage.note(|| format!("{} dies", self.who));
        let soft = stage.soft();
        let old = std::mem::replace(&mut self.soft, soft);
        let address = self.address();
        let association = self.association.take();
        if let Some(association) = association {
            for open in association.slots.iter().flatten() {
                self.lose(open, ledgers);
            }
            stage.silently(address, || {
                drop(association);
                let _ = old.step();
            });
        }
        self.ended = Some(stage.now());
    }

    pub(super) fn begin(&mut self, stage: &Stage, ledgers: &mut [Ledger], random: &mut Random) {
        let namespace = match self.traits.only {
            Some(only) => only,
            None => random.below(ledgers.len() as u64) as usize,
        };
        let ledger = &mut ledgers[namespace];
        let kind = match random.below(16) {
            0..6 => Kind::Read,
            6..13 => Kind::Write {
                first: self.next_value,
                durable: random.below(4) == 0,
            },
            13 => Kind::WriteZeroes {
                durable: random.below(4) == 0,
            },
            _ => Kind::Flush,
        };
        let blocks = range(ledger, kind, random);
        if kind.writes() && !ledger.may_write(&blocks) {
            return;
        }
        self.submit(stage, ledger, namespace, kind, blocks, random.below(2) == 0);
    }

    fn submit(
        &mut self,
        stage: &Stage,
        ledger: &mut Ledger,
        namespace: usize,
        kind: Kind,
        blocks: Range<usize>,
        in_capsule: bool,
    ) -> Option<Id> {
        let association = self.association.as_mut().filter(|it| it.live)?;
        let slot = association.slots.iter().position(Option::is_none)?;
        let controller = &mut association.controller;
        let home = &mut association.buffers[slot];
        let queue = controller.io_queue(slot);
        let length = blocks.len() * ledger.block_bytes;
        let (slba, count) = (blocks.start as u64, blocks.len() as u32);
        let (sqe, durable) = match kind {
            Kind::Read => (command::read(ledger.nsid, slba, count), false),
            Kind::Write { durable, .. } => (command::write(ledger.nsid, slba, count), durable),
            Kind::WriteZeroes { durable } => {
                let sqe = command::write_zeroes(ledger.nsid, slba, count, false);
                (sqe, durable)
            }
            Kind::Flush => (command::flush(ledger.nsid), false),
        };
        let sqe = if durable { command::with_fua(sqe) } else { sqe };
        let bytes = match kind {
            Kind::Write { first, .. } => ledger.bytes(first, blocks.len()),
            _ => vec![0xee; length],
        };
        let data = match kind {
            Kind::Write { .. } if in_capsule && length <= controller.in_capsule_max(queue) => {
                Data::InCapsule(&bytes)
            }
            Kind::Read | Kind::Write { .. } => {
                let mut buffer = home.take().expect("no command has it");
                buffer.write(0, &bytes);
                Data::start_of(buffer, length as u32)
            }
            Kind::WriteZeroes { .. } | Kind::Flush => Data::None,
        };
        let ticket = match controller.submit_on(queue, sqe, data) {
            Ok(ticket) => ticket,
            Err(unsent) => {
                *home = unsent.buffer.or(home.take());
                return None;
            }
        };
        if let Kind::Write { .. } = kind {
            self.next_value += blocks.len() as u64;
        }
        let id = ledger.begin(&self.who, kind, &blocks);
        stage.note(|| format!("{} begins {id:?}: {kind:?} of {blocks:?}", self.who));
        association.slots[slot] = Some(Open {
            ticket,
            id,
            namespace,
            kind,
            blocks,
            since: stage.now(),
        });
        Some(id)
    }

    fn collect(&mut self, stage: &Stage, ledgers: &mut [Ledger]) {
        for slot in 0..SLOTS {
            let Some(association) = &mut self.association else {
                return;
            };
            let Some(open) = &association.slots[slot] else {
                continue;
            };
            let Some(ended) = association.controller.take(open.ticket) else {
                continue;
            };
            let home = &mut association.buffers[slot];
            *home = ended.buffer.or(home.take());
            let open = association.slots[slot].take().expect("it was just seen");
            match ended.answer {
                Ok(response) => self.answered(stage, ledgers, slot, &open, &response),
                Err(error) => {
                    check(&error);
                    stage.note(|| format!("{} loses {:?}: {error}", self.who, open.id));
                    self.lose(&open, ledgers);
                }
            }
        }
    }

    fn answered(
        &mut self,
        stage: &Stage,
        ledgers: &mut [Ledger],
        slot: usize,
        open: &Open,
        response: &Response,
    ) {
        let took = stage.now().duration_since(open.since);
        self.slowest = self.slowest.max(took);
        let status = response.cqe.status();
        stage.note(|| format!("{}: {:?} ends after {took:?}: {status}", self.who, open.id));
        let ledger = &mut ledgers[open.namespace];
        let end = match open.kind {
            _ if !status.is_success() => End::Failed,
            Kind::Read => {
                let association = self.association.as_ref().expect("it answered");
                let buffer = association.buffers[slot].as_ref().expect("it is back");
                let length = open.blocks.len() * ledger.block_bytes;
                End::Read(ledger.values(&buffer.bytes(0, length)))
            }
            _ => End::Done,
        };
        let changed = open.kind.writes() && end == End::Done;
        ledger.end(open.id, end);
        if changed {
            let overlaps = |ledger: &Ledger, namespace, id| {
                namespace == open.namespace && ledger.overlaps(id, &open.blocks)
            };
            bury(&mut self.lost, ledgers, overlaps);
        }
    }

    pub(super) fn read(
        &mut self,
        stage: &Stage,
        ledgers: &mut [Ledger],
        namespace: usize,
        first: usize,
    ) -> Option<Id> {
        let ledger = &mut ledgers[namespace];
        let count = (TRANSFER_BYTES / ledger.block_bytes).min(ledger.blocks() - first);
        let blocks = first..first + count;
        self.submit(stage, ledger, namespace, Kind::Read, blocks, false)
    }

    pub(super) fn shut_down(&mut self) {
        if let Some(association) = &mut self.association {
            association.live = false;
            association.controller.shutdown();
        }
    }
}

fn bury(
    lost: &mut Vec<(usize, Id)>,
    ledgers: &mut [Ledger],
    is_dead: impl Fn(&Ledger, usize, Id) -> bool,
) {
    lost.retain(|&(namespace, id)| {
        let dead = is_dead(&ledgers[namespace], namespace, id);
        if dead {
            ledgers[namespace].dead(id);
        }
        !dead
    });
}

fn check(error: &HostError) {
    let of_protocol = matches!(
        error,
        HostError::Lost {
            loss: Loss::Protocol(_),
            ..
        }
    );
    assert!(!of_protocol, "{error}");
}

fn range(ledger: &Ledger, kind: Kind, random: &mut Random) -> Range<usize> {
    if kind == Kind::Flush {
        return 0..0;
    }
    let blocks = match random.below(4) {
        0 => ledger.blocks(),
        _ => 8.min(ledger.blocks()),
    };
    let count = 1 + random.below(4.min(blocks as u64)) as usize;
    let first = random.below((blocks - count + 1) as u64) as usize;
    first..first + count
}
