//! State of a loopback network, behind one lock.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use cairn_base::Mapping;
use cairn_base::entropy;
use cairn_base::slab::{Reuse, Slab};
use cairn_base::wake::Wake;

use crate::access::Access;
use crate::connection::{DisconnectReason, Event, PrivateData, QpOptions};
use crate::error::FabricError;
use crate::provider::EndpointOptions;
use crate::work::PostError;
use crate::work::{
    Completion, CompletionKind, Operation, QpId, RecvWork, RemoteBuffer, SendWork, Sge, WorkStatus,
};

use super::posted::Posted;
use super::queues::{EndpointState, Phase, Qp};
use super::withheld::Withheld;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key(pub(super) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RemoteKey(pub(super) u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct EndpointKey(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QpAddress {
    pub(super) endpoint: EndpointKey,
    pub(super) qp: QpId,
}

pub(super) struct RegionEntry {
    pub(super) domain: u64,
    pub(super) mapping: Arc<Mapping>,
    pub(super) access: Access,
}

#[derive(Default)]
pub(super) struct Network {
    next_device: u64,
    next_domain: u64,
    next_key: u32,
    next_endpoint: u64,
    regions: HashMap<Key, RegionEntry>,
    remote: HashMap<RemoteKey, Key>,
    endpoints: HashMap<EndpointKey, EndpointState>,
    withheld: HashMap<u64, Withheld>,
}

impl Network {
    pub(super) fn add_device(&mut self) -> u64 {
        self.next_device += 1;
        self.next_device
    }

    pub(super) fn remove_device(&mut self, device: u64) {
        let gone: Vec<_> = self
            .endpoints
            .iter()
            .filter(|(_, e)| e.device == device)
            .map(|(k, _)| *k)
            .collect();
        for key in gone {
            for qp in self.queue_pairs_of(key) {
                self.break_peer(QpAddress { endpoint: key, qp }, DisconnectReason::Transport);
            }
            let endpoint = self.endpoint(key);
            for qp in endpoint.qps.values_mut() {
                qp.phase = Phase::Broken;
            }
            endpoint.removed = true;
            endpoint.push_event(Event::DeviceRemoved);
        }
    }

    pub(super) fn add_domain(&mut self) -> u64 {
        self.next_domain += 1;
        self.next_domain
    }

    pub(super) fn register(&mut self, entry: RegionEntry) -> (Key, Option<RemoteKey>) {
        self.next_key += 1;
        let key = Key(self.next_key.wrapping_mul(0x9e37_79b1));
        let rkey = entry.access.is_remote().then(|| self.new_remote_key());
        if let Some(rkey) = rkey {
            self.remote.insert(rkey, key);
        }
        self.regions.insert(key, entry);
        (key, rkey)
    }

    fn new_remote_key(&self) -> RemoteKey {
        loop {
            let rkey = RemoteKey(entropy::draw() as u32);
            if !self.remote.contains_key(&rkey) {
                return rkey;
            }
        }
    }

    pub(super) fn deregister(&mut self, key: Key, rkey: Option<RemoteKey>) {
        self.regions.remove(&key);
        // If a peer has invalidated `rkey`, another region may use the same number.
        if let Some(rkey) = rkey.filter(|rkey| self.remote.get(rkey) == Some(&key)) {
            self.remote.remove(&rkey);
        }
    }

    #[cfg(all(test, not(cairn_loom)))]
    pub(super) fn regions(&self) -> usize {
        self.regions.len()
    }

    pub(super) fn open_endpoint(
        &mut self,
        device: u64,
        domain: u64,
        options: EndpointOptions,
        wake: Arc<Wake>,
    ) -> EndpointKey {
        self.next_endpoint += 1;
        let key = EndpointKey(self.next_endpoint);
        let state = EndpointState {
            device,
            domain,
            options,
            receives: VecDeque::with_capacity(options.receives as usize),
            completions: VecDeque::with_capacity(options.completions as usize),
            events: VecDeque::new(),
            qps: Slab::with_limit(options.queue_pairs.into(), Reuse::Latest),
            wake,
            armed: false,
            removed: false,
            posted: Posted::default(),
        };
        self.endpoints.insert(key, state);
        key
    }

    pub(super) fn close_endpoint(&mut self, key: EndpointKey) {
        for qp in self.queue_pairs_of(key) {
            self.break_peer(QpAddress { endpoint: key, qp }, DisconnectReason::Peer);
        }
        self.endpoints.remove(&key);
    }

    pub(super) fn begin(
        &mut self,
        endpoint: EndpointKey,
        options: &QpOptions,
    ) -> Result<QpAddress, FabricError> {
        let state = self.endpoint(endpoint);
        if state.removed {
            return Err(FabricError::Gone("device"));
        }
        let qp = state.insert(options)?;
        Ok(QpAddress { endpoint, qp })
    }

    pub(super) fn establish(
        &mut self,
        active: QpAddress,
        endpoint: EndpointKey,
        options: &QpOptions,
        private_data: PrivateData,
    ) -> Result<QpId, FabricError> {
        if self
            .qp(active)
            .is_none_or(|qp| qp.phase != Phase::Connecting)
        {
            return Err(FabricError::Gone("peer"));
        }
        let passive = self.begin(endpoint, options)?;
        for (this, peer) in [(active, passive), (passive, active)] {
            let qp = self.qp(this).expect("both were just looked up");
            qp.phase = Phase::Established;
            qp.peer = Some(peer);
        }
        let established = |qp, private_data| Event::Established { qp, private_data };
        self.endpoint(active.endpoint)
            .push_event(established(active.qp, private_data));
        self.endpoint(endpoint)
            .push_event(established(passive.qp, PrivateData::new(&[])));
        Ok(passive.qp)
    }

    pub(super) fn refuse(&mut self, active: QpAddress, private_data: PrivateData, reason: u16) {
        let Some(qp) = self.qp(active).filter(|qp| qp.phase == Phase::Connecting) else {
            return;
        };
        qp.phase = Phase::Closing;
        let event = Event::Rejected {
            qp: active.qp,
            private_data,
            reason,
        };
        self.endpoint(active.endpoint).push_event(event);
        self.endpoint(active.endpoint).close_if_drained(active.qp);
    }

    pub(super) fn disconnect(&mut self, at: QpAddress) {
        let over = |qp: &&mut Qp| matches!(qp.phase, Phase::Closing | Phase::Closed);
        let Some(qp) = self.qp(at).filter(|qp| !over(qp)) else {
            return;
        };
        qp.phase = Phase::Closing;
        self.break_peer(at, DisconnectReason::Peer);
        self.endpoint(at.endpoint).flush(at.qp);
        self.endpoint(at.endpoint).close_if_drained(at.qp);
    }

    pub(super) fn post_receives(
        &mut self,
        key: EndpointKey,
        works: &[RecvWork],
    ) -> Result<(), PostError> {
        let endpoint = self.endpoint(key);
        if endpoint.removed {
            return Err(PostError::Broken);
        }
        if endpoint.receives.len() + works.len() > endpoint.options.receives as usize {
            return Err(PostError::Full);
        }
        let was_empty = endpoint.receives.is_empty();
        endpoint.receives.extend(works);
        endpoint.posted.receive_posts += 1;
        endpoint.posted.receives += works.len() as u64;
        if was_empty {
            let peers: Vec<_> = endpoint.qps.iter().filter_map(|(_, qp)| qp.peer).collect();
            for peer in peers {
                self.pump(peer);
            }
        }
        Ok(())
    }

    pub(super) fn post(&mut self, at: QpAddress, chain: &[SendWork]) -> Result<(), PostError> {
        let Some(qp) = self.qp(at).filter(|qp| qp.phase == Phase::Established) else {
            return Err(PostError::Broken);
        };
        if qp.sends.len() + chain.len() > qp.send_work {
            return Err(PostError::Full);
        }
        qp.sends.extend(chain);
        let posted = &mut self.endpoint(at.endpoint).posted;
        posted.send_posts += 1;
        posted.sends += chain.len() as u64;
        self.pump(at);
        Ok(())
    }

    pub(super) fn poll(&mut self, key: EndpointKey, out: &mut [Completion]) -> usize {
        let endpoint = self.endpoint(key);
        let count = out.len().min(endpoint.completions.len());
        for (to, completion) in out.iter_mut().zip(endpoint.completions.drain(..count)) {
            *to = completion;
        }
        endpoint.posted.completions += count as u64;
        for completion in &out[..count] {
            if let Some(qp) = endpoint.qp(completion.qp) {
                qp.unpolled -= 1;
            }
            endpoint.close_if_drained(completion.qp);
        }
        count
    }

    pub(super) fn poll_events(&mut self, key: EndpointKey, out: &mut Vec<Event>) {
        self.endpoint(key).take_events(out);
    }

    pub(super) fn arm(&mut self, key: EndpointKey) -> bool {
        let endpoint = self.endpoint(key);
        endpoint.wake.clear();
        let ready = !endpoint.completions.is_empty() || !endpoint.events.is_empty();
        endpoint.armed = !ready;
        ready
    }

    pub(super) fn posted(&self, device: u64) -> Posted {
        let endpoints = self.endpoints.values();
        endpoints
            .filter(|endpoint| endpoint.device == device)
            .map(|endpoint| endpoint.posted)
            .sum()
    }

    pub(super) fn withhold(&mut self, device: u64, withheld: Withheld) {
        self.withheld.insert(device, withheld);
    }

    pub(super) fn release_one(&mut self, device: u64, number: usize) -> bool {
        let Some(withheld) = self.withheld.get(&device).copied() else {
            return false;
        };
        let waiting: Vec<QpAddress> = self
            .peers_of(device)
            .into_iter()
            .filter(|&at| {
                let first = self.qp(at).and_then(|qp| qp.sends.front());
                first.is_some_and(|work| withheld.is(work))
            })
            .collect();
        let Some(&at) = waiting.get(number % waiting.len().max(1)) else {
            return false;
        };
        let qp = self.qp(at).expect("it was just looked at");
        let mut later = std::mem::take(&mut qp.sends);
        qp.sends.extend(later.pop_front());
        self.withheld.remove(&device);
        self.pump(at);
        self.withheld.insert(device, withheld);
        if let Some(qp) = self.qp(at).filter(|qp| qp.phase == Phase::Established) {
            qp.sends.extend(later);
            self.pump(at);
        }
        true
    }

    pub(super) fn release_all(&mut self, device: u64) {
        self.withheld.remove(&device);
        for at in self.peers_of(device) {
            self.pump(at);
        }
    }

    fn peers_of(&self, device: u64) -> Vec<QpAddress> {
        let mut endpoints: Vec<_> = self
            .endpoints
            .iter()
            .filter(|(_, endpoint)| endpoint.device == device)
            .collect();
        endpoints.sort_unstable_by_key(|(key, _)| key.0);
        let endpoints = endpoints.into_iter();
        let qps = endpoints.flat_map(|(_, endpoint)| endpoint.qps.iter());
        qps.filter_map(|(_, qp)| qp.peer).collect()
    }

    fn is_withheld(&self, peer: QpAddress, work: &SendWork) -> bool {
        if self.withheld.is_empty() {
            return false;
        }
        let endpoint = self.endpoints.get(&peer.endpoint);
        let withheld = endpoint.and_then(|endpoint| self.withheld.get(&endpoint.device));
        withheld.is_some_and(|withheld| withheld.is(work))
    }

    /// Executes work of a queue pair until the queue is empty, an error occurs, the peer has no
    /// receive, or the peer's device delays the work.
    fn pump(&mut self, at: QpAddress) {
        while let Some(qp) = self.qp(at).filter(|qp| qp.phase == Phase::Established) {
            let Some(&work) = qp.sends.front() else {
                return;
            };
            let peer = qp.peer.expect("an established queue pair has a peer");
            let waits = qp.waits_for_receives;
            if self.is_withheld(peer, &work) {
                return;
            }
            match self.carry_out(at, peer, &work) {
                Ok(byte_len) => {
                    let endpoint = self.endpoint(at.endpoint);
                    let qp = endpoint.qp(at.qp).expect("it was there before the work");
                    qp.sends.pop_front();
                    if work.signaled {
                        endpoint.complete_send(at.qp, &work, WorkStatus::Success, byte_len);
                    }
                }
                Err(Stop::NoReceive) if waits => return,
                Err(stop) => {
                    let status = stop.status();
                    let endpoint = self.endpoint(at.endpoint);
                    let qp = endpoint.qp(at.qp).expect("it was there before the work");
                    qp.sends.pop_front();
                    endpoint.complete_send(at.qp, &work, status, 0);
                    self.break_qp(at, DisconnectReason::Transport);
                    self.break_qp(peer, DisconnectReason::Transport);
                }
            }
        }
    }

    fn carry_out(&mut self, at: QpAddress, peer: QpAddress, work: &SendWork) -> Result<u32, Stop> {
        let (here, there) = (self.domain_of(at), self.domain_of(peer));
        match work.op {
            Operation::Write(remote) => {
                self.check_local(here, work.sges.as_slice(), Access::LOCAL_READ)?;
                let to = self.remote(there, remote, work.sges.total_len(), Access::REMOTE_WRITE)?;
                self.copy(work.sges.as_slice(), &[to]);
                Ok(0)
            }
            Operation::Read(remote) => {
                self.check_local(here, work.sges.as_slice(), Access::LOCAL_WRITE)?;
                let from =
                    self.remote(there, remote, work.sges.total_len(), Access::REMOTE_READ)?;
                self.copy(&[from], work.sges.as_slice());
                Ok(work.sges.total_len() as u32)
            }
            Operation::Send => self.deliver(at, peer, work, None),
            Operation::SendWithInvalidate { rkey } => {
                // A peer may invalidate only keys that give it access (IBTA 9.4.1.1.1).
                self.opened(there, RemoteKey(rkey))?;
                self.deliver(at, peer, work, Some(rkey))
            }
        }
    }

    fn deliver(
        &mut self,
        at: QpAddress,
        peer: QpAddress,
        work: &SendWork,
        invalidated_rkey: Option<u32>,
    ) -> Result<u32, Stop> {
        let (here, there) = (self.domain_of(at), self.domain_of(peer));
        self.check_local(here, work.sges.as_slice(), Access::LOCAL_READ)?;
        let endpoint = self.endpoint(peer.endpoint);
        let receive = *endpoint.receives.front().ok_or(Stop::NoReceive)?;
        endpoint.receives.pop_front();
        let mut completion = Completion {
            id: receive.id,
            qp: peer.qp,
            kind: CompletionKind::Recv,
            status: WorkStatus::Success,
            byte_len: work.sges.total_len() as u32,
            invalidated_rkey,
        };
        if receive.sges.total_len() < work.sges.total_len() {
            completion.status = WorkStatus::LocalLength;
        } else if self
            .check_local(there, receive.sges.as_slice(), Access::LOCAL_WRITE)
            .is_err()
        {
            completion.status = WorkStatus::LocalProtection;
        } else {
            self.copy(work.sges.as_slice(), receive.sges.as_slice());
            if let Some(rkey) = invalidated_rkey {
                self.remote.remove(&RemoteKey(rkey));
            }
        }
        self.endpoint(peer.endpoint).complete(completion);
        match completion.status {
            WorkStatus::Success => Ok(0),
            WorkStatus::LocalLength => Err(Stop::Failed(WorkStatus::RemoteInvalidRequest)),
            _ => Err(Stop::Failed(WorkStatus::RemoteOperation)),
        }
    }

    fn check_local(&self, domain: u64, sges: &[Sge], access: Access) -> Result<(), Stop> {
        let fine = sges.iter().all(|sge| {
            sge.length == 0
                || self.regions.get(&Key(sge.lkey)).is_some_and(|region| {
                    region.domain == domain
                        && region.access.contains(access)
                        && region.mapping.contains(sge.addr, u64::from(sge.length))
                })
        });
        if fine {
            Ok(())
        } else {
            Err(Stop::Failed(WorkStatus::LocalProtection))
        }
    }

    fn opened(&self, domain: u64, rkey: RemoteKey) -> Result<(Key, &RegionEntry), Stop> {
        let found = self.remote.get(&rkey).map(|key| (*key, &self.regions[key]));
        found
            .filter(|(_, region)| region.domain == domain)
            .ok_or(Stop::Failed(WorkStatus::RemoteAccess))
    }

    fn remote(
        &self,
        domain: u64,
        remote: RemoteBuffer,
        length: u64,
        access: Access,
    ) -> Result<Sge, Stop> {
        if length == 0 {
            return Ok(Sge::default());
        }
        let (key, region) = self.opened(domain, RemoteKey(remote.rkey))?;
        let allowed =
            region.access.contains(access) && region.mapping.contains(remote.addr, length);
        if !allowed {
            return Err(Stop::Failed(WorkStatus::RemoteAccess));
        }
        Ok(Sge {
            addr: remote.addr,
            length: length as u32,
            lkey: key.0,
        })
    }

    fn copy(&self, from: &[Sge], to: &[Sge]) {
        let mut targets = to.iter().copied();
        let mut target = Sge::default();
        for &source in from {
            let mut source = source;
            while source.length > 0 {
                while target.length == 0 {
                    target = targets.next().expect("the receiver's length was checked");
                }
                let length = source.length.min(target.length);
                let (from_map, from_offset) = self.locate(source);
                let (to_map, to_offset) = self.locate(target);
                from_map.copy_to(from_offset, to_map, to_offset, length as usize);
                for sge in [&mut source, &mut target] {
                    sge.addr += u64::from(length);
                    sge.length -= length;
                }
            }
        }
    }

    fn locate(&self, sge: Sge) -> (&Mapping, usize) {
        let region = self
            .regions
            .get(&Key(sge.lkey))
            .expect("the key was checked");
        (&region.mapping, (sge.addr - region.mapping.addr()) as usize)
    }

    fn break_qp(&mut self, at: QpAddress, reason: DisconnectReason) {
        let Some(qp) = self.qp(at) else { return };
        match qp.phase {
            Phase::Established => qp.phase = Phase::Broken,
            Phase::Connecting => {
                qp.phase = Phase::Closing;
                let reason = "the peer went away while connecting".to_owned();
                let endpoint = self.endpoint(at.endpoint);
                endpoint.push_event(Event::ConnectFailed { qp: at.qp, reason });
                endpoint.close_if_drained(at.qp);
                return;
            }
            Phase::Broken | Phase::Closing | Phase::Closed => return,
        }
        let endpoint = self.endpoint(at.endpoint);
        endpoint.flush(at.qp);
        endpoint.push_event(Event::Disconnected { qp: at.qp, reason });
    }

    fn break_peer(&mut self, at: QpAddress, reason: DisconnectReason) {
        if let Some(peer) = self.qp(at).and_then(|qp| qp.peer) {
            self.break_qp(peer, reason);
        }
    }

    fn endpoint(&mut self, key: EndpointKey) -> &mut EndpointState {
        self.endpoints
            .get_mut(&key)
            .expect("an endpoint outlives its key")
    }

    fn qp(&mut self, at: QpAddress) -> Option<&mut Qp> {
        self.endpoints.get_mut(&at.endpoint)?.qp(at.qp)
    }

    fn domain_of(&self, at: QpAddress) -> u64 {
        // Domains are numbered from 1. An unknown endpoint has domain 0, which has no regions.
        self.endpoints
            .get(&at.endpoint)
            .map_or(0, |endpoint| endpoint.domain)
    }

    fn queue_pairs_of(&self, key: EndpointKey) -> Vec<QpId> {
        let Some(endpoint) = self.endpoints.get(&key) else {
            return Vec::new();
        };
        let keys = endpoint.qps.iter().map(|(key, _)| key);
        keys.map(QpId::from).collect()
    }
}

#[derive(Clone, Copy)]
enum Stop {
    NoReceive,
    Failed(WorkStatus),
}

impl Stop {
    fn status(self) -> WorkStatus {
        match self {
            Self::NoReceive => WorkStatus::RnrRetryExceeded,
            Self::Failed(status) => status,
        }
    }
}
