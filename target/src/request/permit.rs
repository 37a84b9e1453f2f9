//! The promise that a command is answered exactly once.

/// Taken when a command is accepted, and used up by its one end. Dropped
/// without one it panics: a command that vanishes hangs a host.
#[derive(Debug)]
#[must_use = "a command must be answered"]
pub(crate) struct Permit {
    cid: u16,
}

impl Permit {
    /// Takes on a command.
    pub(crate) fn new(cid: u16) -> Self {
        Self { cid }
    }

    /// Its response was posted.
    pub(crate) fn answered(self) {
        std::mem::forget(self);
    }

    /// The controller keeps its CID and has it answered later, by another request.
    pub(crate) fn parked(self) {
        std::mem::forget(self);
    }

    /// It waits in its capsule, and another request takes it on when it goes on.
    pub(crate) fn deferred(self) {
        std::mem::forget(self);
    }

    /// Its queue is gone, and no host waits for the answer.
    pub(crate) fn abandoned(self) {
        std::mem::forget(self);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("command {:#06x} was dropped unanswered", self.cid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_is_enough() {
        Permit::new(1).answered();
        Permit::new(2).parked();
        Permit::new(3).abandoned();
        Permit::new(4).deferred();
    }

    #[test]
    #[should_panic(expected = "command 0x0007 was dropped unanswered")]
    fn a_command_cannot_vanish() {
        drop(Permit::new(7));
    }
}
