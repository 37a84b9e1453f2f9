//! Operations on Ceph images, by threads of librbd. An eventfd wakes a sleeping ring.

use cairn_rbd::{Image, Memory, Queue, Work};

use super::*;

pub(super) const IMAGES: u64 = 1 << 59;

#[derive(Debug)]
pub(super) struct Images {
    queue: Queue,
    watched: bool,
}

impl Ring {
    /// Starts an operation of an image. If `changes`, it fails with `ECANCELED` after the end of
    /// the lease.
    pub(crate) fn work_on_image(&mut self, tag: u64, image: &Image, work: &Work, changes: bool) {
        if self.images.is_none() {
            let queue = Queue::new();
            self.images = queue.map(|queue| {
                Box::new(Images {
                    queue,
                    watched: false,
                })
            });
        }
        let late = changes && !self.outgoing.may_begin();
        match &mut self.images {
            Some(images) if !late => images.queue.submit(image, tag, work),
            images => {
                // Without an eventfd, the caller must retry.
                let errno = match images {
                    Some(_) => libc::ECANCELED,
                    None => libc::EAGAIN,
                };
                let result = Err(errno);
                self.settled.push_back(Finished::Operation { tag, result });
            }
        }
    }

    pub(crate) fn shared_memory(&self, span: Span) -> Memory {
        let (_, at) = self.locate(span);
        let mapping = self.buffers[usize::from(span.buffer)].as_ref();
        let mapping = Arc::clone(mapping.expect("the span was located"));
        Memory::new(mapping, at, span.length as usize)
    }

    #[inline]
    pub(super) fn watch_images(&mut self) -> bool {
        let Some(images) = self.images.as_mut() else {
            return true;
        };
        if images.queue.out() == 0 {
            return true;
        }
        if !images.queue.prepare_sleep() {
            return false;
        }
        if !std::mem::replace(&mut images.watched, true) {
            let fd = types::Fd(images.queue.wake_fd());
            let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
            self.push(&entry.user_data(POLL | IMAGES));
        }
        true
    }

    pub(super) fn images_woke(&mut self) {
        if let Some(images) = &mut self.images {
            images.watched = false;
            images.queue.clear();
        }
    }

    #[inline]
    pub(super) fn pop_image(&mut self) -> Option<Finished> {
        let (tag, result) = self.images.as_mut()?.queue.pop()?;
        Some(Finished::Operation { tag, result })
    }

    /// True if all pending operations are with librbd, whose threads need a core.
    #[inline]
    pub fn waits_for_threads(&self) -> bool {
        let images = self.images_out();
        images > 0 && images == self.in_flight()
    }

    pub(super) fn images_out(&self) -> u32 {
        self.images.as_ref().map_or(0, |images| images.queue.out())
    }
}
