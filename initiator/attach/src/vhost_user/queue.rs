//! Execution of requests.

use std::mem::swap;

use cairn_initiator::Buffer;
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_S_UNSUPP};

use super::chain::{Broken, Chain, Parsed};
use super::config::Serial;
use super::device::Device;
use super::inflight::Region;
use super::memory::Memory;
use super::ring::Ring;
use crate::disk::{Disk, REQUESTS_MAX};
use crate::request::{Done, Errno, Limits, Operation, Request};

/// Identifies a request of a guest.
#[derive(Debug, Clone, Copy)]
pub struct Tag {
    pub(super) ring: usize,
    head: u16,
    is_read: bool,
}

pub(super) struct Pool {
    pub(super) spare: Vec<Buffer>,
    pub(super) under_way: usize,
    pub(super) chain: Chain,
}

pub(super) struct Queue<'a> {
    index: usize,
    pub(super) ring: &'a mut Ring,
    pub(super) memory: &'a mut Memory,
    pub(super) region: Option<Region<'a>>,
    features: u64,
    limits: Limits,
    serial: Serial,
}

impl<'a> Queue<'a> {
    pub(super) fn of(device: &'a mut Device, index: usize) -> Option<Self> {
        let ring = device.rings.get_mut(index)?;
        let inflight = device.inflight.as_ref();
        Some(Self {
            region: inflight.and_then(|all| all.region(index, ring.entries)),
            index,
            ring,
            memory: device.memory.as_mut()?,
            features: device.features,
            limits: device.limits,
            serial: device.serial,
        })
    }

    pub(super) fn checked<T>(
        &mut self,
        result: Result<T, Broken>,
        failure: &mut Option<String>,
    ) -> Option<T> {
        let why = match result {
            Ok(value) => return Some(value),
            Err(why) => why,
        };
        self.ring.give_up();
        let index = self.index;
        failure.get_or_insert_with(|| format!("queue {index} of the guest was stopped: {why}"));
        None
    }

    pub(super) fn begin(&mut self, pool: &mut Pool, disk: &mut Disk<Tag>) -> Result<bool, Broken> {
        let mut progress = false;
        while let Some((table, head)) = self.ring.next() {
            let chain = &mut pool.chain;
            chain.collect(self.memory, table, self.ring.entries, head)?;
            let (parsed, status) = chain.parse(self.memory, self.features)?;
            let pieces = parsed
                .data_bytes()
                .map_or(0, |bytes| self.limits.pieces(bytes));
            let rest = pool.spare.len().checked_sub(pieces);
            let Some(rest) = rest.filter(|_| pool.under_way < REQUESTS_MAX as usize) else {
                break;
            };
            progress = true;
            self.ring.begin(status);
            let (operation, offset, bytes) = match parsed {
                Parsed::Execute {
                    operation,
                    offset,
                    bytes,
                } => (operation, offset, bytes),
                Parsed::Refuse(status) => {
                    self.answer(head, status, 0)?;
                    continue;
                }
                Parsed::Serial => {
                    let written = self.memory.put(&self.serial, &chain.writable);
                    let written = written.ok_or("a descriptor leads out of the memory")?;
                    self.answer(head, VIRTIO_BLK_S_OK, written)?;
                    continue;
                }
            };
            let mut memory = pool.spare.split_off(rest);
            if matches!(operation, Operation::Write { .. }) {
                let fetched = self.memory.fetch(&chain.readable, &mut memory);
                if fetched.is_none() {
                    pool.spare.append(&mut memory);
                    return Err("a descriptor leads out of the memory");
                }
            }
            if let Some(data) = self.ring.data(head) {
                swap(data, &mut chain.writable);
            }
            pool.under_way += 1;
            disk.begin(Request {
                tag: Tag {
                    ring: self.index,
                    head,
                    is_read: operation == Operation::Read,
                },
                operation,
                offset,
                bytes,
                memory,
            });
        }
        Ok(progress)
    }

    fn answer(&mut self, head: u16, status: u32, written: usize) -> Result<(), Broken> {
        let status = status as u8;
        let written = written as u32;
        self.ring
            .answer(head, status, written, self.memory, self.region)
    }

    pub(super) fn done(&mut self, done: &Done<Tag>) -> Result<(), Broken> {
        let head = done.tag.head;
        let status = match done.result {
            Ok(()) => VIRTIO_BLK_S_OK,
            Err(Errno(libc::EOPNOTSUPP)) => VIRTIO_BLK_S_UNSUPP,
            Err(_) => VIRTIO_BLK_S_IOERR,
        };
        let mut written = 0;
        if done.tag.is_read
            && done.result.is_ok()
            && let Some(data) = self.ring.data(head)
        {
            let stored = self.memory.store(&done.memory, data);
            stored.ok_or("a descriptor leads out of the memory")?;
            written = done.bytes as usize;
        }
        self.answer(head, status, written)
    }
}
