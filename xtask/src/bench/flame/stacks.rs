//! Stack samples of perf, merged into a call tree.

#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) root: Frame,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) is_kernel: bool,
    pub(super) samples: u64,
    pub(super) called: Vec<Frame>,
}

impl Tree {
    /// Parses the output of `perf script -F comm,ip,sym`.
    ///
    /// A sample is a line with the thread's name, a line per frame from the innermost outwards, and
    /// an empty line.
    pub(super) fn of_script(text: &str, thread: &str) -> Self {
        let mut tree = Self::default();
        thread.clone_into(&mut tree.root.name);
        for block in text.split("\n\n") {
            let mut lines = block.lines().filter(|line| !line.is_empty());
            let is_ours = lines
                .next()
                .is_some_and(|name| name.trim().starts_with(thread));
            let mut frames: Vec<(String, bool)> = lines.filter_map(frame).collect();
            if !is_ours || frames.is_empty() {
                continue;
            }
            frames.reverse();
            let start = frames.iter().rposition(|(name, _)| is_start(name));
            tree.add(&frames[start.map_or(0, |at| at + 1)..]);
        }
        tree
    }

    pub(super) fn samples(&self) -> u64 {
        self.root.samples
    }

    fn add(&mut self, frames: &[(String, bool)]) {
        self.root.samples += 1;
        let mut at = &mut self.root;
        for (name, is_kernel) in frames {
            let known = at.called.iter().position(|frame| frame.name == *name);
            let index = known.unwrap_or_else(|| {
                at.called.push(Frame {
                    name: name.clone(),
                    is_kernel: *is_kernel,
                    ..Frame::default()
                });
                at.called.len() - 1
            });
            at = &mut at.called[index];
            at.samples += 1;
        }
    }

    pub(super) fn hottest(&self, count: usize) -> String {
        let mut own: Vec<(&str, u64)> = Vec::new();
        let mut left = vec![&self.root];
        while let Some(frame) = left.pop() {
            let below: u64 = frame.called.iter().map(|frame| frame.samples).sum();
            let samples = frame.samples - below;
            match own.iter_mut().find(|(name, _)| *name == frame.name) {
                Some((_, sum)) => *sum += samples,
                None => own.push((&frame.name, samples)),
            }
            left.extend(&frame.called);
        }
        own.sort_by_key(|(_, samples)| std::cmp::Reverse(*samples));
        let share = |samples: u64| 100.0 * samples as f64 / self.samples().max(1) as f64;
        own.iter()
            .take(count)
            .map(|(name, samples)| format!("{:>6.1} %  {name}\n", share(*samples)))
            .collect()
    }
}

fn frame(line: &str) -> Option<(String, bool)> {
    let (address, name) = line.trim().split_once(' ')?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let name = name.trim();
    (!name.is_empty()).then(|| (name.to_owned(), address >> 63 == 1))
}

fn is_start(name: &str) -> bool {
    [
        "__rust_begin_short_backtrace",
        "call_once{{vtable.shim}}",
        "thread_start",
        "start_thread",
        "clone3",
    ]
    .iter()
    .any(|start| name.contains(start))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const SCRIPT: &str = "\
reactor-0 \n\
\tffffffff821eb0e7 copy_to_user\n\
\t          28d1b7 a::poll<T>\n\
\t          31c114 a::round\n\
\t          327837 std::sys::backtrace::__rust_begin_short_backtrace\n\
\t          1098eb clone3\n\
\n\
reactor-0 \n\
\t          28d1b7 a::poll<T>\n\
\t          31c114 a::round\n\
\t          1098eb clone3\n\
\n\
control \n\
\t          28d1b7 elsewhere\n\
\n\
reactor-0 \n\
\t          28d1b7 a::flush\n\
\t          31c114 a::round\n\
\n";

    #[test]
    fn stacks_become_a_tree() {
        let tree = Tree::of_script(SCRIPT, "reactor");
        assert_eq!(tree.samples(), 3);
        let [round] = &tree.root.called[..] else {
            panic!("{tree:?}")
        };
        assert_eq!((round.name.as_str(), round.samples), ("a::round", 3));
        let [poll, flush] = &round.called[..] else {
            panic!("{tree:?}")
        };
        assert_eq!((poll.samples, flush.samples), (2, 1));
        assert!(poll.called[0].is_kernel && !poll.is_kernel);
        assert_eq!(
            tree.hottest(2),
            "  33.3 %  a::flush\n  33.3 %  a::poll<T>\n"
        );
    }

    #[test]
    fn no_samples_are_an_empty_tree() {
        assert_eq!(Tree::of_script("", "reactor").samples(), 0);
        assert_eq!(Tree::of_script("reactor-0 \n\n", "reactor").samples(), 0);
    }
}
