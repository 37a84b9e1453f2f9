use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use crate::wire::identify::{Ctratt, IdentifyController};
use crate::wire::{NSID_ALL, NvmOpcode, Sqe};

const KATO_NONE: Duration = Duration::from_secs(5);
const CQT_NONE: Duration = Duration::from_secs(1);
const EVERYTHING: Range<u64> = 0..u64::MAX;

/// Maximum time in which a controller executes commands after their connection closed.
///
/// KATO (5 s if 0), rounded up to KAS, plus CQT (1 s if 0). With CTRATT.TBKAS, KATO counts twice,
/// because the controller may check for traffic only once per interval. Valid only if the
/// controller enforces its keep alive timer.
#[must_use]
pub fn time_in_doubt(kato_ms: u32, controller: &IdentifyController) -> Duration {
    let unit_ms = u64::from(controller.kas.get().max(1)) * 100;
    let kato = match u64::from(kato_ms) {
        0 => KATO_NONE,
        ms => Duration::from_millis(ms.div_ceil(unit_ms) * unit_ms),
    };
    let kato = match Ctratt(controller.ctratt.get()).tbkas() {
        true => 2 * kato,
        false => kato,
    };
    let cqt = match controller.cqt.get() {
        0 => CQT_NONE,
        ms => Duration::from_millis(ms.into()),
    };
    kato + cqt
}

/// Returns the blocks that a command may change; `None` for no change. An unlisted command may
/// change the whole namespace.
fn changed_blocks(sqe: &Sqe) -> Option<Range<u64>> {
    match NvmOpcode(sqe.opc) {
        NvmOpcode::FLUSH
        | NvmOpcode::READ
        | NvmOpcode::COMPARE
        | NvmOpcode::VERIFY
        | NvmOpcode::CANCEL
        | NvmOpcode::RESERVATION_REGISTER
        | NvmOpcode::RESERVATION_REPORT
        | NvmOpcode::RESERVATION_ACQUIRE
        | NvmOpcode::RESERVATION_RELEASE => None,
        NvmOpcode::WRITE | NvmOpcode::WRITE_ZEROES | NvmOpcode::WRITE_UNCORRECTABLE => {
            let slba = sqe.cdw10_11();
            let blocks = u64::from(sqe.cdw12.get() as u16) + 1;
            Some(slba..slba.saturating_add(blocks))
        }
        _ => Some(EVERYTHING),
    }
}

#[derive(Clone, Debug)]
struct Doubt {
    nsid: u32,
    blocks: Range<u64>,
    until: Duration,
    source: u64,
}

/// Blocks that commands of lost paths may still change, with expiry times.
#[derive(Debug)]
pub struct Doubts {
    /// Length is at most the initial capacity: the list never reallocates.
    list: Vec<Doubt>,
}

impl Doubts {
    /// Creates an empty list of at most `most` ranges. If the list is full, [`add`](Self::add)
    /// replaces all ranges by one that covers all namespaces.
    ///
    /// # Panics
    /// If `most` is 0.
    #[must_use]
    pub fn new(most: usize) -> Self {
        assert!(most > 0, "a doubt needs a place");
        Self {
            list: Vec::with_capacity(most),
        }
    }

    /// Records an unanswered command that the controller may execute until `until`.
    pub fn add(&mut self, sqe: &Sqe, until: Duration) {
        self.add_from(0, sqe, until);
    }

    /// Like [`add`](Self::add); [`release`](Self::release) of association `source` removes the
    /// range, unless `source` is 0.
    pub fn add_from(&mut self, source: u64, sqe: &Sqe, until: Duration) {
        let Some(blocks) = changed_blocks(sqe) else {
            return;
        };
        let nsid = sqe.nsid.get();
        self.put(Doubt {
            nsid,
            blocks,
            until,
            source,
        });
    }

    /// Moves the ranges of `others` into this list.
    pub fn take(&mut self, others: &mut Self) {
        for doubt in others.list.drain(..) {
            self.put(doubt);
        }
    }

    fn put(&mut self, mut doubt: Doubt) {
        if self.list.len() == self.list.capacity() {
            let last = self.list.iter().map(|doubt| doubt.until).max();
            doubt.until = last.map_or(doubt.until, |last| last.max(doubt.until));
            (doubt.nsid, doubt.blocks) = (NSID_ALL, EVERYTHING);
            if self.list.iter().any(|other| other.source != doubt.source) {
                doubt.source = 0;
            }
            self.list.clear();
        }
        self.list.push(doubt);
    }

    /// True if the command must wait: it changes blocks that a recorded command may change.
    #[must_use]
    pub fn hold(&self, sqe: &Sqe) -> bool {
        !self.list.is_empty()
            && changed_blocks(sqe).is_some_and(|blocks| {
                let overlap = |of: &Range<u64>| of.start < blocks.end && blocks.start < of.end;
                let same = |nsid| [sqe.nsid.get(), NSID_ALL].contains(&nsid);
                let mut list = self.list.iter();
                list.any(|doubt| same(doubt.nsid) && overlap(&doubt.blocks))
            })
    }

    /// True if a range of `source` is recorded.
    #[must_use]
    pub fn has(&self, source: u64) -> bool {
        self.list.iter().any(|doubt| doubt.source == source)
    }

    /// Removes the ranges of `source`, whose controller no longer executes commands.
    pub fn release(&mut self, source: u64) {
        self.list
            .retain(|doubt| doubt.source == 0 || doubt.source != source);
    }

