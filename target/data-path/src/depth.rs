//! Limit on a disk's commands in progress, divided among reactors.

use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug, Default)]
struct Part {
    in_progress: AtomicU32,
    wanting: AtomicU32,
}

#[derive(Debug)]
pub struct Depth {
    /// Maximum commands in progress; 0 means no limit.
    most: AtomicU32,
    parts: Box<[Part]>,
}

impl Depth {
    pub(crate) fn new(most: Option<u32>, reactors: usize) -> Self {
        Self {
            most: AtomicU32::new(most.unwrap_or(0)),
            parts: (0..reactors).map(|_| Part::default()).collect(),
        }
    }

    pub fn set(&self, most: Option<u32>) {
        self.most.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn is_limited(&self) -> bool {
        self.most.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a host of weight `weight` may start a command. Reactors divide the limit in
    /// proportion to the weights of their waiting hosts. A reactor with no command in progress may
    /// always start one, because it checks again only when a command completes.
    pub(crate) fn allows(&self, reactor: usize, weight: u32) -> bool {
        let most = u64::from(self.most.load(Ordering::Relaxed));
        let (in_progress, wanting) = self.of(reactor);
        if most == 0 || in_progress == 0 {
            return true;
        }
        let all = (0..self.parts.len()).map(|one| self.of(one));
        let (taken, wanted) = all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let (others, own) = (wanted - wanting, wanting.max(weight.into()));
        taken < most && (others == 0 || (in_progress + 1) * (own + others) <= most * own)
    }

    fn of(&self, reactor: usize) -> (u64, u64) {
        let part = &self.parts[reactor];
        let [in_progress, wanting] =
            [&part.in_progress, &part.wanting].map(|count| count.load(Ordering::Relaxed).into());
        (in_progress, wanting)
    }

    pub(crate) fn tell(&self, reactor: usize, in_progress: u32, wanting: u32) {
        let part = &self.parts[reactor];
        part.in_progress.store(in_progress, Ordering::Relaxed);
        part.wanting.store(wanting, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_limit_all_may_go_in() {
        let depth = Depth::new(None, 2);
        depth.tell(0, 1000, 0);
        depth.tell(1, 1000, 5);
        assert!(!depth.is_limited() && depth.allows(0, 1));
    }

    #[test]
    fn reactors_have_the_parts_of_their_hosts_while_both_want_more() {
        let depth = Depth::new(Some(8), 2);
        depth.tell(0, 7, 1);
        assert!(depth.allows(0, 1), "nobody else wants any");
        depth.tell(0, 8, 1);
        assert!(!depth.allows(0, 1));
        assert!(depth.allows(1, 3), "one may always have one");
        depth.tell(1, 1, 3);
        assert!(!depth.allows(1, 3), "the disk is full");
        depth.tell(0, 5, 1);
        assert!(!depth.allows(0, 1) && depth.allows(1, 3));
        depth.tell(0, 1, 1);
        assert!(depth.allows(0, 1));
        depth.tell(0, 2, 1);
        assert!(!depth.allows(0, 1));
        depth.tell(1, 5, 3);
        assert!(depth.allows(1, 3));
        depth.tell(1, 6, 3);
        assert!(!depth.allows(1, 3));
        depth.tell(1, 2, 0);
        assert!(depth.allows(0, 1));
    }
}
