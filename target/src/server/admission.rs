//! Checks connection requests and assigns them to reactors.

use std::net::IpAddr;
use std::sync::Arc;

use cairn_base::address::Payer;
use cairn_base::log::Topic;
use cairn_base::{Clock, PeerLimit, peer_line};
use cairn_config::{Config, Roce};
use cairn_doctor::priorities::Priorities;
use cairn_doctor::source::Live;
use cairn_rdma::ConnRequest;
use cairn_trouble as trouble;
use nvme_proto::controller::connect;
use nvme_proto::limits::Limits;
use nvme_proto::wire::cm::{RejectData, RejectStatus, ReplyData, RequestData};
use nvme_proto::wire::{IntoBytes, Nqn};

use super::audit_log;
use super::exports::Exports;
use super::reactors::{QUEUE_PAIRS_MAX, QUEUE_PAIRS_RESERVED};
use crate::exposition::Observed;
use cairn_data_path::ana::ListenerShared;
use cairn_data_path::audit::Audit;
use cairn_data_path::ending::CALLER;
use cairn_data_path::marking::MarkingPolicy;
use cairn_data_path::registry::{
    Admitted, ConnectPlace, DISPLACED, Evicted, Full, Load, Mailbox, Places,
};

struct Accepted {
    reactor: usize,
    cm: RequestData,
    reply: ReplyData,
    place: ConnectPlace,
}

enum Refused {
    Status(RejectStatus),
    Full(Full),
    Drained,
    Displaced,
}

impl From<RejectStatus> for Refused {
    fn from(status: RejectStatus) -> Self {
        Self::Status(status)
    }
}

impl Refused {
    fn status(&self) -> RejectStatus {
        match self {
            Self::Status(status) => *status,
            Self::Full(_) | Self::Drained | Self::Displaced => RejectStatus::NO_RESOURCES,
        }
    }

    fn reason(&self, peer: IpAddr) -> String {
        match self {
            Self::Status(status) => trouble::of_nvme_reject(status.0).line(CALLER, peer),
            Self::Full(full) => full.to_string(),
            Self::Drained => "the listener is drained: cairn-target drain --undo ends that".into(),
            Self::Displaced => DISPLACED.into(),
        }
    }
}

pub(super) struct Admission {
    limits: Limits,
    reactors: Arc<[Mailbox]>,
    places: Arc<Places>,
    peer_limit: PeerLimit,
    observed: Arc<Observed>,
    audit: Audit,
    clock: Clock,
}

impl Admission {
    pub(super) fn new(
        limits: Limits,
        reactors: &Arc<[Mailbox]>,
        observed: &Arc<Observed>,
        audit: Audit,
        clock: &Clock,
    ) -> Self {
        Self {
            limits,
            reactors: Arc::clone(reactors),
            places: Arc::new(Places::new(clock.clone())),
            peer_limit: PeerLimit::default(),
            observed: Arc::clone(observed),
            audit,
            clock: clock.clone(),
        }
    }

    pub(super) fn admit(
        &mut self,
        config: &Config,
        exports: &mut Exports,
        listener: &cairn_config::Listener,
        shared: Arc<ListenerShared>,
        mut request: ConnRequest,
    ) {
        let mut policy = marking_policy(config, listener, &request);
        request.mark(policy.choose(None));
        if !listener.allows(policy.peer) {
            return self.turn_away(request, shared.provider);
        }
        match self.examine(&request) {
            Ok(Accepted {
                reactor,
                cm,
                reply,
                place,
            }) => {
                exports.introduce_device(&request.device);
                policy.priorities = priorities_at(config, policy.local, shared.provider, listener);
                let host = host_behind(exports, &cm, &policy);
                let marking = policy.choose(host.as_ref().map(Nqn::raw));
                request.mark(marking);
                let admitted = Admitted {
                    request,
                    cm,
                    reply,
                    marking,
                    policy,
                    listener: shared,
                    place,
                };
                self.reactors[reactor].accept(Box::new(admitted));
            }
            Err(refused) => self.refuse(request, &refused, shared.provider),
        }
    }

    pub(super) fn refuse_drained(&mut self, request: ConnRequest, provider: &'static str) {
        self.refuse(request, &Refused::Drained, provider);
    }

