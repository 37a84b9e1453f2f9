use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cairn_rdma::{DisconnectReason, Event, WorkStatus};

use super::counter::{CodeCounts, Counter, Gauge};

const REASONS: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Work,
    Poll,
    Sleep,
}

impl Doing {
    pub const ALL: [(Self, &'static str); 3] = [
        (Self::Work, "busy"),
        (Self::Poll, "polling"),
        (Self::Sleep, "sleeping"),
    ];
}

#[derive(Debug, Default)]
#[repr(align(128))]
pub struct ReactorCounters {
    /// Time by activity ([`Doing`]). A sleep is added when it ends.
    pub time_ns: [Counter; 3],
    pub rounds: Counter,
    pub sleeps: Counter,
    pub capsules: Counter,
    pub panics: Counter,
    /// Seconds since 1970.
    last_panic_s: Gauge,
    pub orphans: Gauge,
    pub queue_pairs: Gauge,
    pub requests: Gauge,
    pub requests_max: Gauge,
    pub buffer_bytes: Gauge,
    pub buffer_used_bytes: Gauge,
    pub share_waits: Counter,
    pub limit_waits: Counter,
    pub pool_waits: Counter,
    pub read_waits: Counter,
    pub send_waits: Counter,
    pub request_waits: Counter,
    pub rejected: CodeCounts<REASONS>,
    pub refused: CodeCounts<REASONS>,
    pub ended_orderly: Counter,
    pub ended_by_fault: Counter,
    /// Includes removed devices. Poisoning is harmless: each change is one push.
    devices: Mutex<Vec<Arc<DeviceCounters>>>,
}

impl ReactorCounters {
    pub(crate) fn note_panic(&self) {
        self.panics.add(1);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.last_panic_s.set(now.map_or(0, |now| now.as_secs()));
    }

    pub fn last_panic(&self) -> Option<SystemTime> {
        let at = UNIX_EPOCH + Duration::from_secs(self.last_panic_s.get());
        (self.panics.get() > 0).then_some(at)
    }

    pub fn device(&self, name: &str, provider: &'static str) -> Arc<DeviceCounters> {
        let mut devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = devices.iter().find(|known| known.name == name) {
            return Arc::clone(known);
        }
        let new = Arc::new(DeviceCounters {
            name: name.to_owned(),
            provider,
            open: Gauge::default(),
            events: Default::default(),
            errors: Default::default(),
        });
        devices.push(Arc::clone(&new));
        new
    }

    pub(crate) fn forget_former(&self) {
        for gauge in [&self.buffer_used_bytes, &self.requests, &self.queue_pairs] {
            gauge.set(0);
        }
    }

    pub fn devices(&self) -> Vec<Arc<DeviceCounters>> {
        let devices = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        devices.clone()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpEvent {
    Accepted,
    Established,
    Rejected,
    ConnectFailed,
    DisconnectedByPeer,
    TransportFailed,
    AddressChanged,
    PeerMoved,
    DeviceRemoved,
    DeviceFault,
    EndpointBroken,
    Closed,
}

impl QpEvent {
    pub const ALL: [(Self, &'static str); 12] = [
        (Self::Accepted, "accepted"),
        (Self::Established, "established"),
        (Self::Rejected, "rejected"),
        (Self::ConnectFailed, "connect_failed"),
        (Self::DisconnectedByPeer, "disconnected_by_peer"),
        (Self::TransportFailed, "transport_failed"),
        (Self::AddressChanged, "address_changed"),
        (Self::PeerMoved, "peer_moved"),
        (Self::DeviceRemoved, "device_removed"),
        (Self::DeviceFault, "device_fault"),
        (Self::EndpointBroken, "endpoint_broken"),
        (Self::Closed, "closed"),
    ];

    fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Established { .. } => Some(Self::Established),
            Event::Rejected { .. } => Some(Self::Rejected),
            Event::ConnectFailed { .. } => Some(Self::ConnectFailed),
            Event::Disconnected { reason, .. } => Some(match reason {
                DisconnectReason::Peer => Self::DisconnectedByPeer,
                DisconnectReason::Transport => Self::TransportFailed,
                DisconnectReason::AddressChanged => Self::AddressChanged,
                DisconnectReason::PeerMoved => Self::PeerMoved,
                DisconnectReason::DeviceRemoved => Self::DeviceRemoved,
                DisconnectReason::DeviceFault => Self::DeviceFault,
            }),
            Event::Closed { .. } => Some(Self::Closed),
            Event::DeviceRemoved => Some(Self::DeviceRemoved),
            Event::EndpointBroken { .. } => Some(Self::EndpointBroken),
            Event::Notice { .. } => None,
        }
    }
}

/// Verbs names of [`WorkStatus`]. The last name covers all other statuses.
pub const WORK_ERRORS: [&str; 12] = [
    "LOC_LEN_ERR",
    "LOC_QP_OP_ERR",
    "LOC_PROT_ERR",
    "WR_FLUSH_ERR",
    "BAD_RESP_ERR",
    "LOC_ACCESS_ERR",
    "REM_INV_REQ_ERR",
    "REM_ACCESS_ERR",
    "REM_OP_ERR",
    "RETRY_EXC_ERR",
    "RNR_RETRY_EXC_ERR",
    "GENERAL_ERR",
];

#[derive(Debug)]
pub struct DeviceCounters {
    pub name: String,
    pub provider: &'static str,
    pub open: Gauge,
    pub events: [Counter; QpEvent::ALL.len()],
    pub errors: [Counter; WORK_ERRORS.len()],
}

impl DeviceCounters {
    pub fn accepted(&self) {
        self.events[QpEvent::Accepted as usize].add(1);
    }

    pub fn count_event(&self, event: &Event) {
        if let Some(event) = QpEvent::of(event) {
            self.events[event as usize].add(1);
        }
    }

    pub fn work_failed(&self, status: WorkStatus) {
        let place = match status {
            WorkStatus::Success => return,
            WorkStatus::LocalLength => 0,
            WorkStatus::LocalQpOperation => 1,
            WorkStatus::LocalProtection => 2,
            WorkStatus::Flushed => 3,
            WorkStatus::BadResponse => 4,
            WorkStatus::LocalAccess => 5,
            WorkStatus::RemoteInvalidRequest => 6,
            WorkStatus::RemoteAccess => 7,
            WorkStatus::RemoteOperation => 8,
            WorkStatus::RetryExceeded => 9,
            WorkStatus::RnrRetryExceeded => 10,
            WorkStatus::Other(_) => 11,
        };
        self.errors[place].add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stand_at_their_places() {
        assert!(
            (0..)
                .zip(Doing::ALL)
                .all(|(at, (doing, _))| doing as usize == at)
        );
        assert!(
            (0..)
                .zip(QpEvent::ALL)
                .all(|(at, (event, _))| event as usize == at)
        );
    }

    #[test]
    fn a_device_that_comes_back_goes_on_counting() {
        let reactor = ReactorCounters::default();
        reactor.device("rxe0", "verbs").accepted();
        reactor
            .device("rxe0", "verbs")
            .count_event(&Event::DeviceRemoved);
        reactor
            .device("rxe1", "verbs")
            .work_failed(WorkStatus::RetryExceeded);
        let devices = reactor.devices();
        assert_eq!(devices.len(), 2);
        assert_eq!(devices[0].events[QpEvent::Accepted as usize].get(), 1);
        assert_eq!(devices[0].events[QpEvent::DeviceRemoved as usize].get(), 1);
        assert_eq!(WORK_ERRORS[9], "RETRY_EXC_ERR");
        assert_eq!(devices[1].errors[9].get(), 1);
    }
}
