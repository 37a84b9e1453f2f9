//! What became of disks, for programs that look at it from time to time.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

/// Notices that are kept: as many as SPDK keeps.
const NOTICES_MAX: usize = 1024;

const REGISTER: &str = "bdev_register";
const UNREGISTER: &str = "bdev_unregister";
const RESIZE: &str = "bdev_resize";
/// All kinds.
pub(super) const KINDS: [&str; 3] = [REGISTER, UNREGISTER, RESIZE];

/// The latest notices. Each has the next number, which no other gets.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The number of the next one.
    next: u64,
    /// The latest, the oldest first.
    latest: VecDeque<(&'static str, String)>,
    /// The disks, with their blocks, as they were last seen.
    disks: BTreeMap<String, u64>,
}

impl Notices {
    /// Compares the disks with those that were seen before.
    pub(super) fn note(&mut self, disks: BTreeMap<String, u64>) {
        let before = std::mem::replace(&mut self.disks, disks);
        let mut found = Vec::new();
        for name in before.keys().filter(|name| !self.disks.contains_key(*name)) {
            found.push((UNREGISTER, name.clone()));
        }
        for (name, blocks) in &self.disks {
            match before.get(name) {
                None => found.push((REGISTER, name.clone())),
                // A disk has no size until it is a namespace.
                Some(before) if before != blocks && *before != 0 => {
                    found.push((RESIZE, name.clone()));
                }
                Some(_) => {}
            }
        }
        for notice in found {
            if self.latest.len() == NOTICES_MAX {
                self.latest.pop_front();
            }
            self.latest.push_back(notice);
            self.next += 1;
        }
    }

    /// At most `max` notices from this number on, or from the oldest that is kept.
    pub(super) fn from(&self, id: u64, max: u64) -> Value {
        let first = self.next - self.latest.len() as u64;
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        let notices = (first..).zip(&self.latest);
        let wanted = notices.filter(|(number, _)| *number >= id).take(max);
        let shown =
            wanted.map(|(number, (kind, name))| json!({"type": kind, "ctx": name, "id": number}));
        shown.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(all: &[(&str, u64)]) -> BTreeMap<String, u64> {
        let all = all.iter();
        all.map(|(name, blocks)| ((*name).to_owned(), *blocks))
            .collect()
    }

    #[test]
    fn what_changed_is_noted_once() {
        let mut notices = Notices::default();
        notices.note(disks(&[("a", 8), ("b", 0)]));
        notices.note(disks(&[("a", 8), ("b", 0)]));
        notices.note(disks(&[("a", 16), ("b", 4)]));
        notices.note(disks(&[("b", 4)]));
        let all = json!([
            {"type": REGISTER, "ctx": "a", "id": 0},
            {"type": REGISTER, "ctx": "b", "id": 1},
            {"type": RESIZE, "ctx": "a", "id": 2},
            {"type": UNREGISTER, "ctx": "a", "id": 3},
        ]);
        assert_eq!(notices.from(0, u64::MAX), all);
        assert_eq!(notices.from(2, 1), json!([all[2]]));
        assert_eq!(notices.from(4, 9), json!([]));
    }

    #[test]
    fn numbers_go_on_when_the_oldest_are_dropped() {
        let mut notices = Notices::default();
        for round in 0..1000 {
            notices.note(disks(&[("a", 8)]));
            notices.note(disks(&[]));
            assert_eq!(notices.from(2 * round, 9).as_array().unwrap().len(), 2);
        }
        let kept = notices.from(0, u64::MAX);
        let kept = kept.as_array().unwrap();
        assert_eq!(kept.len(), NOTICES_MAX);
        assert_eq!(
            (&kept[0]["id"], &kept[1023]["id"]),
            (&json!(976), &json!(1999))
        );
    }
}
