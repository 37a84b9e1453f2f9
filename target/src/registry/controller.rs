//! What reactors share of a controller.

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

/// How far ahead of a command the note of it may be, so that not every command writes to
/// memory that reactors share. An association lives so much longer than KATO at most.
const LAST_COMMAND_AHEAD: Duration = Duration::from_millis(10);

/// The namespaces that a host sees, as reactors read them while the control plane changes them.
/// Only I/O to a namespace that not every host sees looks here.
#[derive(Debug)]
pub(super) struct Seen([AtomicU64; NSID_WORDS]);

impl Seen {
    /// These.
    pub(super) fn new(seen: &NsidSet) -> Self {
        Self(seen.words().map(AtomicU64::new))
    }

    /// These, from now on: what is under way ends as it began.
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

/// What every reactor may ask of a controller without a lock.
#[derive(Debug)]
pub(crate) struct ControllerShared {
    pub(super) cntlid: u16,
    pub(super) host: Nqn,
    /// The host's name as it is shown.
    pub(super) host_nqn: String,
    /// The host's address.
    pub(super) peer: IpAddr,
    /// When the last command came in on any queue, in nanoseconds since the target
    /// started, and up to [`LAST_COMMAND_AHEAD`] more.
    pub(super) last_command_ns: AtomicU64,
    /// How long it lives without a command; `u64::MAX` for ever.
    pub(super) lease_ns: AtomicU64,
    /// Whether writes may complete from a volatile cache.
    pub(super) write_cache: AtomicBool,
    /// Number of times that `write_cache` was set.
    pub(super) cache_changes: AtomicU64,
    /// Where its host came in.
    pub(super) listener: Arc<ListenerShared>,
    /// How good a way to each ANA group of its subsystem it is.
    pub(super) ana: AnaShared,
    /// The namespaces that its host sees.
    pub(super) seen: Seen,
    /// How much its host may take, by all of its controllers.
    pub(crate) limiter: Arc<Limiter>,
    /// HOSTID.
    pub(super) hostid: [u8; 16],
    /// Sender of its changes.
    sender: Sender,
    /// Queues of older associations of its host that were there when it began.
    pub(super) arming: Option<Arc<Arming>>,
    /// Its commands that failed and are not in its log yet.
    pub(super) failures: Failures,
}

impl ControllerShared {
    /// A controller that this Connect has made.
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

    /// CNTLID.
    pub(crate) fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// HOSTNQN.
    pub(crate) fn host(&self) -> Nqn {
        self.host
    }

    /// HOSTID.
    pub(crate) fn hostid(&self) -> &[u8; 16] {
        &self.hostid
    }

    /// HOSTNQN as logs and metrics show it: escaped.
    pub(crate) fn host_nqn(&self) -> &str {
        &self.host_nqn
    }

    /// Whether its host sees this namespace, which not every host does. Out of the way of I/O to
    /// the others.
    #[cold]
    pub(crate) fn sees(&self, nsid: u32) -> bool {
        self.seen.contains(nsid)
    }

    /// How good a way to this ANA group it is.
    pub(crate) fn ana_state(&self, anagrpid: u32) -> AnaState {
        self.ana.get(anagrpid)
    }

    /// A command came in: its association lives on. `false` if it comes too late for
    /// that: it must not be executed. Writes to shared memory once in a while only.
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

    /// Whether its time is over: the host was silent for as long as it may be.
    #[inline]
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        let silent_ns = now_ns.saturating_sub(self.last_command_ns.load(Ordering::Relaxed));
        silent_ns >= self.lease_ns.load(Ordering::Relaxed)
    }

    /// When its time is over, unless its host sends something before.
    #[inline]
    pub(crate) fn lease_end_ns(&self) -> u64 {
        let last_command_ns = self.last_command_ns.load(Ordering::Relaxed);
        last_command_ns.saturating_add(self.lease_ns.load(Ordering::Relaxed))
    }

    pub(super) fn last_command(&self) -> Duration {
        Duration::from_nanos(self.last_command_ns.load(Ordering::Relaxed))
    }

    /// Sender of its changes.
    pub(crate) fn sender(&self) -> Sender {
        self.sender
    }

    /// Queues of older associations of its host, if there were any when it began.
    pub(crate) fn arming(&self) -> Option<&Arming> {
        self.arming.as_deref()
    }

    /// Leaves a failed I/O command for the log that its host reads.
    pub(crate) fn record_failure(&self, failure: Failure) {
        self.failures.record(failure);
    }

    /// Whether writes may complete from a volatile cache.
    pub(crate) fn write_cache(&self) -> bool {
        self.write_cache.load(Ordering::Relaxed)
    }
}
