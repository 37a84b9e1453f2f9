use super::QueuePair;
use crate::ids::QpairId;

#[derive(Debug)]
struct Entry {
    generation: u32,
    qpair: Option<QueuePair>,
}

#[derive(Debug, Default)]
pub(crate) struct Qpairs {
    entries: Vec<Entry>,
    free: Vec<u32>,
    first_generation: u32,
}

impl Qpairs {
    /// Creates an empty table whose ids never equal those of `other`.
    pub(crate) fn after(other: &Self) -> Self {
        let generations = other.entries.iter().map(|entry| entry.generation + 1);
        Self {
            first_generation: generations.fold(other.first_generation, u32::max),
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, qpair: QueuePair) -> QpairId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry {
                generation: self.first_generation,
                qpair: None,
            });
            self.entries.len() as u32 - 1
        });
        let entry = &mut self.entries[index as usize];
        entry.qpair = Some(qpair);
        QpairId {
            index,
            generation: entry.generation,
        }
    }

    pub(crate) fn remove(&mut self, id: QpairId) -> QueuePair {
        let entry = &mut self.entries[id.index as usize];
        assert_eq!(entry.generation, id.generation, "{id:?} is gone");
        entry.generation += 1;
        self.free.push(id.index);
        entry.qpair.take().expect("a queue pair of this generation")
    }

    #[inline]
    pub(crate) fn get(&self, id: QpairId) -> Option<&QueuePair> {
        let entry = self.entries.get(id.index as usize)?;
        entry
            .qpair
            .as_ref()
            .filter(|_| entry.generation == id.generation)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = QpairId> + '_ {
        self.entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.qpair.is_some())
            .map(|(index, entry)| QpairId {
                index: index as u32,
                generation: entry.generation,
            })
    }
}

#[cold]
fn is_gone(id: QpairId) -> ! {
    panic!("{id:?} is gone: a queue pair stays until its last request has ended");
}

impl std::ops::Index<QpairId> for Qpairs {
    type Output = QueuePair;

    #[inline]
    fn index(&self, id: QpairId) -> &QueuePair {
        self.get(id).unwrap_or_else(|| is_gone(id))
    }
}

impl std::ops::IndexMut<QpairId> for Qpairs {
    #[inline]
    fn index_mut(&mut self, id: QpairId) -> &mut QueuePair {
        let entry = &mut self.entries[id.index as usize];
        match &mut entry.qpair {
            Some(qpair) if entry.generation == id.generation => qpair,
            _ => is_gone(id),
        }
    }
}
