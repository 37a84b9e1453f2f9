use std::time::{Duration, Instant};

use cairn_initiator::Host;
use cairn_rdma::{
    Completion, ConnectOptions, EndpointOptions, Event, Operation, PKey, QpOptions, SendWork,
    SgeList,
};
use cairn_trouble::{self as trouble, Caller, End};
use nvme_proto::wire::IntoBytes;
use nvme_proto::wire::cm::{RejectData, RejectStatus};

use super::fake::{Accepted, Fake};
use super::log::assert_in_order;
use super::{PATIENCE, Place};

fn failure(place: &Place, port: u16, target: impl FnOnce()) -> String {
    std::thread::scope(|scope| {
        let host = scope.spawn(|| {
            let refused = Host::connect(&*place.provider, place.options(port));
            refused.map(drop).unwrap_err().to_string()
        });
        target();
        host.join().unwrap()
    })
}

#[test]
fn each_refusal_of_a_target_is_explained() {
    for place in Place::both() {
        let fake = Fake::open(&place);
        for status in 1..=9 {
            let data = RejectData::new(RejectStatus(status));
            let said = failure(&place, fake.port(), || {
                fake.request().reject(data.as_bytes());
            });
            let known = trouble::of_nvme_reject(status);
            let (at, peer) = (fake.port(), place.target);
            let who = format!("{peer}:{at} rejects queue 0: {}", known.what);
            assert_in_order(&said, &[&who, known.name, "likely (1) ", "; next: "]);
        }
        let said = failure(&place, fake.port(), || fake.request().reject(&[]));
        assert_in_order(
            &said,
            &["the program at the other end refuses", "CM reject 28"],
        );
    }
}

fn reasons() -> Vec<u16> {
    let code = include_str!("../../../rdma/roce-proto/src/wire/cm/rej.rs");
    let (_, rest) = code.split_once("pub enum RejReason {").unwrap();
    let (body, _) = rest.split_once("\n}").unwrap();
    let numbers = body
        .lines()
        .filter_map(|line| line.trim().split_once(" = "));
    numbers
        .map(|(_, number)| number.trim_end_matches(',').parse().unwrap())
        .collect()
}

#[test]
fn each_refusal_has_a_row_in_troubleshooting_with_the_command_of_its_error() {
    const CALLER: Caller = Caller {
        end: End::Host,
        host: "cairn-initiator",
        target: "cairn-target",
    };
    const CONNECT: u16 = 1;
    let page = include_str!("../../../docs/operations/troubleshooting.md").replace('`', "");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).collect();
    let reasons = reasons();
    assert!(reasons.contains(&28) && reasons.len() >= 8, "{reasons:?}");
    let rejects = reasons.into_iter().map(trouble::of_reject);
    let statuses = trouble::STATUSES
        .iter()
        .filter(|one| one.code >> 8 == CONNECT);
    for refusal in rejects.chain(&trouble::NVME_REJECTS).chain(statuses) {
        let (name, _) = refusal.name.split_once(',').unwrap_or((refusal.name, ""));
        let next = refusal.next.command(CALLER, "ADDRESS");
        let has = |row: &&&str| {
            let mut cells = row.split('|').map(str::trim).skip(1);
            let names = cells.next().unwrap_or_default();
            names.split(", ").any(|one| one == name) && cells.any(|cell| cell == next)
        };
        assert!(
            rows.iter().find(has).is_some(),
            "no row of {name} has {next}"
        );
    }
}

#[test]
fn a_port_without_a_listener_is_distinguished_from_a_refusal() {
    for place in Place::both() {
        let fake = Fake::open(&place);
        let said = failure(&place, fake.port() ^ 1, || {});
        let parts = [
            "nothing listens there (CM reject 8",
            "likely (1) the target is not running",
            "; next: on the target: systemctl status cairn-target",
        ];
        assert_in_order(&said, &parts);
    }
}

