//! Connects in two steps: a claim without effect, then, after any authentication, a queue.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::address::Payer;
use nvme_auth::controller::Authentication;
use nvme_proto::ana::AnaStates;
use nvme_proto::controller::{ConnectRequest, Refusal};
use nvme_proto::discovery::LocalEnd;
use nvme_proto::subsystem::{Arrival, Claim, Connected, Peer};
use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RequestData;

use super::{Controller, SubsystemShared, SubsystemState};
use crate::ana::ListenerShared;
use crate::metrics::HostTotals;
use crate::registry::{Arming, ControllerShared, Message, QueueAddress};

#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) address: QueueAddress,
    pub(crate) cm: &'a RequestData,
    pub(crate) local: IpAddr,
    pub(crate) peer: IpAddr,
    pub(crate) payer: Payer,
    pub(crate) listener: &'a Arc<ListenerShared>,
}

impl Origin<'_> {
    fn arrival<'a>(&'a self, now: Duration, ana: &'a AnaStates) -> Arrival<'a> {
        let (first, last) = self.payer.range();
        Arrival {
            now,
            cm: Some(self.cm),
            local: Some(LocalEnd {
                address: self.local,
                pkey: self.listener.pkey.bits(),
            }),
            peer: Some(Peer {
                address: self.peer,
                first,
                last,
            }),
            port: self.listener.id,
            random: cairn_base::entropy::draw(),
            ana,
        }
    }
}

pub(crate) type Joined = (Connected, Arc<ControllerShared>);

pub(crate) enum Entry {
    Joined(Joined),
    /// The host must authenticate before [`SubsystemShared::join`] makes the claim a queue.
    Claimed(Box<Claim>, Box<Authentication>),
}

impl SubsystemState {
    fn check_listener(&self, origin: &Origin<'_>) -> Result<(), Refusal> {
        if self.removed {
            return Err(ConnectRequest::unknown_subsystem());
        }
        // The lock is held, so that a later removal of the listener disconnects the controller.
        if origin.listener.is_removed() {
            return Err(Refusal::transient(Status::CONNECT_CONTROLLER_BUSY));
        }
        // Hosts at other listeners must not learn that the subsystem exists.
        match self.is_behind(origin.listener.address) {
            true => Ok(()),
            false => Err(ConnectRequest::unknown_subsystem()),
        }
    }
}

impl SubsystemShared {
    /// Makes a connection a queue. If its host must authenticate, only returns a claim.
    pub(crate) fn connect(
        &self,
        request: &ConnectRequest,
        origin: &Origin<'_>,
    ) -> Result<Entry, Refusal> {
        let mut state = self.lock();
        state.check_listener(origin)?;
        let exchange = state.keys.exchange(&request.hostnqn, &request.subnqn);
        let now = self.now();
        if exchange.is_none() {
            self.end_if_over(&mut state, request.cntlid, now);
        }
        let ana = state.ana_by(origin.listener);
        let arrival = origin.arrival(now, &ana);
        let claim = state
            .subsystem
            .claim(request, &arrival, state.next_cntlid)?;
        if request.qid == 0 {
            state.next_cntlid = u32::from(claim.cntlid()) + 1;
        }
        match exchange {
            Some(exchange) => Ok(Entry::Claimed(Box::new(claim), Box::new(exchange))),
            None => Ok(Entry::Joined(
                self.enter(&mut state, &claim, origin, &arrival)?,
            )),
        }
    }

    pub(crate) fn join(&self, claim: &Claim, origin: &Origin<'_>) -> Result<Joined, Refusal> {
        let mut state = self.lock();
        state.check_listener(origin)?;
        let now = self.now();
        self.end_if_over(&mut state, claim.cntlid(), now);
        let ana = state.ana_by(origin.listener);
        self.enter(&mut state, claim, origin, &origin.arrival(now, &ana))
    }

    fn enter(
        &self,
        state: &mut SubsystemState,
        claim: &Claim,
        origin: &Origin<'_>,
        arrival: &Arrival<'_>,
    ) -> Result<Joined, Refusal> {
        let request = claim.request();
        let known = state.controllers.get(&claim.cntlid());
        if known.is_some_and(|own| own.queues.contains_key(&request.qid)) {
            return Err(Refusal::new(Status::COMMAND_SEQUENCE_ERROR));
        }
        let connected = state.subsystem.join(claim, arrival)?;
        let (arming, elders) = self.elders(state, request, origin);
        let limiter = state.limiter_of(&request.hostnqn);
        limiter.set_ordered(limiter.is_ordered() || arming.is_some());
        let SubsystemState {
            subsystem,
            controllers,
            ..
        } = &mut *state;
        let of_protocol = subsystem.controller(connected.cntlid);
        let of_protocol = of_protocol.expect("the controller of a queue that has connected");
        let controller = controllers
            .entry(connected.cntlid)
            .or_insert_with(|| Controller {
                shared: Arc::new(ControllerShared::new(
                    of_protocol,
                    request,
                    origin,
                    &arming,
                    limiter,
                    arrival.ana,
                )),
                queues: BTreeMap::new(),
                shown: BTreeMap::new(),
                past: HostTotals::default(),
            });
        controller.queues.insert(connected.qid, origin.address);
        let shared = Arc::clone(&controller.shared);
        self.renew_lease(state, connected.cntlid);
        self.order(&elders, &arming);
        Ok((connected, shared))
    }

    /// Returns the I/O queues of the host's older associations, and an [`Arming`] for them.
    fn elders(
        &self,
        state: &SubsystemState,
        request: &ConnectRequest,
        origin: &Origin<'_>,
    ) -> (Option<Arc<Arming>>, Vec<QueueAddress>) {
        if request.qid != 0 {
            return (None, Vec::new());
        }
        let older = state.of_host(&request.hostnqn);
        let older = older.filter(|own| own.shared.hostid == request.hostid);
        let mut queues = older.flat_map(|own| own.queues.iter()).peekable();
        if queues.peek().is_none() {
            return (None, Vec::new());
        }
        let io_queues = queues.filter(|(qid, _)| **qid != 0);
        let elders: Vec<QueueAddress> = io_queues.map(|(_, queue)| *queue).collect();
        let waiter = self.reactors[origin.address.reactor].clone();
        let arming = Arming::new(elders.len(), self.now(), waiter);
        (Some(Arc::new(arming)), elders)
    }

    fn order(&self, queues: &[QueueAddress], arming: &Option<Arc<Arming>>) {
        for (queue, arming) in queues.iter().zip(arming.iter().cycle()) {
            let arming = Arc::clone(arming);
            self.send(Some(queue), |qpair| Message::Order { qpair, arming });
        }
    }
}
