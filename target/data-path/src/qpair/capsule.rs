use nvme_proto::wire::Sqe;

use crate::ids::QpairId;

/// Capsule that waits for a free request, tokens or its fused partner.
#[derive(Debug)]
pub(crate) struct Capsule {
    pub(crate) qpair: QpairId,
    /// Receive slot; `None` once reposted.
    pub(crate) slot: Option<u32>,
    pub(crate) sqe: Sqe,
    pub(crate) data_bytes: u32,
    pub(crate) seen_ns: u64,
    /// Compare command fused with the Write in `sqe`.
    pub(crate) first: Option<Box<Self>>,
}

impl Capsule {
    pub(crate) fn is_data_dropped(&self) -> bool {
        let is_dropped = |capsule: &Self| capsule.data_bytes > 0 && capsule.slot.is_none();
        is_dropped(self) || self.first.as_deref().is_some_and(is_dropped)
    }

    pub(crate) fn drop_data(&mut self) -> impl Iterator<Item = u32> + use<> {
        let slot = (self.data_bytes > 0).then(|| self.slot.take()).flatten();
        let first = self.first.as_mut().and_then(|first| {
            let has_data = first.data_bytes > 0;
            has_data.then(|| first.slot.take()).flatten()
        });
        slot.into_iter().chain(first)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = u32> + use<> {
        let first = self.first.as_ref().and_then(|first| first.slot);
        self.slot.into_iter().chain(first)
    }

    pub(crate) fn commands(&self) -> usize {
        1 + usize::from(self.first.is_some())
    }
}
