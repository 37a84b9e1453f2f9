//! BTH, the first header of every packet (IBTA 9.2).

use cairn_rdma::PKey;

use super::{Header, field};

const PKEY_AT: usize = 2;
const PSN_AT: usize = 9;

/// Sets the P_Key of a written packet.
pub fn set_pkey(packet: &mut [u8], pkey: PKey) {
    field::put(packet, PKEY_AT, &pkey.bits().to_be_bytes());
}

/// Sets the PSN of a written packet.
pub fn set_psn(packet: &mut [u8], psn: u32) {
    field::put_u24(packet, PSN_AT, psn);
}

/// Returns the DestQP of a packet, or `None` if its BTH is incomplete.
#[must_use]
#[inline]
pub fn dest_qpn(packet: &[u8]) -> Option<u32> {
    let b = packet.first_chunk::<{ Bth::LEN }>()?;
    Some(field::u24(b, 5))
}

/// Base transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bth {
    /// Received OpCode, possibly unsupported.
    pub opcode: u8,
    /// SE: the receiver's completion raises an event.
    pub solicited: bool,
    /// MigReq: 1 means Migrated; ignored on receipt, because rdma_rxe sends 0.
    pub mig_req: bool,
    /// PadCnt: bytes that pad the payload to a multiple of 4.
    pub pad: u8,
    /// TVer: always 0.
    pub version: u8,
    /// P_Key.
    pub pkey: u16,
    /// FECN; reserved in RoCE v2, except in CNPs.
    pub fecn: bool,
    /// BECN: set in a CNP (annex A17.9.3).
    pub becn: bool,
    /// DestQP.
    pub dest_qpn: u32,
    /// A: requests an acknowledgement.
    pub ack_req: bool,
    /// PSN.
    pub psn: u32,
}

impl Bth {
    /// Creates a header with default fields and the default partition.
    #[must_use]
    pub const fn new(opcode: u8, dest_qpn: u32, psn: u32) -> Self {
        Self {
            opcode,
            solicited: false,
            mig_req: false,
            pad: 0,
            version: 0,
            pkey: PKey::DEFAULT.bits(),
            fecn: false,
            becn: false,
            dest_qpn,
            ack_req: false,
            psn,
        }
    }
}

impl Header for Bth {
    const LEN: usize = 12;

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        // The constant length saves a check for each field.
        let b: &[u8; Self::LEN] = bytes.first_chunk().expect("the length is LEN");
        Self {
            opcode: b[0],
            solicited: b[1] & 0x80 != 0,
            mig_req: b[1] & 0x40 != 0,
            pad: b[1] >> 4 & 3,
            version: b[1] & 0xf,
            pkey: field::u16(b, PKEY_AT),
            fecn: b[4] & 0x80 != 0,
            becn: b[4] & 0x40 != 0,
            dest_qpn: field::u24(b, 5),
            ack_req: b[8] & 0x80 != 0,
            psn: field::u24(b, PSN_AT),
        }
    }

    #[inline]
    fn write(&self, out: &mut [u8]) {
        let out: &mut [u8; Self::LEN] = out.first_chunk_mut().expect("the length is LEN");
        out[0] = self.opcode;
        out[1] = u8::from(self.solicited) << 7
            | u8::from(self.mig_req) << 6
            | (self.pad & 3) << 4
            | self.version & 0xf;
        field::put(out, PKEY_AT, &self.pkey.to_be_bytes());
        out[4] = u8::from(self.fecn) << 7 | u8::from(self.becn) << 6;
        field::put_u24(out, 5, self.dest_qpn);
        out[8] = u8::from(self.ack_req) << 7;
        field::put_u24(out, PSN_AT, self.psn);
    }
}
