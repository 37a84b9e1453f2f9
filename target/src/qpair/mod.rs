//! A queue pair: one queue of a controller, on one reactor, for life.

mod outbox;
mod table;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{Marking, QpId};
use nvme_auth::controller::Authentication;
use nvme_proto::subsystem::Claim;
use nvme_proto::wire::Cqe;
use nvme_proto::wire::cm::RequestData;

pub(crate) use outbox::Outbox;
pub(crate) use table::Qpairs;

use crate::ana::ListenerShared;
use crate::ids::ShareId;
use crate::marking::MarkingPolicy;
use crate::registry::{ControllerShared, Place, QueueShared, SubsystemShared};
use crate::request::List;

/// From the connection request to a finished Connect command, or to the end of the host's
/// authentication.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// From one step of a reauthentication to the next. All queues of a host may be at it at once, so
/// the host has more time than for its Connect; the time that we compute does not count.
pub(crate) const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);

/// From posting work to its completion: a host that takes longer to read its
/// responses has stopped reading. A completion ends a bounded number of them ([`Outbox::cover`]).
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Where a queue pair is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Accepted; its Connect command must succeed by then.
    Connecting {
        /// When it is given up.
        deadline: Instant,
    },
    /// A queue of a controller.
    Live,
    /// Disconnected by us or by the peer; work is still coming back.
    Closing {
        /// Whether the log says why. If not, the connection's own event will.
        explained: bool,
    },
    /// The device has no more of it; requests may still be with a backend.
    Closed,
}

/// What a connected queue is a queue of.
#[derive(Debug, Clone)]
pub(crate) struct Association {
    /// The subsystem.
    pub(crate) subsystem: Arc<SubsystemShared>,
    /// The controller.
    pub(crate) controller: Arc<ControllerShared>,
    /// QID.
    pub(crate) qid: u16,
    /// The queue, as others see it.
    pub(crate) queue: Arc<QueueShared>,
}

/// A queue whose Connect succeeded and whose host has yet to authenticate. Its names are claims, and the
/// subsystem has nothing of it.
#[derive(Debug)]
pub(crate) struct Claimant {
    /// The subsystem.
    pub(crate) subsystem: Arc<SubsystemShared>,
    /// The Connect.
    pub(crate) claim: Claim,
    /// HOSTNQN as logs show it: escaped.
    pub(crate) host_nqn: String,
    /// `None` while another thread has it.
    pub(crate) exchange: Option<Box<Authentication>>,
    /// When that got it last.
    pub(crate) computing_since: Instant,
}

/// Another authentication of a queue that is live.
#[derive(Debug)]
pub(crate) struct Renewal {
    /// `None` while another thread has it.
    pub(crate) exchange: Option<Box<Authentication>>,
    /// When the host's next step must have come.
    pub(crate) deadline: Instant,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// What the endpoint calls it.
    pub(crate) qp: QpId,
    /// Which of the reactor's devices it is on.
    pub(crate) port: usize,
    /// The host's end.
    pub(crate) peer: SocketAddr,
    /// Our end.
    pub(crate) local: SocketAddr,
    /// Where it came in.
    pub(crate) listener: Arc<ListenerShared>,
    /// The private data of its connection request.
    pub(crate) cm: RequestData,
    /// What its packets carry, as far as its host is known.
    pub(crate) marking: Marking,
    /// What decides that.
    pub(crate) policy: MarkingPolicy,
    /// What counts it for its address until it is no more.
    pub(crate) place: Place,
    /// Where it is in its life.
    pub(crate) state: State,
    /// Whether its one Connect command has come.
    pub(crate) connect_begun: bool,
    /// Since Connect, until its host is authenticated, where that is required.
    pub(crate) claimant: Option<Box<Claimant>>,
    /// Since Connect, or since its host is authenticated.
    pub(crate) association: Option<Association>,
    /// While its host authenticates again.
    pub(crate) renewal: Option<Box<Renewal>>,
    /// Its controller's share of the data buffers, since Connect.
    pub(crate) share: Option<ShareId>,
    /// Entries of the submission queue, 1-based.
    pub(crate) entries: u16,
    /// Commands accepted and not answered; parked ones do not count.
    pub(crate) outstanding: u32,
    /// Requests that belong to it, answered ones on their way included.
    pub(crate) requests: u32,
    /// SQHD, or `None` where the host does not require it.
    sqhd: Option<u16>,
    /// Send-queue work requests that may still be posted.
    pub(crate) send_credits: u32,
    /// RDMA READs that may still be posted.
    pub(crate) read_credits: u32,
    /// Requests that wait to READ.
    pub(crate) awaiting_read: List,
    /// Requests that wait to SEND.
    pub(crate) awaiting_send: List,
    /// Work of this round, not yet posted.
    pub(crate) outbox: Outbox,
    /// Signaled work that has not come back.
    pub(crate) in_flight: u32,
    /// Since when none of it came back.
    pub(crate) in_flight_since: Instant,
}

