//! Behaviour specific to the loopback provider; the conformance suite tests the shared contract.

use std::sync::mpsc;

use super::*;
use crate::connection::{ConnectOptions, Event, QpOptions};
use crate::work::PostError;
use crate::work::{Operation, SendWork, SgeList};

const OPTIONS: EndpointOptions = EndpointOptions {
    receives: 4,
    completions: 16,
    queue_pairs: 4,
};

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn connect(endpoint: &mut dyn Endpoint, to: SocketAddr) -> crate::QpId {
    let options = ConnectOptions {
        remote: to,
        local: Some("10.0.0.2".parse().unwrap()),
        pkey: PKey::DEFAULT,
        qp: QpOptions::default(),
        timeout: std::time::Duration::from_secs(1),
    };
    endpoint.connect(&options, b"hello").unwrap()
}

fn events(endpoint: &mut dyn Endpoint) -> Vec<Event> {
    let mut events = Vec::new();
    endpoint.poll_events(&mut events);
    events
}

#[test]
fn an_unplugged_device_is_reported_to_each_owner() {
    let net = Loopback::new();
    let (tx, rx) = mpsc::channel();
    let at = address("10.0.0.1:4420");
    let sink = Box::new(move |event| tx.send(event).unwrap());
    let _listener = net
        .listen(
            &ListenOptions {
                address: at,
                backlog: 1,
                pkey: PKey::DEFAULT,
                roce: None,
            },
            sink,
        )
        .unwrap();
    let host_device = net
        .device_for(at, Some("10.0.0.2".parse().unwrap()))
        .unwrap();
    let mut host = host_device.open(&OPTIONS).unwrap();
    let host_qp = connect(&mut *host, at);
    let Ok(ListenerEvent::Request(request)) = rx.try_recv() else {
        panic!("no request")
    };
    assert_eq!(&request.private_data.as_slice()[..6], b"hello\0");
    let mut target = Arc::clone(&request.device).open(&OPTIONS).unwrap();
    let target_qp = target
        .accept(*request, &QpOptions::default(), b"welcome")
        .unwrap();
    assert!(matches!(
        events(&mut *host)[..],
        [Event::Established { .. }]
    ));
    assert!(matches!(
        events(&mut *target)[..],
        [Event::Established { .. }]
    ));

    net.unplug(at.ip());

    assert!(matches!(rx.try_recv(), Ok(ListenerEvent::Down { .. })));
    assert!(matches!(events(&mut *target)[..], [Event::DeviceRemoved]));
    let seen = events(&mut *host);
    assert!(
        matches!(seen[..], [Event::Disconnected { qp, .. }] if qp == host_qp),
        "{seen:?}"
    );
    let work = SendWork {
        id: 1,
        op: Operation::Send,
        sges: SgeList::EMPTY,
        signaled: true,
    };
    assert_eq!(target.post(target_qp, &[work]), Err(PostError::Broken));
    drop(target);

    net.plug(at.ip());

    assert!(matches!(rx.try_recv(), Ok(ListenerEvent::Up)));
    let again = connect(&mut *host, at);
    assert_ne!(again, host_qp);
    assert!(matches!(rx.try_recv(), Ok(ListenerEvent::Request(_))));
}

#[test]
fn keys_end_with_their_region() {
    let net = Loopback::new();
    let device = net.device_for(address("10.0.0.1:1"), None).unwrap();
    let mapping = Arc::new(Mapping::anonymous(4096).unwrap());
    let region = device
        .register(Arc::clone(&mapping), Access::LOCAL_WRITE)
        .unwrap();
    assert_eq!(net.shared.network().regions(), 1);
    drop(region);
    assert_eq!(net.shared.network().regions(), 0);
    assert_eq!(Arc::strong_count(&mapping), 1);
}

#[test]
fn a_network_ends_with_the_last_of_its_handles() {
    let net = Loopback::new();
    let shared = Arc::downgrade(&net.shared);
    let device = net.device_for(address("10.0.0.1:1"), None).unwrap();
    let again = net.device_for(address("10.0.0.1:1"), None).unwrap();
    assert_eq!(device.id(), again.id());
    drop((device, again, net));
    assert_eq!(shared.strong_count(), 0);
}
