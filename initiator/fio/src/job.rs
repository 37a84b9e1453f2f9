//! fio job: a controller with I/Os in flight.
//!
//! Why `unsafe` here: units and data belong to fio. The engine owns a unit from `queue` until
//! `event` returns it. The unit's data buffer lives longer.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cairn_base::Mapping;
use cairn_initiator::providers::{Provided, RdmaOptions};
use cairn_initiator::{
    Buffer, Command, Data, Host, HostError, HostOptions, IoQueue, Namespace, Ticket,
};
use cairn_rdma::{Access, Region, sleep_until_ready};
use nvme_proto::wire::Status;

use crate::abi::{Direction, IoUnit, Queued, Request};
use crate::filename::Filename;
use crate::interrupt;

const QUEUE: IoQueue = IoQueue::FIRST;
const DEPTH: u16 = 1023;
/// Minimum time between two polls in [`Job::commit`]. I/Os queued meanwhile share packets.
const GATHER: Duration = Duration::from_micros(20);
const SPIN: Duration = Duration::from_micros(100);
const NAP: Duration = Duration::from_millis(100);
const LAST_CALL: Duration = Duration::from_secs(2);
const RANGE_BYTES: usize = 16;

pub(crate) struct Job {
    host: Host,
    // `host` uses the device, so it is declared and dropped before `provided`.
    provided: Provided,
    namespace: Namespace,
    polled_at: Instant,
    underway: Vec<*mut IoUnit>,
    /// I/Os beyond the queue depth, oldest first. They are not reported to fio as busy, because fio
    /// would then fill their buffers again.
    backlog: VecDeque<*mut IoUnit>,
    /// Ended I/Os not yet reported by [`Job::wait`].
    over: Vec<*mut IoUnit>,
    /// Ended I/Os reported by the last [`Job::wait`], for [`Job::event`].
    given: Vec<*mut IoUnit>,
    regions: HashMap<usize, Arc<Region>>,
    has_complained: bool,
    interrupted_at: Option<Instant>,
}

