//! Queue of the device.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering::Acquire;

use cairn_base::wake::{pollfd, readable};
use rustix::io::ioctl_fionbio;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress};

use super::chain::Broken;
use super::config::QUEUE_ENTRIES_MAX;
use super::inflight::Region;
use super::memory::{Memory, Segment};

#[derive(Debug, Clone, Copy)]
pub(super) struct Addresses {
    pub(super) table: u64,
    pub(super) available: u64,
    pub(super) used: u64,
}

#[derive(Debug, Clone, Default)]
struct Slot {
    is_taken: bool,
    status: GuestAddress,
    data: Vec<Segment>,
}

#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) entries: u16,
    pub(super) addresses: Option<Addresses>,
    pub(super) base: u16,
    pub(super) is_enabled: bool,
    call: Option<File>,
    error: Option<File>,
    started: Option<Started>,
}

#[derive(Debug)]
struct Started {
    queue: Queue,
    kick: File,
    slots: Vec<Slot>,
    waiting: VecDeque<u16>,
    order: u64,
    has_answers: bool,
    /// True while the guest need not kick.
    is_quiet: bool,
}

impl Ring {
    /// Returns true if an earlier process left requests unanswered.
    pub(super) fn start(
        &mut self,
        kick: File,
        memory: &Memory,
        region: Option<Region<'_>>,
        has_event_index: bool,
    ) -> Result<bool, Broken> {
        let mut queue = self.queue(memory).ok_or("a queue is not in the memory")?;
        unblock(&kick).map_err(|_| "a queue has an invalid event descriptor")?;
        let used = queue.used_idx(&memory.guest, Acquire);
        let used = used.map_err(|_| "a queue is not in the memory")?.0;
        let left = region.map_or_else(Vec::new, |region| region.recover(self.entries, used));
        let base = match region {
            Some(_) => used.wrapping_add(left.len() as u16),
            None => self.base,
        };
        queue.set_next_avail(base);
        queue.set_next_used(used);
        queue.set_event_idx(has_event_index);
        let mut started = Started {
            queue,
            kick,
            slots: vec![Slot::default(); self.entries.into()],
            waiting: VecDeque::new(),
            order: 0,
            has_answers: false,
            is_quiet: false,
        };
        for &head in &left {
            started.wait(head, region)?;
        }
        self.started = Some(started);
        // An ended process may have answered without an interrupt.
        self.ring();
        Ok(!left.is_empty())
    }

    fn queue(&self, memory: &Memory) -> Option<Queue> {
        let at = self.addresses?;
        let mut queue = Queue::new(QUEUE_ENTRIES_MAX).ok()?;
        queue.try_set_size(self.entries).ok()?;
        let table = memory.guest_address(at.table)?;
        queue.try_set_desc_table_address(table).ok()?;
        let available = memory.guest_address(at.available)?;
        queue.try_set_avail_ring_address(available).ok()?;
        let used = memory.guest_address(at.used)?;
        queue.try_set_used_ring_address(used).ok()?;
        queue.set_ready(true);
        queue.is_valid(&memory.guest).then_some(queue)
    }

    pub(super) fn stop(&mut self) {
        if let Some(started) = self.started.take() {
            self.base = started.queue.next_avail();
        }
    }

