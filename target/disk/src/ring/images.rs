//! Images of a Ceph cluster: operations that librbd carries out on threads of its own. What
//! ends wakes the ring by an eventfd, and only while the ring sleeps.

use cairn_rbd::{Image, Memory, Queue, Work};

use super::*;

/// With [`POLL`], marks the wait for images.
pub(super) const IMAGES: u64 = 1 << 59;

/// The operations of a ring on images.
#[derive(Debug)]
pub(super) struct Images {
    queue: Queue,
    /// Whether the ring waits for its descriptor.
    watched: bool,
}

impl Ring {
    /// Hands work to an image. It completes as an operation of this tag. `changes`: whether
    /// it changes the image, and so must begin in time.
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
                // Without a queue no descriptor is left: it is tried again later.
                let errno = match images {
                    Some(_) => libc::ECANCELED,
                    None => libc::EAGAIN,
                };
                let result = Err(errno);
                self.settled.push_back(Finished::Operation { tag, result });
            }
        }
    }

    /// The memory of a span, for who uses it past the ring.
    pub(crate) fn shared_memory(&self, span: Span) -> Memory {
        let (_, at) = self.locate(span);
        let mapping = self.buffers[usize::from(span.buffer)].as_ref();
        let mapping = Arc::clone(mapping.expect("the span was located"));
        Memory::new(mapping, at, span.length as usize)
    }

    /// Has images wake the ring, which is about to sleep; `false` if one has ended something.
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

    /// The wait for images is over.
    pub(super) fn images_woke(&mut self) {
        if let Some(images) = &mut self.images {
            images.watched = false;
            images.queue.clear();
        }
    }

    /// What an image has ended.
    #[inline]
    pub(super) fn pop_image(&mut self) -> Option<Finished> {
        let (tag, result) = self.images.as_mut()?.queue.pop()?;
        Some(Finished::Operation { tag, result })
    }

    /// Whether all operations under way are with librbd, whose threads need cores to end them.
    #[inline]
    pub fn waits_for_threads(&self) -> bool {
        let images = self.images_out();
        images > 0 && images == self.in_flight()
    }

    /// Operations that images have.
    pub(super) fn images_out(&self) -> u32 {
        self.images.as_ref().map_or(0, |images| images.queue.out())
    }
}
