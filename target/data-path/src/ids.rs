#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct QpairId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl QpairId {
    pub(crate) const NONE: Self = Self {
        index: u32::MAX,
        generation: 0,
    };
}

pub(crate) type ShareId = usize;
