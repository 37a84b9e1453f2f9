//! Messages between threads.
//!
//! Never per I/O: connections, admin commands' consequences, changes of the
//! configuration. The mailboxes are unbounded because no thread may wait here (two
//! reactors that wait for each other's full mailbox would do so for ever); what
//! bounds them is the number of queue pairs and controllers. `cargo xtask loom` tries
//! every order in which their threads can meet.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cairn_rdma::{ConnRequest, FabricError, Marking, mailbox};
use nvme_proto::controller::Completion;
use nvme_proto::wire::cm::{ReplyData, RequestData};

use super::authenticator::Computed;
use super::backlog::Backlog;
use super::{Arming, IoCounters, Place, PlaceId, Settling};
use crate::ana::ListenerShared;
use crate::ending::Ending;
use crate::ids::QpairId;
use crate::marking::MarkingPolicy;
use crate::namespace::NamespaceTable;

/// A queue pair, wherever it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueAddress {
    /// The reactor it lives on.
    pub(crate) reactor: usize,
    /// Which of its queue pairs.
    pub(crate) qpair: QpairId,
}

/// A connection request that was found in order.
#[derive(Debug)]
pub(crate) struct Admitted {
    /// The request.
    pub(crate) request: ConnRequest,
    /// Its private data.
    pub(crate) cm: RequestData,
    /// The private data of the reply.
    pub(crate) reply: ReplyData,
    /// What our packets carry.
    pub(crate) marking: Marking,
    /// What decides that once the host is known by name.
    pub(crate) policy: MarkingPolicy,
    /// Where it came in.
    pub(crate) listener: Arc<ListenerShared>,
    /// Its place among those that wait for their Connect.
    pub(crate) place: Place,
}

/// A message to a reactor.
#[derive(Debug)]
pub(crate) enum Message {
    /// These are the namespaces of a subsystem from now on.
    Namespaces {
        /// The subsystem.
        subsystem: u32,
        /// What the reactor counts of it.
        counters: Arc<IoCounters>,
        /// Its namespaces.
        table: Arc<NamespaceTable>,
    },
    /// Answer a command that was parked.
    Complete {
        /// The admin queue it came on.
        qpair: QpairId,
        /// Its end.
        completion: Completion,
    },
    /// Close a queue pair.
    Disconnect {
        /// Which.
        qpair: QpairId,
        /// Why.
        ending: Ending,
    },
    /// Close the queue pair that has this place, unless its Connect has come.
    Displace {
        /// Which.
        place: PlaceId,
    },
    /// Abort a command if that is still possible, and report the result to the subsystem.
    Abort {
        /// The queue of the command.
        qpair: QpairId,
        /// The command.
        cid: u16,
        /// CID of the Abort command.
        abort_cid: u16,
    },
    /// A later association of a queue's host begins: enter the changes of the queue.
    Order {
        /// The queue.
        qpair: QpairId,
        /// Where to report that.
        arming: Arc<Arming>,
    },
    /// All queues that a Connect waits for have entered their changes.
    Armed,
    /// A change that another one waited for has ended.
    OlderEnded {
        /// Work id of the request that waited.
        work: u64,
    },
    /// A decision about commands has changed: answer once no disk has a command from before that.
    Settle {
        /// The change.
        settling: Arc<Settling>,
    },
    /// A step of a queue's authentication is computed.
    Computed(Box<Computed>),
    /// Take no more commands; close each queue when its last is answered.
    Drain,
    /// End, once all queues are closed.
    Stop,
}

/// What a reactor has to serve, and will have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Load {
    /// Admin queues, which have next to nothing to do.
    pub(crate) admin: usize,
    /// I/O queues.
    pub(crate) io: usize,
}

impl Load {
    /// Queue pairs in all.
    pub(crate) fn queue_pairs(self) -> usize {
        self.admin + self.io
    }

