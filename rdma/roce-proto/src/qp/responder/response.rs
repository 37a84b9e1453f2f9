use cairn_rdma::Access;

use crate::qp::memory::Refused;
use crate::qp::train::Train;
use crate::qp::{Context, psn};
use crate::wire::{Aeth, Opcode, Packet, Reth, Syndrome};

#[derive(Debug, Clone, Copy)]
pub(super) enum Response {
    Acknowledge {
        sequence: u64,
        syndrome: Syndrome,
        msn: u32,
    },
    Read(ReadResponse),
    Atomic {
        result: AtomicResult,
        msn: u32,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ReadResponse {
    pub(super) first: u64,
    pub(super) packets: u64,
    pub(super) left: u64,
    pub(super) reth: Reth,
    pub(super) msn: u32,
    pub(super) repeated: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct AtomicResult {
    pub(super) sequence: u64,
    pub(super) original: u64,
}

impl Response {
    pub(super) fn is_nak(&self) -> bool {
        let syndrome = match self {
            Self::Acknowledge { syndrome, .. } => *syndrome,
            Self::Read(_) | Self::Atomic { .. } => Syndrome::Ack,
        };
        syndrome != Syndrome::Ack
    }

    pub(super) fn sequence(&self) -> u64 {
        match self {
            Self::Acknowledge { sequence, .. } => *sequence,
            Self::Read(response) => response.first,
            Self::Atomic { result, .. } => result.sequence,
        }
    }
}

impl ReadResponse {
    pub(super) fn emit(
        &mut self,
        dest_qpn: u32,
        mtu: u32,
        out: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Result<usize, Refused> {
        let offset = (self.left * u64::from(mtu)) as u32;
        let payload = (self.reth.dma_len - offset).min(mtu) as usize;
        let opcode = match (self.left == 0, self.left + 1 == self.packets) {
            (true, true) => Opcode::ReadResponseOnly,
            (true, false) => Opcode::ReadResponseFirst,
            (false, true) => Opcode::ReadResponseLast,
            (false, false) => Opcode::ReadResponseMiddle,
        };
        let psn = psn::to_wire(self.first + self.left);
        let mut packet = Packet::new(opcode, dest_qpn, psn);
        packet.aeth = opcode.has_aeth().then_some(aeth(Syndrome::Ack, self.msn));
        let at = packet.emit_headers(payload, out);
        let end = at + payload;
        let va = self.reth.va.wrapping_add(u64::from(offset));
        let bytes = &mut out[at..end];
        cx.memory
            .read(self.reth.rkey, va, bytes, Access::REMOTE_READ)?;
        let after = u64::from(self.reth.dma_len - offset - payload as u32).min(u64::from(mtu));
        if after > 0 {
            let va = va.wrapping_add(payload as u64);
            cx.memory
                .prefetch(self.reth.rkey, va, after, Access::REMOTE_READ);
        }
        let pad = usize::from(out[1] >> 4 & 3);
        out[end..end + pad].fill(0);
        self.left += 1;
        Ok(end + pad)
    }

    /// Writes middle packets of a response that has begun, one into each `stride` bytes of `out`,
    /// and returns their number.
    pub(super) fn emit_train(
        &mut self,
        mut train: Train,
        mtu: u32,
        out: &mut [u8],
        cx: &mut Context<'_>,
    ) -> usize {
        let before = self.left;
        let left = if before > 0 {
            self.packets - 1 - before
        } else {
            0
        };
        for room in out.chunks_exact_mut(train.stride()).take(left as usize) {
            let offset = self.left * u64::from(mtu);
            let va = self.reth.va.wrapping_add(offset);
            let payload = train.begin(psn::to_wire(self.first + self.left), room);
            let (rkey, right) = (self.reth.rkey, Access::REMOTE_READ);
            if cx.memory.read(rkey, va, payload, right).is_err() {
                break;
            }
            let after = (u64::from(self.reth.dma_len) - offset - u64::from(mtu)).min(mtu.into());
            let next = va.wrapping_add(mtu.into());
            cx.memory.prefetch(rkey, next, after, right);
            self.left += 1;
        }
        (self.left - before) as usize
    }
}

pub(super) fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth {
        syndrome: syndrome.code(),
        msn,
    }
}
