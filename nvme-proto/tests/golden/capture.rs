//! Extraction of NVMe capsules from packet captures. Parses only the required parts of RoCE v2 and
//! connection management.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use cairn_sim::pcap;
use nvme_proto::wire::cm::RequestData;
use nvme_proto::wire::{Cqe, FromBytes, Sgl, Sqe};

pub(crate) struct Capsule {
    /// Number of the capsule's first packet in the capture, from 1.
    pub frame: usize,
    /// Number of the connection, by order of CM requests. Several connections may use one CID.
    pub connection: usize,
    pub qid: u16,
    pub capsule: Vec<u8>,
    pub first_packet_bytes: usize,
    /// Key invalidated by the SEND, if any.
    pub invalidated: Option<u32>,
}

#[derive(Default)]
pub(crate) struct Session {
    name: &'static str,
    /// Packet number and private data of CM requests, without IP CM header.
    pub requests: Vec<(usize, Vec<u8>)>,
    /// Packet number and private data of CM replies.
    pub replies: Vec<(usize, Vec<u8>)>,
    pub commands: Vec<Capsule>,
    pub completions: Vec<Capsule>,
    written: HashMap<(u32, u64), Vec<u8>>,
    read: HashMap<(u32, u64), Vec<u8>>,
    connections: Vec<Connection>,
}

struct Connection {
    qid: u16,
    host: Ipv4Addr,
    host_comm_id: u32,
    host_qpn: u32,
    target_qpn: u32,
    from_host: Flow,
    from_target: Flow,
}

#[derive(Default)]
struct Flow {
    send: Option<(usize, usize, Vec<u8>)>,
    write: Option<((u32, u64), Vec<u8>)>,
    read: Option<((u32, u64), Vec<u8>)>,
}

struct Packet<'a> {
    frame: usize,
    source: Ipv4Addr,
    opcode: u8,
    dest_qpn: u32,
    rest: &'a [u8],
}

impl Session {
    pub(crate) fn load(name: &'static str) -> Self {
        let file = std::fs::read(path(name, "pcap")).unwrap();
        let mut session = Self {
            name,
            ..Self::default()
        };
        for (index, frame) in pcap::frames(&file).into_iter().enumerate() {
            if let Some(packet) = roce_packet(index + 1, frame) {
                session.take(&packet);
            }
        }
        session.commands.sort_by_key(|c| c.frame);
        session.completions.sort_by_key(|c| c.frame);
        session
    }

    pub(crate) fn decoded_lines(&self, kind: &str) -> Vec<String> {
        let text = std::fs::read_to_string(path(self.name, "decoded.txt")).unwrap();
        let words = |line: &str| {
            line.split_whitespace()
                .skip(2)
                .collect::<Vec<_>>()
                .join(" ")
        };
        text.lines()
            .filter(|line| line.contains(kind))
            .map(words)
            .collect()
    }

    pub(crate) fn read_by_target(&self, rkey: u32, address: u64) -> &[u8] {
        &self.read[&(rkey, address)]
    }

    pub(crate) fn payloads(&self) -> impl Iterator<Item = (&Sqe, &[u8])> {
        self.commands
            .iter()
            .filter(|command| command.qid == 0)
            .filter_map(|command| {
                let (sqe, _) = Sqe::split_capsule(&command.capsule)?;
                let Ok(Sgl::Keyed { address, rkey, .. }) = sqe.dptr.parse() else {
                    return None;
                };
                Some((sqe, self.written.get(&(rkey, address))?.as_slice()))
            })
    }

    pub(crate) fn command_of(&self, completion: &Capsule) -> &Capsule {
        let cid = Cqe::ref_from_bytes(&completion.capsule).unwrap().cid;
        let matches = |command: &&Capsule| {
            command.connection == completion.connection
                && command.frame < completion.frame
                && Sqe::split_capsule(&command.capsule).unwrap().0.cid == cid
        };
        self.commands
            .iter()
            .rev()
            .find(matches)
            .expect("a response answers a command")
    }

    fn take(&mut self, packet: &Packet<'_>) {
        match packet.opcode {
            0x64 => self.take_mad(packet),
            0x11 => {}
            _ => self.take_message(packet),
        }
    }

    fn take_mad(&mut self, packet: &Packet<'_>) {
        const REQ: u16 = 0x10;
        const REP: u16 = 0x13;
        const IP_CM_HEADER_BYTES: usize = 36;

        let mad = &packet.rest[8..];
        let body = &mad[24..];
        match u16::from_be_bytes([mad[16], mad[17]]) {
            REQ => {
                let private_data = &body[140..][IP_CM_HEADER_BYTES..];
                self.requests.push((packet.frame, private_data.to_vec()));
                self.connections.push(Connection {
                    qid: RequestData::parse(private_data).unwrap().qid.get(),
                    host: packet.source,
                    host_comm_id: be32(&body[0..]),
                    host_qpn: be32(&body[32..]) >> 8,
                    target_qpn: 0,
                    from_host: Flow::default(),
                    from_target: Flow::default(),
                });
            }
            REP => {
                self.replies.push((packet.frame, body[36..].to_vec()));
                let connection = self
                    .connections
                    .iter_mut()
                    .find(|c| c.host_comm_id == be32(&body[4..]))
                    .expect("a reply answers a request");
                connection.target_qpn = be32(&body[12..]) >> 8;
            }
            _ => {}
        }
    }