impl QueuePair {
    /// One that was just accepted.
    pub(crate) fn new(accepted: Accepted, now: Instant) -> Self {
        Self {
            qp: accepted.qp,
            port: accepted.port,
            peer: accepted.peer,
            local: accepted.local,
            listener: accepted.listener,
            cm: accepted.cm,
            marking: accepted.marking,
            policy: accepted.policy,
            place: accepted.place,
            state: State::Connecting {
                deadline: now + CONNECT_TIMEOUT,
            },
            connect_begun: false,
            claimant: None,
            association: None,
            renewal: None,
            share: None,
            // HSQSIZE is 0-based.
            entries: accepted.cm.hsqsize.get() + 1,
            outstanding: 0,
            requests: 0,
            sqhd: Some(0),
            send_credits: accepted.send_work,
            read_credits: accepted.reads,
            awaiting_read: List::default(),
            awaiting_send: List::default(),
            outbox: Outbox::new(accepted.send_work),
            in_flight: 0,
            in_flight_since: now,
        }
    }

    /// Connect succeeded.
    pub(crate) fn connected(&mut self, entries: u16, flow_control: bool) {
        self.entries = entries;
        self.sqhd = flow_control.then_some(0);
    }

    /// It is a queue of an association from now on.
    pub(crate) fn associated(&mut self, association: Association, share: ShareId) {
        self.association = Some(association);
        self.share = Some(share);
        self.state = State::Live;
    }

