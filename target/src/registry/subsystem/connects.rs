//! Connects: a claim that changes nothing, and once its host has proven its name, or need not, a queue.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use cairn_rdma::address::Payer;
use nvme_auth::controller::Authentication;
use nvme_proto::ana::AnaStates;
use nvme_proto::controller::{ConnectRequest, Refusal};
use nvme_proto::discovery::LocalEnd;
use nvme_proto::subsystem::{Arrival, Claim, Connected, Peer};
use nvme_proto::wire::Status;
use nvme_proto::wire::cm::RequestData;

use super::{Controller, State, SubsystemShared};
use crate::ana::ListenerShared;
use crate::metrics::HostTotals;
use crate::registry::{Arming, ControllerShared, Message, QueueAddress};

/// The connection that a Connect came on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// The queue pair.
    pub(crate) address: QueueAddress,
    /// The private data of its connection request.
    pub(crate) cm: &'a RequestData,
    /// Where the host connected to.
    pub(crate) local: IpAddr,
    /// Where it connected from.
    pub(crate) peer: IpAddr,
    /// Whose controllers count against the host's limits.
    pub(crate) payer: Payer,
    /// By which listener.
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
            ana,
        }
    }
}

/// A queue that a Connect has made, and its controller.
pub(crate) type Joined = (Connected, Arc<ControllerShared>);

/// What a Connect that is in order comes to.
pub(crate) enum Entry {
    /// A queue.
    Joined(Joined),
    /// A claim, which [`SubsystemShared::join`] makes a queue once this exchange has ended well.
    Claimed(Box<Claim>, Box<Authentication>),
}

impl State {
    /// Whether a connection may lead here.
    fn check_listener(&self, origin: &Origin<'_>) -> Result<(), Refusal> {
        if self.removed {
            return Err(ConnectRequest::unknown_subsystem());
        }
        // Under the lock: the end of the listener, or a change of its states, comes before
        // this, or finds the controller.
        if origin.listener.is_removed() {
            return Err(Refusal::transient(Status::CONNECT_CONTROLLER_BUSY));
        }
        // At a listener that does not lead here the host must not learn that there is such a
        // subsystem elsewhere.
        match self.is_behind(origin.listener.address) {
            true => Ok(()),
            false => Err(ConnectRequest::unknown_subsystem()),
        }
    }
}

impl SubsystemShared {
    /// Connects a queue, which from now on receives what concerns it. If the host must authenticate, the
    /// subsystem and its controllers stay as they are.
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

    /// Connects a queue whose host has authenticated.
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
        state: &mut State,
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
        let State {
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

    /// The I/O queues of older associations of a host that begins a new one, and what waits for
    /// them to enter their changes.
    fn elders(
        &self,
        state: &State,
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

    /// Has queues enter their changes.
    fn order(&self, queues: &[QueueAddress], arming: &Option<Arc<Arming>>) {
        for (queue, arming) in queues.iter().zip(arming.iter().cycle()) {
            let arming = Arc::clone(arming);
            self.send(Some(queue), |qpair| Message::Order { qpair, arming });
        }
    }
}
