//! Table of values with generational keys.
//!
//! The key of a removed value finds nothing until the slot's generation counter wraps around.
//! Insertion, removal and lookup take constant time. Only a growing slab ([`Slab::growing`])
//! allocates memory after creation.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hash;

/// Generation counter of a slot, which wraps around.
pub trait Generation: Copy + Ord + Hash + fmt::Debug {
    /// Generation of the first value in a slot.
    const FIRST: Self;

    /// Returns the generation after this one.
    #[must_use]
    fn next(self) -> Self;
}

impl Generation for u16 {
    const FIRST: Self = 0;

    #[inline]
    fn next(self) -> Self {
        self.wrapping_add(1)
    }
}

impl Generation for u32 {
    const FIRST: Self = 0;

    #[inline]
    fn next(self) -> Self {
        self.wrapping_add(1)
    }
}

/// Key of a value in a [`Slab`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key<G = u32> {
    /// Index of the slot. Slots are numbered from 0 without gaps.
    pub index: u32,
    /// Number of earlier values in the slot, plus the slab's first generation.
    pub generation: G,
}

impl<G: Generation> Key<G> {
    /// Key that finds no value in any slab.
    pub const NONE: Self = Self {
        index: u32::MAX,
        generation: G::FIRST,
    };
}

/// Vacant slot to reuse first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reuse {
    /// The slot vacated last, whose memory is still in the caches.
    Latest,
    /// The slot vacant for the longest time, so that a key is repeated as late as possible.
    Oldest,
}

/// Values with generational keys.
#[derive(Debug)]
pub struct Slab<T, G = u32> {
    slots: Vec<Slot<T, G>>,
    vacant: VecDeque<u32>,
    reuse: Reuse,
    first_generation: G,
    grows: bool,
}

#[derive(Debug)]
struct Slot<T, G> {
    generation: G,
    value: Option<T>,
}

impl<T, G: Generation> Slab<T, G> {
    /// Creates a slab of at most `limit` values, and allocates all its memory.
    #[must_use]
    pub fn with_limit(limit: u32, reuse: Reuse) -> Self {
        let slot = |_| Slot {
            generation: G::FIRST,
            value: None,
        };
        Self {
            slots: (0..limit).map(slot).collect(),
            vacant: match reuse {
                Reuse::Latest => (0..limit).rev().collect(),
                Reuse::Oldest => (0..limit).collect(),
            },
            reuse,
            first_generation: G::FIRST,
            grows: false,
        }
    }

    /// Creates an unlimited slab that reuses the slot vacated last.
    #[must_use]
    pub const fn growing() -> Self {
        Self {
            slots: Vec::new(),
            vacant: VecDeque::new(),
            reuse: Reuse::Latest,
            first_generation: G::FIRST,
            grows: true,
        }
    }

    /// Creates an empty growing slab whose keys all differ from those used by `other`.
    #[must_use]
    pub fn after(other: &Self) -> Self {
        let generations = other.slots.iter().map(|slot| slot.generation.next());
        Self {
            first_generation: generations.fold(other.first_generation, G::max),
            ..Self::growing()
        }
    }

    /// Returns the key of the next inserted value, or `None` if the slab is full.
    #[must_use]
    #[inline]
    pub fn vacant(&self) -> Option<Key<G>> {
        let vacant = match self.reuse {
            Reuse::Latest => self.vacant.back(),
            Reuse::Oldest => self.vacant.front(),
        };
        match vacant {
            Some(&index) => Some(Key {
                index,
                generation: self.slots[index as usize].generation,
            }),
            None if self.grows => Some(Key {
                index: self.slots.len() as u32,
                generation: self.first_generation,
            }),
            None => None,
        }
    }

    /// Adds a value.
    ///
    /// # Panics
    /// The slab is full: see [`Self::vacant`].
    #[inline]
    pub fn insert(&mut self, value: T) -> Key<G> {
        let key = self.vacant().expect("the slab has a vacant slot");
        let popped = match self.reuse {
            Reuse::Latest => self.vacant.pop_back(),
            Reuse::Oldest => self.vacant.pop_front(),
        };
        if popped.is_none() {
            self.slots.push(Slot {
                generation: key.generation,
                value: None,
            });
        }
        self.slots[key.index as usize].value = Some(value);
        key
    }