#[test]
fn a_receive_that_is_too_short_is_named_at_the_sender() {
    for place in Place::both() {
        let fake = Fake::open(&place);
        let said = failure(&place, fake.port(), || {
            let mut accepted = fake.accept(16);
            poll_until_disconnected(&mut accepted);
        });
        let parts = [
            "queue 0 to ",
            "is lost: remote invalid request",
            "(IBV_WC_REM_INV_REQ_ERR)",
            "likely (1) the message is longer than the other end's receive",
        ];
        assert_in_order(&said, &parts);
    }
}

fn poll_until_disconnected(accepted: &mut Accepted) {
    let deadline = Instant::now() + PATIENCE;
    let mut events = Vec::new();
    let broken = |event: &Event| match event {
        Event::Disconnected { qp, .. } => Some(*qp),
        _ => None,
    };
    let qp = loop {
        if let Some(qp) = events.iter().find_map(broken) {
            break qp;
        }
        accepted.endpoint.poll(&mut [Completion::EMPTY; 8]);
        accepted.endpoint.poll_events(&mut events);
        assert!(Instant::now() < deadline, "{events:?}");
        std::thread::sleep(Duration::from_millis(1));
    };
    accepted.endpoint.disconnect(qp);
}

#[test]
fn a_target_that_falls_silent_is_given_up_with_where_to_look() {
    let place = Place::soft();
    let fake = Fake::open(&place);
    let (over, wait) = crossbeam_channel::bounded::<()>(0);
    std::thread::scope(|scope| {
        let port = fake.port();
        scope.spawn(move || {
            let accepted = fake.accept(4096);
            let _ = wait.recv();
            drop(accepted);
        });
        let refused = Host::connect(&*place.provider, place.options(port));
        let said = refused.unwrap_err().to_string();
        drop(over);
        let next = format!("; next: cairn-initiator doctor --peer {}", place.target);
        let parts = [
            "is lost: transport retry counter exceeded",
            "(IBV_WC_RETRY_EXC_ERR)",
            "likely (1) the peer is down",
            &next,
        ];
        assert_in_order(&said, &parts);
    });
}

#[test]
fn an_end_without_receives_is_named() {
    for place in Place::both() {
        let fake = Fake::open(&place);
        let remote = (place.target, fake.port()).into();
        let device = place.provider.device_for(remote, place.hosts).unwrap();
        let options = EndpointOptions {
            receives: 1,
            completions: 8,
            queue_pairs: 1,
        };
        let mut endpoint = device.open(&options).unwrap();
        let connect = ConnectOptions {
            remote,
            local: place.hosts,
            pkey: PKey::DEFAULT,
            qp: QpOptions {
                rnr_retry_count: 1,
                ..QpOptions::default()
            },
            timeout: PATIENCE,
        };
        let qp = endpoint.connect(&connect, &[]).unwrap();
        let mut accepted = fake.accept(0);
        let deadline = Instant::now() + PATIENCE;
        let (mut events, mut posted) = (Vec::new(), false);
        let failed = loop {
            let mut done = [Completion::EMPTY];
            accepted.endpoint.poll(&mut [Completion::EMPTY]);
            accepted.endpoint.poll_events(&mut Vec::new());
            if endpoint.poll(&mut done) == 1 {
                break done[0];
            }
            endpoint.poll_events(&mut events);
            let up = events
                .iter()
                .any(|event| matches!(event, Event::Established { .. }));
            if up && !posted {
                let send = SendWork {
                    id: 1,
                    op: Operation::Send,
                    sges: SgeList::EMPTY,
                    signaled: true,
                };
                endpoint.post(qp, &[send]).unwrap();
                posted = true;
            }
            assert!(Instant::now() < deadline, "{events:?}");
        };
        let said = trouble::of_completion(failed.status.code()).to_string();
        assert_in_order(
            &said,
            &["RNR retry counter exceeded", "IBV_WC_RNR_RETRY_EXC_ERR"],
        );
    }
}
