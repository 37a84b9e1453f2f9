//! Partition keys in captures.
//!
//! A packet contains its sender's key; packets of connection management contain the default key
//! instead. A REQ also contains the connection's key.

use std::sync::Arc;

use cairn_initiator::{Data, Host, HostOptions, command};
use cairn_rdma::PKey;
use cairn_roce::Capture;
use cairn_roce::{Soft, SoftOptions};
use cairn_roce_proto::wire::cm::Message;
use cairn_roce_proto::wire::frame::{Frame, Network};
use cairn_roce_proto::wire::icrc::Checker;
use cairn_roce_proto::wire::mad::GSI_QPN;
use cairn_roce_proto::wire::{Opcode, Packet};
use cairn_tests::harness::{NQN, Scratch, TestTarget, own_loopback_address, subsystem};

use crate::dissection::{can_run, dissect};
use crate::frames;

/// Target's key, a full member of the partition. The host's key is a limited member.
const TARGET: u16 = 0x8123;
const HOST: u16 = 0x0123;

#[test]
fn each_packet_carries_the_key_of_its_sender() {
    let capture = Scratch::new("partitions.pcapng", 0);
    let file = Capture::create(capture.path(), 1 << 30).expect("the capture can be written");
    let host_side = Soft::new(SoftOptions {
        capture: Some(Arc::new(file)),
        ..SoftOptions::default()
    });
    let disks = subsystem(NQN, &["mem:1MiB block_size = 512"]);
    let listener = format!("pkey = {TARGET}");
    let target = TestTarget::start_on_soft_as(Soft::default(), &disks, &listener);
    let address = own_loopback_address();
    let options = HostOptions {
        local: Some(address.into()),
        pkey: PKey::new(HOST).expect("it is a partition's"),
        ..target.options("a")
    };
    let mut host = Host::connect(&host_side, options).expect("a connection");
    let mut buffer = host.buffer(64 << 10).expect("memory");
    let data = Data::start_of(&mut buffer, 64 << 10);
    host.run(command::write(1, 0, 128), data).expect("a write");
    let data = Data::whole(&mut buffer);
    host.run(command::read(1, 0, 128), data).expect("a read");
    host.shutdown().expect("a shutdown");
    target.stop();
    drop(host_side);

    let frames = frames::read(capture.path());
    let keys: Vec<u16> = frames.iter().map(|frame| key_of(frame, address)).collect();
    assert!(keys.contains(&TARGET) && keys.contains(&HOST));
    if can_run() {
        let rows = dissect(capture.path(), &["infiniband.bth.p_key"]);
        let shown = rows.iter().map(|row| row.number("infiniband.bth.p_key"));
        let keys = keys.into_iter().map(|key| Some(u64::from(key)));
        assert!(shown.eq(keys), "{rows:?}");
    }
}

fn key_of(frame: &[u8], host: std::net::Ipv4Addr) -> u16 {
    let parsed = Frame::parse(frame).expect("RoCE alone is captured");
    let Network::V4(ip, _) = parsed.network else {
        panic!("it is RoCE v2 on IPv4");
    };
    let transport = Checker::new().open(&parsed.route(), 0, parsed.packet);
    let packet = Packet::parse(transport.expect("a good ICRC")).expect("a packet");
    let expected = if packet.bth.dest_qpn == GSI_QPN {
        assert_eq!(packet.opcode, Opcode::UdSendOnly);
        if let Some((_, Message::Req(req))) = Message::parse(packet.payload) {
            assert_eq!(req.pkey, HOST);
        }
        PKey::DEFAULT.bits()
    } else if ip.source == host {
        HOST
    } else {
        TARGET
    };
    assert_eq!(packet.bth.pkey, expected, "{:?}", packet.bth);
    expected
}
