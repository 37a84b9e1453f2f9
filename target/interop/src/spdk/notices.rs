//! Notices of added, removed and resized bdevs, for clients that poll.

use std::collections::{BTreeMap, VecDeque};

use cairn_control::{Error, Nothing, read};
use serde_json::{Value, json};

use super::parameters::NoticesOf;
use super::{Answer, Params};
use crate::Control;

const NOTICES_MAX: usize = 1024;

const REGISTER: &str = "bdev_register";
const UNREGISTER: &str = "bdev_unregister";
const RESIZE: &str = "bdev_resize";
const KINDS: [&str; 3] = [REGISTER, UNREGISTER, RESIZE];

pub(super) async fn call(control: &impl Control, method: &str, params: Params) -> Answer {
    match method {
        "notify_get_types" => {
            read::<Nothing>(params)?;
            Ok(json!(KINDS))
        }
        "notify_get_notifications" => {
            let NoticesOf { id, max } = read(params)?;
            control.notices(id, max.unwrap_or(u64::MAX)).await
        }
        _ => Err(Error::no_method()),
    }
}

#[derive(Debug, Default)]
pub struct Notices {
    next: u64,
    latest: VecDeque<(&'static str, String)>,
    disks: Disks,
}

/// By name: block count of the last bdev with this name, and number of such bdevs.
pub(super) type Disks = BTreeMap<String, (u64, usize)>;

pub(super) fn by_name(all: impl Iterator<Item = (String, u64)>) -> Disks {
    let mut disks = Disks::new();
    for (name, blocks) in all {
        let (last, count) = disks.entry(name).or_default();
        (*last, *count) = (blocks, *count + 1);
    }
    disks
}

impl Notices {
    /// Adds a notice for each difference between `disks` and the bdevs of the previous call.
    pub fn note(&mut self, disks: Disks) {
        let before = std::mem::replace(&mut self.disks, disks);
        let mut found = Vec::new();
        for name in before.keys().filter(|name| !self.disks.contains_key(*name)) {
            found.push((UNREGISTER, name.clone()));
        }
        for (name, (blocks, _)) in &self.disks {
            match before.get(name) {
                None => found.push((REGISTER, name.clone())),
                // A file without a namespace has size 0, so its first known size is no resize.
                Some((before, _)) if before != blocks && *before != 0 => {
                    found.push((RESIZE, name.clone()));
                }
                Some(_) => {}
            }
        }
        for notice in found {
            self.push(notice);
        }
    }

    /// Records added disks. Returns false if one has the name of a disk of another size; the caller
    /// must then call [`Notices::note`].
    pub fn note_added(&mut self, added: impl Iterator<Item = (String, u64)>) -> bool {
        for (name, blocks) in added {
            match self.disks.get_mut(&name) {
                Some((before, _)) if *before != blocks && *before != 0 => return false,
                Some((before, count)) => (*before, *count) = (blocks, *count + 1),
                None => {
                    self.push((REGISTER, name.clone()));
                    self.disks.insert(name, (blocks, 1));
                }
            }
        }
        true
    }

    /// Records removed disks. Returns false if a disk is unknown, or if another bdev of its name
    /// has another size: the caller must then call [`Notices::note`].
    pub fn note_removed(&mut self, removed: impl Iterator<Item = (String, u64)>) -> bool {
        for (name, blocks) in removed {
            match self.disks.get_mut(&name) {
                Some((last, count)) if *count > 1 && *last == blocks => *count -= 1,
                Some((_, 1)) => {
                    self.disks.remove(&name);
                    self.push((UNREGISTER, name));
                }
                _ => return false,
            }
        }
        true
    }

    fn push(&mut self, notice: (&'static str, String)) {
        if self.latest.len() == NOTICES_MAX {
            self.latest.pop_front();
        }
        self.latest.push_back(notice);
        self.next += 1;
    }

    pub fn from(&self, id: u64, max: u64) -> Value {
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

    fn named<'a>(all: &'a [(&str, u64)]) -> impl Iterator<Item = (String, u64)> + use<'a> {
        let all = all.iter();
        all.map(|(name, blocks)| ((*name).to_owned(), *blocks))
    }

    fn disks(all: &[(&str, u64)]) -> Disks {
        by_name(named(all))
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
    fn what_is_added_is_noted_as_a_look_at_all_notes_it() {
        let mut notices = Notices::default();
        notices.note(disks(&[("a", 8), ("b", 0)]));
        assert!(notices.note_added(named(&[("b", 4), ("c", 2), ("a", 8)])));
        assert!(!notices.note_added(named(&[("c", 3)])));
        notices.note(disks(&[("a", 8), ("b", 4), ("c", 2)]));
        let last = json!([{"type": REGISTER, "ctx": "c", "id": 2}]);
        assert_eq!(notices.from(2, u64::MAX), last);
    }

    #[test]
    fn what_is_removed_is_noted_as_a_look_at_all_notes_it() {
        let mut notices = Notices::default();
        notices.note(disks(&[("a", 8), ("b", 4), ("a", 8), ("c", 2), ("c", 3)]));
        assert!(notices.note_removed(named(&[("b", 4), ("a", 8)])));
        let gone = json!([{"type": UNREGISTER, "ctx": "b", "id": 3}]);
        assert_eq!(notices.from(3, u64::MAX), gone);
        assert!(notices.note_added(named(&[("a", 8)])));
        assert!(notices.note_removed(named(&[("a", 8), ("a", 8)])));
        let gone = json!([{"type": UNREGISTER, "ctx": "a", "id": 4}]);
        assert_eq!(notices.from(4, u64::MAX), gone);
        assert!(!notices.note_removed(named(&[("c", 2)])));
        assert!(!notices.note_removed(named(&[("none", 2)])));
        notices.note(disks(&[]));
        assert_eq!(notices.from(5, u64::MAX)[0]["ctx"], "c");
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