    pub(super) fn give_up(&mut self) {
        self.stop();
        if let Some(mut error) = self.error.as_ref() {
            let _ = error.write(&1_u64.to_ne_bytes());
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.started.is_some()
    }

    pub(super) fn fits(&self, memory: &Memory) -> bool {
        let queue = self.started.as_ref().map(|started| &started.queue);
        queue.is_none_or(|queue| queue.is_valid(&memory.guest))
    }

    pub(super) fn set_call(&mut self, call: Option<File>) -> io::Result<()> {
        call.as_ref().map(unblock).transpose()?;
        self.call = call;
        self.ring();
        Ok(())
    }

    pub(super) fn set_error(&mut self, error: Option<File>) -> io::Result<()> {
        error.as_ref().map(unblock).transpose()?;
        self.error = error;
        Ok(())
    }

    pub(super) fn take(
        &mut self,
        memory: &Memory,
        region: Option<Region<'_>>,
    ) -> Result<bool, Broken> {
        let Some(started) = self.started.as_mut().filter(|_| self.is_enabled) else {
            return Ok(false);
        };
        if !started.is_quiet {
            let silenced = started.queue.disable_notification(&memory.guest);
            silenced.map_err(|_| "a queue left the memory")?;
            started.is_quiet = true;
        }
        let mut progress = false;
        loop {
            let requests = started.queue.iter(&memory.guest);
            let mut requests = requests.map_err(|_| "the index of a queue is invalid")?;
            let Some(head) = requests.next().map(|chain| chain.head_index()) else {
                return Ok(progress);
            };
            started.wait(head, region)?;
            progress = true;
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        let started = self.started.as_ref();
        started.is_some_and(|started| !started.waiting.is_empty())
    }

    pub(super) fn next(&self) -> Option<(GuestAddress, u16)> {
        let started = self.started.as_ref()?;
        let head = *started.waiting.front()?;
        Some((GuestAddress(started.queue.desc_table()), head))
    }

    pub(super) fn begin(&mut self, status: GuestAddress) {
        let started = self.started.as_mut().expect("next returned a request");
        let head = started.waiting.pop_front();
        let slot = usize::from(head.expect("next returned a request"));
        started.slots[slot].status = status;
    }

    pub(super) fn data(&mut self, head: u16) -> Option<&mut Vec<Segment>> {
        let slot = self.started.as_mut()?.slots.get_mut(usize::from(head));
        slot.map(|slot| &mut slot.data)
    }

    pub(super) fn answer(
        &mut self,
        head: u16,
        status: u8,
        written: u32,
        memory: &Memory,
        region: Option<Region<'_>>,
    ) -> Result<(), Broken> {
        let Some(started) = &mut self.started else {
            return Ok(());
        };
        let slot = &mut started.slots[usize::from(head)];
        slot.is_taken = false;
        let stored = memory.guest.write_obj(status, slot.status);
        stored.map_err(|_| "the status of a request left the memory")?;
        if let Some(region) = region {
            region.answering(head);
        }
        let added = started.queue.add_used(&memory.guest, head, written + 1);
        added.map_err(|_| "a queue left the memory")?;
        if let Some(region) = region {
            region.answered(head, started.queue.next_used());
        }
        started.has_answers = true;
        Ok(())
    }

    pub(super) fn announce(&mut self, memory: &Memory) {
        let Some(started) = self.started.as_mut().filter(|one| one.has_answers) else {
            return;
        };
        started.has_answers = false;
        if !matches!(started.queue.needs_notification(&memory.guest), Ok(false)) {
            self.ring();
        }
    }

    fn ring(&self) {
        if let Some(mut call) = self.call.as_ref() {
            let _ = call.write(&1_u64.to_ne_bytes());
        }
    }

    pub(super) fn clear_kicks(&mut self) -> Result<(), Broken> {
        let Some(started) = &mut self.started else {
            return Ok(());
        };
        let mut count = [0; 8];
        match started.kick.read(&mut count) {
            Ok(1..) => Ok(()),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            _ => Err("a queue has an invalid event descriptor"),
        }
    }

    /// Returns false if the caller must not sleep.
    pub(super) fn waits_for(&mut self, memory: &Memory, fds: &mut Vec<pollfd>) -> bool {
        let Some(started) = self.started.as_mut().filter(|_| self.is_enabled) else {
            return true;
        };
        if !started.waiting.is_empty() {
            // Requests under way end the sleep.
            return true;
        }
        fds.push(readable(started.kick.as_raw_fd()));
        started.is_quiet = false;
        !matches!(started.queue.enable_notification(&memory.guest), Ok(true))
    }
}

impl Started {
    fn wait(&mut self, head: u16, region: Option<Region<'_>>) -> Result<(), Broken> {
        let slot = self.slots.get_mut(usize::from(head));
        let slot = slot.ok_or("a descriptor is not in its table")?;
        if slot.is_taken {
            return Err("a request was made twice");
        }
        slot.is_taken = true;
        if let Some(region) = region {
            region.taken(head, self.order);
        }
        self.order += 1;
        self.waiting.push_back(head);
        Ok(())
    }
}

fn unblock(file: &File) -> io::Result<()> {
    Ok(ioctl_fionbio(file, true)?)
}
