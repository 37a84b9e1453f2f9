//! A bad wire on purpose: what leaves an endpoint is lost, repeated, reordered
//! or damaged, by a seed.

use super::send::Flow;

/// How bad, in packets of a thousand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultOptions {
    /// Lost.
    pub loss_per_mille: u16,
    /// Sent twice.
    pub duplication_per_mille: u16,
    /// With one bit flipped.
    pub corruption_per_mille: u16,
    /// Sent after their successor.
    pub reordering_per_mille: u16,
    /// Where chance begins.
    pub seed: u64,
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pass,
    Drop,
    Duplicate,
    Corrupt { bit: u32 },
    Hold,
}

/// The wire's ill will.
#[derive(Debug)]
pub struct Fault {
    options: FaultOptions,
    state: u64,
    held: Option<(Flow, Vec<u8>)>,
}

impl Fault {
    /// With a stream of chance of its own.
    #[must_use]
    pub fn new(options: FaultOptions, stream: u64) -> Self {
        let state = (options.seed ^ stream.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self {
            options,
            state: state | 1,
            held: None,
        }
    }

    fn random(&mut self) -> u32 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    pub(super) fn judge(&mut self) -> Verdict {
        let mut at = self.random() % 1000;
        let bit = self.random();
        let options = &self.options;
        for (chance, verdict) in [
            (options.loss_per_mille, Verdict::Drop),
            (options.duplication_per_mille, Verdict::Duplicate),
            (options.corruption_per_mille, Verdict::Corrupt { bit }),
            (options.reordering_per_mille, Verdict::Hold),
        ] {
            if at < u32::from(chance) {
                let taken = verdict == Verdict::Hold && self.held.is_some();
                return if taken { Verdict::Pass } else { verdict };
            }
            at -= u32::from(chance);
        }
        Verdict::Pass
    }

    pub(super) fn hold(&mut self, flow: &Flow, packet: &[u8]) {
        self.held = Some((*flow, packet.to_vec()));
    }

    /// Copies what is held back to the front of `out`.
    pub(super) fn release(&mut self, out: &mut [u8]) -> Option<(Flow, usize)> {
        let (flow, packet) = self.held.take()?;
        out[..packet.len()].copy_from_slice(&packet);
        Some((flow, packet.len()))
    }
}