    /// Removes a value. A stale key removes nothing.
    #[inline]
    pub fn remove(&mut self, key: Key<G>) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.next();
        self.vacant.push_back(key.index);
        Some(value)
    }

    /// Returns a value by its key.
    #[must_use]
    #[inline]
    pub fn get(&self, key: Key<G>) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        let value = slot.value.as_ref();
        value.filter(|_| slot.generation == key.generation)
    }

    /// Returns a value by its key.
    #[must_use]
    #[inline]
    pub fn get_mut(&mut self, key: Key<G>) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        let value = slot.value.as_mut();
        value.filter(|_| slot.generation == key.generation)
    }

    /// Returns the current value of a slot, with its key.
    #[must_use]
    #[inline]
    pub fn at(&self, index: u32) -> Option<(Key<G>, &T)> {
        let Slot { generation, value } = self.slots.get(index as usize)?;
        let generation = *generation;
        let value = value.as_ref()?;
        Some((Key { index, generation }, value))
    }

    /// Returns the current value of a slot, with its key.
    #[must_use]
    #[inline]
    pub fn at_mut(&mut self, index: u32) -> Option<(Key<G>, &mut T)> {
        let Slot { generation, value } = self.slots.get_mut(index as usize)?;
        let generation = *generation;
        let value = value.as_mut()?;
        Some((Key { index, generation }, value))
    }

    /// Returns the number of values.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// True if there are no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of occupied and vacant slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns all values, in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Key<G>, &T)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| {
            let generation = slot.generation;
            let value = slot.value.as_ref()?;
            Some((Key { index, generation }, value))
        })
    }

    /// Returns all values, in the order of their slots.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let slots = self.slots.iter_mut();
        slots.filter_map(|slot| slot.value.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use proptest::prelude::*;

    use super::*;

    const LIMIT: u32 = 4;

    #[derive(Debug, Clone)]
    enum Step {
        Insert,
        Remove(prop::sample::Index),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            Just(Step::Insert),
            any::<prop::sample::Index>().prop_map(Step::Remove),
        ];
        prop::collection::vec(step, 1..200)
    }

    fn slabs() -> impl Strategy<Value = Slab<usize, u16>> {
        (0..3).prop_map(|kind| match kind {
            0 => Slab::growing(),
            1 => Slab::with_limit(LIMIT, Reuse::Latest),
            _ => Slab::with_limit(LIMIT, Reuse::Oldest),
        })
    }

    proptest! {
        #[test]
        fn each_key_finds_its_own_value_and_no_later_one(mut slab in slabs(), steps in steps()) {
            let mut model: HashMap<Key<u16>, usize> = HashMap::new();
            let mut ever: Vec<Key<u16>> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert => {
                        let Some(expected) = slab.vacant() else {
                            prop_assert_eq!(model.len(), LIMIT as usize);
                            continue;
                        };
                        let key = slab.insert(number);
                        prop_assert_eq!(key, expected);
                        prop_assert!(!ever.contains(&key), "{:?} was another value's", key);
                        ever.push(key);
                        model.insert(key, number);
                    }
                    Step::Remove(_) if ever.is_empty() => {}
                    Step::Remove(at) => {
                        let key = *at.get(&ever);
                        prop_assert_eq!(slab.remove(key), model.remove(&key));
                    }
                }
                prop_assert_eq!(slab.len(), model.len());
                for key in &ever {
                    prop_assert_eq!(slab.get(*key), model.get(key));
                    prop_assert_eq!(slab.get_mut(*key).copied(), model.get(key).copied());
                    let there = slab.at(key.index).filter(|(now, _)| now == key);
                    prop_assert_eq!(there.map(|(_, value)| value), model.get(key));
                }
            }
            let all: HashMap<_, _> = slab.iter().map(|(key, value)| (key, *value)).collect();
            prop_assert_eq!(&all, &model);
            let next = Slab::after(&slab);
            prop_assert!(next.first_generation > 0 || ever.is_empty());
            prop_assert!(ever.iter().all(|key| key.generation < next.first_generation));
        }
    }

    #[test]
    fn the_order_of_reuse_is_as_chosen() {
        let indices = |reuse| {
            let mut slab: Slab<(), u16> = Slab::with_limit(3, reuse);
            let keys = [(); 3].map(|()| slab.insert(()));
            assert_eq!(keys.map(|key| key.index), [0, 1, 2]);
            for at in [1, 0, 2] {
                slab.remove(keys[at]);
            }
            [(); 3].map(|()| slab.insert(()).index)
        };
        assert_eq!(indices(Reuse::Latest), [2, 0, 1]);
        assert_eq!(indices(Reuse::Oldest), [1, 0, 2]);
    }

    #[test]
    fn a_key_is_repeated_only_after_all_generations() {
        let mut slab: Slab<(), u16> = Slab::with_limit(1, Reuse::Latest);
        let mut seen = HashSet::new();
        for _ in 0..=u16::MAX {
            let key = slab.insert(());
            assert!(seen.insert(key));
            slab.remove(key);
        }
        assert!(seen.contains(&slab.insert(())));
    }

    #[test]
    fn a_slab_with_a_limit_allocates_no_more() {
        let mut slab: Slab<u64> = Slab::with_limit(LIMIT, Reuse::Oldest);
        let capacities = |slab: &Slab<u64>| (slab.slots.capacity(), slab.vacant.capacity());
        let before = capacities(&slab);
        for number in 0..100 {
            let key = slab.insert(number);
            slab.remove(key);
        }
        let all: Vec<Key> = (0..u64::from(LIMIT)).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.vacant(), None);
        for key in all {
            slab.remove(key);
        }
        assert_eq!(capacities(&slab), before);
    }

    #[test]
    fn no_value_has_the_key_none() {
        let mut slab: Slab<u64> = Slab::growing();
        slab.insert(1);
        assert_eq!(slab.get(Key::NONE), None);
        assert_eq!(slab.remove(Key::NONE), None);
    }
}
