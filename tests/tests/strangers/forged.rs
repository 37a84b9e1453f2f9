//! Forged messages of connection management. The attacker knows the queue pair numbers of a host,
//! but not the target's communication IDs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cairn_initiator::{Data, Host, HostOptions, Identity, Recovery, command};
use cairn_roce::Capture;
use cairn_roce::{Soft, SoftOptions};
use cairn_roce_proto::wire::cm::{Answered, CommIds, Message, Rej, RejReason, Req, padded};
use cairn_roce_proto::wire::frame::Frame;
use cairn_roce_proto::wire::{Opcode, Packet};
use cairn_sim::pcap;
use cairn_tests::harness::{NQN, host_nqn, nqn, own_loopback_address};
use cairn_tests::stranger::Stranger;

use super::{PATIENCE, Victim};

#[test]
fn forged_requests_and_rejections_end_no_connection() {
    let victim = Victim::start();
    let local = own_loopback_address();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pcapng");
    let capture = Arc::new(Capture::create(&path, 1 << 20).unwrap());
    let soft = Soft::new(SoftOptions {
        capture: Some(Arc::clone(&capture)),
        ..SoftOptions::default()
    });
    let options = HostOptions {
        timeout: PATIENCE,
        local: Some(local.into()),
        recovery: Recovery::NONE,
        kato_ms: 0,
        ..HostOptions::new(
            victim.address(),
            nqn(NQN),
            Identity::named(host_nqn("good")),
        )
    };
    let mut host = Host::connect(&soft, options).unwrap();
    let mut buffer = host.buffer(512).unwrap();
    capture.flush();
    let requests = requests_in(&path);
    assert!(requests.len() >= 2, "an admin queue and an I/O queue");
    let mut stranger = Stranger::at(local, 0, victim.address().ip());
    let start = Instant::now();
    let mut turn: u32 = 0;
    while start.elapsed() < Duration::from_millis(500) {
        turn += 1;
        for request in &requests {
            let again = Message::Req(Req {
                local_comm_id: request.local_comm_id ^ turn,
                ..request.clone()
            });
            for message in [again, rejection_of(request)] {
                stranger.send_mad(&message.emit(turn.into()), |_| {});
            }
        }
        let data = Data::start_of(&mut buffer, 512);
        host.run(command::read(1, 0, 1), data).unwrap();
    }
    assert!(victim.soft.connections() >= requests.len());
    host.shutdown().unwrap();
    victim.target.stop().unwrap();
}

fn rejection_of(request: &Req) -> Message {
    Message::Rej(Rej {
        ids: CommIds {
            local: request.local_comm_id,
            remote: 0,
        },
        answered: Answered::Other,
        info_len: 0,
        reason: RejReason::Timeout as u16,
        info: padded(&[]),
        private_data: padded(&[]),
    })
}

fn requests_in(path: &Path) -> Vec<Req> {
    let bytes = std::fs::read(path).unwrap();
    let frames = pcap::frames(&bytes).into_iter().filter_map(Frame::parse);
    let mut requests: Vec<Req> = Vec::new();
    for frame in frames {
        let transport = &frame.packet[..frame.packet.len() - 4];
        let Ok(packet) = Packet::parse(transport) else {
            continue;
        };
        let is_mad = packet.opcode == Opcode::UdSendOnly;
        let message = is_mad.then(|| Message::parse(packet.payload)).flatten();
        if let Some((_, Message::Req(request))) = message
            && requests
                .iter()
                .all(|known| known.local_qpn != request.local_qpn)
        {
            requests.push(request);
        }
    }
    requests
}
