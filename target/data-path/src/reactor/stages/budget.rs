//! Limits connections and non-I/O commands by their payer's token bucket ([`payer_buckets`]). They
//! lock, allocate and compute, and must not delay other hosts' I/O.

use std::time::Instant;

use super::admission;
use super::sent;
use crate::ids::QpairId;
use crate::qpair::Capsule;
use crate::reactor::CHECK_INTERVAL;
use crate::reactor::Reactor;
use crate::reactor::io::Io;
use crate::reactor::queueing::payer_buckets::{self, AwaitingTokens};
use crate::reactor::queues::Queues;
use crate::reactor::time::Now;
use crate::registry::{Admitted, PlaceId};
use crate::request::RequestId;

/// Maximum connections accepted before the reactor executes commands again.
const CONNECTIONS_AT_A_TIME: u32 = 2;

impl Reactor {
    /// Accepts or queues a few connections; while commands are in progress, once per
    /// [`CHECK_INTERVAL`].
    pub(in crate::reactor) fn take_connections(&mut self) -> bool {
        let now = self.time.now.at;
        if self.control.next_connections.is_some_and(|next| now < next) {
            return false;
        }
        for taken in 0..CONNECTIONS_AT_A_TIME {
            let Some(admitted) = self.control.inbox.take_connection() else {
                return taken > 0;
            };
            self.enter_connection(admitted);
        }
        if self.queues.requests.in_use() == 0 {
            self.time.next_check = now;
        } else {
            self.control.next_connections = Some(now + CHECK_INTERVAL);
        }
        true
    }

    pub(in crate::reactor) fn connections_due(&self) -> Instant {
        let (next, check) = (self.control.next_connections, self.time.next_check);
        next.map_or(check, |next| next.max(check))
    }

    pub(in crate::reactor) fn enter_connection(&mut self, admitted: Box<Admitted>) {
        let (payer_buckets, now_ns) = (&mut self.queues.payer_buckets, self.time.now.ns);
        let payer = admitted.place.payer();
        if self.queues.draining || payer_buckets.may_connect(payer, now_ns) {
            return self.accept(*admitted);
        }
        payer_buckets.wait(payer, AwaitingTokens::Connection(admitted), now_ns);
    }

    /// Charges a connection once its peer confirms it: the source address is then not forged.
    pub(in crate::reactor) fn confirmed(&mut self, qpair: QpairId) {
        let place = &mut self.queues.qpairs[qpair].place;
        place.confirm();
        let (payer, now_ns) = (place.payer(), self.time.now.ns);
        self.queues.payer_buckets.pay_connection(payer, now_ns);
    }

    #[inline(always)]
    pub(in crate::reactor) fn serve_payer_buckets(&mut self) -> bool {
        self.queues.payer_buckets.begin_round(self.time.now.ns) && self.go_on_with_buckets()
    }

    #[cold]
    fn go_on_with_buckets(&mut self) -> bool {
        let mut any = false;
        while let Some(next) = next(&mut self.queues, &self.io, &self.time.now) {
            any = true;
            match next {
                AwaitingTokens::Capsule(capsule) => {
                    let id = self.queues.take_on(&capsule);
                    self.queues.execute_later(id);
                }
                AwaitingTokens::Connection(admitted) => self.accept(*admitted),
            }
        }
        any
    }
}

fn next(queues: &mut Queues, io: &Io, now: &Now) -> Option<AwaitingTokens> {
    let mut payer_buckets = std::mem::take(&mut queues.payer_buckets);
    let next = payer_buckets.next(now.ns, |capsule| {
        admission::may_begin(queues, io, capsule.qpair, 0, 1)
    });
    queues.payer_buckets = payer_buckets;
    next
}

/// Schedules a non-I/O command if its payer's bucket allows it; otherwise queues its capsule and
/// frees the request.
pub(in crate::reactor) fn enter(queues: &mut Queues, io: &mut Io, now: &Now, id: RequestId) {
    queues.payer_buckets.arrived();
    let (qpair, slot) = (queues.requests[id].qpair, queues.requests[id].receive);
    let payer = queues.qpairs[qpair].place.payer();
    if queues.payer_buckets.pays(payer, now.ns) {
        return queues.execute_later(id);
    }
    // A queued capsule holds its receive slot for in-capsule data. If slots are short, the command
    // runs instead.
    let port = queues.qpairs[qpair].port;
    if slot.is_some() && admission::receives_are_short(queues, port) {
        queues.payer_buckets.charge(payer, now.ns);
        return queues.execute_later(id);
    }
    let command = queues.command(id);
    let capsule = Capsule {
        qpair,
        slot: command.request.receive.take(),
        sqe: command.request.sqe,
        data_bytes: command.request.in_capsule_bytes,
        seen_ns: command.request.times.seen_ns(),
        first: None,
    };
    command.request.take_permit().deferred();
    sent::free(command, io);
    let waiting = AwaitingTokens::Capsule(capsule);
    queues.payer_buckets.wait(payer, waiting, now.ns);
}

pub(in crate::reactor) fn drop_of(queues: &mut Queues, qpair: QpairId) -> Vec<u32> {
    let gone = queues
        .payer_buckets
        .take_out(|waiting| payer_buckets::is_of(waiting, qpair));
    let slot = |waiting| match waiting {
        AwaitingTokens::Capsule(capsule) => capsule.slot,
        AwaitingTokens::Connection(_) => None,
    };
    gone.into_iter().filter_map(slot).collect()
}

pub(in crate::reactor) fn take_connections(
    queues: &mut Queues,
    place: Option<PlaceId>,
) -> Vec<Admitted> {
    let goes = |waiting: &AwaitingTokens| match place {
        Some(place) => payer_buckets::has_place(waiting, place),
        None => matches!(waiting, AwaitingTokens::Connection(_)),
    };
    let gone = queues.payer_buckets.take_out(goes);
    let admitted = |waiting| match waiting {
        AwaitingTokens::Connection(admitted) => Some(*admitted),
        AwaitingTokens::Capsule(_) => None,
    };
    gone.into_iter().filter_map(admitted).collect()
}
