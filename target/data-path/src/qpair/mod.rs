//! Queue pair: one queue of a controller, always on one reactor.

mod capsule;
mod outbox;
mod table;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_rdma::{Marking, QpId};
use nvme_auth::controller::Authentication;
use nvme_proto::fused::Pairing;
use nvme_proto::subsystem::Claim;
use nvme_proto::wire::Cqe;
use nvme_proto::wire::cm::RequestData;

pub(crate) use capsule::Capsule;
pub(crate) use outbox::Outbox;
pub(crate) use table::Qpairs;

use crate::ana::ListenerShared;
use crate::ids::ShareId;
use crate::marking::MarkingPolicy;
use crate::registry::{ConnectPlace, ControllerShared, QueueShared, SubsystemShared};
use crate::request::{List, OWN_WORK};

/// Time limit from the connection request to the end of Connect and authentication.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for each message of a host's reauthentication. Longer than [`CONNECT_TIMEOUT`],
/// because all queues of a host may reauthenticate at once.
pub(crate) const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum time without a completion while work is in flight. One signaled response completes
/// a bounded number of earlier responses ([`Outbox::cover`]).
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QpairState {
    Connecting {
        deadline: Instant,
    },
    Live,
    /// Disconnected by either side, with incomplete work.
    Closing {
        /// Whether the reason was logged; if not, the connection's close event reports it.
        explained: bool,
    },
    /// Closed by the device; backends may still execute requests.
    Closed,
}

#[derive(Debug, Clone)]
pub(crate) struct Association {
    pub(crate) subsystem: Arc<SubsystemShared>,
    pub(crate) controller: Arc<ControllerShared>,
    pub(crate) qid: u16,
    pub(crate) queue: Arc<QueueShared>,
}

/// Queue whose host has not proven yet that it owns the host NQN.
#[derive(Debug)]
pub(crate) struct Claimant {
    pub(crate) subsystem: Arc<SubsystemShared>,
    pub(crate) claim: Claim,
    pub(crate) host_nqn: String,
    /// `None` while another thread computes a message.
    pub(crate) exchange: Option<Box<Authentication>>,
    pub(crate) computing_since: Instant,
}

#[derive(Debug)]
pub(crate) struct Renewal {
    pub(crate) exchange: Option<Box<Authentication>>,
    pub(crate) deadline: Instant,
}

#[derive(Debug)]
pub(crate) struct QueuePair {
    pub(crate) qp: QpId,
    pub(crate) port: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) listener: Arc<ListenerShared>,
    pub(crate) cm: RequestData,
    pub(crate) marking: Marking,
    pub(crate) policy: MarkingPolicy,
    pub(crate) place: ConnectPlace,
    pub(crate) state: QpairState,
    pub(crate) connect_begun: bool,
    pub(crate) claimant: Option<Box<Claimant>>,
    /// `None` until the Connect and any authentication end.
    pub(crate) association: Option<Association>,
    pub(crate) renewal: Option<Box<Renewal>>,
    pub(crate) share: Option<ShareId>,
    pub(crate) entries: u16,
    pub(crate) outstanding: u32,
    /// Includes requests with a response in transit.
    pub(crate) requests: u32,
    /// `None` if the host disabled flow control.
    sqhd: Option<u16>,
    pub(crate) send_credits: u32,
    pub(crate) read_credits: u32,
    /// Fused Compare whose Write has not arrived.
    pub(crate) pairing: Pairing<Capsule>,
    pub(crate) awaiting_read: List,
    pub(crate) awaiting_send: List,
    pub(crate) outbox: Outbox,
    pub(crate) in_flight: u32,
    pub(crate) in_flight_since: Instant,
}

