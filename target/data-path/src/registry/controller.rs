use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nvme_proto::ana::AnaStates;
use nvme_proto::controller::error_log::Failure;
use nvme_proto::controller::{ConnectRequest, Controller};
use nvme_proto::namespace::{NSID_WORDS, NsidSet};
use nvme_proto::wire::Nqn;
use nvme_proto::wire::log::AnaState;

use super::Arming;
use super::failures::Failures;
use super::subsystem::Origin;
use crate::ana::{AnaShared, ListenerShared};
use crate::limits::Limiter;
use crate::order::{Sender, host_key};

/// Time added to the stored time of the last command, so that not every command writes it to shared
/// memory. An association may outlive KATO by this time.
const LAST_COMMAND_AHEAD: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub(super) struct Seen([AtomicU64; NSID_WORDS]);

impl Seen {
    pub(super) fn new(seen: &NsidSet) -> Self {
        Self(seen.words().map(AtomicU64::new))
    }

    /// Does not affect commands in progress.
    pub(super) fn set(&self, seen: &NsidSet) {
        for (word, new) in self.0.iter().zip(seen.words()) {
            word.store(*new, Ordering::Relaxed);
        }
    }

    fn contains(&self, nsid: u32) -> bool {
        let place = NsidSet::place(nsid);
        place.is_some_and(|(word, bit)| self.0[word].load(Ordering::Relaxed) & bit != 0)
    }
}

#[derive(Debug)]
pub struct ControllerShared {
    pub(super) cntlid: u16,
    pub(super) host: Nqn,
    pub(super) host_nqn: String,
    pub(super) peer: IpAddr,
    /// Time of the last command in nanoseconds since the target's start, plus at most
    /// [`LAST_COMMAND_AHEAD`].
    pub(super) last_command_ns: AtomicU64,
    /// Nanoseconds without a command until the association expires; `u64::MAX` for no limit.
    pub(super) lease_ns: AtomicU64,
    write_cache: AtomicBool,
    pub(super) cache_changes: AtomicU64,
    pub(super) listener: Arc<ListenerShared>,
    pub(super) ana: AnaShared,
    pub(super) seen: Seen,
    pub(crate) limiter: Arc<Limiter>,
    pub(super) hostid: [u8; 16],
    sender: Sender,
    pub(super) arming: Option<Arc<Arming>>,
    pub(super) failures: Failures,
}

impl ControllerShared {
    pub(super) fn new(
        of_protocol: &Controller,
        request: &ConnectRequest,
        origin: &Origin<'_>,
        arming: &Option<Arc<Arming>>,
        limiter: Arc<Limiter>,
        ana: &AnaStates,
    ) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        Self {
            cntlid: of_protocol.cntlid(),
            host: request.hostnqn,
            host_nqn: request.hostnqn.to_string(),
            peer: origin.peer,
            last_command_ns: AtomicU64::new(0),
            lease_ns: AtomicU64::new(u64::MAX),
            write_cache: AtomicBool::new(of_protocol.write_cache_enabled()),
            cache_changes: AtomicU64::new(0),
            listener: Arc::clone(origin.listener),
            ana: AnaShared::new(ana),
            seen: Seen::new(of_protocol.seen()),
            limiter,
            hostid: request.hostid,
            sender: Sender {
                host: host_key((request.hostnqn, request.hostid)),
                association: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            },
            arming: arming.clone(),
            failures: Failures::new(),
        }
    }

    pub(crate) fn cntlid(&self) -> u16 {
        self.cntlid
    }

    pub(crate) fn host(&self) -> Nqn {
        self.host
    }

    pub(crate) fn hostid(&self) -> &[u8; 16] {
        &self.hostid
    }

    pub(crate) fn host_nqn(&self) -> &str {
        &self.host_nqn
    }

    #[cold]
    pub(crate) fn sees(&self, nsid: u32) -> bool {
        self.seen.contains(nsid)
    }

    pub(crate) fn ana_state(&self, anagrpid: u32) -> AnaState {
        self.ana.get(anagrpid)
    }

    /// Returns false if the lease has ended: the command, which arrived at `now_ns`, must not be
    /// executed.
    #[inline]
    pub(crate) fn extend_lease(&self, now_ns: u64) -> bool {
        now_ns <= self.last_command_ns.load(Ordering::Relaxed) || self.renew(now_ns)
    }

    #[cold]
    fn renew(&self, now_ns: u64) -> bool {
        if self.is_over(now_ns) {
            return false;
        }
        self.set_last_command(now_ns + LAST_COMMAND_AHEAD.as_nanos() as u64);
        true
    }

    pub(super) fn set_last_command(&self, ns: u64) {
        self.last_command_ns.fetch_max(ns, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        let silent_ns = now_ns.saturating_sub(self.last_command_ns.load(Ordering::Relaxed));
        silent_ns >= self.lease_ns.load(Ordering::Relaxed)
    }

    /// Returns the end of the lease, in nanoseconds since the target's start.
    #[inline]
    pub(crate) fn lease_end_ns(&self) -> u64 {
        let last_command_ns = self.last_command_ns.load(Ordering::Relaxed);
        last_command_ns.saturating_add(self.lease_ns.load(Ordering::Relaxed))
    }

    pub(super) fn last_command(&self) -> Duration {
        Duration::from_nanos(self.last_command_ns.load(Ordering::Relaxed))
    }

    pub(crate) fn sender(&self) -> Sender {
        self.sender
    }

    pub(crate) fn arming(&self) -> Option<&Arming> {
        self.arming.as_deref()
    }

    pub(crate) fn record_failure(&self, failure: Failure) {
        self.failures.record(failure);
    }

    pub(super) fn set_write_cache(&self, enabled: bool) {
        self.write_cache.store(enabled, Ordering::Relaxed);
        self.cache_changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn write_cache(&self) -> bool {
        self.write_cache.load(Ordering::Relaxed)
    }
}
