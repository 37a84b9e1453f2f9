use cairn_base::slab::Key;

pub type QpairId = Key;

pub(crate) type ShareId = usize;
