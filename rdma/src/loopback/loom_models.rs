//! Loom models of two threads, each with an endpoint.

use std::net::SocketAddr;
use std::sync::mpsc;

use super::*;
use crate::connection::{ConnectOptions, Event, QpOptions};
use crate::work::{Completion, Operation, QpId, RecvWork, SendWork, SgeList};

const OPTIONS: EndpointOptions = EndpointOptions {
    receives: 2,
    completions: 8,
    queue_pairs: 1,
};

fn connected() -> [(LoopbackEndpoint, QpId); 2] {
    let net = Loopback::new();
    let at: SocketAddr = "10.0.0.1:4420".parse().unwrap();
    let (tx, rx) = mpsc::channel();
    let options = ListenOptions {
        address: at,
        backlog: 1,
        pkey: PKey::DEFAULT,
        roce: None,
    };
    let sink = Box::new(move |event| tx.send(event).unwrap());
    let _listener = net.listen(&options, sink).unwrap();
    let open = |address: &str| {
        let device = net.shared.device_at(address.parse().unwrap());
        LoopbackEndpoint::open(device, &OPTIONS).unwrap()
    };
    let (mut host, mut target) = (open("10.0.0.2"), open("10.0.0.1"));
    let options = ConnectOptions {
        remote: at,
        local: Some("10.0.0.2".parse().unwrap()),
        pkey: PKey::DEFAULT,
        qp: QpOptions::default(),
        timeout: std::time::Duration::from_secs(1),
    };
    let host_qp = host.connect(&options, b"").unwrap();
    let Ok(ListenerEvent::Request(request)) = rx.try_recv() else {
        panic!("no request")
    };
    let target_qp = target.accept(*request, &options.qp, b"").unwrap();
    let ends = [(host, host_qp), (target, target_qp)];
    ends.map(|(mut endpoint, qp)| {
        let mut events = Vec::new();
        endpoint.poll_events(&mut events);
        assert!(matches!(events[..], [Event::Established { .. }]));
        (endpoint, qp)
    })
}

fn empty_send(id: u64) -> SendWork {
    SendWork {
        id,
        op: Operation::Send,
        sges: SgeList::EMPTY,
        signaled: true,
    }
}

fn next_completion(endpoint: &mut LoopbackEndpoint) -> Completion {
    let mut out = [Completion::EMPTY];
    while endpoint.poll(&mut out) == 0 {
        if !endpoint.arm().unwrap() {
            endpoint.wake.sleep();
        }
    }
    out[0]
}

#[test]
fn a_sleeper_is_woken_for_what_arrives() {
    cairn_base::sync::loomed(|| {
        let [(mut host, host_qp), (mut target, _)] = connected();
        target
            .post_receives(&[RecvWork {
                id: 7,
                sges: SgeList::EMPTY,
            }])
            .unwrap();
        let sender = loom::thread::spawn(move || {
            host.post(host_qp, &[empty_send(1)]).unwrap();
            next_completion(&mut host).id
        });
        assert_eq!(next_completion(&mut target).id, 7);
        assert_eq!(sender.join().unwrap(), 1);
    });
}

#[test]
fn both_ends_leave_at_once() {
    cairn_base::sync::loomed(|| {
        let [(host, host_qp), (target, target_qp)] = connected();
        let other = loom::thread::spawn(move || leave(host, host_qp));
        leave(target, target_qp);
        other.join().unwrap();
    });
}

fn leave(mut endpoint: LoopbackEndpoint, qp: QpId) {
    endpoint.disconnect(qp);
    let mut events = Vec::new();
    loop {
        endpoint.poll_events(&mut events);
        if events
            .iter()
            .any(|event| matches!(event, Event::Closed { .. }))
        {
            return;
        }
        if !endpoint.arm().unwrap() {
            endpoint.wake.sleep();
        }
    }
}