    /// Which of these reactors gets one queue more: the one with the fewest of its
    /// kind. An admin queue does not count as an I/O queue, or hosts with one of each
    /// would have all their I/O on one of two reactors. `None`: all have `limit`.
    pub(crate) fn lightest(loads: &[Self], qid: u16, limit: usize) -> Option<usize> {
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

/// A [`Load`] as threads share it.
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

/// The sending end of a reactor's mailbox.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox {
    messages: Arc<mailbox::Mailbox<Message>>,
    backlog: Arc<Backlog>,
    load: Arc<SharedLoad>,
}

impl Mailbox {
    /// A mailbox and its receiving end.
    pub(crate) fn new() -> Result<(Self, Inbox), FabricError> {
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

    /// Sends a message. A reactor that has ended needs none.
    pub(crate) fn send(&self, message: Message) {
        self.messages.put(message);
    }

    /// Has the reactor make a round.
    pub(crate) fn wake(&self) {
        self.messages.nudge();
    }

    /// Queue pairs that the reactor has or will have.
    pub(crate) fn load(&self) -> Load {
        Load {
            admin: self.load.admin.load(Ordering::Relaxed),
            io: self.load.io.load(Ordering::Relaxed),
        }
    }

    /// Hands over a connection, and counts it.
    pub(crate) fn accept(&self, admitted: Box<Admitted>) {
        let load = self.load.of(admitted.cm.qid.get());
        load.fetch_add(1, Ordering::Relaxed);
        self.backlog.put(admitted);
        self.messages.nudge();
    }

    /// A connection loses its place. It is returned if the reactor has not taken it yet, and ended there otherwise.
    pub(crate) fn displace(&self, place: PlaceId) -> Option<Box<Admitted>> {
        let Some(admitted) = self.backlog.take_out(place) else {
            self.send(Message::Displace { place });
            return None;
        };
        let load = self.load.of(admitted.cm.qid.get());
        load.fetch_sub(1, Ordering::Relaxed);
        Some(admitted)
    }
}

/// What a reactor that is about to sleep has yet to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Left {
    /// Messages, all of them at once.
    pub(crate) messages: bool,
    /// Connections, when it is time for them.
    pub(crate) connections: bool,
}

/// The receiving end of a reactor's mailbox.
#[derive(Debug)]
pub(crate) struct Inbox {
    messages: Arc<mailbox::Mailbox<Message>>,
    backlog: Arc<Backlog>,
    load: Arc<SharedLoad>,
    /// What of the load was received: the rest waits in the mailbox.
    received: SharedLoad,
}

impl Inbox {
    /// The next message, if there is one.
    pub(crate) fn try_recv(&self) -> Option<Message> {
        self.messages.take()
    }

    /// The next connection, if there is one.
    pub(crate) fn take_connection(&self) -> Option<Box<Admitted>> {
        let admitted = self.backlog.take()?;
        let received = self.received.of(admitted.cm.qid.get());
        received.fetch_add(1, Ordering::Relaxed);
        Some(admitted)
    }

    /// Readable while there are messages, and once the reactor is to make a round, until [`Self::rest`].
    pub(crate) fn wake_fd(&self) -> RawFd {
        self.messages.fd()
    }

    /// The reactor is about to sleep. What is left is looked at after what woke it has been taken note of: of two that come
    /// between these, none is overlooked.
    pub(crate) fn rest(&self) -> Left {
        self.messages.rest();
        Left {
            messages: !self.messages.is_empty(),
            connections: !self.backlog.is_empty(),
        }
    }

    /// A queue pair is no more, whose connection request named this QID.
    pub(crate) fn unload(&self, qid: u16) {
        self.load.of(qid).fetch_sub(1, Ordering::Relaxed);
        self.received.of(qid).fetch_sub(1, Ordering::Relaxed);
    }

    /// All queue pairs that were received are no more.
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

    use cairn_rdma::wake::wait_readable;

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
