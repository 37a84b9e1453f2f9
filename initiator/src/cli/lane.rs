//! Lanes of a benchmark that lead to a controller.

use std::time::{Duration, Instant};

use nvme_proto::io::DatasetRange;
use nvme_proto::wire::{IntoBytes, Nqn, U32, U64};

use super::address::Address;
use super::session::{Session, namespace, text};
use crate::bench::{Command, Done, Format, Lane, LaneError, Lanes, Operation};
use crate::{
    Buffer, Controller, Data, Event, Host, HostError, HostOptions, Response, Ticket, command,
};

/// The queue of a lane.
const QUEUE: u16 = 1;

/// A namespace, and how to get to it.
#[derive(Debug)]
pub(super) struct Namespaces {
    session: Session,
    address: Address,
    subsystem: Nqn,
    nsid: u32,
    format: Format,
    /// How often lanes reset their controllers.
    pub(super) reset_interval: Option<Duration>,
}

impl Namespaces {
    /// Connects once, to see what there is.
    pub(super) fn find(address: &Address, nsid: Option<u32>) -> super::Result<Self> {
        let session = Session::new(address)?;
        let subsystem = session.subsystem()?;
        let mut host = session.connect_to(subsystem, 1)?;
        let namespace = namespace(&mut host, nsid)?;
        let format = namespace.format(&host)?;
        host.shutdown().map_err(text)?;
        Ok(Self {
            session,
            address: address.clone(),
            subsystem,
            nsid: namespace.nsid,
            format,
            reset_interval: None,
        })
    }

    /// One line that says where the I/O goes.
    pub(super) fn describe(&self) -> String {
        format!(
            "namespace {} of {}: {} blocks of {} bytes, by {}",
            self.nsid,
            self.subsystem.as_str(),
            self.format.blocks,
            self.format.block_bytes,
            self.session.provided.name
        )
    }
}

impl Lanes for Namespaces {
    fn format(&self) -> Format {
        self.format
    }

    fn open(&self, depth: u16, slot_bytes: usize) -> super::Result<Box<dyn Lane>> {
        let host = self.session.connect_by(HostOptions {
            io_queues: 1,
            queue_entries: self.address.queue_entries(depth),
            ..self.session.options(self.subsystem)?
        })?;
        if host.depth(QUEUE) < depth {
            return Err(format!(
                "the controller's queues hold {} commands, fewer than iodepth={depth}",
                host.depth(QUEUE)
            ));
        }
        let lane = HostLane::new(host, self, depth, slot_bytes).map_err(text)?;
        Ok(Box::new(lane))
    }
}

impl From<HostError> for LaneError {
    fn from(error: HostError) -> Self {
        Self(error.to_string())
    }
}

/// A controller with one I/O queue.
struct HostLane {
    host: Host,
    nsid: u32,
    block_bytes: u32,
    slot_bytes: usize,
    buffer: Buffer,
    /// What small writes carry in their capsules, by slot; a registered buffer
    /// cannot be looked into.
    capsules: Vec<u8>,
    capsule_bytes: usize,
    /// By slot.
    tickets: Vec<Option<Ticket>>,
    /// How often the controller is reset, and when next.
    resets: Option<(Duration, Instant)>,
}

impl HostLane {
    fn new(
        host: Host,
        place: &Namespaces,
        depth: u16,
        slot_bytes: usize,
    ) -> Result<Self, HostError> {
        let depth = usize::from(depth);
        let capsule_bytes = host.in_capsule_max(QUEUE).min(slot_bytes);
        Ok(Self {
            buffer: host.buffer(depth * slot_bytes)?,
            host,
            nsid: place.nsid,
            block_bytes: place.format.block_bytes,
            resets: place
                .reset_interval
                .map(|interval| (interval, Instant::now() + interval)),
            slot_bytes,
            capsules: vec![0; depth * capsule_bytes],
            capsule_bytes,
            tickets: vec![None; depth],
        })
    }

    /// Resets the controller if it is time. Commands that are outstanding are sent
    /// again once it is back.
    fn reset_if_due(&mut self) {
        let now = Instant::now();
        if let Some((interval, next)) = &mut self.resets
            && now >= *next
            && self.host.is_live()
        {
            *next = now + *interval;
            Controller::reset(&mut self.host);
        }
    }

