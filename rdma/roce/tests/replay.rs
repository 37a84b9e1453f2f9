//! Replays captured packets of a Linux host to a queue pair of Cairn, which must acknowledge them
//! like the captured target.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cairn_roce_proto::time::Instant;

use cairn_base::Mapping;
use cairn_rdma::{Access, CompletionKind, PKey, QpId, RecvWork, Sge, WorkStatus};
use cairn_roce::memory::Regions;
use cairn_roce_proto::counters::Counters;
use cairn_roce_proto::qp::work::{CompletionQueue, ReceiveQueue};
use cairn_roce_proto::qp::{Context, Qp, QpConfig};
use cairn_roce_proto::wire::cm::Message;
use cairn_roce_proto::wire::frame::Frame;
use cairn_roce_proto::wire::{Opcode, Packet};
use cairn_sim::pcap;

const MTU_1500: &[u8] = include_bytes!("../../../tests/captures/nvme-rdma-session-mtu1500.pcap");
const MTU_4200: &[u8] = include_bytes!("../../../tests/captures/nvme-rdma-session-mtu4200.pcap");

const CAPSULE: u32 = 64 + 4096;

fn packets(file: &[u8]) -> Vec<Packet<'_>> {
    let frames = pcap::frames(file).into_iter().filter_map(Frame::parse);
    frames
        .map(|frame| Packet::parse(&frame.packet[..frame.packet.len() - 4]).unwrap())
        .collect()
}

struct Connection {
    host_qpn: u32,
    target_qpn: u32,
    host_psn: u32,
    target_psn: u32,
}

fn connections(packets: &[Packet<'_>]) -> Vec<Connection> {
    let mut requests = HashMap::new();
    let mut connections = Vec::new();
    for packet in packets.iter().filter(|p| p.opcode == Opcode::UdSendOnly) {
        match Message::parse(packet.payload) {
            Some((_, Message::Req(req))) => {
                requests.insert(req.local_comm_id, (req.local_qpn, req.starting_psn));
            }
            Some((_, Message::Rep(rep))) => {
                let (host_qpn, target_psn) = requests[&rep.ids.remote];
                connections.push(Connection {
                    host_qpn,
                    target_qpn: rep.local_qpn,
                    host_psn: rep.starting_psn,
                    target_psn,
                });
            }
            _ => {}
        }
    }
    connections
}

fn play(packets: &[Packet<'_>], connection: &Connection, mtu: u32) -> (Vec<Acknowledged>, usize) {
    let config = QpConfig {
        dest_qpn: connection.host_qpn,
        pkey: PKey::DEFAULT,
        mtu,
        long_send: None,
        send_psn: connection.target_psn,
        receive_psn: connection.host_psn,
        send_work: 1,
        initiator_depth: 1,
        responder_resources: 0,
        retry_count: 7,
        rnr_retry_count: 7,
        min_rnr_timer: 1,
        ack_timeout: Some(Duration::from_millis(537)),
    };
    let now = Instant::START;
    let mut qp = Qp::new(&config, now);
    let mapping = Arc::new(Mapping::anonymous(CAPSULE as usize).unwrap());
    let regions = Arc::new(Regions::default());
    let lkey = regions
        .register(Arc::clone(&mapping), Access::LOCAL_WRITE)
        .unwrap()
        .lkey;
    let memory = regions.reader();
    let (mut receives, mut completions) = (ReceiveQueue::new(1), CompletionQueue::new(2, 1));
    let mut counters = Counters::default();
    let sge = Sge {
        addr: mapping.addr(),
        length: CAPSULE,
        lkey,
    };
    let work = RecvWork {
        id: 0,
        sges: sge.into(),
    };
    assert!(receives.post(&[work]));
    let (mut answers, mut messages) = (Vec::new(), 0);
    let to_target = |p: &&Packet<'_>| p.bth.dest_qpn == connection.target_qpn && p.opcode.is_send();
    for packet in packets.iter().filter(to_target) {
        let mut cx = Context {
            qp: QpId::new(0, 0),
            memory: &memory,
            receives: &mut receives,
            completions: &mut completions,
            counters: &mut counters,
        };
        qp.handle_packet(packet, false, now, &mut cx);
        let mut out = [0; 64];
        while let Some(length) = qp.poll_transmit(now, &mut out, &mut cx) {
            answers.push(acknowledged(&Packet::parse(&out[..length]).unwrap()));
        }
        if let Some(completion) = completions.pop() {
            assert_eq!(completion.kind, CompletionKind::Recv);
            assert_eq!(completion.status, WorkStatus::Success);
            messages += 1;
            assert!(receives.post(&[work]));
        }
    }
    (answers, messages)
}

type Acknowledged = (u32, u8, u32);

fn acknowledged(packet: &Packet<'_>) -> Acknowledged {
    let aeth = packet.aeth.expect("an acknowledgement");
    (packet.bth.psn, aeth.syndrome, aeth.msn)
}

fn replay(pcap: &[u8], mtu: u32) {
    let packets = packets(pcap);
    let connections = connections(&packets);
    assert_eq!(connections.len(), 4, "discovery, admin, two I/O queues");
    for connection in &connections {
        let to_host = |p: &&Packet<'_>| {
            p.bth.dest_qpn == connection.host_qpn
                && p.opcode == Opcode::Acknowledge
                && p.bth.psn.wrapping_sub(connection.host_psn) & 0xff_ffff < 10_000
        };
        let expected: Vec<_> = packets.iter().filter(to_host).map(acknowledged).collect();
        let of_host = |p: &&Packet<'_>| {
            p.bth.psn.wrapping_sub(connection.host_psn) & 0xff_ffff < 10_000 && p.opcode.is_send()
        };
        let from_host: Vec<_> = packets.iter().filter(of_host).copied().collect();
        let (answers, messages) = play(&from_host, connection, mtu);
        assert!(!expected.is_empty());
        assert_eq!(answers, expected);
        assert_eq!(messages, expected.len());
    }
}

#[test]
fn a_session_at_mtu_1500() {
    replay(MTU_1500, 1024);
}

#[test]
fn a_session_at_mtu_4200() {
    replay(MTU_4200, 4096);
}