impl QueuePair {
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
            state: QpairState::Connecting {
                deadline: now + CONNECT_TIMEOUT,
            },
            connect_begun: false,
            claimant: None,
            association: None,
            renewal: None,
            share: None,
            entries: accepted.cm.hsqsize.get() + 1,
            outstanding: 0,
            requests: 0,
            sqhd: Some(0),
            send_credits: accepted.send_work,
            read_credits: accepted.reads,
            pairing: Pairing::default(),
            awaiting_read: List::default(),
            awaiting_send: List::default(),
            outbox: Outbox::new(accepted.send_work),
            in_flight: 0,
            in_flight_since: now,
        }
    }

    pub(crate) fn connected(&mut self, entries: u16, flow_control: bool) {
        self.entries = entries;
        self.sqhd = flow_control.then_some(0);
    }

    pub(crate) fn associated(&mut self, association: Association, share: ShareId) {
        self.association = Some(association);
        self.share = Some(share);
        self.state = QpairState::Live;
    }

    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, QpairState::Connecting { .. } | QpairState::Live)
    }

    #[inline]
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        let association = self.association.as_ref();
        association.is_some_and(|association| association.controller.is_over(now_ns))
    }

    #[inline]
    pub(crate) fn lease_end_ns(&self) -> u64 {
        let association = self.association.as_ref();
        association.map_or(u64::MAX, |association| {
            association.controller.lease_end_ns()
        })
    }

    #[inline]
    pub(crate) fn extend_lease(&self, now_ns: u64) -> bool {
        let association = self.association.as_ref();
        association.is_none_or(|association| association.controller.extend_lease(now_ns))
    }

    pub(crate) fn command_begins(&mut self) {
        self.outstanding += 1;
        self.show_depth();
    }

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

    /// Returns the connection request's QID, which the Connect must repeat.
    pub(crate) fn qid(&self) -> u16 {
        self.cm.qid.get()
    }

    pub(crate) fn host_nqn(&self) -> &str {
        match (&self.association, &self.claimant) {
            (Some(association), _) => association.controller.host_nqn(),
            (None, Some(claimant)) => &claimant.host_nqn,
            (None, None) => "?",
        }
    }

    pub(crate) fn subsystem_nqn(&self) -> &str {
        self.subsystem().map_or("?", |subsystem| subsystem.nqn())
    }

    pub(crate) fn subsystem(&self) -> Option<&Arc<SubsystemShared>> {
        let claimed = self.claimant.as_deref().map(|claimant| &claimant.subsystem);
        let own = self.association.as_ref().map(|own| &own.subsystem);
        own.or(claimed)
    }

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

    pub(crate) fn work_posted(&mut self, now: Instant) {
        if self.in_flight == 0 {
            self.in_flight_since = now;
        }
        self.in_flight += 1;
    }

    pub(crate) fn work_returned(&mut self, now: Instant) {
        self.in_flight -= 1;
        self.in_flight_since = now;
    }

    /// Leaves one credit for a response that waits for two.
    #[inline]
    pub(crate) fn may_read(&self) -> bool {
        self.read_credits > 0 && self.send_credits >= OWN_WORK
    }

    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        !self.awaiting_send.is_empty() || !self.awaiting_read.is_empty()
    }

    pub(crate) fn has_deadline(&self) -> bool {
        matches!(self.state, QpairState::Connecting { .. })
            || self.in_flight > 0
            || self.pairing.waiting().is_some()
            || self.renewal.is_some()
    }

    fn has_claimant_at_rest(&self) -> bool {
        let claimant = self.claimant.as_ref();
        claimant.is_some_and(|claimant| claimant.exchange.is_some())
    }

    /// True between the answer to the Connect and the end of the authentication, except while
    /// another thread computes a message.
    pub(crate) fn waits_for_authentication(&self) -> bool {
        matches!(self.state, QpairState::Connecting { .. }) && self.has_claimant_at_rest()
    }

    pub(crate) fn computed(&mut self, exchange: Box<Authentication>, now: Instant) {
        let Some(claimant) = &mut self.claimant else {
            return;
        };
        claimant.exchange = Some(exchange);
        if let QpairState::Connecting { deadline } = &mut self.state {
            *deadline += now.saturating_duration_since(claimant.computing_since);
        }
    }

    fn is_renewal_late(&self, now: Instant) -> bool {
        let renewal = self.renewal.as_ref();
        renewal.is_some_and(|renewal| renewal.exchange.is_some() && now >= renewal.deadline)
    }

    pub(crate) fn overdue(&self, now: Instant) -> Option<&'static str> {
        match self.state {
            // Only the host's time counts, not the time of the authentication thread.
            QpairState::Connecting { deadline }
                if now >= deadline && self.has_claimant_at_rest() =>
            {
                Some("the host did not authenticate in time")
            }
            QpairState::Connecting { deadline } if now >= deadline && self.claimant.is_none() => {
                Some("the host sent no valid Connect in time")
            }
            QpairState::Connecting { .. } | QpairState::Live
                if self.in_flight > 0 && now >= self.in_flight_since + RESPONSE_TIMEOUT =>
            {
                Some("the host has stopped reading its responses")
            }
            QpairState::Live if self.is_renewal_late(now) => {
                Some("the host began to authenticate again and did not go on in time")
            }
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) qp: QpId,
    pub(crate) port: usize,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) cm: RequestData,
    pub(crate) marking: Marking,
    pub(crate) policy: MarkingPolicy,
    pub(crate) send_work: u32,
    pub(crate) reads: u32,
    pub(crate) listener: Arc<ListenerShared>,
    pub(crate) place: ConnectPlace,
}

#[cfg(test)]
mod tests {
    use cairn_base::Clock;
    use cairn_rdma::PKey;
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
                address: "192.0.2.2:4420".parse().unwrap(),
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
        let QpairState::Connecting { deadline } = qpair.state else {
            panic!("it is new")
        };
        assert_eq!(qpair.overdue(deadline - Duration::from_millis(1)), None);
        assert!(qpair.overdue(deadline).is_some());
    }

    #[test]
    fn a_host_that_stops_in_a_reauthentication_is_overdue() {
        let mut qpair = queue_pair(31);
        qpair.state = QpairState::Live;
        let deadline = Instant::now() + RENEWAL_TIMEOUT;
        let renewal = |exchange| Some(Box::new(Renewal { exchange, deadline }));
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
        qpair.state = QpairState::Live;
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