    fn refuse(&mut self, request: ConnRequest, refused: &Refused, provider: &'static str) {
        let status = refused.status();
        self.observed.rejected(status);
        let now = self.clock.now();
        let peer = request.peer.ip();
        let reason = refused.reason(peer);
        self.audit
            .record(|| audit_log::refusal(&request, provider, &reason));
        let payer = Payer::stranger(peer);
        if let Some(line) = self.peer_limit.admit(Topic::Refused, payer, now) {
            peer_line!(
                warn, line, address = %request.peer, local = %request.local, reason,
                "connection request refused"
            );
        }
        request.reject(RejectData::new(status).as_bytes());
    }

    fn turn_away(&mut self, request: ConnRequest, provider: &'static str) {
        const CONSUMER_REJECT: u16 = 28;
        let reason = "the address is not in the listener's allowed_addresses";
        let known = trouble::of_reject(CONSUMER_REJECT);
        let next = known.next.command(CALLER, request.peer.ip());
        self.audit
            .record(|| audit_log::refusal(&request, provider, reason));
        let now = self.clock.now();
        let payer = Payer::stranger(request.peer.ip());
        if let Some(line) = self.peer_limit.admit(Topic::Refused, payer, now) {
            peer_line!(
                warn, line, address = %request.peer, local = %request.local, reason, next,
                "connection request refused"
            );
        }
        request.reject(&[]);
    }

    fn examine(&mut self, request: &ConnRequest) -> Result<Accepted, Refused> {
        let cm = RequestData::parse(request.private_data.as_slice())?;
        let reply = connect::admit(&cm, &self.limits)?;
        // The target reads a host's data by RDMA READ, which a host with IRD 0 refuses.
        if request.peer_responder_resources == 0 {
            return Err(RejectStatus::INVALID_IRD.into());
        }
        let loads: Vec<Load> = self.reactors.iter().map(Mailbox::load).collect();
        let lightest = |reserved: u16| {
            let limit = usize::from(QUEUE_PAIRS_MAX - reserved);
            Load::lightest(&loads, cm.qid.get(), limit)
        };
        let is_short = lightest(QUEUE_PAIRS_RESERVED).is_none();
        let taken = self.places.take(request.peer.ip(), is_short);
        let (place, evicted) = taken.map_err(Refused::Full)?;
        if let Some(Evicted { place, reactor }) = evicted
            && let Some(displaced) = self.reactors[reactor].displace(place)
        {
            let provider = displaced.listener.provider;
            self.refuse(displaced.request, &Refused::Displaced, provider);
        }
        let reserved = match (place.is_known(), evicted) {
            (true, _) => 0,
            (false, None) => QUEUE_PAIRS_RESERVED,
            // Half of the reserve is usable, because the evicted queue pair has not closed yet.
            (false, Some(_)) => QUEUE_PAIRS_RESERVED / 2,
        };
        let reactor = lightest(reserved).ok_or(RejectStatus::NO_RESOURCES)?;
        place.assign(reactor);
        Ok(Accepted {
            reactor,
            cm,
            reply,
            place,
        })
    }
}

fn marking_policy(
    config: &Config,
    listener: &cairn_config::Listener,
    request: &ConnRequest,
) -> MarkingPolicy {
    MarkingPolicy {
        rules: Arc::clone(&config.marking),
        listener: listener.marking(),
        local: request.local.ip(),
        peer: request.peer.ip(),
        priorities: None,
    }
}

/// Returns the VLAN priorities of packets from `local`. A RoCE v1 listener's VLAN tag, the adapter,
/// or, at a VLAN interface, the kernel determines them.
fn priorities_at(
    config: &Config,
    local: IpAddr,
    provider: &str,
    listener: &cairn_config::Listener,
) -> Option<Priorities> {
    let is_soft = provider == "soft";
    match config.roce_at(listener) {
        Roce::V1 { vlan: Some(_) } if is_soft => Some(Priorities::OF_LEVEL),
        _ => Priorities::of(&Live::machine(), local, !is_soft),
    }
}

/// Returns the NQN of the host that requests an I/O queue, if a marking rule needs it. The CNTLID
/// identifies the host, unless several hosts at this address match.
fn host_behind(exports: &Exports, cm: &RequestData, policy: &MarkingPolicy) -> Option<Nqn> {
    if cm.qid.get() == 0 || !policy.rules.name_hosts() {
        return None;
    }
    let subsystems = exports.registry().all();
    let mut hosts = subsystems
        .iter()
        .filter_map(|subsystem| subsystem.host_of(cm.cntlid.get(), policy.peer));
    let host = hosts.next()?;
    hosts.all(|other| other == host).then_some(host)
}
