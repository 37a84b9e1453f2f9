//! Messages between threads.
//!
//! Mailboxes are unbounded, because two reactors could block on each other's full mailbox. They
//! stay small, because queue pairs and controllers are limited. `cargo xtask loom` tests every
//! interleaving of the threads.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_base::mailbox;
use cairn_rdma::{ConnRequest, Marking};
use nvme_proto::controller::Completion;
use nvme_proto::wire::cm::{ReplyData, RequestData};

use super::authenticator::Computed;
use super::backlog::Backlog;
use super::{Arming, ConnectPlace, IoCounters, PlaceId, Settling, SubsystemShared};
use crate::ana::ListenerShared;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::marking::MarkingPolicy;
use crate::namespace::NamespaceTable;
use crate::order::DiskOrder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueAddress {
    pub(crate) reactor: usize,
    pub(crate) qpair: QpairId,
}

#[derive(Debug)]
pub struct Admitted {
    pub request: ConnRequest,
    pub cm: RequestData,
    pub reply: ReplyData,
    pub marking: Marking,
    pub policy: MarkingPolicy,
    pub listener: Arc<ListenerShared>,
    pub place: ConnectPlace,
}

#[derive(Debug)]
pub enum Message {
    Namespaces {
        subsystem: u32,
        counters: Arc<IoCounters>,
        table: Arc<NamespaceTable>,
    },
    Complete {
        qpair: QpairId,
        completion: Completion,
    },
    Disconnect {
        qpair: QpairId,
        ending: Ending,
    },
    /// Close the connection that holds `place`, unless its Connect is in progress or its
    /// association is with another subsystem than discovery.
    Displace {
        place: PlaceId,
    },
    Abort {
        qpair: QpairId,
        cid: u16,
        abort_cid: u16,
    },
    /// Register the queue's pending changes in [`crate::order`], because its host begins another
    /// association.
    Order {
        qpair: QpairId,
        arming: Arc<Arming>,
    },
    Armed,
    OlderEnded {
        work: u64,
    },
    /// Register all changes of a disk in its order, because exclusive commands begin.
    Exclude {
        order: Arc<DiskOrder>,
        subsystem: Arc<SubsystemShared>,
    },
    /// Answer once no disk executes a command that began before this change.
    Settle {
        settling: Arc<Settling>,
    },
    Computed(Box<Computed>),
    Drain,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub(crate) admin: usize,
    pub(crate) io: usize,
}

impl Load {
    pub(crate) fn queue_pairs(self) -> usize {
        self.admin + self.io
    }

    /// Returns the reactor with the fewest queues of this kind (admin or I/O); `None` if all
    /// reactors have `limit` queue pairs. If both kinds counted together, hosts with one queue of
    /// each would use only half of the reactors for I/O.
    pub fn lightest(loads: &[Self], qid: u16, limit: usize) -> Option<usize> {
        let weight = |load: &Self| match qid {
            0 => (load.admin, load.io),
            _ => (load.io, load.admin),
        };
        let has_room = |load: &Self| load.queue_pairs() < limit;
        let with_room = loads.iter().enumerate().filter(|(_, load)| has_room(load));
        let lightest = with_room.min_by_key(|(_, load)| weight(load));
        lightest.map(|(reactor, _)| reactor)
    }
}

#[derive(Debug, Default)]
struct SharedLoad {
    admin: AtomicUsize,
    io: AtomicUsize,
}

impl SharedLoad {
    fn of(&self, qid: u16) -> &AtomicUsize {
        if qid == 0 { &self.admin } else { &self.io }
    }
}

#[derive(Debug, Clone)]
pub struct Mailbox {
    messages: Arc<mailbox::Mailbox<Message>>,
    backlog: Arc<Backlog>,
    load: Arc<SharedLoad>,
}

impl Mailbox {
    pub fn new() -> io::Result<(Self, Inbox)> {
        let messages = Arc::new(mailbox::Mailbox::new()?);
        let backlog = Arc::<Backlog>::default();
        let load = Arc::<SharedLoad>::default();
        let inbox = Inbox {
            messages: Arc::clone(&messages),
            backlog: Arc::clone(&backlog),
            load: Arc::clone(&load),
            received: SharedLoad::default(),
        };
        let mailbox = Self {
            messages,
            backlog,
            load,
        };
        Ok((mailbox, inbox))
    }

