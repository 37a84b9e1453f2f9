use std::collections::HashSet;

use super::{Id, Value, ZEROES};

#[derive(Debug)]
pub(super) struct Register {
    pending: Vec<Pending>,
    states: HashSet<State>,
    /// Whether the remaining history contains a crash. Without a crash, durability of writes has no
    /// effect.
    pub(super) crash_ahead: bool,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    id: Id,
    action: Action,
}

#[derive(Debug, Clone, Copy)]
enum Action {
    Read(Value),
    Write { value: Value, durable: bool },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct State {
    /// Pending operations that have taken effect, ascending.
    taken: Vec<Id>,
    /// Values that can survive a crash, oldest first. The last is current.
    trail: Vec<Value>,
    /// Unfinished flushes and durable writes, each with a position in the trail. Their success
    /// removes the values before that position.
    marks: Vec<(Id, usize)>,
}

impl State {
    fn current(&self) -> Value {
        *self.trail.last().expect("something is there")
    }

    fn write(&mut self, value: Value, keep: bool) {
        if !keep {
            self.trail.clear();
            self.marks.clear();
        }
        for at in (0..self.trail.len()).rev() {
            let marked = self.marks.iter().any(|(_, mark)| *mark == at);
            if self.trail[at] == value && !marked {
                self.trail.remove(at);
                for (_, mark) in &mut self.marks {
                    *mark -= usize::from(*mark > at);
                }
            }
        }
        self.trail.push(value);
    }

    fn mark(&mut self, id: Id) {
        self.marks.push((id, self.trail.len() - 1));
    }

    fn unmark(&mut self, id: Id, durable: bool) {
        let Some(at) = self.marks.iter().position(|(mark, _)| *mark == id) else {
            return;
        };
        let (_, first) = self.marks.swap_remove(at);
        if durable {
            self.trail.drain(..first);
            self.marks.retain(|(_, mark)| *mark >= first);
            for (_, mark) in &mut self.marks {
                *mark -= first;
            }
        }
    }
}

impl Register {
    pub(super) fn new() -> Self {
        let state = State {
            taken: Vec::new(),
            trail: vec![ZEROES],
            marks: Vec::new(),
        };
        Self {
            pending: Vec::new(),
            states: HashSet::from([state]),
            crash_ahead: false,
        }
    }

    pub(super) fn is_impossible(&self) -> bool {
        self.states.is_empty()
    }

    pub(super) fn read_begins(&mut self, id: Id, value: Value) {
        let action = Action::Read(value);
        self.pending.push(Pending { id, action });
    }

    pub(super) fn write_begins(&mut self, id: Id, value: Value, durable: bool) {
        let action = Action::Write { value, durable };
        self.pending.push(Pending { id, action });
    }

    pub(super) fn ends(&mut self, id: Id, certain: bool) {
        let Some(at) = self.pending.iter().position(|pending| pending.id == id) else {
            return;
        };
        let mut reached = HashSet::new();
        for state in std::mem::take(&mut self.states) {
            self.follow(state, id, certain, &mut reached);
        }
        self.pending.swap_remove(at);
        let forget = |mut state: State| {
            state.taken.retain(|taken| *taken != id);
            state.unmark(id, certain);
            state
        };
        self.states = reached.into_iter().map(forget).collect();
    }

    fn follow(&self, state: State, last: Id, certain: bool, reached: &mut HashSet<State>) {
        let mut seen = HashSet::from([state.clone()]);
        let mut open = vec![state];
        while let Some(state) = open.pop() {
            if state.taken.contains(&last) {
                reached.insert(state);
                continue;
            }
            if !certain {
                reached.insert(state.clone());
            }
            for pending in &self.pending {
                if let Some(next) = self.step(&state, *pending)
                    && seen.insert(next.clone())
                {
                    open.push(next);
                }
            }
        }
    }

    fn step(&self, state: &State, pending: Pending) -> Option<State> {
        if state.taken.contains(&pending.id) {
            return None;
        }
        let mut next = state.clone();
        match pending.action {
            Action::Read(value) if value != state.current() => return None,
            Action::Read(_) => {}
            Action::Write { value, durable } => {
                next.write(value, self.crash_ahead);
                if durable && self.crash_ahead {
                    next.mark(pending.id);
                }
            }
        }
        next.taken.push(pending.id);
        next.taken.sort_unstable();
        Some(next)
    }

    pub(super) fn flush_begins(&mut self, id: Id) {
        if !self.crash_ahead {
            return;
        }
        let mark = |mut state: State| {
            state.mark(id);
            state
        };
        self.states = std::mem::take(&mut self.states)
            .into_iter()
            .map(mark)
            .collect();
    }

    pub(super) fn flush_ends(&mut self, id: Id, durable: bool) {
        let unmark = |mut state: State| {
            state.unmark(id, durable);
            state
        };
        self.states = std::mem::take(&mut self.states)
            .into_iter()
            .map(unmark)
            .collect();
    }

    pub(super) fn crash(&mut self) {
        let mut left = HashSet::new();
        for state in &self.states {
            left.extend(state.trail.iter().copied());
        }
        for pending in self.pending.drain(..) {
            if let Action::Write { value, .. } = pending.action {
                left.insert(value);
            }
        }
        let state = |value| State {
            taken: Vec::new(),
            trail: vec![value],
            marks: Vec::new(),
        };
        self.states = left.into_iter().map(state).collect();
    }
}
