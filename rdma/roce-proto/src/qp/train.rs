use cairn_rdma::PKey;

use crate::wire::packet::ICRC_LEN;
use crate::wire::{Bth, Header, Opcode, Packet, bth};

/// Header of successive middle packets, which differ only in PSN and payload.
#[derive(Debug)]
pub(super) struct Train {
    headers: [u8; Bth::LEN],
    payload: usize,
}

impl Train {
    pub(super) fn new(opcode: Opcode, dest_qpn: u32, pkey: PKey, mtu: u32) -> Self {
        let (mut headers, payload) = ([0; Bth::LEN], mtu as usize);
        Packet::new(opcode, dest_qpn, 0).emit_headers(payload, &mut headers);
        bth::set_pkey(&mut headers, pkey);
        Self { headers, payload }
    }

    /// Returns the bytes of a packet with its ICRC.
    pub(super) fn stride(&self) -> usize {
        Bth::LEN + self.payload + ICRC_LEN
    }

    /// Writes the header, and returns the place of the payload.
    pub(super) fn begin<'a>(&mut self, psn: u32, room: &'a mut [u8]) -> &'a mut [u8] {
        bth::set_psn(&mut self.headers, psn);
        let (head, rest) = room.split_at_mut(Bth::LEN);
        head.copy_from_slice(&self.headers);
        &mut rest[..self.payload]
    }
}