impl Job {
    pub(crate) fn start(filename: &Filename, known: Option<&Namespace>) -> Result<Self, String> {
        interrupt::watch();
        let options = filename.options(DEPTH)?;
        let provided = provided(filename, &options)?;
        let mut host = Host::connect_on(&provided.device, options).map_err(|error| text(&error))?;
        let namespace = match known {
            Some(known) => host.open_same(known).map(|()| known.clone()),
            None => host.open_namespace(filename.nsid),
        };
        let namespace = namespace.map_err(|error| text(&error))?;
        check_size(&namespace)?;
        let depth = usize::from(host.depth(QUEUE));
        Ok(Self {
            namespace,
            polled_at: Instant::now(),
            underway: vec![std::ptr::null_mut(); depth + 1],
            backlog: VecDeque::new(),
            over: Vec::with_capacity(depth),
            given: Vec::with_capacity(depth),
            regions: HashMap::new(),
            has_complained: false,
            interrupted_at: None,
            host,
            provided,
        })
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(crate) fn stop(self) {
        if let Err(error) = self.host.shutdown() {
            eprintln!("cairn: {error}");
        }
        drop(self.provided);
    }

    /// # Safety
    /// fio passed `unit` to the engine's `queue`.
    pub(crate) unsafe fn queue(&mut self, unit: *mut IoUnit) -> Queued {
        let begun = match self.backlog.is_empty() {
            // SAFETY: guaranteed by the caller.
            true => unsafe { self.begin(unit) },
            false => Err(Refused::Full),
        };
        match begun {
            Ok(()) => Queued::Underway,
            Err(Refused::Full) => {
                self.backlog.push_back(unit);
                Queued::Underway
            }
            Err(Refused::Errno(errno)) => end(unit, errno),
        }
    }

    /// # Safety
    /// fio passed `unit` to the engine's `queue`, and the I/O has not ended.
    unsafe fn begin(&mut self, unit: *mut IoUnit) -> Result<(), Refused> {
        // SAFETY: guaranteed by the caller.
        let request = unsafe { IoUnit::request(unit) };
        let request = request.ok_or(Refused::Errno(libc::EOPNOTSUPP))?;
        let ticket = self.submit(&request)?;
        self.underway[usize::from(ticket.cid())] = unit;
        Ok(())
    }

    /// Polls the host, unless the last poll was less than [`GATHER`] ago: fio calls this for each
    /// I/O.
    pub(crate) fn commit(&mut self) {
        let now = Instant::now();
        if now - self.polled_at >= GATHER {
            self.polled_at = now;
            self.host.poll();
            self.collect();
        }
    }

    pub(crate) fn wait(
        &mut self,
        min: usize,
        max: usize,
        patience: Option<Duration>,
    ) -> Result<usize, HostError> {
        let started = Instant::now();
        let mut idle_since = started;
        self.given.clear();
        loop {
            let progress = self.host.poll();
            self.collect();
            let now = Instant::now();
            self.polled_at = now;
            self.heed_signals(now);
            let waited = now - started;
            if self.over.len() >= min || patience.is_some_and(|patience| waited >= patience) {
                let count = self.over.len().min(max);
                self.given.extend(self.over.drain(..count));
                return Ok(count);
            }
            if progress {
                idle_since = now;
            } else if now - idle_since > SPIN {
                let left = patience.map_or(NAP, |patience| patience - waited);
                sleep_until_ready(self.host.controller_mut().endpoint(), now + left.min(NAP))?;
            }
        }
    }

    /// Closes the connection if [`LAST_CALL`] has passed since a signal. I/Os in flight then end
    /// with errors, and fio can exit.
    fn heed_signals(&mut self, now: Instant) {
        if !interrupt::is_due() {
            return;
        }
        let since = *self.interrupted_at.get_or_insert(now);
        if now - since >= LAST_CALL {
            self.host.controller_mut().disconnect();
        }
    }

    pub(crate) fn event(&self, index: usize) -> *mut IoUnit {
        self.given[index]
    }

    pub(crate) fn forget_buffers(&mut self) {
        if self.regions.is_empty() {
            return;
        }
        self.backlog.clear();
        if self.underway.iter().any(|unit| !unit.is_null()) {
            // fio no longer waits for these I/Os. Closing the connection ends access to their data.
            self.host.controller_mut().disconnect();
            while !self.host.controller().is_closed(QUEUE) {
                self.host.poll();
            }
            self.collect();
        }
        self.regions.clear();
    }

    fn submit(&mut self, request: &Request) -> Result<Ticket, Refused> {
        if request.direction == Direction::Sync {
            return self.send(self.namespace.flush_command(), Data::None);
        }
        let (slba, blocks) = self.range(request)?;
        match request.direction {
            Direction::Trim => {
                let range = dsm_range(slba, blocks);
                self.send(
                    self.namespace.deallocate_command(1),
                    Data::InCapsule(&range),
                )
            }
            Direction::Write if self.host.prefers_capsule(QUEUE, request.length as usize) => {
                // SAFETY: `data` and `length` are fio's buffer, which fio does not modify until the
                // write has ended.
                let data =
                    unsafe { std::slice::from_raw_parts(request.data, request.length as usize) };
                let write = self.namespace.write_command(slba, blocks);
                self.send(write, Data::InCapsule(data))
            }
            direction => {
                let region = self.region(request)?;
                let command = if direction == Direction::Read {
                    self.namespace.read_command(slba, blocks)
                } else {
                    self.namespace.write_command(slba, blocks)
                };
                let data = Data::start_of(Buffer::of(region), request.length as u32);
                self.send(command, data)
            }
        }
    }

    fn send(&mut self, command: Command, data: Data<'_>) -> Result<Ticket, Refused> {
        self.host
            .submit_on(QUEUE, command, data)
            .map_err(|unsent| match unsent.error {
                HostError::QueueFull { .. } => Refused::Full,
                _ => Refused::Errno(libc::EIO),
            })
    }

    fn range(&mut self, request: &Request) -> Result<(u64, u32), Refused> {
        let block_bytes = u64::from(self.namespace.block_bytes);
        let (offset, length) = (request.offset, request.length);
        let moves = request.direction != Direction::Trim;
        let most = u64::from(self.host.transfer_max());
        let blocks = u32::try_from(length / block_bytes);
        let why = if length == 0 || !(offset | length).is_multiple_of(block_bytes) {
            format!("blocks have {block_bytes} bytes: use multiples of that for bs and offset")
        } else if moves && length > most {
            format!("the target takes {most} bytes a command (MDTS): use bs={most} or less")
        } else if let Ok(blocks) = blocks {
            return Ok((offset / block_bytes, blocks));
        } else {
            "a command names fewer than 2^32 blocks: use a smaller bs".to_owned()
        };
        if !std::mem::replace(&mut self.has_complained, true) {
            eprintln!("cairn: {length} bytes at offset {offset} are not one command: {why}");
        }
        Err(Refused::Errno(libc::EINVAL))
    }

    fn region(&mut self, request: &Request) -> Result<Arc<Region>, Refused> {
        let (address, length) = (request.data as usize, request.length as usize);
        if let Some(region) = self.regions.get(&address)
            && region.mapping().len() >= length
        {
            return Ok(Arc::clone(region));
        }
        // SAFETY: fio's buffer lives until after `forget_buffers`, and fio does not access it until
        // the I/O has ended.
        let mapping = unsafe { Mapping::borrowed(request.data, length) };
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = self.host.device().register(Arc::new(mapping), access);
        let region = region.map_err(|error| {
            eprintln!("cairn: fio's buffers cannot be registered: {error}");
            Refused::Errno(libc::ENOMEM)
        })?;
        let region = Arc::new(region);
        self.regions.insert(address, Arc::clone(&region));
        Ok(region)
    }

    fn collect(&mut self) {
        while let Some((ticket, ended)) = self.host.reap(QUEUE) {
            let place = &mut self.underway[usize::from(ticket.cid())];
            let unit = std::mem::replace(place, std::ptr::null_mut());
            let errno = match ended.answer {
                Ok(response) => errno(response.cqe.status()),
                Err(_) => libc::EIO,
            };
            self.end_later(unit, errno);
        }
        while let Some(&unit) = self.backlog.front() {
            // SAFETY: the engine owns the unit, and the I/O has not ended.
            match unsafe { self.begin(unit) } {
                Ok(()) => {}
                Err(Refused::Full) => return,
                Err(Refused::Errno(errno)) => self.end_later(unit, errno),
            }
            self.backlog.pop_front();
        }
    }

    fn end_later(&mut self, unit: *mut IoUnit, errno: libc::c_int) {
        // SAFETY: the engine owns the unit until `event` returns it.
        unsafe { IoUnit::set_outcome(unit, errno) };
        self.over.push(unit);
    }
}

/// Returns the device. Jobs with equal parameters share a device, because only one soft provider
/// can bind the UDP port.
fn provided(filename: &Filename, options: &HostOptions) -> Result<Provided, String> {
    type Known = Vec<((RdmaOptions, SocketAddr, Option<IpAddr>), Provided)>;
    static KNOWN: Mutex<Known> = Mutex::new(Vec::new());
    let key = (filename.rdma, options.remote, options.local);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, provided)) = known.iter().find(|(other, _)| *other == key) {
        return Ok(provided.clone());
    }
    let provided = Provided::choose(key.0, key.1, key.2)?;
    known.push((key, provided.clone()));
    Ok(provided)
}