    /// Takes the answers that are there.
    fn take(&mut self, done: &mut Vec<Done>) {
        while let Some((ticket, answer)) = self.host.reap(QUEUE) {
            done.push(self.landed(ticket, answer));
        }
    }

    /// Accounts for an answer.
    fn landed(&mut self, ticket: Ticket, answer: Result<Response, HostError>) -> Done {
        let slot = self.tickets.iter().position(|t| *t == Some(ticket));
        let slot = slot.expect("only its own commands are on a lane's queue");
        self.tickets[slot] = None;
        let result = match answer {
            Ok(response) if response.cqe.status().is_success() => Ok(()),
            Ok(response) => Err(LaneError(response.cqe.status().to_string())),
            Err(error) => Err(error.into()),
        };
        Done {
            slot,
            at: Instant::now(),
            result,
        }
    }

    /// Says what happens to the connection while commands wait for it.
    fn tell_events(&mut self) -> Result<(), LaneError> {
        while let Some(event) = self.host.take_event() {
            match event {
                Event::Lost(error) => eprintln!("connection lost: {error}"),
                Event::TryFailed { tries, error } => {
                    eprintln!("connecting again, try {tries}: {error}");
                }
                Event::Live { .. } => eprintln!("connected again"),
                Event::Gone(Some(error)) => return Err(error.into()),
                Event::Gone(None) | Event::FailFast | Event::Notice(_) => {}
            }
        }
        Ok(())
    }
}

impl Lane for HostLane {
    fn load(&mut self, slot: usize, at: usize, bytes: &[u8]) {
        self.buffer.write(slot * self.slot_bytes + at, bytes);
        if at < self.capsule_bytes {
            let length = bytes.len().min(self.capsule_bytes - at);
            let start = slot * self.capsule_bytes + at;
            self.capsules[start..start + length].copy_from_slice(&bytes[..length]);
        }
    }

    fn unload(&self, slot: usize, at: usize, out: &mut [u8]) {
        self.buffer.read(slot * self.slot_bytes + at, out);
    }

    fn submit(&mut self, slot: usize, operation: Operation) -> Result<(), LaneError> {
        let blocks = operation.length / self.block_bytes;
        let slba = operation.offset / u64::from(self.block_bytes);
        let at = slot * self.slot_bytes;
        let in_place = Data::part_of(&self.buffer, at, operation.length);
        let range;
        let (sqe, data) = match operation.command {
            Command::Read => (command::read(self.nsid, slba, blocks), in_place),
            Command::Write => {
                let length = operation.length as usize;
                let start = slot * self.capsule_bytes;
                let data = if length <= self.capsule_bytes {
                    Data::InCapsule(&self.capsules[start..start + length])
                } else {
                    in_place
                };
                (command::write(self.nsid, slba, blocks), data)
            }
            Command::Trim => {
                range = DatasetRange {
                    context_attributes: U32::new(0),
                    nlb: U32::new(blocks),
                    slba: U64::new(slba),
                };
                let bytes = range.as_bytes();
                self.buffer.write(at, bytes);
                let data = Data::part_of(&self.buffer, at, bytes.len() as u32);
                (command::deallocate(self.nsid, 1), data)
            }
            Command::Flush => (command::flush(self.nsid), Data::None),
        };
        let ticket = self.host.submit(QUEUE, sqe, data);
        self.tickets[slot] = Some(ticket?);
        Ok(())
    }

    fn reap(&mut self, deadline: Instant, done: &mut Vec<Done>) -> Result<(), LaneError> {
        self.reset_if_due();
        self.host.poll();
        self.take(done);
        if done.is_empty() {
            let patience = deadline.saturating_duration_since(Instant::now());
            self.host.set_timeout(patience);
            match self.host.wait_until("an answer", |host| host.reap(QUEUE)) {
                Ok((ticket, answer)) => done.push(self.landed(ticket, answer)),
                Err(HostError::Timeout { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            self.take(done);
        }
        self.tell_events()
    }

    fn close(mut self: Box<Self>) -> Result<(), LaneError> {
        self.host.set_timeout(Duration::from_secs(10));
        Ok(self.host.shutdown()?)
    }
}