    /// Whether it still takes commands and gives answers.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Connecting { .. } | State::Live)
    }

    /// Whether the time of its association is over (KATO).
    #[inline]
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        let association = self.association.as_ref();
        association.is_some_and(|association| association.controller.is_over(now_ns))
    }

    /// When the time of its association is over, unless the host sends something before.
    #[inline]
    pub(crate) fn lease_end_ns(&self) -> u64 {
        let association = self.association.as_ref();
        association.map_or(u64::MAX, |association| {
            association.controller.lease_end_ns()
        })
    }

    /// A command came in: it keeps the association alive, unless it comes too late for
    /// that, and must not be executed.
    #[inline]
    pub(crate) fn extend_lease(&self, now_ns: u64) -> bool {
        let association = self.association.as_ref();
        association.is_none_or(|association| association.controller.extend_lease(now_ns))
    }

    /// A command was accepted.
    pub(crate) fn command_begins(&mut self) {
        self.outstanding += 1;
        self.show_depth();
    }

    /// A command was answered, or parked.
    pub(crate) fn command_ends(&mut self) {
        self.outstanding -= 1;
        self.show_depth();
    }

    fn show_depth(&self) {
        if let Some(association) = &self.association {
            let depth = &association.queue.counters.depth;
            depth.set(u64::from(self.outstanding));
        }
    }

    /// QID: as the connection request said, with which its Connect agrees.
    pub(crate) fn qid(&self) -> u16 {
        self.cm.qid.get()
    }

    /// The host's NQN, for log lines: as the Connect said.
    pub(crate) fn host_nqn(&self) -> &str {
        match (&self.association, &self.claimant) {
            (Some(association), _) => association.controller.host_nqn(),
            (None, Some(claimant)) => &claimant.host_nqn,
            (None, None) => "?",
        }
    }

    /// The subsystem's NQN, for log lines; known since Connect.
    pub(crate) fn subsystem_nqn(&self) -> &str {
        self.subsystem().map_or("?", |subsystem| subsystem.nqn())
    }

    /// The subsystem that its Connect named.
    pub(crate) fn subsystem(&self) -> Option<&Arc<SubsystemShared>> {
        let claimed = self.claimant.as_deref().map(|claimant| &claimant.subsystem);
        let own = self.association.as_ref().map(|own| &own.subsystem);
        own.or(claimed)
    }

    /// SQHD of the next response: one more command is consumed.
    #[inline]
    pub(crate) fn advance_sqhd(&mut self) -> u16 {
        match &mut self.sqhd {
            Some(head) => {
                *head = if *head + 1 < self.entries {
                    *head + 1
                } else {
                    0
                };
                *head
            }
            None => Cqe::SQHD_NO_FLOW_CONTROL,
        }
    }

    /// Counts signaled work out.
    pub(crate) fn work_posted(&mut self, now: Instant) {
        if self.in_flight == 0 {
            self.in_flight_since = now;
        }
        self.in_flight += 1;
    }

    /// Counts signaled work in.
    pub(crate) fn work_returned(&mut self, now: Instant) {
        self.in_flight -= 1;
        self.in_flight_since = now;
    }

    /// Whether there are credits for a READ.
    #[inline]
    pub(crate) fn may_read(&self) -> bool {
        self.read_credits > 0 && self.send_credits > 0
    }

    /// Whether requests wait for credits.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.awaiting_send.is_empty() || !self.awaiting_read.is_empty()
    }

    /// Whether it may become [`Self::overdue`] as it is.
    pub(crate) fn has_deadline(&self) -> bool {
        matches!(self.state, State::Connecting { .. })
            || self.in_flight > 0
            || self.renewal.is_some()
    }

    /// Whether a host that authenticates has the next step.
    fn has_claimant_at_rest(&self) -> bool {
        let claimant = self.claimant.as_ref();
        claimant.is_some_and(|claimant| claimant.exchange.is_some())
    }

    /// A step of its authentication is computed: the time that this took is given back to its host.
    pub(crate) fn computed(&mut self, exchange: Box<Authentication>, now: Instant) {
        let Some(claimant) = &mut self.claimant else {
            return;
        };
        claimant.exchange = Some(exchange);
        if let State::Connecting { deadline } = &mut self.state {
            *deadline += now.saturating_duration_since(claimant.computing_since);
        }
    }

    fn is_renewal_late(&self, now: Instant) -> bool {
        let renewal = self.renewal.as_ref();
        renewal.is_some_and(|renewal| renewal.exchange.is_some() && now >= renewal.deadline)
    }

    /// Why it must be closed by now, if it must.
    pub(crate) fn overdue(&self, now: Instant) -> Option<&'static str> {
        match self.state {
            // The host's time, not ours.
            State::Connecting { deadline } if now >= deadline && self.has_claimant_at_rest() => {
                Some("the host did not authenticate in time")
            }
            State::Connecting { deadline } if now >= deadline && self.claimant.is_none() => {
                Some("the host sent no valid Connect in time")
            }
            State::Connecting { .. } | State::Live
                if self.in_flight > 0 && now >= self.in_flight_since + RESPONSE_TIMEOUT =>
            {
                Some("the host has stopped reading its responses")
            }
            State::Live if self.is_renewal_late(now) => {
                Some("the host began to authenticate again and did not go on in time")
            }
            _ => None,
        }
    }
}

/// How a connection request was accepted.
#[derive(Debug)]
pub(crate) struct Accepted {
    /// What the endpoint calls the queue pair.
    pub(crate) qp: QpId,
    /// Which of the reactor's devices it is on.
    pub(crate) port: usize,
    /// The host's end.
    pub(crate) peer: SocketAddr,
    /// Our end.
    pub(crate) local: SocketAddr,
    /// The private data of the request.
    pub(crate) cm: RequestData,
    /// What its packets carry.
    pub(crate) marking: Marking,
    /// What decides that once the host is known by name.
    pub(crate) policy: MarkingPolicy,
    /// Send-queue work requests it has room for.
    pub(crate) send_work: u32,
    /// RDMA READs outstanding at a time.
    pub(crate) reads: u32,
    /// Where it came in.
    pub(crate) listener: Arc<ListenerShared>,
    /// Its place among those that wait for their Connect.
    pub(crate) place: Place,
}

