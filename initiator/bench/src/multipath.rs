use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cairn_rdma::Provider;

use cairn_initiator::multipath::{Multipath, MultipathOptions, Namespace, PathTicket};
use cairn_initiator::{Buffer, Data, Ended, HostError, HostOptions, command};

use super::lane::{Direction, Done, Format, Lane, Lanes, Operation};

/// Each lane connects one controller for each path.
pub struct MultipathLanes {
    provider: Arc<dyn Provider>,
    paths: Vec<HostOptions>,
    options: MultipathOptions,
    namespace: Namespace,
    format: Format,
    usable: Arc<Usable>,
    /// Called with the target address of a path that was lost (`false`) or is usable again
    /// (`true`).
    pub on_path: fn(SocketAddr, bool),
}

/// Last reported state of each path. If all lanes lose a path, only the first lane reports the
/// loss.
#[derive(Debug)]
struct Usable(Mutex<Vec<bool>>);

impl Usable {
    fn is_news(&self, path: usize, usable: bool) -> bool {
        let mut reported = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut reported[path], usable) != usable
    }
}

impl fmt::Debug for MultipathLanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remotes: Vec<_> = self.paths.iter().map(|path| path.remote).collect();
        write!(f, "MultipathLanes({:?} by {remotes:?})", self.namespace)
    }
}

impl MultipathLanes {
    /// Connects to identify the namespace, and disconnects. At least one path must be usable.
    pub fn find(
        provider: Arc<dyn Provider>,
        paths: Vec<HostOptions>,
        options: MultipathOptions,
    ) -> Result<Self, HostError> {
        let multipath = Multipath::connect(&*provider, paths.iter().cloned(), options)?;
        let namespace = *multipath.namespace().expect("a usable path leads to it");
        let format = Format {
            block_bytes: namespace.block_bytes,
            blocks: namespace.blocks,
            transfer_max: multipath.transfer_max().into(),
        };
        multipath.close()?;
        // If the namespace has a UUID, all lanes require it.
        let options = MultipathOptions {
            uuid: Some(namespace.identity.uuid).filter(|uuid| *uuid != [0; 16]),
            ..options
        };
        Ok(Self {
            usable: Arc::new(Usable(Mutex::new(vec![true; paths.len()]))),
            provider,
            paths,
            options,
            namespace,
            format,
            on_path: |_, _| {},
        })
    }

    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

impl Lanes for MultipathLanes {
    fn format(&self) -> Format {
        self.format
    }

    fn open(&self, depth: u16, slot_bytes: usize) -> Result<Box<dyn Lane>, String> {
        let options = MultipathOptions {
            depth,
            ..self.options
        };
        let paths = self.paths.iter().map(|path| HostOptions {
            io_queues: 1,
            queue_entries: path.queue_entries.max(depth.saturating_add(1)),
            ..path.clone()
        });
        let open = || -> Result<MultipathLane, HostError> {
            let disk = Multipath::connect(&*self.provider, paths, options)?;
            let buffer = |_| disk.buffer(slot_bytes).map(Some);
            Ok(MultipathLane {
                buffers: (0..depth).map(buffer).collect::<Result<_, _>>()?,
                disk,
                block_bytes: self.format.block_bytes,
                slots: vec![0; usize::from(depth)],
                was_usable: vec![false; self.paths.len()],
                usable: Arc::clone(&self.usable),
                on_path: self.on_path,
            })
        };
        match open() {
            Ok(lane) => Ok(Box::new(lane)),
            Err(error) => Err(error.to_string()),
        }
    }
}

const IDLE: &str = "a slot without a command has its buffer";

struct MultipathLane {
    disk: Multipath,
    block_bytes: u32,
    buffers: Vec<Option<Buffer>>,
    /// Lane slot of each command, by [`PathTicket::slot`].
    slots: Vec<usize>,
    /// Last seen state of each path; at first false, so that a path that never connects is not
    /// reported as lost.
    was_usable: Vec<bool>,
    usable: Arc<Usable>,
    on_path: fn(SocketAddr, bool),
}

impl MultipathLane {
    fn report_paths(&mut self) {
        let mut changed = false;
        while self.disk.take_event().is_some() {
            changed = true;
        }
        if !changed {
            return;
        }
        for (index, (path, was)) in self.disk.paths().zip(&mut self.was_usable).enumerate() {
            let changed = std::mem::replace(was, path.usable) != path.usable;
            if changed && self.usable.is_news(index, path.usable) {
                (self.on_path)(path.remote, path.usable);
            }
        }
    }

    fn take(&mut self, done: &mut Vec<Done>) {
        self.report_paths();
        while let Some((ticket, ended)) = self.disk.reap() {
            done.push(self.landed(ticket, ended));
        }
    }

    fn landed(&mut self, ticket: PathTicket, ended: Ended) -> Done {
        let slot = self.slots[usize::from(ticket.slot())];
        if ended.buffer.is_some() {
            self.buffers[slot] = ended.buffer;
        }
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
}

impl Lane for MultipathLane {
    fn load(&mut self, slot: usize, at: usize, bytes: &[u8]) {
        let buffer = self.buffers[slot].as_mut().expect(IDLE);
        buffer.write(at, bytes);
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
            Direction::Read => (command::read(0, slba, blocks), in_place(operation.length)),
            Direction::Write => (command::write(0, slba, blocks), in_place(operation.length)),
        };
        let ticket = self.disk.submit(sqe, data);
        let ticket = ticket.map_err(|error| error.to_string())?;
        self.slots[usize::from(ticket.slot())] = slot;
        Ok(())
    }

    fn reap(&mut self, deadline: Instant, done: &mut Vec<Done>) -> Result<(), String> {
        let patience = deadline.saturating_duration_since(Instant::now());
        let next = self.disk.wait_any(patience);
        if let Some((ticket, ended)) = next.map_err(|error| error.to_string())? {
            done.push(self.landed(ticket, ended));
        }
        self.take(done);
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<(), String> {
        self.disk.set_timeout(Duration::from_secs(10));
        let closed = self.disk.close();
        closed.map_err(|error| error.to_string())
    }
}