    pub fn send(&self, message: Message) {
        self.messages.put(message);
    }

    pub fn wake(&self) {
        self.messages.nudge();
    }

    pub fn load(&self) -> Load {
        Load {
            admin: self.load.admin.load(Ordering::Relaxed),
            io: self.load.io.load(Ordering::Relaxed),
        }
    }

    pub fn accept(&self, admitted: Box<Admitted>) {
        let load = self.load.of(admitted.cm.qid.get());
        load.fetch_add(1, Ordering::Relaxed);
        self.backlog.put(admitted);
        self.messages.nudge();
    }

    pub fn displace(&self, place: PlaceId) -> Option<Box<Admitted>> {
        let Some(admitted) = self.backlog.take_out(place) else {
            self.send(Message::Displace { place });
            return None;
        };
        let load = self.load.of(admitted.cm.qid.get());
        load.fetch_sub(1, Ordering::Relaxed);
        Some(admitted)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// Whether messages remain. The reactor must then not sleep.
    pub(crate) messages: bool,
    /// Whether connections remain. The reactor may sleep until it takes the next few.
    pub(crate) connections: bool,
}

#[derive(Debug)]
pub struct Inbox {
    messages: Arc<mailbox::Mailbox<Message>>,
    backlog: Arc<Backlog>,
    load: Arc<SharedLoad>,
    received: SharedLoad,
}

impl Inbox {
    pub(crate) fn try_recv(&self) -> Option<Message> {
        self.messages.take()
    }

    pub(crate) fn take_connection(&self) -> Option<Box<Admitted>> {
        let admitted = self.backlog.take()?;
        let received = self.received.of(admitted.cm.qid.get());
        received.fetch_add(1, Ordering::Relaxed);
        Some(admitted)
    }

    /// Returns the descriptor that is readable after a message or wake-up, until [`Self::rest`].
    pub(crate) fn wake_fd(&self) -> RawFd {
        self.messages.fd()
    }

    /// Resets the wake-up, then checks for remaining input, so that no input is missed.
    pub(crate) fn rest(&self) -> Left {
        self.messages.rest();
        Left {
            messages: !self.messages.is_empty(),
            connections: !self.backlog.is_empty(),
        }
    }

    pub(crate) fn unload(&self, qid: u16) {
        self.load.of(qid).fetch_sub(1, Ordering::Relaxed);
        self.received.of(qid).fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn unload_all(&self) {
        for qid in [0, 1] {
            let gone = self.received.of(qid).swap(0, Ordering::Relaxed);
            self.load.of(qid).fetch_sub(gone, Ordering::Relaxed);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.messages.close();
        self.backlog.close();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cairn_base::wake::wait_readable;

    use super::*;

    #[test]
    fn messages_wake_and_keep_their_order() {
        let (mailbox, inbox) = Mailbox::new().unwrap();
        assert!(!inbox.rest().messages);
        mailbox.send(Message::Drain);
        mailbox.send(Message::Stop);
        let is_readable = || wait_readable([inbox.wake_fd()], Some(Duration::ZERO)) == [true];
        assert!(is_readable());
        assert!(matches!(inbox.try_recv(), Some(Message::Drain)));
        assert!(matches!(inbox.try_recv(), Some(Message::Stop)));
        assert!(inbox.try_recv().is_none() && !is_readable());
    }

    #[test]
    fn hosts_with_one_io_queue_spread_over_the_reactors() {
        let mut loads = [Load { admin: 0, io: 0 }; 2];
        for _host in 0..6 {
            for qid in [0, 1] {
                let reactor = Load::lightest(&loads, qid, 6).unwrap();
                let load = &mut loads[reactor];
                *(if qid == 0 {
                    &mut load.admin
                } else {
                    &mut load.io
                }) += 1;
            }
        }
        assert_eq!(loads, [Load { admin: 3, io: 3 }; 2]);
        assert_eq!(Load::lightest(&loads, 1, 6), None);
    }

    #[test]
    fn a_reactor_that_has_ended_is_not_missed() {
        let (mailbox, inbox) = Mailbox::new().unwrap();
        drop(inbox);
        mailbox.send(Message::Stop);
    }
}
