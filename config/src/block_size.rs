#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockSize {
    B512,
    B4096,
}

impl BlockSize {
    #[must_use]
    pub fn bytes(self) -> u32 {
        1 << self.shift()
    }

    /// Returns LBADS, the binary logarithm of the block size (NVM 1.0, figure 98).
    #[must_use]
    pub fn shift(self) -> u8 {
        match self {
            Self::B512 => 9,
            Self::B4096 => 12,
        }
    }
}
