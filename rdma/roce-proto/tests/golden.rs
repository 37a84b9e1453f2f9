//! Captured traffic of two Linux kernels: each packet is parsed, verified and encoded again.

use cairn_roce_proto::wire::cm::{IpCm, Message, ip_cm};
use cairn_roce_proto::wire::frame::Frame;
use cairn_roce_proto::wire::icrc::{self, Checker};
use cairn_roce_proto::wire::{Opcode, Packet};
use cairn_sim::pcap;

const MTU_1500: &[u8] = include_bytes!("../../../tests/captures/nvme-rdma-session-mtu1500.pcap");
const MTU_4200: &[u8] = include_bytes!("../../../tests/captures/nvme-rdma-session-mtu4200.pcap");

fn check(file: &[u8], expected: usize) {
    let mut checker = Checker::new();
    let mut seen = 0;
    for (number, bytes) in (1..).zip(pcap::frames(file)) {
        let Some(frame) = Frame::parse(bytes) else {
            continue; // ARP and neighbour discovery
        };
        seen += 1;
        let context = || format!("frame {number}: {frame:02x?}");
        let (route, identity) = (frame.route(), frame.identity());
        let transport = icrc::open(&route, identity, frame.packet)
            .unwrap_or_else(|| panic!("ICRC of {}", context()));
        let unseen = checker.open(&route, 0, frame.packet);
        assert_eq!(unseen, Some(transport), "{}", context());
        let packet = Packet::parse(transport).unwrap_or_else(|e| panic!("{e:?}: {}", context()));
        check_message(&packet);

        let mut again = vec![0xaa; bytes.len()];
        let length = packet.emit(&mut again);
        let sealed = icrc::seal(&route, identity, &mut again, length);
        assert_eq!(&again[..sealed], frame.packet, "{}", context());
        let packet = again[..sealed].to_vec();
        let rebuilt = Frame {
            packet: &packet,
            ..frame
        };
        let length = rebuilt.emit(&mut again);
        assert_eq!(&again[..length], bytes, "{}", context());
    }
    assert_eq!(seen, expected);
}

fn check_message(packet: &Packet<'_>) {
    if packet.opcode != Opcode::UdSendOnly {
        return;
    }
    let (header, message) = Message::parse(packet.payload).expect("a connection message");
    assert_eq!(message.emit(header.transaction_id), packet.payload);
    let Message::Req(req) = message else { return };
    assert_eq!(ip_cm::port_of(req.service_id), Some(4420));
    assert_eq!(req.primary.local_ack_timeout, 17);
    assert_eq!(req.retry_count, 7);
    let ip_cm = IpCm::read(&req.private_data).expect("an IP CM header");
    assert_eq!(ip_cm.destination, req.primary.remote_gid.to_canonical());
    let mut private_data = req.private_data;
    private_data[..ip_cm::LEN].fill(0);
    ip_cm.write(&mut private_data);
    assert_eq!(private_data, req.private_data);
}

#[test]
fn a_session_at_mtu_1500() {
    check(MTU_1500, 749);
}

#[test]
fn a_session_at_mtu_4200() {
    check(MTU_4200, 446);
}
