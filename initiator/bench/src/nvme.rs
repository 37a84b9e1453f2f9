use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::Device;

use super::lane::{Direction, Done, Format, Lane, Lanes, Operation};
use cairn_initiator::{
    Buffer, Data, Ended, Event, Host, HostError, HostOptions, IoQueue, Namespace, Ticket, Unsent,
};

const QUEUE: IoQueue = IoQueue::FIRST;
const GOODBYE: Duration = Duration::from_secs(10);

/// Each lane is a controller with one I/O queue.
#[derive(Debug, Clone)]
pub struct NvmeLanes {
    pub device: Arc<dyn Device>,
    /// Connection options. The queue entries are increased if the job's depth requires it.
    pub options: HostOptions,
    /// Expected namespace. A lane does not open if the NSID refers to another disk.
    pub namespace: Namespace,
    pub format: Format,
    /// Interval of controller resets during the run.
    pub reset_interval: Option<Duration>,
    pub on_event: fn(&Event),
}

impl Format {
    /// Format of `namespace`, as limited by `host`.
    #[must_use]
    pub fn of(namespace: &Namespace, host: &Host) -> Self {
        Self {
            block_bytes: namespace.block_bytes,
            blocks: namespace.blocks,
            transfer_max: u64::from(host.transfer_max()),
        }
    }
}

impl Lanes for NvmeLanes {
    fn format(&self) -> Format {
        self.format
    }

    fn open(&self, depth: u16, slot_bytes: usize) -> Result<Box<dyn Lane>, String> {
        let options = HostOptions {
            io_queues: 1,
            queue_entries: self.options.queue_entries.max(depth.saturating_add(1)),
            ..self.options.clone()
        };
        let mut host =
            Host::connect_on(&self.device, options).map_err(|error| error.to_string())?;
        let same = host.open_same(&self.namespace);
        same.map_err(|error| error.to_string())?;
        if host.depth(QUEUE) < depth {
            return Err(format!(
                "the controller's queues hold {} commands, fewer than iodepth={depth}: raise queue_depth in \
                 the target's configuration, or give a smaller iodepth",
                host.depth(QUEUE)
            ));
        }
        let lane = NvmeLane::new(host, self, depth, slot_bytes);
        Ok(Box::new(lane.map_err(|error| error.to_string())?))
    }
}

struct NvmeLane {
    host: Host,
    namespace: Namespace,
    block_bytes: u32,
    buffers: Vec<Option<Buffer>>,
    /// For in-capsule writes, copy of each slot's first `capsule_bytes` bytes: a `Buffer` cannot be
    /// borrowed as a slice.
    capsules: Vec<u8>,
    capsule_bytes: usize,
    tickets: Vec<Option<Ticket>>,
    resets: Option<(Duration, Instant)>,
    on_event: fn(&Event),
}

const IDLE: &str = "a slot without a command has its buffer";

impl NvmeLane {
    fn new(
        host: Host,
        place: &NvmeLanes,
        depth: u16,
        slot_bytes: usize,
    ) -> Result<Self, HostError> {
        let depth = usize::from(depth);
        let capsule_bytes = host.in_capsule_max(QUEUE).min(slot_bytes);
        let buffers = host.buffer(depth * slot_bytes)?.split(slot_bytes);
        Ok(Self {
            buffers: buffers.into_iter().map(Some).collect(),
            host,
            namespace: place.namespace.clone(),
            on_event: place.on_event,
            block_bytes: place.format.block_bytes,
            resets: place
                .reset_interval
                .map(|interval| (interval, Instant::now() + interval)),
            capsules: vec![0; depth * capsule_bytes],
            capsule_bytes,
            tickets: vec![None; depth],
        })
    }

    fn reset_if_due(&mut self) {
        let now = Instant::now();
        if let Some((interval, next)) = &mut self.resets
            && now >= *next
            && self.host.is_live()
        {
            *next = now + *interval;
            self.host.controller_mut().reset();
        }
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        while let Some((ticket, ended)) = self.host.reap(QUEUE) {
            done.push(self.landed(ticket, ended));
        }
    }

    fn landed(&mut self, ticket: Ticket, ended: Ended) -> Done {
        let slot = self.tickets.iter().position(|t| *t == Some(ticket));
        let slot = slot.expect("only its own commands are on a lane's queue");
        self.tickets[slot] = None;
        self.keep(slot, ended.buffer);
        let result = match ended.answer {
            Ok(response) if response.cqe.status().is_success() => Ok(()),
            Ok(response) => Err(response.cqe.status().to_string()),
            Err(error) => Err(error.to_string()),
        };
        Done {
            slot,
            at: Instant::now(),
            result,
        }
    }

    fn keep(&mut self, slot: usize, buffer: Option<Buffer>) {
        if buffer.is_some() {
            self.buffers[slot] = buffer;
        }
    }

    fn print_events(&mut self) -> Result<(), String> {
        while let Some(event) = self.host.take_event() {
            (self.on_event)(&event);
            if let Event::Gone(Some(error)) = event {
                return Err(error.to_string());
            }
        }
        Ok(())
    }
}

impl Lane for NvmeLane {
    fn load(&mut self, slot: usize, at: usize, bytes: &[u8]) {
        self.buffers[slot].as_mut().expect(IDLE).write(at, bytes);
        if at < self.capsule_bytes {
            let length = bytes.len().min(self.capsule_bytes - at);
            let start = slot * self.capsule_bytes + at;
            self.capsules[start..start + length].copy_from_slice(&bytes[..length]);
        }
    }

    fn unload(&self, slot: usize, at: usize, out: &mut [u8]) {
        self.buffers[slot].as_ref().expect(IDLE).read(at, out);
    }

    fn submit(&mut self, slot: usize, operation: Operation) -> Result<(), String> {
        let blocks = operation.length / self.block_bytes;
        let slba = operation.offset / u64::from(self.block_bytes);
        let buffers = &mut self.buffers;
        let mut in_place = |length| Data::start_of(buffers[slot].take().expect(IDLE), length);
        let (sqe, data) = match operation.direction {
            Direction::Read => (
                self.namespace.read_command(slba, blocks),
                in_place(operation.length),
            ),
            Direction::Write => {
                let length = operation.length as usize;
                let start = slot * self.capsule_bytes;
                let fits = length <= self.capsule_bytes;
                let data = if fits && self.host.prefers_capsule(QUEUE, length) {
                    Data::InCapsule(&self.capsules[start..start + length])
                } else {
                    in_place(operation.length)
                };
                (self.namespace.write_command(slba, blocks), data)
            }
        };
        match self.host.submit_on(QUEUE, sqe, data) {
            Ok(ticket) => self.tickets[slot] = Some(ticket),
            Err(Unsent { error, buffer }) => {
                self.keep(slot, buffer);
                return Err(error.to_string());
            }
        }
        Ok(())
    }

    fn reap(&mut self, deadline: Instant, done: &mut Vec<Done>) -> Result<(), String> {
        self.reset_if_due();
        self.host.poll();
        self.take(done);
        if done.is_empty() {
            let patience = deadline.saturating_duration_since(Instant::now());
            let next = self.host.wait_any(QUEUE, patience);
            if let Some((ticket, ended)) = next.map_err(|error| error.to_string())? {
                done.push(self.landed(ticket, ended));
            }
            self.take(done);
        }
        self.print_events()
    }

    fn close(mut self: Box<Self>) -> Result<(), String> {
        self.host.set_timeout(GOODBYE);
        self.host.shutdown().map_err(|error| error.to_string())
    }
}