    /// Removes expired ranges.
    pub fn expire(&mut self, now: Duration) {
        self.list.retain(|doubt| now < doubt.until);
    }

    /// Time of the next expiry.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.list.iter().map(|doubt| doubt.until).min()
    }

    /// True if no range is recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::FromZeros;

    const SECOND: Duration = Duration::from_secs(1);

    fn sqe(opcode: NvmOpcode, slba: u64, blocks: u32) -> Sqe {
        let mut sqe = Sqe::new_zeroed();
        sqe.opc = opcode.0;
        sqe.cdw10.set(slba as u32);
        sqe.cdw11.set((slba >> 32) as u32);
        sqe.cdw12.set(blocks - 1);
        sqe
    }

    fn write(slba: u64, blocks: u32) -> Sqe {
        sqe(NvmOpcode::WRITE, slba, blocks)
    }

    #[test]
    fn what_overlaps_waits_and_what_does_not_goes() {
        let mut doubts = Doubts::new(4);
        doubts.add(&write(1 << 40, 8), 3 * SECOND);
        for (command, held) in [
            (write(1 << 40, 8), true),
            (write((1 << 40) - 1, 2), true),
            (write((1 << 40) + 7, 1), true),
            (write((1 << 40) - 1, 1), false),
            (write((1 << 40) + 8, 1), false),
            (sqe(NvmOpcode::WRITE_ZEROES, 1 << 40, 1), true),
            (sqe(NvmOpcode::DATASET_MANAGEMENT, 0, 1), true),
            (sqe(NvmOpcode(0xc1), 0, 1), true),
            (sqe(NvmOpcode::READ, 1 << 40, 8), false),
            (sqe(NvmOpcode::FLUSH, 0, 1), false),
            (sqe(NvmOpcode::RESERVATION_ACQUIRE, 0, 1), false),
        ] {
            assert_eq!(doubts.hold(&command), held, "{command:?}");
        }
        assert_eq!(doubts.deadline(), Some(3 * SECOND));
        doubts.expire(3 * SECOND - Duration::from_nanos(1));
        assert!(doubts.hold(&write(1 << 40, 8)));
        doubts.expire(3 * SECOND);
        assert!(doubts.is_empty() && !doubts.hold(&write(1 << 40, 8)));
    }

    #[test]
    fn other_namespaces_do_not_wait_and_doubts_can_be_handed_on() {
        let mut doubts = Doubts::new(1);
        let (mut one, mut two) = (write(0, 1), write(0, 1));
        one.nsid.set(1);
        two.nsid.set(2);
        doubts.add(&one, SECOND);
        assert!(doubts.hold(&one) && !doubts.hold(&two));
        let mut all = Doubts::new(2);
        all.take(&mut doubts);
        assert!(doubts.is_empty() && all.hold(&one));
        doubts.add(&one, SECOND);
        doubts.add(&one, 2 * SECOND);
        assert!(doubts.hold(&two), "too many count as all");
    }

    #[test]
    fn a_lost_read_is_no_doubt_and_a_lost_trim_is_one_of_everything() {
        let mut doubts = Doubts::new(4);
        doubts.add(&sqe(NvmOpcode::READ, 0, 8), SECOND);
        doubts.add(&sqe(NvmOpcode::FLUSH, 0, 8), SECOND);
        assert!(doubts.is_empty());
        doubts.add(&sqe(NvmOpcode::DATASET_MANAGEMENT, 0, 1), SECOND);
        assert!(doubts.hold(&write(1 << 50, 1)));
        doubts.add(&write(u64::MAX, 65536), SECOND);
    }

    #[test]
    fn too_many_count_as_one_that_lasts_as_long_as_all() {
        let mut doubts = Doubts::new(2);
        doubts.add(&write(0, 1), 5 * SECOND);
        doubts.add(&write(1, 1), SECOND);
        doubts.add(&write(2, 1), 2 * SECOND);
        doubts.expire(4 * SECOND);
        assert!(doubts.hold(&write(77, 1)));
        doubts.expire(5 * SECOND);
        assert!(doubts.is_empty());
    }

    #[test]
    fn a_release_concerns_its_source_only() {
        let mut doubts = Doubts::new(3);
        doubts.add_from(1, &write(0, 1), SECOND);
        doubts.add_from(2, &write(0, 1), SECOND);
        doubts.release(1);
        assert!(doubts.hold(&write(0, 1)) && !doubts.has(1));
        doubts.release(2);
        assert!(doubts.is_empty());
        for source in [1, 1, 1, 1, 2, 1, 1] {
            doubts.add_from(source, &write(0, 1), SECOND);
        }
        doubts.release(1);
        doubts.release(2);
        doubts.release(0);
        assert!(doubts.hold(&write(77, 1)), "too many of several sources");
    }

    #[test]
    fn the_time_follows_from_what_the_controller_reports() {
        let mut id = IdentifyController::new_zeroed();
        let ms = Duration::from_millis;
        id.kas.set(10);
        assert_eq!(time_in_doubt(4500, &id), ms(5000 + 1000));
        id.ctratt.set(Ctratt(0).with_tbkas(true).0);
        id.cqt.set(250);
        assert_eq!(time_in_doubt(5000, &id), ms(10_000 + 250));
        assert_eq!(time_in_doubt(0, &id), ms(10_000 + 250));
        id.kas.set(0);
        assert_eq!(time_in_doubt(1, &id), ms(200 + 250));
        assert!(time_in_doubt(u32::MAX, &id) > Duration::from_secs(86_400));
    }
}