    fn take_message(&mut self, packet: &Packet<'_>) {
        let (index, connection) = self
            .connections
            .iter_mut()
            .enumerate()
            .find(|(_, c)| {
                let from_host = packet.source == c.host;
                packet.dest_qpn == if from_host { c.target_qpn } else { c.host_qpn }
            })
            .expect("a packet belongs to a connection");
        let from_host = packet.source == connection.host;
        let (flow, other) = if from_host {
            (&mut connection.from_host, &mut connection.from_target)
        } else {
            (&mut connection.from_target, &mut connection.from_host)
        };
        match packet.opcode {
            0x00 | 0x01 | 0x02 | 0x04 | 0x16 | 0x17 => {
                if let Some((frame, first_packet_bytes, capsule, invalidated)) = flow.send(packet) {
                    let qid = connection.qid;
                    let list = if from_host {
                        &mut self.commands
                    } else {
                        &mut self.completions
                    };
                    list.push(Capsule {
                        frame,
                        connection: index,
                        qid,
                        capsule,
                        first_packet_bytes,
                        invalidated,
                    });
                }
            }
            0x06..=0x08 | 0x0a => {
                if let Some((place, data)) = flow.write(packet) {
                    let before = self.written.insert(place, data);
                    assert!(before.is_none(), "a key is used once");
                }
            }
            0x0c => flow.read = Some((reth(packet.rest), Vec::new())),
            0x0d..=0x10 => {
                if let Some((place, data)) = other.read_response(packet) {
                    self.read.insert(place, data);
                }
            }
            opcode => panic!("frame {}: BTH opcode {opcode:#x}", packet.frame),
        }
    }
}

impl Flow {
    fn send(&mut self, packet: &Packet<'_>) -> Option<(usize, usize, Vec<u8>, Option<u32>)> {
        let invalidates = matches!(packet.opcode, 0x16 | 0x17);
        let (ieth, data) = packet.rest.split_at(if invalidates { 4 } else { 0 });
        if matches!(packet.opcode, 0x00 | 0x04 | 0x17) {
            self.send = Some((packet.frame, data.len(), Vec::new()));
        }
        self.send
            .as_mut()
            .expect("a message has a first packet")
            .2
            .extend_from_slice(data);
        if matches!(packet.opcode, 0x00 | 0x01) {
            return None;
        }
        let (frame, first, message) = self.send.take()?;
        Some((frame, first, message, invalidates.then(|| be32(ieth))))
    }

    fn write(&mut self, packet: &Packet<'_>) -> Option<((u32, u64), Vec<u8>)> {
        let starts = matches!(packet.opcode, 0x06 | 0x0a);
        if starts {
            self.write = Some((reth(packet.rest), Vec::new()));
        }
        let data = &packet.rest[if starts { 16 } else { 0 }..];
        self.write
            .as_mut()
            .expect("a message has a first packet")
            .1
            .extend_from_slice(data);
        if matches!(packet.opcode, 0x08 | 0x0a) {
            self.write.take()
        } else {
            None
        }
    }

    fn read_response(&mut self, packet: &Packet<'_>) -> Option<((u32, u64), Vec<u8>)> {
        let data = &packet.rest[if packet.opcode == 0x0e { 0 } else { 4 }..];
        self.read
            .as_mut()
            .expect("a response has a request")
            .1
            .extend_from_slice(data);
        if matches!(packet.opcode, 0x0f | 0x10) {
            self.read.take()
        } else {
            None
        }
    }
}

fn path(name: &str, extension: &str) -> PathBuf {
    let captures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/captures");
    captures.join(format!("{name}.{extension}"))
}

fn roce_packet(number: usize, frame: &[u8]) -> Option<Packet<'_>> {
    const ICRC_BYTES: usize = 4;

    let ip = &frame[14..];
    if frame[12..14] != [0x08, 0x00] || ip[9] != 17 {
        return None;
    }
    let total = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let udp = &ip[usize::from(ip[0] & 0xf) * 4..total];
    if udp[2..4] != 4791u16.to_be_bytes() {
        return None;
    }
    let (bth, rest) = udp[8..].split_at(12);
    let padding = usize::from(bth[1] >> 4 & 0b11);
    Some(Packet {
        frame: number,
        source: Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]),
        opcode: bth[0],
        dest_qpn: be32(&bth[4..]) & 0x00ff_ffff,
        rest: &rest[..rest.len() - ICRC_BYTES - padding],
    })
}

fn reth(bytes: &[u8]) -> (u32, u64) {
    (
        be32(&bytes[8..]),
        u64::from_be_bytes(bytes[..8].try_into().unwrap()),
    )
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}
