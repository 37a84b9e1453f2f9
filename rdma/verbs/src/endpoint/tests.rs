mod receives;

use std::net::SocketAddr;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use cairn_base::ScopedAddr;
use cairn_rdma::{Access, AckTimeout, Mapping, Operation, PrivateData, SgeList, WorkStatus};

use crate::cm::Id;
use crate::fake::{Fake, state};
use crate::quirks::Quirks;
use crate::request::VerbsRequest;
use crate::sys;

use super::*;

const RECEIVES: u32 = 8;
const QUOTA: u32 = 4;

struct Fixture {
    endpoint: VerbsEndpoint,
    channel: Arc<Channel>,
    device: Arc<VerbsDevice>,
    fake: Fake,
}

impl Fixture {
    fn new() -> Self {
        Self::with(Quirks::NONE)
    }

    fn with(quirks: Quirks) -> Self {
        let fake = Fake::new(quirks);
        let channel = Channel::new(fake.library()).unwrap();
        let device = open_device(&fake, &channel).unwrap();
        Self {
            endpoint: open(&device),
            channel,
            device,
            fake,
        }
    }

    fn accept(&mut self) -> QpId {
        self.try_accept().unwrap()
    }

    fn try_accept(&mut self) -> Result<QpId, FabricError> {
        self.accept_as(&QpOptions {
            send_work: 8,
            receives: QUOTA,
            ..QpOptions::default()
        })
    }

    fn accept_as(&mut self, options: &QpOptions) -> Result<QpId, FabricError> {
        let address = SocketAddr::from(([127, 0, 0, 1], 4420));
        let request = VerbsRequest {
            id: Some(Id::new(&self.channel, 0).unwrap()),
            pkey_index: None,
            waiting: Arc::new(AtomicU32::new(1)),
        };
        let request = ConnRequest {
            local: address,
            peer: address,
            private_data: PrivateData::new(&[]),
            peer_responder_resources: 1,
            peer_initiator_depth: 1,
            device: Arc::clone(&self.device) as _,
            handle: Box::new(request),
        };
        self.endpoint.accept(request, options, &[])
    }

    fn events(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.endpoint.poll_events(&mut events);
        events
    }

