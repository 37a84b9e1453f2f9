use std::ops::Range;

use cairn_sim::Random;

#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) nsid: u32,
    pub(crate) block_bytes: u32,
    blocks: Vec<Block>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    content: Content,
    readers: u32,
    writer: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Zeroes,
    Of(u64),
    /// A write ended without a completion: the block may have old or new contents.
    Unknown,
}

impl Disk {
    pub(crate) fn new(nsid: u32, block_bytes: u32, blocks: usize) -> Self {
        let block = Block {
            content: Content::Zeroes,
            readers: 0,
            writer: false,
        };
        Self {
            nsid,
            block_bytes,
            blocks: vec![block; blocks],
        }
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// True if a command may start: a read overlaps no outstanding write, and a write overlaps no
    /// outstanding command (Base, 3.3.2).
    pub(crate) fn is_free(&self, range: &Range<usize>, writes: bool) -> bool {
        let free = |block: &Block| !(block.writer || writes && block.readers > 0);
        self.blocks[range.clone()].iter().all(free)
    }

    pub(crate) fn take(&mut self, range: &Range<usize>, writes: bool) {
        for block in &mut self.blocks[range.clone()] {
            if writes {
                block.writer = true;
            } else {
                block.readers += 1;
            }
        }
    }

    pub(crate) fn give_back(&mut self, range: &Range<usize>, writes: bool) {
        for block in &mut self.blocks[range.clone()] {
            if writes {
                block.writer = false;
            } else {
                block.readers -= 1;
            }
        }
    }

    pub(crate) fn bytes(&self, range: &Range<usize>) -> Option<Vec<u8>> {
        let mut bytes = Vec::with_capacity(range.len() * self.block_bytes as usize);
        for block in &self.blocks[range.clone()] {
            match block.content {
                Content::Zeroes => bytes.resize(bytes.len() + self.block_bytes as usize, 0),
                Content::Of(seed) => bytes.extend(self.block_of(seed)),
                Content::Unknown => return None,
            }
        }
        Some(bytes)
    }

    pub(crate) fn differs(&self, range: &Range<usize>, found: &[u8]) -> Option<usize> {
        let found = found.chunks_exact(self.block_bytes as usize);
        let mut blocks = range.clone().zip(found);
        let differs = |(block, found): (usize, &[u8])| {
            let same = match self.blocks[block].content {
                Content::Zeroes => found.iter().all(|byte| *byte == 0),
                Content::Of(seed) => found == self.block_of(seed),
                Content::Unknown => true,
            };
            (!same).then_some(block)
        };
        blocks.find_map(differs)
    }

    pub(crate) fn fresh(&self, range: &Range<usize>, seed: u64) -> Vec<u8> {
        let seeds = seed..seed + range.len() as u64;
        seeds.flat_map(|seed| self.block_of(seed)).collect()
    }

    pub(crate) fn written(&mut self, range: &Range<usize>, seed: u64) {
        for (block, seed) in self.blocks[range.clone()].iter_mut().zip(seed..) {
            block.content = Content::Of(seed);
        }
    }

    pub(crate) fn zeroed(&mut self, range: &Range<usize>) {
        self.blocks[range.clone()]
            .iter_mut()
            .for_each(|block| block.content = Content::Zeroes);
    }

    pub(crate) fn lost(&mut self, range: &Range<usize>) {
        self.blocks[range.clone()]
            .iter_mut()
            .for_each(|block| block.content = Content::Unknown);
    }

    fn block_of(&self, seed: u64) -> Vec<u8> {
        Random::new(seed.wrapping_mul(0x9e37_79b9)).bytes(self.block_bytes as usize)
    }
}
