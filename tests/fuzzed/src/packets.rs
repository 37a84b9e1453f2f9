use std::time::Duration;

use cairn_rdma::{Marked, PKey};
use cairn_roce_proto::cm::{CmEvent, Connect, Identity, Manager, Path, QpTerms};
use cairn_roce_proto::time::Instant;
use cairn_roce_proto::wire::cm::{LongSend, Message, RejReason, padded};
use cairn_roce_proto::wire::frame::Frame;
use cairn_roce_proto::wire::icrc::{Checker, Route};
use cairn_roce_proto::wire::mad::{MAD_LEN, MadHeader};
use cairn_roce_proto::wire::{Header, Packet};

use crate::input::Input;

const ROOM: usize = 64;

pub(crate) fn run(bytes: &[u8]) {
    if let Ok(packet) = Packet::parse(bytes) {
        let mut again = vec![0; bytes.len() + ROOM];
        let length = packet.emit(&mut again);
        let parsed = Packet::parse(&again[..length]).expect("it was written so");
        assert_eq!(parsed.payload, packet.payload);
        assert_eq!(
            (parsed.reth, parsed.aeth, parsed.atomic, parsed.deth),
            (packet.reth, packet.aeth, packet.atomic, packet.deth)
        );
        assert_eq!(parsed.bth.psn, packet.bth.psn);
    }
    if let Some(frame) = Frame::parse(bytes) {
        assert!(frame.len() <= bytes.len());
    }
    if let Some((_, message)) = Message::parse(bytes) {
        let again = message.emit(1);
        let parsed = Message::parse(&again).expect("it was written so");
        assert_eq!(parsed.1, message);
    }
    let route = Route::Udp {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        source_port: 0xc000,
    };
    if let Some(transport) = Checker::new().open(&route, 0, bytes) {
        assert_eq!(transport.len() + 4, bytes.len());
    }
}

const STEPS_MAX: usize = 200;

fn path(peer: u8) -> Path {
    Path {
        local: [10, 0, 0, 1].into(),
        remote: [10, 0, 0, 2 + peer % 4].into(),
    }
}

fn terms(qpn: u32) -> QpTerms {
    QpTerms {
        qpn,
        starting_psn: 5,
        responder_resources: 4,
        initiator_depth: 2,
        rnr_retry_count: 7,
        long_send: LongSend::within(4090 + qpn),
    }
}

pub(crate) fn connections(bytes: &[u8]) {
    let mut numbers = 0;
    let mut manager = Manager::new(Identity::new(Box::new(move || {
        numbers += 1;
        numbers
    })));
    let mut now = Instant::START;
    let mut input = Input::new(bytes);
    let mut sent: Vec<[u8; MAD_LEN]> = Vec::new();
    let mut known = Vec::new();
    for step in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        match input.byte() % 8 {
            0 => {
                let id = manager.connect(now, &wish(step as u32 + 2, input.byte()));
                known.push(id);
            }
            1 | 2 => {
                let (attribute, transaction) = (input.byte(), input.word());
                let mut mad = vec![0; MadHeader::LEN];
                MadHeader::cm(u16::from(attribute % 16) + 0x0e, transaction.into()).write(&mut mad);
                mad.extend_from_slice(input.bytes(MAD_LEN - MadHeader::LEN));
                mad.resize(MAD_LEN, 0);
                manager.handle_mad(now, path(attribute), 0, &mad);
            }
            3 | 4 => {
                let (which, attribute) = (usize::from(input.byte()), input.byte());
                let changes = input.array::<4>();
                let place = which.checked_rem(sent.len());
                let Some(mut mad) = place.map(|place| sent[place]) else {
                    continue;
                };
                mad[17] = attribute % 16 + 0x0e;
                let numbers: [u8; 8] = mad[24..32].try_into().expect("8 bytes");
                mad[24..28].copy_from_slice(&numbers[4..]);
                mad[28..32].copy_from_slice(&numbers[..4]);
                let at = usize::from(changes[0]) + usize::from(changes[1]);
                mad[at % MAD_LEN] ^= changes[2];
                manager.handle_mad(now, path(changes[3]), 0, &mad);
            }
            5 => {
                now += Duration::from_millis(input.short().into());
                manager.handle_timeout(now);
            }
            6 => {
                let which = usize::from(input.byte());
                if let Some(place) = which.checked_rem(known.len()) {
                    manager.disconnect(now, known[place]);
                }
            }
            _ => manager.handle_mad(now, path(0), 0, input.bytes(300)),
        }
        take(&mut manager, now, &mut sent, &mut known, step);
    }
    assert!(manager.connections() <= known.len());
}

fn take(
    manager: &mut Manager,
    now: Instant,
    sent: &mut Vec<[u8; MAD_LEN]>,
    known: &mut Vec<cairn_roce_proto::cm::ConnId>,
    step: usize,
) {
    while let Some(event) = manager.poll_event() {
        if let CmEvent::Request { id, .. } = event {
            known.push(id);
            let _ = if step.is_multiple_of(3) {
                manager.reject(id, RejReason::Consumer, &[], &[1])
            } else {
                let terms = terms(100 + step as u32);
                manager.accept(now, id, &terms, &[2; 32]).map(drop)
            };
        }
    }
    while let Some(transmit) = manager.poll_transmit() {
        assert!(
            Message::parse(&transmit.mad[..]).is_some(),
            "its own message"
        );
        sent.push(transmit.mad[..].try_into().expect("a MAD has one length"));
    }
}

fn wish(qpn: u32, peer: u8) -> Connect {
    Connect {
        path: path(peer),
        local_port: 49_000,
        remote_port: 4420,
        terms: terms(qpn),
        retry_count: 7,
        path_mtu: 5,
        ack_timeout: 17,
        pkey: PKey::DEFAULT,
        marked: Marked {
            traffic_class: 96,
            hop_limit: 64,
        },
        private_data: padded(&[7; 32]),
        timeout: Duration::from_secs(30),
    }
}
