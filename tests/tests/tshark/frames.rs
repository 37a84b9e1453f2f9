//! Captures parsed by Cairn, for comparison with tshark.

use std::path::Path;

use cairn_roce_proto::wire::cm::{Message, ip_cm};
use cairn_roce_proto::wire::frame::Frame;
use cairn_roce_proto::wire::icrc::Checker;
use cairn_roce_proto::wire::{Opcode, Packet};

use crate::dissection::Row;

pub(crate) const TRANSPORT_FIELDS: &[&str] = &[
    "infiniband.bth.opcode",
    "infiniband.bth.padcnt",
    "infiniband.bth.p_key",
    "infiniband.bth.destqp",
    "infiniband.bth.a",
    "infiniband.bth.psn",
    "infiniband.deth.q_key",
    "infiniband.deth.srcqp",
    "infiniband.reth.va",
    "infiniband.reth.r_key",
    "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome",
    "infiniband.aeth.msn",
    "infiniband.ieth",
];

pub(crate) fn read(capture: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(capture).expect("the capture can be read");
    let frames = cairn_sim::pcap::frames(&bytes);
    frames.into_iter().map(<[u8]>::to_vec).collect()
}

pub(crate) fn transport_fields(frame: &[u8]) -> Vec<Option<u64>> {
    let parsed = Frame::parse(frame).expect("RoCE alone is captured");
    let transport = Checker::new().open(&parsed.route(), 0, parsed.packet);
    let packet = Packet::parse(transport.expect("a good ICRC")).expect("a packet");
    let Packet {
        bth,
        deth,
        reth,
        aeth,
        ..
    } = packet;
    vec![
        Some(bth.opcode.into()),
        Some(bth.pad.into()),
        Some(bth.pkey.into()),
        Some(bth.dest_qpn.into()),
        Some(bth.ack_req.into()),
        Some(bth.psn.into()),
        deth.map(|deth| deth.qkey.into()),
        deth.map(|deth| deth.source_qpn.into()),
        reth.map(|reth| reth.va),
        reth.map(|reth| reth.rkey.into()),
        reth.map(|reth| reth.dma_len.into()),
        aeth.map(|aeth| aeth.syndrome.into()),
        aeth.map(|aeth| aeth.msn.into()),
        packet.ieth.map(|ieth| ieth.rkey.into()),
    ]
}

pub(crate) fn transport_fields_of(row: &Row) -> Vec<Option<u64>> {
    TRANSPORT_FIELDS
        .iter()
        .map(|&field| match (field, row.text(field)) {
            ("infiniband.ieth", text) if !text.is_empty() => {
                Some(u64::from_str_radix(&text.replace(':', ""), 16).expect("hexadecimal"))
            }
            _ => row.number(field),
        })
        .collect()
}

pub(crate) fn connection_message(frame: &[u8]) -> Option<(&'static str, u32, u32, Vec<u8>)> {
    let parsed = Frame::parse(frame).expect("RoCE alone is captured");
    let transport = Checker::new().open(&parsed.route(), 0, parsed.packet);
    let packet = Packet::parse(transport.expect("a good ICRC")).expect("a packet");
    if packet.opcode != Opcode::UdSendOnly {
        return None;
    }
    let (_, message) = Message::parse(packet.payload).expect("a message of the connection manager");
    match message {
        Message::Req(req) => {
            let private = req.private_data[ip_cm::LEN..].to_vec();
            Some(("req", req.local_qpn, req.starting_psn, private))
        }
        Message::Rep(rep) => {
            let private = rep.private_data.to_vec();
            Some(("rep", rep.local_qpn, rep.starting_psn, private))
        }
        _ => None,
    }
}