#[cfg(test)]
mod tests {
    use cairn_rdma::{Clock, PKey};
    use nvme_proto::ana::AnaStates;

    use super::*;
    use crate::ana::AnaShared;
    use crate::registry::Places;

    fn queue_pair(hsqsize: u16) -> QueuePair {
        let places = Arc::new(Places::new(Clock::default()));
        let accepted = Accepted {
            qp: QpId::new(0, 0),
            port: 0,
            peer: "192.0.2.1:1".parse().unwrap(),
            local: "192.0.2.2:4420".parse().unwrap(),
            cm: RequestData::new(1, hsqsize + 1, hsqsize, 0),
            marking: Marking::default(),
            policy: MarkingPolicy {
                rules: Arc::default(),
                listener: Marking::default(),
                local: [192, 0, 2, 2].into(),
                peer: [192, 0, 2, 1].into(),
                priorities: None,
            },
            send_work: 8,
            reads: 4,
            listener: Arc::new(ListenerShared {
                id: 0,
                address: ([192, 0, 2, 2], 4420).into(),
                provider: "none",
                pkey: PKey::DEFAULT,
                ana: AnaShared::new(&AnaStates::default()),
                removed: false.into(),
            }),
            place: places.take([192, 0, 2, 1].into(), false).unwrap().0,
        };
        QueuePair::new(accepted, Instant::now())
    }

    #[test]
    fn sqhd_counts_modulo_the_size_of_the_queue() {
        let mut qpair = queue_pair(2);
        let heads: Vec<u16> = (0..4).map(|_| qpair.advance_sqhd()).collect();
        assert_eq!(heads, [1, 2, 0, 1]);
        qpair.sqhd = None;
        assert_eq!(qpair.advance_sqhd(), 0xffff);
    }

    #[test]
    fn a_host_that_never_connects_is_overdue() {
        let qpair = queue_pair(31);
        let State::Connecting { deadline } = qpair.state else {
            panic!("it is new")
        };
        assert_eq!(qpair.overdue(deadline - Duration::from_millis(1)), None);
        assert!(qpair.overdue(deadline).is_some());
    }

    #[test]
    fn a_host_that_stops_in_a_reauthentication_is_overdue() {
        let mut qpair = queue_pair(31);
        qpair.state = State::Live;
        let deadline = Instant::now() + RENEWAL_TIMEOUT;
        let renewal = |exchange| Some(Box::new(Renewal { exchange, deadline }));
        // Another thread computes a step.
        qpair.renewal = renewal(None);
        assert!(qpair.has_deadline());
        assert_eq!(qpair.overdue(deadline), None);
        qpair.renewal = renewal(Some(Box::new(authentication())));
        assert_eq!(qpair.overdue(deadline - Duration::from_millis(1)), None);
        assert!(qpair.overdue(deadline).is_some());
    }

    fn authentication() -> Authentication {
        let names = nvme_auth::Names {
            host: "host".to_owned(),
            subsystem: "subsystem".to_owned(),
        };
        let secrets = nvme_auth::Secrets {
            host: nvme_auth::Secret::generate(32, None, &mut |bytes| bytes.fill(1)),
            controller: None,
        };
        Authentication::new(names, secrets, nvme_auth::Policy::default())
    }

    #[test]
    fn a_host_that_stops_reading_is_overdue() {
        let mut qpair = queue_pair(31);
        qpair.state = State::Live;
        let start = Instant::now();
        assert_eq!(
            qpair.overdue(start + RESPONSE_TIMEOUT),
            None,
            "nothing is in flight"
        );
        qpair.work_posted(start);
        qpair.work_posted(start + RESPONSE_TIMEOUT / 2);
        assert!(qpair.overdue(start + RESPONSE_TIMEOUT).is_some());
        qpair.work_returned(start + RESPONSE_TIMEOUT);
        assert_eq!(
            qpair.overdue(start + RESPONSE_TIMEOUT),
            None,
            "it reads again"
        );
    }
}
