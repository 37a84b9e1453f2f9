use std::hash::Hasher;

/// Hasher for numbers chosen by devices or by the owner of an endpoint, so that peers cannot cause
/// collisions.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // Multiplicative hash (Knuth, TAOCP, 6.4): the factor is 2^64 divided by the golden ratio.
        // The map uses low bits, into which the high bits are folded.
        let product = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}
