/// I/O queue of a controller, from [`Controller::io_queues`] or [`Controller::io_queue`].
///
/// A handle stays valid over reconnections. If the controller then grants fewer queues, submissions
/// to the missing queues fail.
///
/// [`Controller::io_queue`]: crate::Controller::io_queue
/// [`Controller::io_queues`]: crate::Controller::io_queues
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoQueue(u16);

impl IoQueue {
    /// First I/O queue, which every controller with I/O queues has.
    pub const FIRST: Self = Self(1);

    pub(crate) fn all(count: u16) -> impl ExactSizeIterator<Item = Self> + use<> {
        (0..count).map(|index| Self(index + 1))
    }

    pub(crate) fn in_rotation(turn: usize, count: u16) -> Self {
        Self(1 + (turn % usize::from(count.max(1))) as u16)
    }

    /// QID, at least 1.
    #[must_use]
    pub const fn qid(self) -> u16 {
        self.0
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}
