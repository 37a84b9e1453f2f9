//! Operations of hosts on a namespace, with its unfinished writes.

use std::ops::Range;

use cairn_sim::Random;

use crate::history::{End, GARBAGE, History, Id, Kind, Value, ZEROES};

/// Maximum unfinished writes of a block. A higher number slows the check without finding more bugs.
const OPEN_MAX: u8 = 3;

pub(super) struct Ledger {
    pub(super) nsid: u32,
    pub(super) block_bytes: usize,
    pub(super) history: History,
    pub(super) hangs: bool,
    open: Vec<u8>,
}

impl Ledger {
    pub(super) fn new(nsid: u32, block_bytes: usize, blocks: usize, hangs: bool) -> Self {
        Self {
            nsid,
            block_bytes,
            hangs,
            history: History::default(),
            open: vec![0; blocks],
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.open.len()
    }

    pub(super) fn may_write(&self, blocks: &Range<usize>) -> bool {
        self.open[blocks.clone()]
            .iter()
            .all(|open| *open < OPEN_MAX)
    }

    pub(super) fn begin(&mut self, who: &str, kind: Kind, blocks: &Range<usize>) -> Id {
        if kind.writes() {
            self.open[blocks.clone()]
                .iter_mut()
                .for_each(|open| *open += 1);
        }
        self.history.begin(who, kind, blocks.clone())
    }

    pub(super) fn end(&mut self, id: Id, end: End) {
        self.history.end(id, end);
        self.close(id);
    }

    pub(super) fn overlaps(&self, id: Id, blocks: &Range<usize>) -> bool {
        let (_, own) = self.history.operation(id);
        own.start < blocks.end && blocks.start < own.end
    }

    pub(super) fn dead(&mut self, id: Id) {
        self.history.dead(id);
        self.close(id);
    }

    fn close(&mut self, id: Id) {
        let (kind, blocks) = self.history.operation(id);
        if kind.writes() {
            self.open[blocks].iter_mut().for_each(|open| *open -= 1);
        }
    }

    pub(super) fn bytes(&self, first: Value, blocks: usize) -> Vec<u8> {
        (first..first + blocks as u64)
            .flat_map(|value| bytes_of(value, self.block_bytes))
            .collect()
    }

    pub(super) fn values(&self, bytes: &[u8]) -> Vec<Value> {
        bytes.chunks_exact(self.block_bytes).map(value_of).collect()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let checked = self.history.check(self.blocks());
        checked.map_err(|violation| format!("namespace {}, {violation}", self.nsid))
    }
}

fn bytes_of(value: Value, length: usize) -> Vec<u8> {
    if value == ZEROES {
        return vec![0; length];
    }
    let mut bytes = Random::new(value).bytes(length);
    bytes[..8].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn value_of(bytes: &[u8]) -> Value {
    let value = bytes
        .first_chunk()
        .map_or(GARBAGE, |first| Value::from_le_bytes(*first));
    if bytes == bytes_of(value, bytes.len()) {
        value
    } else {
        GARBAGE
    }
}

#[test]
fn a_block_shows_its_value_or_that_it_is_torn() {
    for value in [ZEROES, 1, 0x0123_4567_89ab_cdef] {
        let bytes = bytes_of(value, 512);
        assert_eq!(value_of(&bytes), value);
        let torn = [&bytes[..256], &bytes_of(value + 1, 512)[256..]].concat();
        assert_eq!(value_of(&torn), GARBAGE);
    }
}