enum Refused {
    Full,
    Errno(libc::c_int),
}

fn check_size(namespace: &Namespace) -> Result<(), String> {
    if namespace.bytes() > i64::MAX as u128 {
        return Err(format!(
            "namespace {} has {} blocks (NSZE): no file is so large",
            namespace.nsid, namespace.blocks
        ));
    }
    Ok(())
}

fn end(unit: *mut IoUnit, errno: libc::c_int) -> Queued {
    // SAFETY: fio has passed the unit to the current call.
    unsafe { IoUnit::set_outcome(unit, errno) };
    Queued::Completed
}

fn dsm_range(slba: u64, blocks: u32) -> [u8; RANGE_BYTES] {
    let mut range = [0; RANGE_BYTES];
    range[4..8].copy_from_slice(&blocks.to_le_bytes());
    range[8..].copy_from_slice(&slba.to_le_bytes());
    range
}

fn errno(status: Status) -> libc::c_int {
    match status.code() {
        Status::SUCCESS => 0,
        Status::CAPACITY_EXCEEDED => libc::ENOSPC,
        Status::LBA_OUT_OF_RANGE => libc::EREMOTEIO,
        Status::WRITE_FAULT | Status::UNRECOVERED_READ_ERROR => libc::ENODATA,
        Status::NAMESPACE_WRITE_PROTECTED => libc::EROFS,
        _ => libc::EIO,
    }
}

fn text(error: &HostError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvme_proto::wire::FromZeros;
    use nvme_proto::wire::identify::IdentifyNamespace;

    #[test]
    fn a_size_that_cannot_be_is_refused() {
        let namespace = |nsze: u64| {
            let mut identify = IdentifyNamespace::new_zeroed();
            identify.nsze.set(nsze);
            identify.lbaf[0].lbads = 12;
            Namespace::parse(1, &identify, &[]).unwrap()
        };
        assert_eq!(check_size(&namespace(1000)), Ok(()));
        for nsze in [u64::MAX, 1 << 52] {
            let error = check_size(&namespace(nsze)).unwrap_err();
            assert!(error.contains("NSZE"), "{nsze}: {error}");
        }
    }
}