    /// Returns the id of each flushed work request, and the number of queue pairs destroyed before
    /// its completion.
    fn close(&mut self, qp: QpId) -> Vec<(u64, u32)> {
        let give_up = Instant::now() + Duration::from_secs(20);
        let mut flushed = Vec::new();
        self.endpoint.disconnect(qp);
        loop {
            assert!(Instant::now() < give_up, "the queue pair does not close");
            let mut out = [Completion::EMPTY; 8];
            let count = self.endpoint.poll(&mut out);
            for completion in &out[..count] {
                assert_eq!(completion.status, WorkStatus::Flushed);
                flushed.push((completion.id, state().destroyed));
            }
            let closed = |event: &Event| matches!(event, Event::Closed { qp: of } if *of == qp);
            if self.events().iter().any(closed) {
                return flushed;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn open_device(fake: &Fake, channel: &Arc<Channel>) -> Result<Arc<VerbsDevice>, FabricError> {
    let id = Id::new(channel, 0)?;
    let address = ScopedAddr::from(SocketAddr::from(([127, 0, 0, 1], 4420)));
    VerbsDevice::open(fake.library(), &id.device().unwrap(), address)
}

fn open(device: &Arc<VerbsDevice>) -> VerbsEndpoint {
    let options = EndpointOptions {
        receives: RECEIVES,
        completions: 32,
        queue_pairs: 4,
    };
    let (domain, as_device) = (device.domain_for_tests(), Arc::clone(device) as _);
    VerbsEndpoint::open(Arc::clone(device), as_device, domain, &options).unwrap()
}

fn newest_pair() -> usize {
    state().pair
}

fn send(id: u64) -> SendWork {
    SendWork {
        id,
        op: Operation::Send,
        sges: SgeList::EMPTY,
        signaled: true,
    }
}

fn faults(events: &[Event]) -> usize {
    let fault = |event: &&Event| {
        matches!(
            event,
            Event::Disconnected {
                reason: DisconnectReason::DeviceFault,
                ..
            }
        )
    };
    events.iter().filter(fault).count()
}

#[test]
fn buffers_of_a_queue_pair_that_does_not_drain_come_back_after_its_destruction() {
    for keeps_running in [true, false] {
        let mut fixture = Fixture::new();
        let qp = fixture.accept();
        state().keeps_running = keeps_running;
        fixture.endpoint.post(qp, &[send(1), send(2)]).unwrap();
        assert_eq!(fixture.close(qp), [(1, 1), (2, 1)]);
    }
}

#[test]
fn a_late_event_of_a_destroyed_queue_pair_does_not_reach_the_next_of_its_number() {
    let mut fixture = Fixture::new();
    let first = fixture.accept();
    fixture.fake.report(sys::IBV_EVENT_QP_FATAL, newest_pair());
    drop(fixture.endpoint.table.remove(first));
    let second = fixture.accept();
    assert!(fixture.events().is_empty());
    fixture.endpoint.post(second, &[send(1)]).unwrap();

    fixture.fake.report(sys::IBV_EVENT_QP_FATAL, newest_pair());
    let ended = |event: &Event| matches!(event, Event::Disconnected { qp, .. } if *qp == second);
    assert!(fixture.events().iter().any(ended));
}

#[test]
fn only_a_given_ack_timeout_replaces_that_of_the_connection_manager() {
    let mut fixture = Fixture::new();
    fixture.accept();
    assert_eq!(state().ack_timeouts, []);
    let options = QpOptions {
        send_work: 8,
        receives: QUOTA,
        ack_timeout: Some(AckTimeout::at_least(Duration::from_millis(60))),
        ..QpOptions::default()
    };
    fixture.accept_as(&options).unwrap();
    assert_eq!(state().ack_timeouts, [14]);
}

#[test]
fn refused_sends_break_their_queue_pair_alone() {
    for errno in [libc::ENOMEM, libc::EINVAL, -libc::ENOMEM] {
        let mut fixture = Fixture::new();
        let (broken, healthy) = (fixture.accept(), fixture.accept());
        state().send_error = errno;
        let refused = fixture.endpoint.post(broken, &[send(1)]);
        assert_eq!(refused, Err(PostError::Broken));
        state().send_error = 0;
        let events = fixture.events();
        assert_eq!(faults(&events), 1, "{events:?}");
        let notice =
            |event: &Event| matches!(event, Event::Notice { message } if message.contains("fake"));
        assert!(events.iter().any(notice), "{events:?}");
        fixture.endpoint.post(healthy, &[send(2)]).unwrap();
    }
}

#[test]
fn work_of_a_refusal_that_names_no_request_stays_with_the_device_until_the_destruction() {
    let mut fixture = Fixture::new();
    let qp = fixture.accept();
    state().send_error = libc::EIO;
    state().unnamed = true;
    fixture.endpoint.post(qp, &[send(1), send(2)]).unwrap();
    assert_eq!(faults(&fixture.events()), 1);
    assert_eq!(fixture.close(qp), [(1, 1), (2, 1)]);
}

#[test]
fn a_broken_queue_takes_its_endpoint_alone() {
    let mut fixture = Fixture::new();
    let queue = state().queue;
    let receives = state().receives;
    let other = open(&fixture.device);
    let mut first = std::mem::replace(&mut fixture.endpoint, other);
    fixture.fake.report(sys::IBV_EVENT_CQ_ERR, queue);
    let mut events = Vec::new();
    first.poll_events(&mut events);
    assert!(matches!(&events[..], [Event::EndpointBroken { .. }]));
    assert!(first.arm().is_err());
    let receive = RecvWork {
        id: 1,
        sges: SgeList::EMPTY,
    };
    assert_eq!(first.post_receives(&[receive]), Err(PostError::Broken));
    fixture.fake.report(sys::IBV_EVENT_SRQ_ERR, receives);
    events.clear();
    first.poll_events(&mut events);
    assert!(events.is_empty(), "reported once: {events:?}");

    assert!(fixture.events().is_empty());
    assert!(!fixture.device.is_removed());
    fixture.endpoint.post_receives(&[receive]).unwrap();
    fixture.accept();
    state().receive_error = libc::ENOMEM;
    let refused = fixture.endpoint.post_receives(&[receive]);
    assert_eq!(refused, Err(PostError::Broken));
    assert!(matches!(
        &fixture.events()[..],
        [Event::EndpointBroken { reason }] if reason.contains("ibv_post_srq_recv")
    ));
    drop(first);
}

#[test]
fn a_completion_queue_that_cannot_be_polled_breaks_its_endpoint() {
    let mut fixture = Fixture::new();
    state().poll_fails = true;
    assert_eq!(fixture.endpoint.poll(&mut [Completion::EMPTY; 4]), 0);
    assert!(matches!(
        &fixture.events()[..],
        [Event::EndpointBroken { .. }]
    ));
    assert!(!fixture.device.is_removed());
}

#[test]
fn an_error_event_shortens_the_wait_for_the_end_of_receives() {
    let mut fixture = Fixture::new();
    let qp = fixture.accept();
    fixture.endpoint.disconnect(qp);
    let before = fixture.endpoint.next_deadline().unwrap();
    fixture.fake.report(sys::IBV_EVENT_QP_FATAL, newest_pair());
    fixture.events();
    assert!(fixture.endpoint.next_deadline().unwrap() < before);
}

#[test]
fn an_iwarp_adapter_is_refused_with_a_remedy() {
    let fake = Fake::new(Quirks::NONE);
    fake.set_transport(sys::IBV_TRANSPORT_IWARP);
    let channel = Channel::new(fake.library()).unwrap();
    let refusal = open_device(&fake, &channel).unwrap_err().to_string();
    for part in ["fake", "iWARP", "RoCE", "--provider soft"] {
        assert!(refusal.contains(part), "{part} is not in: {refusal}");
    }
}

#[test]
fn memory_is_registered_for_data_in_any_order() {
    let fixture = Fixture::new();
    let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
    let device = Arc::clone(&fixture.device) as Arc<dyn Device>;
    drop(device.register(mapping, Access::LOCAL_WRITE).unwrap());
    let wanted = sys::IBV_ACCESS_RELAXED_ORDERING | sys::IBV_ACCESS_LOCAL_WRITE;
    assert_eq!(state().registered, [wanted]);
}
