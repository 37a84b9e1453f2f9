//! Each parser rejects arbitrary bytes, or returns a value that encoding and parsing do not change.

use cairn_roce_proto::wire::cm::Message;
use cairn_roce_proto::wire::ethernet::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE};
use cairn_roce_proto::wire::frame::Frame;
use cairn_roce_proto::wire::icrc::{Checker, Route};
use cairn_roce_proto::wire::mad::{MAD_LEN, MadHeader};
use cairn_roce_proto::wire::{Header, Opcode, Packet};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

fn route() -> Route {
    Route::Udp {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        source_port: 0xc000,
    }
}

proptest! {
    #[test]
    fn packets(opcode in any::<u8>(), mut bytes in vec(any::<u8>(), 0..300)) {
        if let Some(first) = bytes.first_mut() {
            *first = opcode;
        }
        if let Some(second) = bytes.get_mut(1) {
            *second &= 0xf0; // TVer 0, because parsers reject all others.
        }
        let Ok(packet) = Packet::parse(&bytes) else { return Ok(()) };
        let mut again = [0; 400];
        let length = packet.emit(&mut again);
        let parsed = Packet::parse(&again[..length]).unwrap();
        prop_assert_eq!(parsed.payload, packet.payload);
        prop_assert_eq!(parsed.reth, packet.reth);
        prop_assert_eq!(parsed.aeth, packet.aeth);
        prop_assert_eq!(parsed.bth.psn, packet.bth.psn);
        prop_assert!(Opcode::ALL.contains(&packet.opcode));
    }

    #[test]
    fn messages(
        attribute in 0x0f_u16..0x1c,
        transaction_id: u64,
        body in vec(any::<u8>(), 0..300),
    ) {
        let mut mad = vec![0; MadHeader::LEN];
        MadHeader::cm(attribute, transaction_id).write(&mut mad);
        mad.extend(&body);
        let Some((_, message)) = Message::parse(&mad) else { return Ok(()) };
        let again = message.emit(transaction_id);
        prop_assert_eq!(again.len(), MAD_LEN);
        prop_assert_eq!(Message::parse(&again).unwrap().1, message);
    }

    #[test]
    fn frames(
        ethertype in select(vec![ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_ROCE, 0x8100]),
        version in select(vec![0x45_u8, 0x60]),
        mut bytes in vec(any::<u8>(), 15..300),
    ) {
        bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        bytes[14] = version;
        if let Some(frame) = Frame::parse(&bytes) {
            prop_assert!(frame.len() <= bytes.len());
        }
    }

    #[test]
    fn noise(guess: u16, bytes in vec(any::<u8>(), 0..80)) {
        if let Some(transport) = Checker::new().open(&route(), guess, &bytes) {
            prop_assert_eq!(transport.len() + 4, bytes.len());
        }
    }
}
