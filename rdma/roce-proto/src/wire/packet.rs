//! Transport packet: BTH, extended headers, payload and pad.

use super::cm::LongSend;
use super::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Header, Ieth, ImmDt, Opcode, Reth, Syndrome,
};

/// Length of the ICRC, in bytes.
pub const ICRC_LEN: usize = 4;

/// Maximum length in bytes of headers, pad and ICRC.
pub const MAX_OVERHEAD: usize = Bth::LEN + AtomicEth::LEN + 4 + ICRC_LEN;

/// Maximum length in bytes of a packet from the BTH to the ICRC.
pub const MAX_LEN: usize = LongSend::MAX.bytes() as usize + MAX_OVERHEAD;

/// Packet from the BTH to the pad.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Base header; its `opcode` equals [`Packet::opcode`].
    pub bth: Bth,
    /// Opcode of the BTH.
    pub opcode: Opcode,
    /// Header of datagrams.
    pub deth: Option<Deth>,
    /// Header of READ requests and of a WRITE's first packet.
    pub reth: Option<Reth>,
    /// Header of responses, except READ middle packets.
    pub aeth: Option<Aeth>,
    /// Header of atomic requests.
    pub atomic: Option<AtomicEth>,
    /// Header of atomic responses.
    pub atomic_ack: Option<AtomicAckEth>,
    /// Immediate data of a last packet.
    pub immediate: Option<ImmDt>,
    /// Header of last packets with a key to invalidate.
    pub ieth: Option<Ieth>,
    /// Payload without the pad.
    pub payload: &'a [u8],
}

/// Reason for which a packet cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// The packet is shorter than its headers and pad.
    Short,
    /// Transport version (TVer) other than 0 (IBTA 9.6.1.1).
    Version,
    /// Unsupported opcode.
    Opcode(u8),
}

impl<'a> Packet<'a> {
    /// Creates a packet with only a BTH.
    #[must_use]
    pub const fn new(opcode: Opcode, dest_qpn: u32, psn: u32) -> Self {
        let mut bth = Bth::new(opcode.code(), dest_qpn, psn);
        // MigReq (Migrated) is set, because no alternate path exists (IBTA 17.2.8.1.1). Adapters
        // process packets without MigReq slowly.
        bth.mig_req = !opcode.is_datagram();
        Self {
            bth,
            opcode,
            deth: None,
            reth: None,
            aeth: None,
            atomic: None,
            atomic_ack: None,
            immediate: None,
            ieth: None,
            payload: &[],
        }
    }

    /// Sets the opcode, also in the BTH.
    pub const fn set_opcode(&mut self, opcode: Opcode) {
        self.opcode = opcode;
        self.bth.opcode = opcode.code();
    }

    /// Parses the bytes before the ICRC.
    ///
    /// # Errors
    /// [`Malformed`]: the caller drops the packet without an answer.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (bth, mut rest) = Bth::parse(bytes).ok_or(Malformed::Short)?;
        if bth.version != 0 {
            return Err(Malformed::Version);
        }
        let opcode = Opcode::from_code(bth.opcode).ok_or(Malformed::Opcode(bth.opcode))?;
        let mut this = Self::new(opcode, bth.dest_qpn, bth.psn);
        this.bth = bth;
        if !opcode.is_bare() {
            this.parse_headers(&mut rest)?;
        }
        let length = rest.len().checked_sub(usize::from(bth.pad));
        this.payload = &rest[..length.ok_or(Malformed::Short)?];
        Ok(this)
    }

    fn parse_headers(&mut self, rest: &mut &[u8]) -> Result<(), Malformed> {
        let opcode = self.opcode;
        if opcode.has_reth() {
            self.reth = Some(take(rest)?);
        }
        if opcode.has_aeth() {
            self.aeth = Some(take(rest)?);
        }
        if opcode.has_ieth() {
            self.ieth = Some(take(rest)?);
        }
        if opcode.has_deth() {
            self.deth = Some(take(rest)?);
        }
        if opcode.has_atomic_eth() {
            self.atomic = Some(take(rest)?);
        }
        if opcode.has_atomic_ack_eth() {
            self.atomic_ack = Some(take(rest)?);
        }
        if opcode.has_immdt() {
            self.immediate = Some(take(rest)?);
        }
        Ok(())
    }

    /// Writes headers, payload and pad to `out`, and returns the length in bytes.
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let pad = pad_of(self.payload.len());
        let headers = self.emit_headers(self.payload.len(), out);
        let end = headers + self.payload.len();
        out[headers..end].copy_from_slice(self.payload);
        out[end..end + pad].fill(0);
        end + pad
    }

    /// Writes the headers for `payload_len` payload bytes, and returns the length in bytes.
    #[inline]
    pub fn emit_headers(&self, payload_len: usize, out: &mut [u8]) -> usize {
        let room = out.len();
        let bth = Bth {
            pad: pad_of(payload_len) as u8,
            ..self.bth
        };
        let mut rest = bth.emit(out);
        rest = put(self.deth.as_ref(), rest);
        rest = put(self.reth.as_ref(), rest);
        rest = put(self.aeth.as_ref(), rest);
        rest = put(self.atomic.as_ref(), rest);
        rest = put(self.atomic_ack.as_ref(), rest);
        rest = put(self.immediate.as_ref(), rest);
        rest = put(self.ieth.as_ref(), rest);
        room - rest.len()
    }

    /// Returns the syndrome, or `None` if it is reserved or the packet has no AETH.
    #[must_use]
    pub fn syndrome(&self) -> Option<Syndrome> {
        Syndrome::from_code(self.aeth?.syndrome)
    }
}

/// Returns the number of pad bytes behind a payload (PadCnt, IBTA 9.2.1).
#[must_use]
pub const fn pad_of(payload_len: usize) -> usize {
    payload_len.wrapping_neg() & 3
}

fn take<H: Header>(rest: &mut &[u8]) -> Result<H, Malformed> {
    let (header, after) = H::parse(rest).ok_or(Malformed::Short)?;
    *rest = after;
    Ok(header)
}

fn put<'a, H: Header>(header: Option<&H>, out: &'a mut [u8]) -> &'a mut [u8] {
    match header {
        Some(header) => header.emit(out),
        None => out,
    }
}
