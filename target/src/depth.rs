//! How many commands a disk has at a time, where its namespace limits that: what reactors show each other of it.

use std::sync::atomic::{AtomicU32, Ordering};

/// What one reactor has of a disk.
#[derive(Debug, Default)]
struct Part {
    /// Commands that the disk has.
    inside: AtomicU32,
    /// The weights of the hosts whose commands wait.
    wanting: AtomicU32,
}

/// The limit, and each reactor's part of it.
#[derive(Debug)]
pub(crate) struct Depth {
    /// 0: no limit.
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

    /// Another limit, from the next command on.
    pub(crate) fn set(&self, most: Option<u32>) {
        self.most.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    /// Whether there is one.
    #[inline(always)]
    pub(crate) fn is_limited(&self) -> bool {
        self.most.load(Ordering::Relaxed) != 0
    }

    /// Whether a reactor may have one more, for a host of that weight. Who has none may always have one, so that its end
    /// is the time to look again. While hosts of other reactors wait, each reactor has the part of its hosts' weights.
    pub(crate) fn allows(&self, reactor: usize, weight: u32) -> bool {
        let most = u64::from(self.most.load(Ordering::Relaxed));
        let (inside, wanting) = self.of(reactor);
        if most == 0 || inside == 0 {
            return true;
        }
        let all = (0..self.parts.len()).map(|one| self.of(one));
        let (taken, wanted) = all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let (others, own) = (wanted - wanting, wanting.max(weight.into()));
        taken < most && (others == 0 || (inside + 1) * (own + others) <= most * own)
    }

    fn of(&self, reactor: usize) -> (u64, u64) {
        let part = &self.parts[reactor];
        let [inside, wanting] =
            [&part.inside, &part.wanting].map(|count| count.load(Ordering::Relaxed).into());
        (inside, wanting)
    }

    /// What a reactor has from now on.
    pub(crate) fn tell(&self, reactor: usize, inside: u32, wanting: u32) {
        let part = &self.parts[reactor];
        part.inside.store(inside, Ordering::Relaxed);
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
        // The first has more than its two of eight, the second less than its six.
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
        // Once all its commands are inside, the rest is the first one's.
        depth.tell(1, 2, 0);
        assert!(depth.allows(0, 1));
    }
}
